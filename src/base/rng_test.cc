#include "base/rng.h"

#include <gtest/gtest.h>

namespace nereid {
namespace {

// Known-answer vectors published with the Random123 library for philox4x32-10.
TEST(Rng, KnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ull, ~0ull, ~0ull),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Rng, UniformIsInRangeAndBalanced) {
  double sum = 0;
  for (int i = 0; i < 100000; ++i) {
    const float u = uniform(42, i);
    ASSERT_GE(u, 0.0f);
    ASSERT_LT(u, 1.0f);
    sum += u;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 5 * 0.2887 / 316.2);
}

}  // namespace
}  // namespace nereid
