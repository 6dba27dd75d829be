// Rows whose drafts are a tree, against rows that say one of its paths, on every instruction set.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "convert/engine_cache.h"
#include "exec/test_engine.h"
#include "exec/test_harness.h"
#include "kernels/open.h"
#include "tensor/cpu_probe.h"

namespace nereid::exec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Tree {
  Ids drafts, parents;

  // The tokens from the root to draft i.
  Ids path_to(int32_t i) const {
    Ids path;
    for (; i != kNoParent; i = parents[static_cast<size_t>(i)])
      path.insert(path.begin(), drafts[static_cast<size_t>(i)]);
    return path;
  }
};

// Sequences of a test: the one with trees, and one that is written anew for each path.
constexpr int32_t kTreeSlot = 0, kPathSlot = 1, kOtherSlot = 2;

class TreeRunner {
 public:
  TreeRunner(const std::filesystem::path& engine, const RunnerLimits& limits, const char* isa = "")
      : limits_(limits),
        harness_(engine, limits, kernels::open_device("cpu", {.num_threads = 2, .isa = isa})) {}

  Sequence sequence(int32_t slot) const { return {slot, limits_}; }
  RowSpec row(int32_t slot, std::span<const int32_t> tokens, int32_t start, int32_t logits) const {
    return sequences_[static_cast<size_t>(slot)].row(tokens, start, logits);
  }

  // A message of a row that ends with the tree, before others.
  std::vector<std::byte> message(const Ids& known, int32_t start, const Tree& tree,
                                 const std::vector<RowSpec>& others = {}) const {
    Ids tokens(known.begin() + start, known.end());
    tokens.insert(tokens.end(), tree.drafts.begin(), tree.drafts.end());
    const auto num_drafts = static_cast<int32_t>(tree.drafts.size());
    std::vector<RowSpec> rows = {row(kTreeSlot, tokens, start, 1 + num_drafts)};
    rows.insert(rows.end(), others.begin(), others.end());
    Step step = step_of(rows, harness_.runner().groups().size(), limits_.block_tokens);
    step.rows[0].num_drafts = num_drafts;
    step.rows[0].has_tree = 1;
    step.parents = tree.parents;
    std::vector<std::byte> bytes;
    encode(step, bytes);
    return bytes;
  }

  struct Result {
    Ids drawn, path;
    std::vector<std::vector<float>> logits;  // of the last token before the tree, of its drafts
  };
  StatusOr<Result> run(const std::vector<std::byte>& message) {
    ASSIGN_OR_RETURN(Ticket ticket, harness_.runner().launch(message));
    ASSIGN_OR_RETURN(const StepResult results, harness_.runner().wait(ticket));
    RETURN_IF_ERROR(results[0].status);
    Result out;
    for (const kernels::SampleResult& drawn : results[0].drawn) out.drawn.push_back(drawn.token);
    out.path.assign(results[0].path.begin(), results[0].path.end());
    for (auto left = results[0].logits; !left.empty(); left = left.subspan(harness_.vocab()))
      out.logits.emplace_back(left.begin(),
                              left.begin() + static_cast<ptrdiff_t>(harness_.vocab()));
    return out;
  }

  // Logits after these tokens, all computed in another sequence.
  std::vector<float> logits_after(const Ids& tokens) {
    return harness_.prefill(sequences_[kPathSlot], tokens, limits_.max_tokens);
  }
  // The same where all but the last are in the cache of a sequence.
  std::vector<float> next(int32_t slot, const Ids& tokens) {
    const auto last = static_cast<int32_t>(tokens.size()) - 1;
    return harness_.prefill(sequences_[static_cast<size_t>(slot)], tokens, 1, nullptr, last);
  }
  void write(int32_t slot, const Ids& tokens) { harness_.step({row(slot, tokens, 0, 0)}); }
  int32_t vocab() { return harness_.runner().vocab_size(); }
  int32_t max_length() const { return limits_.max_sequence_length; }

 private:
  const RunnerLimits limits_;
  mutable Harness harness_;
  const std::vector<Sequence> sequences_ = {sequence(kTreeSlot), sequence(kPathSlot),
                                            sequence(kOtherSlot)};
};

RunnerLimits tree_limits(int32_t max_length, int32_t block_tokens) {
  RunnerLimits limits = roomy_limits(3, 128, max_length, block_tokens);
  limits.max_logits = 128;
  limits.has_trees = true;
  return limits;
}

Ids some_tokens(int32_t count, int32_t seed, int32_t vocab) {
  Ids tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back((seed + i * i * 7 + i * 31) % vocab);
  return tokens;
}

// Of seven drafts; for a prompt of 60 tokens over the end of a block and of a kernel's tile.
const Ids kParents = {-1, -1, 0, 0, 1, 2, 5};

// Each node of a tree gives what a row gives that says its path alone.
void expect_nodes_equal_paths(TreeRunner& runner) {
  for (const int32_t length : {1, 17, std::min(60, runner.max_length() - 20)}) {
    SCOPED_TRACE(length);
    const Ids prompt = some_tokens(length, 3, runner.vocab());
    const Tree tree = {some_tokens(7, 11, runner.vocab()), kParents};
    const int32_t start = length / 2;  // of the row with the tree
    if (start > 0) runner.write(kTreeSlot, {prompt.begin(), prompt.begin() + start});
    const Ids other = some_tokens(30, 5, runner.vocab());
    const auto got =
        runner.run(runner.message(prompt, start, tree, {runner.row(kOtherSlot, other, 0, 1)}));
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_EQ(got->logits.size(), 8u);
    for (int32_t i = kNoParent; i < 7; ++i) {
      Ids text = prompt;
      for (const int32_t token : tree.path_to(i)) text.push_back(token);
      EXPECT_EQ(got->logits[static_cast<size_t>(i + 1)], runner.logits_after(text)) << i;
    }
  }
}

// Trees of what is said next and of other drafts, again and again: what holds is kept.
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
    // What is said next goes on the path; the other drafts are its ids and one.
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

class TreeIsa : public ::testing::TestWithParam<std::string> {};

std::vector<std::string> tree_isas() {
  std::vector<std::string> names;
  for (const Isa isa : usable_isas())
    if (isa != Isa::kGeneric) names.emplace_back(name_of(isa));  // TreeTest has its kernels
  return names;
}
INSTANTIATE_TEST_SUITE_P(Isa, TreeIsa, ::testing::ValuesIn(tree_isas()),
                         [](const auto& test) { return test.param; });

std::filesystem::path quickstart_engine(const std::string& isa) {
  auto opened = kernels::open_device("cpu", {.num_threads = 1, .isa = isa});
  NEREID_CHECK(opened.ok());
  const std::filesystem::path source = NEREID_SOURCE_DIR;
  auto engine = convert::ensure_engine(source / "models/quickstart", opened->registry,
                                       opened->device->info(), {.cache_dir = test_directory()});
  NEREID_CHECK(engine.ok());
  return *engine;
}

TEST_P(TreeIsa, NodesEqualTheirPathsAndOnePathIsKept) {
  const auto engine = quickstart_engine(GetParam());
  for (const auto& [type, window] :
       {std::pair{DType::kBF16, 0}, {DType::kI8, 20}, {DType::kF8E4M3, 0}}) {
    SCOPED_TRACE(fmt::format("{} window {}", name_of(type), window));
    RunnerLimits limits = tree_limits(160, 16);
    limits.kv_type = type, limits.window = window, limits.sink = window / 8;
    TreeRunner runner(engine, limits, GetParam().c_str());
    expect_nodes_equal_paths(runner);
    expect_path_is_kept(runner);
  }
}

TEST(TreeSize, IsBounded) {
  TreeRunner runner(quickstart_engine(""), tree_limits(160, 16));
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
  TreeRunner runner_{path_, tree_limits(64, 4)};
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
  TreeRunner plain(path_, limits);
  const auto message = plain.message({1, 2, 3}, 0, {{4, 5}, {-1, -1}});
  EXPECT_THAT(plain.run(message).status().ToString(), HasSubstr("has_tree 1; allowed is 0"));
}

}  // namespace
}  // namespace nereid::exec
