// BlockPool: counts, reuse, eviction order, and hits that must not happen.
#include "sched/block_pool.h"

#include <gmock/gmock.h>

namespace nereid::sched {
namespace {

using ::testing::ElementsAre;

constexpr int kT = 4;

std::vector<TokenId> iota(int n, TokenId first = 0) {
  std::vector<TokenId> tokens(n);
  for (int i = 0; i < n; ++i) tokens[i] = first + i;
  return tokens;
}

PoolConfig config(int num_blocks) {
  return {.num_blocks = num_blocks, .tokens_per_block = kT, .enable_partial_reuse = false};
}

Contents text(std::span<const BlockKey> keys, const std::vector<TokenId>& tokens) {
  return {.keys = keys, .tokens = tokens};
}

TEST(BlockPool, AdmitsAllOrNothing) {
  BlockPool pool(config(4));
  BlockTable a, b;
  EXPECT_TRUE(pool.admit(a, {}, {}, 9, 1));
  EXPECT_EQ(a.blocks.size(), 3u);
  EXPECT_FALSE(pool.admit(b, {}, {}, 1, 1));
  EXPECT_TRUE(b.blocks.empty());
  EXPECT_FALSE(pool.reserve(a, 9, 17));
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_TRUE(pool.reserve(a, 9, 16));
  pool.check(4);
  pool.release(a, Release::kKeep);
  pool.check(0);
  EXPECT_EQ(pool.num_free(), 4);
}

TEST(BlockPool, FindsPublishedFullBlocksOnly) {
  BlockPool pool(config(8));
  const auto tokens = iota(11);
  const std::vector<BlockKey> keys = {10, 11};
  BlockTable a;
  ASSERT_TRUE(pool.admit(a, {}, {}, 11, 0));
  EXPECT_TRUE(pool.match(text(keys, tokens)).blocks.empty());
  pool.publish(a, text(keys, tokens), 7);
  EXPECT_THAT(pool.match(text(keys, tokens)).blocks, ElementsAre(a.blocks[0]));
  pool.publish(a, text(keys, tokens), 11);
  EXPECT_THAT(pool.match(text(keys, tokens)).blocks, ElementsAre(a.blocks[0], a.blocks[1]));
  BlockTable b;
  ASSERT_TRUE(pool.admit(b, pool.match(text(keys, tokens)), {}, 11, 0));
  EXPECT_EQ(b.blocks[1], a.blocks[1]);
  EXPECT_NE(b.blocks[2], a.blocks[2]);
  pool.check(6);
  EXPECT_EQ(pool.num_free(), 4);
}

TEST(BlockPool, FreedBlocksStayFindableUntilTaken) {
  BlockPool pool(config(3));
  const auto tokens = iota(12);
  const std::vector<BlockKey> keys = {1, 2, 3};
  BlockTable a, b;
  ASSERT_TRUE(pool.admit(a, {}, {}, 12, 0));
  const auto blocks = a.blocks;
  pool.publish(a, text(keys, tokens), 12);
  pool.release(a, Release::kKeep);
  EXPECT_EQ(pool.match(text(keys, tokens)).blocks, blocks);
  ASSERT_TRUE(pool.admit(b, {}, {}, 1, 0));
  EXPECT_EQ(b.blocks[0], blocks[2]) << "the tail of the prefix is evicted first";
  EXPECT_THAT(pool.match(text(keys, tokens)).blocks, ElementsAre(blocks[0], blocks[1]));
  pool.check(1);
}

TEST(BlockPool, HitIsNotEvictedByItsOwnAdmission) {
  BlockPool pool(config(3));
  const auto tokens = iota(12);
  const std::vector<BlockKey> keys = {1, 2};
  BlockTable a, b;
  ASSERT_TRUE(pool.admit(a, {}, {}, 8, 0));
  pool.publish(a, text(keys, tokens), 8);
  pool.release(a, Release::kKeep);
  const PrefixHit hit = pool.match(text(keys, tokens));
  EXPECT_FALSE(pool.admit(b, hit, {}, 12, 1));
  ASSERT_TRUE(pool.admit(b, hit, {}, 12, 0));
  EXPECT_THAT(b.blocks, ElementsAre(hit.blocks[0], hit.blocks[1], testing::_));
  EXPECT_NE(b.blocks[2], b.blocks[0]);
  EXPECT_NE(b.blocks[2], b.blocks[1]);
}

TEST(BlockPool, CollidingKeyIsNoHit) {
  BlockPool pool(config(4));
  const std::vector<BlockKey> keys = {1, 2};
  BlockTable a;
  ASSERT_TRUE(pool.admit(a, {}, {}, 8, 0));
  pool.publish(a, text(keys, iota(8)), 8);
  EXPECT_TRUE(pool.match(text(keys, iota(8, 100))).blocks.empty());
}

TEST(BlockPool, CollidingContentsAreNotPublishedAndNothingBehindThem) {
  BlockPool pool(config(4));
  const std::vector<BlockKey> keys = {1, 2};
  auto mine = iota(8), other = iota(8);
  other[0] = 99;  // a different first block under the same key; the second block is equal
  BlockTable a, b;
  ASSERT_TRUE(pool.admit(a, {}, {}, 8, 0));
  pool.publish(a, text(keys, mine), 8);
  ASSERT_TRUE(pool.admit(b, {}, {}, 8, 0));
  pool.publish(b, text(keys, other), 8);
  EXPECT_TRUE(pool.match(text(keys, other)).blocks.empty());
  EXPECT_EQ(pool.match(text(keys, mine)).blocks, a.blocks);
  pool.check(4);
}

TEST(BlockPool, FirstOfEqualContentsWinsAndChildrenChainToIt) {
  BlockPool pool(config(8));
  const auto tokens = iota(12);
  const std::vector<BlockKey> keys = {1, 2, 3};
  BlockTable a, b;
  ASSERT_TRUE(pool.admit(a, {}, {}, 8, 0));
  ASSERT_TRUE(pool.admit(b, {}, {}, 12, 0));
  pool.publish(a, text(keys, tokens), 8);
  pool.publish(b, text(keys, tokens), 12);
  EXPECT_THAT(pool.match(text(keys, tokens)).blocks,
              ElementsAre(a.blocks[0], a.blocks[1], b.blocks[2]));
  pool.release(b, Release::kKeep);
  pool.release(a, Release::kKeep);
  pool.check(0);
}

TEST(BlockPool, SuspectContentsAreForgotten) {
  BlockPool pool(config(4));
  const std::vector<BlockKey> keys = {1, 2};
  BlockTable a;
  ASSERT_TRUE(pool.admit(a, {}, {}, 8, 0));
  pool.publish(a, text(keys, iota(8)), 8);
  pool.release(a, Release::kForget);
  EXPECT_TRUE(pool.match(text(keys, iota(8))).blocks.empty());
  EXPECT_EQ(pool.num_cached(), 0);
  pool.check(0);
}

TEST(BlockPool, WithoutReuseNothingIsFound) {
  BlockPool pool({.num_blocks = 4, .tokens_per_block = kT, .enable_reuse = false});
  const std::vector<BlockKey> keys = {1, 2};
  BlockTable a;
  ASSERT_TRUE(pool.admit(a, {}, {}, 8, 0));
  pool.publish(a, text(keys, iota(8)), 8);
  EXPECT_TRUE(pool.match(text(keys, iota(8))).blocks.empty());
}

}  // namespace
}  // namespace nereid::sched
