// Rope tables.
#include <gtest/gtest.h>

#include "models/traits.h"

namespace nereid::models {
namespace {

// Expected numbers: published formulas in double precision, computed independently.
TEST(RopeTable, Llama3) {
  RopeTraits rope{10000, RopeScaling::kLlama3, 8, 64, 1, 4};
  const io::RopeTable table = rope_table(rope, 16, 64);
  const float wanted[] = {1,        0.244384599f,    0.013042256f, 0.00395284708f,
                          0.00125f, 0.000395284708f, 0.000125f,    3.95284708e-05f};
  ASSERT_EQ(table.inverse_frequencies.size(), std::size(wanted));
  for (size_t i = 0; i < std::size(wanted); ++i)
    EXPECT_FLOAT_EQ(table.inverse_frequencies[i], wanted[i]);
  EXPECT_EQ(table.attention_factor, 1);
}

TEST(RopeTable, Yarn) {
  RopeTraits rope{10000, RopeScaling::kYarn, 4, 64};
  io::RopeTable table = rope_table(rope, 16, 64);
  const float wanted[] = {1,       0.237170825f,    0.05f,    0.00790569415f,
                          0.0025f, 0.000790569415f, 0.00025f, 7.90569415e-05f};
  for (size_t i = 0; i < std::size(wanted); ++i)
    EXPECT_FLOAT_EQ(table.inverse_frequencies[i], wanted[i]);
  EXPECT_FLOAT_EQ(table.attention_factor, 1.138629436f);
  rope.attention_factor = 1.5;
  EXPECT_EQ(rope_table(rope, 16, 64).attention_factor, 1.5f);
}

TEST(RopeTable, LongRopeDividesByTheLongestSequence) {
  const RopeTraits rope{.theta = 16,
                        .scaling = RopeScaling::kLongRope,
                        .factor = 4,
                        .original_positions = 64,
                        .attention_factor = 1.5,
                        .divisors = {1, 2},
                        .long_attention_factor = 2.5,
                        .long_divisors = {4, 8}};
  const auto expect = [&](int32_t context, float first, float second, float factor) {
    const io::RopeTable table = rope_table(rope, 4, context);
    EXPECT_EQ(table.inverse_frequencies, (std::vector<float>{first, second})) << context;
    EXPECT_EQ(table.attention_factor, factor) << context;
  };
  expect(32, 1, 0.125f, 1.5f);
  expect(64, 1, 0.125f, 1.5f);
  expect(65, 0.25f, 0.03125f, 2.5f);
}

}  // namespace
}  // namespace nereid::models
