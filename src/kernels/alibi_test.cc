// Slopes against the papers' code: all kernels share one formula.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/api/ops.h"

namespace nereid::kernels {
namespace {

TEST(Alibi, SlopesArePowersOfAFractionOfTheHeads) {
  const float eight[] = {.5f, .25f, .125f, .0625f, .03125f, .015625f, .0078125f, .00390625f};
  for (int32_t head = 0; head < 8; ++head) {
    EXPECT_EQ(alibi_slope(8, head, 8), eight[head]);
    EXPECT_EQ(alibi_slope(8, head, 12), eight[head]);  // largest power of two <= 12 is 8
  }
  EXPECT_EQ(alibi_slope(8, 0, 1), 0x1p-8f);
  EXPECT_EQ(alibi_slope(16, 1, 4), 0x1p-8f);
}

TEST(Alibi, HeadsBeyondAPowerOfTwoLieBetween) {
  const double powers[] = {-.5, -1.5, -2.5, -3.5};
  for (int32_t head = 8; head < 12; ++head)
    EXPECT_FLOAT_EQ(alibi_slope(8, head, 12), static_cast<float>(std::exp2(powers[head - 8])));
}

}  // namespace
}  // namespace nereid::kernels
