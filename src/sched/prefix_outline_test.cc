// Outline of the prefix tree: runs, holders, tiers, bounds.
#include <gmock/gmock.h>

#include "sched/block_pool.h"

namespace nereid::sched {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int32_t kTokens = 4;  // of a block

// [parent, tokens, blocks, holders, tier] of a run.
MATCHER_P5(IsRun, parent, tokens, blocks, holders, on_host, "") {
  return arg.parent == parent && arg.tokens == tokens && arg.blocks == blocks &&
         arg.holders == holders && arg.on_host == on_host;
}

class PrefixOutlineTest : public ::testing::Test {
 protected:
  explicit PrefixOutlineTest(int32_t num_blocks = 32, int32_t num_host_blocks = 0)
      : pool_({.groups = {{.num_blocks = num_blocks, .num_host_blocks = num_host_blocks}},
               .tokens_per_block = kTokens}) {}

  // Admits and computes a sequence with these tokens.
  BlockTable hold(const std::vector<TokenId>& tokens, std::string_view root = "") {
    std::vector<BlockKey> keys;
    BlockKey key = root_key(root);
    for (size_t i = 0; i + kTokens <= tokens.size(); i += kTokens)
      keys.push_back(key = block_key(key, TokenRun{tokens}.subrun(i, kTokens)));
    const auto size = static_cast<int32_t>(tokens.size());
    const Contents all{.root = root, .keys = keys, .tokens = tokens, .num_prompt = size};
    Contents matched = all;
    matched.tokens = matched.tokens.first(tokens.size() - 1);
    BlockTable table;
    EXPECT_TRUE(pool_.admit(table, pool_.match(matched), matched, {{size, 0}}));
    pool_.publish_tail(table, all, size);
    return table;
  }
  void run(const std::vector<TokenId>& tokens, std::string_view root = "",
           Release how = Release::kKeep) {
    BlockTable table = hold(tokens, root);
    pool_.release(table, how);
  }

  BlockPool pool_;
};

TEST_F(PrefixOutlineTest, OfAnEmptyTree) {
  const PrefixTreeOutline tree = pool_.outline();
  EXPECT_THAT(tree.runs, IsEmpty());
  EXPECT_EQ(tree.num_blocks, 0);
  EXPECT_EQ(tree.num_left_out, 0);
  EXPECT_EQ(tree.tokens_per_block, kTokens);
  EXPECT_LT(tree.age, 0);
}

TEST_F(PrefixOutlineTest, BlocksWithoutABranchAreOneRun) {
  run({1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  const PrefixTreeOutline tree = pool_.outline();
  EXPECT_THAT(tree.runs, ElementsAre(IsRun(-1, 10, 3, 0, false)));
  EXPECT_EQ(tree.num_blocks, 3);
}

TEST_F(PrefixOutlineTest, BranchesContinueTheirPrefixNewestFirst) {
  run({1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9});
  run({1, 2, 3, 4, 5, 6, 7, 8, 10, 10, 10, 10, 10, 10, 10, 10});
  run({20, 21, 22, 23});
  run({1, 2, 3, 4}, "salt");
  EXPECT_THAT(pool_.outline().runs,
              ElementsAre(IsRun(-1, 4, 1, 0, false),   // under the newest root
                          IsRun(-1, 4, 1, 0, false),   // newest of the other root
                          IsRun(-1, 8, 2, 0, false),   // the prefix that two prompts share
                          IsRun(2, 8, 2, 0, false),    // the second
                          IsRun(2, 4, 1, 0, false)));  // the first
}

TEST_F(PrefixOutlineTest, HoldersDivideARun) {
  BlockTable first = hold({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  EXPECT_THAT(pool_.outline().runs, ElementsAre(IsRun(-1, 12, 3, 1, false)));
  // The last token of a prompt is computed again, so the third block is not shared.
  BlockTable second = hold({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  EXPECT_THAT(pool_.outline().runs,
              ElementsAre(IsRun(-1, 8, 2, 2, false), IsRun(0, 4, 1, 1, false)));
  pool_.release(first, Release::kKeep);
  pool_.release(second, Release::kKeep);
  EXPECT_THAT(pool_.outline().runs, ElementsAre(IsRun(-1, 12, 3, 0, false)));
}

class PrefixOutlineHostTest : public PrefixOutlineTest {
 protected:
  PrefixOutlineHostTest() : PrefixOutlineTest(8, 2) {}
};

TEST_F(PrefixOutlineHostTest, TiersDivideARun) {
  run({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, "", Release::kOffload);
  EXPECT_THAT(pool_.outline().runs,
              ElementsAre(IsRun(-1, 8, 2, 0, true), IsRun(0, 4, 1, 0, false)));
}

class LargePrefixOutlineTest : public PrefixOutlineTest {
 protected:
  LargePrefixOutlineTest() : PrefixOutlineTest(2 * kMaxCachedBlocks) {}
};

TEST_F(LargePrefixOutlineTest, RunsAreBounded) {
  constexpr int32_t kPrompts = static_cast<int32_t>(kMaxCachedRuns) + 7;
  for (int32_t i = 0; i < kPrompts; ++i) run({5, 5, 5, 5, i, i, i, i});
  const PrefixTreeOutline tree = pool_.outline();
  EXPECT_EQ(tree.runs.size(), kMaxCachedRuns);
  EXPECT_EQ(tree.num_blocks, kPrompts + 1);
  EXPECT_EQ(tree.num_left_out, kPrompts + 1 - static_cast<int64_t>(kMaxCachedRuns));
}

TEST_F(LargePrefixOutlineTest, RootsAreBounded) {
  constexpr int32_t kRoots = static_cast<int32_t>(kMaxCachedRuns) + 7;
  for (int32_t i = 0; i < kRoots; ++i) run({5, 5, 5, 5}, std::to_string(i));
  const PrefixTreeOutline tree = pool_.outline();
  EXPECT_EQ(tree.runs.size(), kMaxCachedRuns);
  EXPECT_EQ(tree.num_left_out, 7);
}

TEST_F(LargePrefixOutlineTest, VisitedBlocksAreBounded) {
  run(std::vector<TokenId>(static_cast<size_t>((kMaxCachedBlocks + 9) * kTokens), 3));
  const PrefixTreeOutline tree = pool_.outline();
  EXPECT_THAT(tree.runs,
              ElementsAre(IsRun(-1, kMaxCachedBlocks * kTokens, kMaxCachedBlocks, 0, false)));
  EXPECT_EQ(tree.num_left_out, 9);
}

}  // namespace
}  // namespace nereid::sched
