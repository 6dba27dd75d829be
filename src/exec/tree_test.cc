// Rows with a draft tree against rows with one of its paths, on every instruction set.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "base/testing/source_dir.h"
#include "exec/kernels_fixture.h"
#include "exec/test_engine.h"
#include "exec/test_harness.h"
#include "exec/tree_fixture.h"
#include "kernels/open.h"

namespace nereid::exec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Relative to a row's spread: five times the effect of rounding product inputs to bf16.
constexpr double kTreeTolerance = 0.08;

// Each node of a tree equals the end of a row with its path: the same bits, or logits within
// `tolerance` of their spread.
void expect_nodes_equal_paths(TreeRunner& runner, double tolerance = 0) {
  const int32_t longest = runner.max_length() - 20;
  for (const int32_t length : std::set{1, 17, std::min(60, longest), longest}) {
    SCOPED_TRACE(length);
    const auto nodes = runner.nodes_after(length);
    ASSERT_TRUE(nodes.ok()) << nodes.status();
    ASSERT_EQ(nodes->in_tree.size(), 8u);
    for (size_t i = 0; i < 8; ++i) {
      const std::vector<float>&got = nodes->in_tree[i], &expected = nodes->alone[i];
      if (tolerance == 0) {
        EXPECT_EQ(got, expected) << i;
        continue;
      }
      const double allowed = tolerance * spread_of(expected);
      EXPECT_THAT(got,
                  ::testing::Pointwise(::testing::FloatNear(static_cast<float>(allowed)), expected))
          << i;
    }
  }
}

// Repeated trees of the true continuation and other drafts: the accepted path is kept.
void expect_path_is_kept(TreeRunner& runner) {
  Ids text = some_tokens(27, 3, runner.vocab());
  const auto best = [](const std::vector<float>& logits) {
    return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
  };
  runner.write(kTreeSlot, {text.begin(), text.end() - 1});
  const std::vector<Ids> shapes = {{-1, -1, 0, 1, 1, 3}, {-1, 0, -1, 2, 3, -1}, {-1, 0, 0, 1, 2}};
  const std::vector<Ids> paths = {{1, 3, 5}, {2, 3, 4}, {0, 2, 4}};
  for (size_t turn = 0; turn < shapes.size(); ++turn) {
    SCOPED_TRACE(turn);
    // The true continuation becomes the path; other drafts are its id + 1 + i.
    Ids said;
    for (Ids known = text; said.size() < 4; known.push_back(said.back()))
      said.push_back(best(runner.logits_after(known)));
    Tree tree = {{}, shapes[turn]};
    for (size_t i = 0; i < tree.parents.size(); ++i) {
      const auto at = std::ranges::find(paths[turn], static_cast<int32_t>(i));
      const bool holds = at != paths[turn].end();
      const auto depth = tree.path_to(tree.parents[i]).size();
      tree.drafts.push_back(holds ? said[depth]
                                  : (said[depth] + 1 + static_cast<int32_t>(i)) % runner.vocab());
    }
    const auto got = runner.run(runner.message(text, static_cast<int32_t>(text.size()) - 1, tree));
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->drawn, said);
    EXPECT_EQ(got->path, paths[turn]);
    text.insert(text.end(), said.begin(), said.end());
    EXPECT_EQ(runner.next(kTreeSlot, text), runner.logits_after(text));
    text.push_back(best(runner.logits_after(text)));
  }
}

class TreeKernels : public ::testing::TestWithParam<TestKernels> {};

std::vector<TestKernels> tree_kernels() {
  std::vector<TestKernels> all = test_kernels();
  std::erase_if(all, [](const TestKernels& kernels) {
    return kernels.isa == name_of(Isa::kGeneric);  // covered by TreeTest
  });
  return all;
}
INSTANTIATE_TEST_SUITE_P(Isa, TreeKernels, ::testing::ValuesIn(tree_kernels()),
                         [](const auto& test) { return test.param.name(); });

std::filesystem::path quickstart_engine(const TestKernels& kernels) {
  return build_engine(std::filesystem::path(source_dir()) / "models/quickstart", kernels);
}

StatusOr<kernels::OpenedDevice> cpu() { return kernels::open_device("cpu", {.num_threads = 2}); }

TEST_P(TreeKernels, NodesEqualTheirPathsAndOnePathIsKept) {
  const TestKernels& kernels = GetParam();
  const auto engine = quickstart_engine(kernels);
  for (const auto& [type, window] :
       {std::pair{DType::kBF16, 0}, {DType::kI8, 20}, {DType::kF8E4M3, 0}}) {
    SCOPED_TRACE(fmt::format("{} window {}", name_of(type), window));
    if (!kernels.is_invariant && type != DType::kBF16) break;  // 8-bit caches move logits further
    RunnerLimits limits = tree_limits(tests_run_on_cpu() ? 160 : 270, 16);
    limits.max_tokens = limits.max_sequence_length;
    limits.kv_type = type, limits.window = window, limits.sink = window / 8;
    TreeRunner runner(engine, limits, kernels.open(2));
    expect_nodes_equal_paths(runner, kernels.is_invariant ? 0 : kTreeTolerance);
    if (kernels.is_invariant) expect_path_is_kept(runner);
  }
}

TEST(TreeSize, IsBounded) {
  TreeRunner runner(quickstart_engine({}), tree_limits(160, 16), TestKernels().open(2));
  const auto many = static_cast<size_t>(kMaxTreeDrafts) + 1;
  const auto message =
      runner.message({1, 2, 3}, 0, {some_tokens(kMaxTreeDrafts + 1, 3, 1000), Ids(many, -1)});
  EXPECT_THAT(runner.run(message).status().ToString(), HasSubstr("at most 64 are allowed"));
}

class TreeTest : public ::testing::Test {
 protected:
  std::string refusal(const Tree& tree) {
    return runner_.run(runner_.message({1, 2, 3}, 0, tree)).status().ToString();
  }

  const std::filesystem::path path_ = write_engine(small_plan(), "tree_test");
  TreeRunner runner_{path_, tree_limits(64, 4), cpu()};
};

TEST_F(TreeTest, ReferenceKernels) {
  expect_nodes_equal_paths(runner_);
  expect_path_is_kept(runner_);
}

TEST_F(TreeTest, AChainIsATree) {
  const Tree chain = {{4, 5, 6}, {-1, 0, 1}};
  EXPECT_TRUE(runner_.run(runner_.message({1, 2, 3}, 0, chain)).ok());
}

TEST_F(TreeTest, WhatIsNoTreeIsRefused) {
  EXPECT_THAT(refusal({{4, 5}, {-1, 1}}), HasSubstr("row 0: draft 1 comes after draft 1"));
  EXPECT_THAT(refusal({{4, 5}, {-2, 0}}), HasSubstr("draft 0 comes after draft -2"));
  EXPECT_THAT(refusal({{4, 5, 5}, {-1, 0, 0}}),
              HasSubstr("drafts 1 and 2 are the same token 5 after draft 0"));
  EXPECT_THAT(refusal({{4, 5}, {-1}}), HasSubstr("a tree of 2 drafts; 1 parents are left"));
  EXPECT_THAT(refusal({{4}, {-1, 0}}), HasSubstr("1 parents belong to no row"));
}

TEST_F(TreeTest, ARunnerWithoutTreesRefusesThem) {
  RunnerLimits limits = tree_limits(64, 4);
  limits.has_trees = false;
  TreeRunner plain(path_, limits, cpu());
  const auto message = plain.message({1, 2, 3}, 0, {{4, 5}, {-1, -1}});
  EXPECT_THAT(plain.run(message).status().ToString(), HasSubstr("has_tree 1; allowed is 0"));
}

}  // namespace
}  // namespace nereid::exec
