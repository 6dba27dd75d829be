// Selection of drafts from candidate tokens.
#include "runtime/speculation/growing_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nereid::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Candidates = std::vector<TokenCandidate>;

constexpr int32_t kDeep = 100, kMany = 100;

struct Answer {
  std::vector<TokenId> drafts;
  std::vector<int32_t> parents;
};

Answer answer_of(const GrowingTree& tree) {
  Answer answer;
  tree.answer(answer.drafts, answer.parents);
  return answer;
}

TreeShape fixed(std::string_view text) { return {.fixed = parse_draft_tree(text).value()}; }

TEST(GrowingTree, ChainHasNoParents) {
  const TreeShape shape{.fixed = DraftTree::chain(3)};
  EXPECT_EQ(shape.num_branches(), 1);
  EXPECT_EQ(shape.num_ranks(), 1);
  GrowingTree tree(shape, kMany, kDeep);
  tree.add(GrowingTree::kRoot, Candidates{{7}, {8}});
  EXPECT_THAT(tree.next(), ElementsAre(0));
  tree.add(0, Candidates{{9}});
  EXPECT_THAT(tree.path(1), ElementsAre(7, 9));
  EXPECT_THAT(tree.next(), ElementsAre(1));
  tree.add(1, Candidates{{3}});
  EXPECT_THAT(tree.next(), IsEmpty());
  EXPECT_THAT(answer_of(tree).drafts, ElementsAre(7, 9, 3));
  EXPECT_THAT(answer_of(tree).parents, IsEmpty());
}

TEST(GrowingTree, EndsWhereNoMoreAreWanted) {
  const TreeShape shape{.fixed = DraftTree::chain(3)};
  GrowingTree few(shape, 1, kDeep), flat(shape, kMany, 1);
  for (GrowingTree* tree : {&few, &flat}) {
    tree->add(GrowingTree::kRoot, Candidates{{7}});
    EXPECT_THAT(tree->next(), IsEmpty());
    EXPECT_THAT(answer_of(*tree).drafts, ElementsAre(7));
  }
}

TEST(GrowingTree, FixedPlacesAreFilledInTheirOrder) {
  const TreeShape shape = fixed("{0}, {1}, {0, 1}, {1, 0}, {0, 1, 0}");
  EXPECT_EQ(shape.num_branches(), 2);
  EXPECT_EQ(shape.num_ranks(), 2);
  GrowingTree tree(shape, kMany, kDeep);
  tree.add(GrowingTree::kRoot, Candidates{{10}, {11}, {12}});
  EXPECT_THAT(tree.next(), ElementsAre(0, 1));
  tree.add(0, Candidates{{20}, {21}});
  tree.add(1, Candidates{{30}, {31}});
  ASSERT_THAT(tree.next(), ElementsAre(2));
  EXPECT_EQ(tree.depth(2), 2);
  tree.add(2, Candidates{{40}});
  EXPECT_THAT(answer_of(tree).drafts, ElementsAre(10, 11, 21, 30, 40));
  EXPECT_THAT(answer_of(tree).parents, ElementsAre(-1, -1, 0, 1, 2));
}

// Node i of every answer is the same place: the answer ends at a missing candidate.
TEST(GrowingTree, AnswerEndsAtAPlaceWithoutGuess) {
  const TreeShape shape = fixed("{0}, {1}, {0, 1}, {1, 0}");
  GrowingTree tree(shape, kMany, kDeep);
  tree.add(GrowingTree::kRoot, Candidates{{10}, {11}});
  tree.next();
  tree.add(0, Candidates{{20}});
  tree.add(1, Candidates{{30}});
  EXPECT_THAT(answer_of(tree).drafts, ElementsAre(10, 11));
}

TEST(GrowingTree, LikeliestGuessesAreExpandedAndKept) {
  const TreeShape shape{.top_k = 2, .depth = 3, .num_drafts = 4};
  EXPECT_EQ(shape.num_branches(), 2);
  GrowingTree tree(shape, kMany, kDeep);
  tree.add(GrowingTree::kRoot, Candidates{{10, -0.1f}, {11, -3}, {12, -4}});
  EXPECT_THAT(tree.next(), ElementsAre(0, 1));
  tree.add(0, Candidates{{20, -0.2f}, {21, -2}});
  tree.add(1, Candidates{{30, -0.1f}, {31, -5}});
  // Log-probabilities of paths: 30 has -3.1, 31 has -8 (behind 20: -0.3, 21: -2.1).
  EXPECT_THAT(tree.next(), ElementsAre(2, 3));
  tree.add(2, Candidates{{40, -0.5f}, {41, -2}});
  tree.add(3, Candidates{{50, -0.5f}, {51, -2}});
  EXPECT_THAT(tree.next(), IsEmpty()) << "it is three deep";
  EXPECT_THAT(answer_of(tree).drafts, ElementsAre(10, 20, 40, 21));
  EXPECT_THAT(answer_of(tree).parents, ElementsAre(-1, 0, 1, 0));
}

// Nodes that would not be tested are not expanded.
TEST(GrowingTree, OnlyWhatIsKeptIsExpanded) {
  const TreeShape shape{.top_k = 3, .depth = 5, .num_drafts = 30};
  GrowingTree tree(shape, 2, kDeep);
  tree.add(GrowingTree::kRoot, Candidates{{10, -0.1f}, {11, -3}, {12, -4}});
  EXPECT_THAT(tree.next(), ElementsAre(0, 1));
  tree.add(0, Candidates{{20, -1}});
  tree.add(1, Candidates{{30, -1}});
  EXPECT_THAT(tree.next(), ElementsAre(3));
}

// Equal probabilities: parents come first.
TEST(GrowingTree, ParentsComeFirst) {
  const TreeShape shape{.top_k = 1, .depth = 3, .num_drafts = 3};
  GrowingTree tree(shape, kMany, kDeep);
  tree.add(GrowingTree::kRoot, Candidates{{10, 0}});
  for (int32_t i = 0; i < 2; ++i) {
    ASSERT_THAT(tree.next(), ElementsAre(i));
    tree.add(i, Candidates{{11 + i, 0}});
  }
  EXPECT_THAT(answer_of(tree).parents, ElementsAre(-1, 0, 1));
}

}  // namespace
}  // namespace nereid::runtime
