#include "cli/process/address_space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nereid::cli {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(AddressSpace, ALimitMustLeaveRoomForRequests) {
  const size_t needed = address_space_to_serve(2);
  EXPECT_GT(address_space_to_serve(8), needed);
  EXPECT_TRUE(check_address_space({std::nullopt, 600 * kMiB}, 2).ok());
  EXPECT_TRUE(check_address_space({600 * kMiB + needed, 600 * kMiB}, 2).ok());
  const Status status = check_address_space({700 * kMiB, 600 * kMiB}, 2);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(message(status)),
              testing::HasSubstr("of 700 MiB is too small: 600 MiB are used"));
  EXPECT_FALSE(check_address_space({500 * kMiB, 600 * kMiB}, 2).ok()) << "a limit set later";
}

TEST(AddressSpace, ThisProcessUsesSome) { EXPECT_GT(address_space().used, kMiB); }

}  // namespace
}  // namespace nereid::cli
