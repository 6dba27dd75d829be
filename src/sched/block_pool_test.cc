// BlockPool: references - counts, whole-block reuse, forks, windows, and false hits.
#include "sched/block_pool.h"

#include <gmock/gmock.h>

namespace nereid::sched {
namespace {

using ::testing::ElementsAre;

constexpr int kPoolBlock = 4;

std::vector<TokenId> iota(int n, TokenId first = 0) {
  std::vector<TokenId> tokens(n);
  for (int i = 0; i < n; ++i) tokens[i] = first + i;
  return tokens;
}

// The blocks of group 0.
const std::vector<BlockId>& held(const BlockTable& table) { return table.groups[0].blocks; }

PoolConfig config(int num_blocks) {
  return {.groups = {{.num_blocks = num_blocks}},
          .tokens_per_block = kPoolBlock,
          .enable_partial_reuse = false};
}

Contents text(std::span<const BlockKey> keys, const std::vector<TokenId>& tokens) {
  return {.keys = keys, .tokens = tokens};
}

TEST(BlockPool, AdmitsAllOrNothing) {
  BlockPool pool(config(4));
  BlockTable a, b;
  EXPECT_TRUE(pool.admit(a, {}, {}, {{9, 1}}));
  EXPECT_EQ(held(a).size(), 3u);
  EXPECT_FALSE(pool.admit(b, {}, {}, {{1, 1}}));
  EXPECT_TRUE(b.empty());
  EXPECT_FALSE(pool.reserve(a, 9, 17));
  EXPECT_EQ(pool.num_free(0), 1);
  EXPECT_TRUE(pool.reserve(a, 9, 16));
  pool.check(4);
  pool.release(a, Release::kKeep);
  pool.check(0);
  EXPECT_EQ(pool.num_free(0), 4);
}

TEST(BlockPool, FindsPublishedFullBlocksOnly) {
  BlockPool pool(config(8));
  const auto tokens = iota(11);
  const std::vector<BlockKey> keys = {10, 11};
  BlockTable a;
  ASSERT_TRUE(pool.admit(a, {}, {}, {{11, 0}}));
  EXPECT_TRUE(pool.match(text(keys, tokens)).blocks.empty());
  pool.publish(a, text(keys, tokens), 7);
  EXPECT_THAT(pool.match(text(keys, tokens)).blocks, ElementsAre(held(a)[0]));
  pool.publish(a, text(keys, tokens), 11);
  EXPECT_THAT(pool.match(text(keys, tokens)).blocks, ElementsAre(held(a)[0], held(a)[1]));
  BlockTable b;
  ASSERT_TRUE(pool.admit(b, pool.match(text(keys, tokens)), {}, {{11, 0}}));
  EXPECT_EQ(held(b)[1], held(a)[1]);
  EXPECT_NE(held(b)[2], held(a)[2]);
  pool.check(6);
  EXPECT_EQ(pool.num_free(0), 4);
}

TEST(BlockPool, FreedBlocksStayFindableUntilTaken) {
  BlockPool pool(config(3));
  const auto tokens = iota(12);
  const std::vector<BlockKey> keys = {1, 2, 3};
  BlockTable a, b;
  ASSERT_TRUE(pool.admit(a, {}, {}, {{12, 0}}));
  const auto blocks = held(a);
  pool.publish(a, text(keys, tokens), 12);
  pool.release(a, Release::kKeep);
  EXPECT_EQ(pool.match(text(keys, tokens)).blocks, blocks);
  ASSERT_TRUE(pool.admit(b, {}, {}, {{1, 0}}));
  EXPECT_EQ(held(b)[0], blocks[2]) << "the tail of the prefix is evicted first";
  EXPECT_THAT(pool.match(text(keys, tokens)).blocks, ElementsAre(blocks[0], blocks[1]));
  pool.check(1);
}

TEST(BlockPool, HitIsNotEvictedByItsOwnAdmission) {
  BlockPool pool(config(3));
  const auto tokens = iota(12);
  const std::vector<BlockKey> keys = {1, 2};
  BlockTable a, b;
  ASSERT_TRUE(pool.admit(a, {}, {}, {{8, 0}}));
  pool.publish(a, text(keys, tokens), 8);
  pool.release(a, Release::kKeep);
  const PrefixHit hit = pool.match(text(keys, tokens));
  EXPECT_FALSE(pool.admit(b, hit, {}, {{12, 1}}));
  ASSERT_TRUE(pool.admit(b, hit, {}, {{12, 0}}));
  EXPECT_THAT(held(b), ElementsAre(hit.blocks[0], hit.blocks[1], testing::_));
  EXPECT_NE(held(b)[2], held(b)[0]);
  EXPECT_NE(held(b)[2], held(b)[1]);
}

TEST(BlockPool, CollidingKeyIsNoHit) {
  BlockPool pool(config(4));
  const std::vector<BlockKey> keys = {1, 2};
  BlockTable a;
  ASSERT_TRUE(pool.admit(a, {}, {}, {{8, 0}}));
  pool.publish(a, text(keys, iota(8)), 8);
  EXPECT_TRUE(pool.match(text(keys, iota(8, 100))).blocks.empty());
}

TEST(BlockPool, CollidingContentsAreNotPublishedAndNothingBehindThem) {
  BlockPool pool(config(4));
  const std::vector<BlockKey> keys = {1, 2};
  auto mine = iota(8), other = iota(8);
  other[0] = 99;  // a different first block under the same key; the second block is equal
  BlockTable a, b;
  ASSERT_TRUE(pool.admit(a, {}, {}, {{8, 0}}));
  pool.publish(a, text(keys, mine), 8);
  ASSERT_TRUE(pool.admit(b, {}, {}, {{8, 0}}));
  pool.publish(b, text(keys, other), 8);
  EXPECT_TRUE(pool.match(text(keys, other)).blocks.empty());
  EXPECT_EQ(pool.match(text(keys, mine)).blocks, held(a));
  pool.check(4);
}

TEST(BlockPool, FirstOfEqualContentsWinsAndChildrenChainToIt) {
  BlockPool pool(config(8));
  const auto tokens = iota(12);
  const std::vector<BlockKey> keys = {1, 2, 3};
  BlockTable a, b;
  ASSERT_TRUE(pool.admit(a, {}, {}, {{8, 0}}));
  ASSERT_TRUE(pool.admit(b, {}, {}, {{12, 0}}));
  pool.publish(a, text(keys, tokens), 8);
  pool.publish(b, text(keys, tokens), 12);
  EXPECT_THAT(pool.match(text(keys, tokens)).blocks,
              ElementsAre(held(a)[0], held(a)[1], held(b)[2]));
  pool.release(b, Release::kKeep);
  pool.release(a, Release::kKeep);
  pool.check(0);
}

TEST(BlockPool, SuspectContentsAreForgotten) {
  BlockPool pool(config(4));
  const std::vector<BlockKey> keys = {1, 2};
  BlockTable a;
  ASSERT_TRUE(pool.admit(a, {}, {}, {{8, 0}}));
  pool.publish(a, text(keys, iota(8)), 8);
  pool.release(a, Release::kForget);
  EXPECT_TRUE(pool.match(text(keys, iota(8))).blocks.empty());
  EXPECT_EQ(pool.num_cached(), 0);
  pool.check(0);
}

TEST(BlockPool, WithoutReuseNothingIsFound) {
  BlockPool pool(
      {.groups = {{.num_blocks = 4}}, .tokens_per_block = kPoolBlock, .enable_reuse = false});
  const std::vector<BlockKey> keys = {1, 2};
  BlockTable a;
  ASSERT_TRUE(pool.admit(a, {}, {}, {{8, 0}}));
  pool.publish(a, text(keys, iota(8)), 8);
  EXPECT_TRUE(pool.match(text(keys, iota(8))).blocks.empty());
}

TEST(BlockPool, OneBlocksEvictionTakesAllBehindItAlong) {
  BlockPool pool(config(4));
  const std::vector<BlockKey> keys = {1, 2, 3};
  const auto tokens = iota(12);
  BlockTable a, b, c;
  ASSERT_TRUE(pool.admit(a, {}, {}, {{4, 0}}));
  pool.publish(a, text(keys, tokens), 4);
  ASSERT_TRUE(pool.admit(b, {}, {}, {{12, 0}}));
  pool.publish(b, text(keys, tokens), 12);  // behind a's first block
  pool.release(a, Release::kKeep);
  EXPECT_EQ(pool.num_cached(), 3);
  ASSERT_TRUE(pool.admit(c, {}, {}, {{4, 0}}));
  EXPECT_EQ(pool.num_cached(), 0);
  // b publishes its own blocks of these contents.
  pool.publish(b, text(keys, tokens), 12);
  EXPECT_EQ(pool.match(text(keys, tokens)).blocks, held(b));
  pool.check(4);
}

TEST(BlockPool, RootsShareNothing) {
  BlockPool pool(config(8));
  const std::vector<BlockKey> keys = {7, 8};
  const auto tokens = iota(8);
  const auto under = [&](std::string_view root, std::span<const BlockKey> k) {
    return Contents{.root = root, .keys = k, .tokens = tokens};
  };
  BlockTable red, blue;
  ASSERT_TRUE(pool.admit(red, {}, {}, {{8, 0}}));
  pool.publish(red, under("red", keys), 8);
  EXPECT_EQ(pool.match(under("red", keys)).blocks, held(red));
  EXPECT_TRUE(pool.match(under("", keys)).blocks.empty());
  EXPECT_TRUE(pool.match(under("blue", keys)).blocks.empty()) << "equal keys are no proof";
  ASSERT_TRUE(pool.admit(blue, {}, {}, {{8, 0}}));
  const std::vector<BlockKey> others = {9, 10};
  pool.publish(blue, under("blue", others), 8);
  EXPECT_EQ(pool.match(under("blue", others)).blocks, held(blue));
  EXPECT_TRUE(pool.match(under("red", others)).blocks.empty());
  pool.check(4);
}

TEST(BlockPool, RootOfAnotherSaltHidesPartialMatchesToo) {
  BlockPool pool({.groups = {{.num_blocks = 4}}, .tokens_per_block = kPoolBlock});
  const auto tokens = iota(3);
  BlockTable a;
  ASSERT_TRUE(pool.admit(a, {}, {}, {{3, 0}}));
  pool.publish_tail(a, {.root = "red", .tokens = tokens}, 3);
  EXPECT_EQ(pool.match({.root = "red", .tokens = tokens}).num_tokens, 3);
  EXPECT_EQ(pool.match({.root = "re", .tokens = tokens}).num_tokens, 0);
  EXPECT_EQ(pool.match({.tokens = tokens}).num_tokens, 0);
}

TEST(BlockPool, ForksShareBlocksUntilOneWrites) {
  BlockPool pool(config(8));
  BlockTable a;
  ASSERT_TRUE(pool.admit(a, {}, {}, {{6, 0}}));
  BlockTable b = pool.fork(a, 6);
  EXPECT_EQ(held(b), held(a));
  EXPECT_EQ(pool.num_free(0), 6);
  ASSERT_TRUE(pool.reserve(b, 6, 7));
  EXPECT_EQ(held(b)[0], held(a)[0]) << "full blocks are never written again";
  EXPECT_NE(held(b)[1], held(a)[1]);
  EXPECT_THAT(pool.take_copies(), ElementsAre(PlanCopy{held(a)[1], held(b)[1]}));
  const BlockId last = held(a)[1];
  ASSERT_TRUE(pool.reserve(a, 6, 9));
  EXPECT_EQ(held(a)[1], last) << "the last holder writes in place";
  EXPECT_TRUE(pool.take_copies().empty());
  pool.check(5);
  pool.release(a, Release::kKeep);
  pool.release(b, Release::kKeep);
  pool.check(0);
}

TEST(BlockPool, ForkOfAShorterPrefixKnowsItsPublishedPart) {
  BlockPool pool(config(8));
  const std::vector<BlockKey> keys = {1, 2, 3};
  const auto tokens = iota(12);
  BlockTable a;
  ASSERT_TRUE(pool.admit(a, {}, {}, {{12, 0}}));
  pool.publish(a, text(keys, tokens), 12);
  BlockTable b = pool.fork(a, 7);
  EXPECT_EQ(b.num_published, 1);
  ASSERT_TRUE(pool.reserve(b, 7, 12));
  const auto before = pool.take_copies();
  EXPECT_THAT(before, ElementsAre(PlanCopy{held(a)[1], held(b)[1]}));
  auto other = tokens;
  other[7] = 99;
  const std::vector<BlockKey> other_keys = {1, 22, 33};
  pool.publish(b, text(other_keys, other), 12);
  EXPECT_EQ(pool.match(text(other_keys, other)).blocks, held(b));
  EXPECT_EQ(pool.match(text(keys, tokens)).blocks, held(a));
  pool.check(6);
}

TEST(BlockPool, APublishedBlockIsForgottenBeforeItsLastHolderWritesIt) {
  BlockPool pool(config(2));
  const std::vector<BlockKey> keys = {1, 2};
  const auto tokens = iota(8);
  BlockTable a;
  ASSERT_TRUE(pool.admit(a, {}, {}, {{8, 0}}));
  pool.publish(a, text(keys, tokens), 8);
  BlockTable b = pool.fork(a, 7);
  pool.release(a, Release::kKeep);
  EXPECT_EQ(pool.match(text(keys, tokens)).num_tokens, 8);
  ASSERT_TRUE(pool.reserve(b, 7, 8));
  EXPECT_EQ(pool.match(text(keys, tokens)).num_tokens, 4);
  pool.check(2);
}

TEST(BlockPool, ATailNeverReplacesMoreInItsOwnBlock) {
  BlockPool pool({.groups = {{.num_blocks = 64}}, .tokens_per_block = kPoolBlock});
  auto tokens = iota(8);
  BlockTable a;
  ASSERT_TRUE(pool.admit(a, {}, {}, {{8, 0}}));
  const std::vector<BlockKey> keys = {1, 2};
  pool.publish(a, text(keys, tokens), 8);
  for (int i = 0; i < PrefixTree::kMaxSiblings; ++i) {  // more siblings than a search compares
    auto other = tokens;
    other[4] = 100 + i;
    const std::vector<BlockKey> other_keys = {1, 100 + static_cast<BlockKey>(i)};
    BlockTable c;
    ASSERT_TRUE(pool.admit(c, pool.match(text(keys, {0, 1, 2, 3})), {}, {{8, 0}}));
    pool.publish(c, text(other_keys, other), 8);
    pool.release(c, Release::kKeep);
  }
  BlockTable b = pool.fork(a, 7);
  tokens.resize(7);
  pool.publish_tail(b, text(keys, tokens), 7);
  EXPECT_EQ(pool.match(text(keys, iota(8))).blocks, held(a));
  pool.check(4);
}

TEST(BlockPool, CopyOnWriteIsAllOrNothing) {
  BlockPool pool(config(2));
  BlockTable a;
  ASSERT_TRUE(pool.admit(a, {}, {}, {{6, 0}}));
  BlockTable b = pool.fork(a, 6);
  EXPECT_FALSE(pool.reserve(b, 6, 7));
  EXPECT_EQ(held(b), held(a));
  EXPECT_TRUE(pool.take_copies().empty());
  pool.check(4);
}

TEST(BlockPool, WindowGivesFrontBlocksBackAndStopsPublishing) {
  PoolConfig windowed = config(8);
  windowed.groups[0].window = 6;
  windowed.groups[0].sink = 3;
  BlockPool pool(windowed);
  const std::vector<BlockKey> keys = {1, 2, 3, 4};
  const auto tokens = iota(16);
  BlockTable a;
  ASSERT_TRUE(pool.admit(a, {}, {}, {{16, 0}}));
  const auto blocks = held(a);
  pool.publish(a, text(keys, tokens), 4);
  pool.drop_unseen(a, 16);
  EXPECT_THAT(held(a), ElementsAre(blocks[0], kNoBlock, blocks[2], blocks[3]));
  EXPECT_EQ(pool.num_free(0), 5);
  pool.publish(a, text(keys, tokens), 16);
  pool.publish_tail(a, text(keys, tokens), 16);
  EXPECT_THAT(pool.match(text(keys, tokens)).blocks, ElementsAre(blocks[0]));
  pool.check(3);
  BlockTable b = pool.fork(a, 16);
  pool.check(6);
  pool.release(a, Release::kKeep);
  pool.release(b, Release::kOffload);
  pool.check(0);
}

// A group without a window, and one with a window of 6.
PoolConfig mixed(int full, int windowed) {
  PoolConfig two = config(full);
  two.groups.push_back({.num_blocks = windowed, .window = 6});
  return two;
}

TEST(BlockGroups, AWindowGivesBlocksBackWhateverItsNeighboursDo) {
  BlockPool pool(mixed(8, 8));
  const std::vector<BlockKey> keys = {1, 2, 3, 4};
  const auto tokens = iota(16);
  BlockTable a;
  ASSERT_TRUE(pool.admit(a, {}, {}, {{16, 0}, {16, 0}}));
  pool.publish(a, text(keys, tokens), 16);
  const auto windowed = a.groups[1].blocks;
  pool.drop_unseen(a, 13);  // attends to positions >= 8
  EXPECT_THAT(a.groups[1].blocks, ElementsAre(kNoBlock, kNoBlock, windowed[2], windowed[3]));
  EXPECT_FALSE(a.groups[0].has_holes);
  EXPECT_EQ(pool.num_free(0), 4);
  EXPECT_EQ(pool.num_free(1), 6);
  EXPECT_EQ(pool.match(text(keys, tokens)).num_tokens, 16);
  pool.check(6);
}

TEST(BlockGroups, AHitTakesOfAWindowOnlyWhatItSees) {
  BlockPool pool(mixed(8, 8));
  const std::vector<BlockKey> keys = {1, 2, 3, 4};
  const auto tokens = iota(16);
  BlockTable a, b;
  ASSERT_TRUE(pool.admit(a, {}, {}, {{16, 0}, {16, 0}}));
  pool.publish(a, text(keys, tokens), 16);
  ASSERT_TRUE(pool.admit(b, pool.match(text(keys, tokens)), {}, {{17, 0}, {17, 0}}));
  EXPECT_THAT(b.groups[1].blocks, ElementsAre(kNoBlock, kNoBlock, a.groups[1].blocks[2],
                                              a.groups[1].blocks[3], testing::Ne(kNoBlock)));
  EXPECT_EQ(b.groups[0].blocks[0], a.groups[0].blocks[0]);
  pool.check(8 + 5 + 3);
  pool.release(a, Release::kKeep);
  pool.release(b, Release::kKeep);
  pool.check(0);
}

TEST(BlockGroups, AHitEndsWhereEveryGroupCanGoOn) {
  BlockPool pool(mixed(16, 4));
  const std::vector<BlockKey> keys = {1, 2, 3, 4};
  const auto tokens = iota(16);
  BlockTable a, b;
  ASSERT_TRUE(pool.admit(a, {}, {}, {{16, 0}, {16, 0}}));
  pool.publish(a, text(keys, tokens), 16);
  pool.release(a, Release::kKeep);
  // The windowed group's last two blocks of the prefix are evicted.
  ASSERT_TRUE(pool.admit(b, {}, {}, {{8, 0}, {8, 0}}));
  EXPECT_EQ(pool.num_cached(), 4) << "group 0 still has them all";
  EXPECT_EQ(pool.match(text(keys, tokens)).num_tokens, 8);
  // Another sequence with the same contents fills the gap.
  BlockTable c;
  pool.release(b, Release::kKeep);
  ASSERT_TRUE(pool.admit(c, pool.match(text(keys, tokens)), {}, {{16, 0}, {16, 0}}));
  pool.publish(c, text(keys, tokens), 16);
  EXPECT_EQ(pool.match(text(keys, tokens)).num_tokens, 16);
  pool.check(4 + 4);
}

TEST(BlockGroups, AllOfThemMustHaveRoom) {
  BlockPool pool(mixed(8, 2));
  BlockTable a;
  EXPECT_FALSE(pool.admit(a, {}, {}, {{9, 0}, {9, 0}}));
  EXPECT_TRUE(a.empty());
  ASSERT_TRUE(pool.admit(a, {}, {}, {{9, 0}, {8, 0}}));
  EXPECT_FALSE(pool.reserve(a, 8, 9));
  pool.drop_unseen(a, 9);
  EXPECT_TRUE(pool.reserve(a, 9, 10));
  EXPECT_EQ(pool.num_free(0), 5);
  pool.check(3 + 2);
}

TEST(BlockGroups, ABlockOfGroup0TakesTheOthersAlong) {
  BlockPool pool(mixed(4, 8));
  const std::vector<BlockKey> keys = {1, 2, 3, 4};
  BlockTable a, b;
  ASSERT_TRUE(pool.admit(a, {}, {}, {{16, 0}, {16, 0}}));
  pool.publish(a, text(keys, iota(16)), 16);
  pool.release(a, Release::kKeep);
  ASSERT_TRUE(pool.admit(b, {}, {}, {{4, 0}, {4, 0}}));
  EXPECT_EQ(pool.num_cached(), 3);
  EXPECT_EQ(pool.match(text(keys, iota(16))).num_tokens, 12);
  pool.check(2);
}

TEST(BlockPool, NothingIsTrustedAfterADeviceFailure) {
  BlockPool pool(config(8));
  const std::vector<BlockKey> keys = {1, 2};
  const auto tokens = iota(8);
  BlockTable a, b;
  ASSERT_TRUE(pool.admit(a, {}, {}, {{8, 0}}));
  pool.publish(a, text(keys, tokens), 4);
  pool.forget_everything();
  pool.publish(a, text(keys, tokens), 8);
  EXPECT_EQ(pool.num_cached(), 0) << "a still holds its tainted blocks";
  BlockTable copy = pool.fork(a, 3);
  ASSERT_TRUE(pool.reserve(copy, 3, 4));
  pool.publish(copy, text(keys, tokens), 4);
  EXPECT_EQ(pool.num_cached(), 0) << "a copy is as tainted";
  pool.release(a, Release::kKeep);
  pool.release(copy, Release::kKeep);
  ASSERT_TRUE(pool.admit(b, {}, {}, {{8, 0}}));
  pool.publish(b, text(keys, tokens), 8);
  EXPECT_EQ(pool.num_cached(), 2) << "blocks computed anew are trusted";
  pool.check(2);
}

}  // namespace
}  // namespace nereid::sched
