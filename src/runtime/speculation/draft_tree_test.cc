// Draft trees as text.
#include "runtime/speculation/draft_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nereid::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Parent and rank of each node.
std::vector<std::pair<int, int>> nodes_of(std::string_view text) {
  const auto tree = parse_draft_tree(text);
  EXPECT_TRUE(tree.ok()) << tree.status();
  std::vector<std::pair<int, int>> nodes;
  if (!tree.ok()) return nodes;
  for (const DraftTree::Node& node : tree->nodes) {
    nodes.emplace_back(node.parent, node.rank);
    EXPECT_LT(node.parent, static_cast<int32_t>(nodes.size()) - 1);
    const int32_t above = node.parent < 0 ? 0 : tree->nodes[static_cast<size_t>(node.parent)].depth;
    EXPECT_EQ(node.depth, above + 1);
  }
  return nodes;
}

TEST(DraftTree, ParentsStandBeforeTheirChildren) {
  using Pair = std::pair<int, int>;
  EXPECT_THAT(nodes_of("{0}, {0, 0}, {1}"), ElementsAre(Pair{-1, 0}, Pair{0, 0}, Pair{-1, 1}));
  EXPECT_THAT(nodes_of("{0, 2, 1},{3},\n {0},{ 0,2 } , "),
              ElementsAre(Pair{-1, 0}, Pair{0, 2}, Pair{1, 1}, Pair{-1, 3}));
}

TEST(DraftTree, AChainIsTold) {
  EXPECT_TRUE(parse_draft_tree("{0}, {0, 0}, {0, 0, 0}")->is_chain());
  EXPECT_FALSE(parse_draft_tree("{0}, {0, 1}")->is_chain());
  EXPECT_FALSE(parse_draft_tree("{0}, {1}")->is_chain());
  EXPECT_TRUE(DraftTree::chain(3).is_chain());
  EXPECT_EQ(DraftTree::chain(3).depth(), 3);
  EXPECT_THAT(DraftTree::chain(0).nodes, IsEmpty());
}

TEST(DraftTree, WhatIsNoTreeIsRefused) {
  std::string many;
  for (int i = 0; i < 32; ++i) many += "{" + std::to_string(i) + "}, ";
  EXPECT_TRUE(parse_draft_tree(many).ok());
  std::string most = many;
  for (int i = 0; i < 32; ++i) most += "{0, " + std::to_string(i) + "}, ";
  EXPECT_TRUE(parse_draft_tree(most).ok()) << "64";
  const std::pair<std::string, const char*> cases[] = {
      {"", "has no nodes"},
      {" , ", "expected '{' at character 2"},
      {"{}", "ranks from 0 to 31 at character 2"},
      {"{0}, {32}", "ranks from 0 to 31"},
      {"{-1}", "ranks from 0 to 31 at character 2"},
      {"{99999999999999}", "ranks from 0 to 31"},
      {"{0} {1}", "expected ','"},
      {"{0, 0", "expected '}'"},
      {"[0]", "expected '{' at character 1"},
      {"{0}, {1, 0}", "{1, 0} has no parent {1}"},
      {"{0}, {0}", "{0} appears twice"},
      {most + "{1, 0}", "more than 64 nodes"},
  };
  for (const auto& [text, expected] : cases)
    EXPECT_THAT(parse_draft_tree(text).status().ToString(), HasSubstr(expected)) << text;
}

}  // namespace
}  // namespace nereid::runtime
