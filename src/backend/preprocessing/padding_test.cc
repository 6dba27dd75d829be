// The padding of short rows beside one long row is bounded.
#include "backend/preprocessing/padding.h"

#include <gtest/gtest.h>

namespace nereid::backend {
namespace {

TEST(Padding, LongRowsAmongThemselvesHaveNone) {
  EXPECT_TRUE(check_padding("INPUT_ID", 512, 1 << 20, size_t{512} << 20).ok());
  EXPECT_TRUE(check_padding("INPUT_ID", 128, 1 << 18, 1 << 18).ok());
}

TEST(Padding, ARowOfMillionsBesideShortOnesIsRefusedWithTheNumbers) {
  const size_t long_row = 5 << 20;
  const Status refused = check_padding("INPUT_ID", 32, long_row, long_row + 31);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(message(refused).find("162529249 of 32 x 5242880 elements would be padding, at most "
                                  "33554432 are allowed"),
            std::string_view::npos)
      << refused;
}

}  // namespace
}  // namespace nereid::backend
