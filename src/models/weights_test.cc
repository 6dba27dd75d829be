// Sharded weight rules, and rope tables.
#include "models/weights.h"

#include <gmock/gmock.h>

#include "models/traits.h"

namespace nereid::models {
namespace {

using testing::HasSubstr;

// Eight query heads and two KV heads of 64.
Traits shared_traits() {
  Traits t;
  t.vocab_size = 1000, t.hidden_size = 512, t.intermediate_size = 1536;
  t.num_heads = 8, t.num_kv_heads = 2, t.head_dim = 64;
  return t;
}

std::string shard_text(const WeightRule& rule, int32_t ranks,
                       const kernels::WeightFormat& format = {}, int64_t experts = 1) {
  const auto size = shard_size(rule, shared_traits(), format, ranks, experts);
  if (!size.ok()) return std::string(message(size.status()));
  return fmt::format("[{}, {}, {}]", size->experts, size->n, size->k);
}

TEST(WeightRule, IsDividedAlongItsAxis) {
  const WeightRule norm = {"norm", "", Dim::kHidden};
  const WeightRule embed = {"embed", "", Dim::kVocab, Dim::kHidden, ShardAxis::kN};
  const WeightRule q = {"q", "", Dim::kQuery, Dim::kHidden, ShardAxis::kHeads};
  const WeightRule k = {"k", "", Dim::kKeyValue, Dim::kHidden, ShardAxis::kHeads};
  const WeightRule qkv = {"qkv", "", Dim::kQueryKeyValue, Dim::kHidden, ShardAxis::kHeads};
  const WeightRule out = {"out", "", Dim::kHidden, Dim::kQuery, ShardAxis::kHeads};
  const WeightRule gate_up = {"gate_up", "", Dim::kGateUp, Dim::kHidden, ShardAxis::kN};
  const WeightRule experts = {"experts", "", Dim::kIntermediate, Dim::kHidden, ShardAxis::kExperts};
  EXPECT_EQ(shard_text(norm, 3), "[1, 512, 1]");
  EXPECT_EQ(shard_text(embed, 4), "[1, 250, 512]");
  EXPECT_THAT(shard_text(embed, 3), HasSubstr("weight 'embed' [1, 1000, 512] of bf16: rows cannot "
                                              "be divided among 3 ranks"));
  EXPECT_EQ(shard_text(gate_up, 4), "[1, 768, 512]");
  EXPECT_THAT(shard_text(gate_up, 3072), HasSubstr("rows cannot be divided"));  // each half is 1536
  EXPECT_EQ(shard_text(q, 4), "[1, 128, 512]");
  EXPECT_EQ(shard_text(k, 2), "[1, 64, 512]");
  EXPECT_EQ(shard_text(k, 8), "[1, 64, 512]");  // each head on four ranks
  EXPECT_THAT(shard_text(k, 3), HasSubstr("heads cannot be divided among 3 ranks"));
  EXPECT_EQ(shard_text(qkv, 4), "[1, 256, 512]");
  EXPECT_EQ(shard_text(out, 4), "[1, 512, 128]");
  EXPECT_THAT(shard_text(out, 16), HasSubstr("heads cannot be divided"));
  EXPECT_EQ(shard_text(experts, 4, {}, 8), "[2, 1536, 512]");
  EXPECT_THAT(shard_text(experts, 3, {}, 8), HasSubstr("experts cannot be divided"));
  EXPECT_THAT(shard_text(embed, 0), HasSubstr("cannot be divided among 0 ranks"));
}

// A rank's columns begin at a group border, because scales are per group.
TEST(WeightRule, ColumnsAreCutBetweenGroups) {
  const WeightRule down = {"down", "", Dim::kHidden, Dim::kIntermediate, ShardAxis::kK};
  const WeightRule out = {"out", "", Dim::kHidden, Dim::kQuery, ShardAxis::kHeads};
  const WeightRule up = {"up", "", Dim::kIntermediate, Dim::kHidden, ShardAxis::kN};
  EXPECT_EQ(shard_text(down, 8), "[1, 512, 192]");
  EXPECT_EQ(shard_text(down, 8, kernels::kInt8PerRow), "[1, 512, 192]");
  EXPECT_EQ(shard_text(down, 4, kernels::kInt4Groups), "[1, 512, 384]");
  EXPECT_THAT(shard_text(down, 8, kernels::kInt4Groups),
              HasSubstr("weight 'down' [1, 512, 1536] of int4 in groups of 128: columns in groups "
                        "of 128 cannot be divided among 8 ranks"));
  EXPECT_EQ(shard_text(out, 4, kernels::kInt4Groups), "[1, 512, 128]");
  EXPECT_THAT(shard_text(out, 8, kernels::kInt4Groups), HasSubstr("groups of 128"));
  EXPECT_EQ(shard_text(up, 8, kernels::kInt4Groups), "[1, 192, 512]");
}

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
