// Test only: rows with a draft tree, and rows with one of its paths as a chain.
#pragma once

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "exec/test_harness.h"
#include "kernels/open.h"

namespace nereid::exec {

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

// Slots: with trees; rewritten for each path; other rows.
inline constexpr int32_t kTreeSlot = 0, kPathSlot = 1, kOtherSlot = 2;

class TreeRunner {
 public:
  TreeRunner(const std::filesystem::path& engine, const RunnerLimits& limits,
             StatusOr<kernels::OpenedDevice> opened)
      : limits_(limits), harness_(engine, limits, std::move(opened)) {}

  Sequence sequence(int32_t slot) const { return {slot, limits_}; }
  RowSpec row(int32_t slot, std::span<const int32_t> tokens, int32_t start, int32_t logits) const {
    return sequences_[static_cast<size_t>(slot)].row(tokens, start, logits);
  }

  // A message of a row that ends with the tree, followed by `others`.
  std::vector<std::byte> message(const Ids& known, int32_t start, const Tree& tree,
                                 const std::vector<RowSpec>& others = {}) const {
    Ids tokens(known.begin() + start, known.end());
    tokens.insert(tokens.end(), tree.drafts.begin(), tree.drafts.end());
    const auto num_drafts = static_cast<int32_t>(tree.drafts.size());
    std::vector<RowSpec> rows = {row(kTreeSlot, tokens, start, 1 + num_drafts)};
    rows.insert(rows.end(), others.begin(), others.end());
    StepMessage step = step_of(rows, harness_.runner().groups().size(), limits_.block_tokens);
    step.rows[0].num_drafts = num_drafts;
    step.rows[0].has_tree = 1;
    step.parents = tree.parents;
    std::vector<std::byte> bytes;
    encode(step, bytes);
    return bytes;
  }

  struct Result {
    Ids drawn, path;
    std::vector<std::vector<float>> logits;  // of the root token, then of the drafts
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

  // Logits after these tokens, computed in another sequence.
  std::vector<float> logits_after(const Ids& tokens) {
    return harness_.prefill(sequences_[kPathSlot], tokens, limits_.max_tokens);
  }
  // The same with all but the last token in a sequence's cache.
  std::vector<float> next(int32_t slot, const Ids& tokens) {
    const auto last = static_cast<int32_t>(tokens.size()) - 1;
    return harness_.prefill(sequences_[static_cast<size_t>(slot)], tokens, 1, nullptr, last);
  }
  // Logits of a tree of seven drafts after a prompt (first: of the prompt's last token), and of
  // each path alone. The tree's row has the second half of the prompt, next to another row.
  struct Nodes {
    std::vector<std::vector<float>> in_tree, alone;
  };
  StatusOr<Nodes> nodes_after(int32_t length);

  void write(int32_t slot, const Ids& tokens) { harness_.step({row(slot, tokens, 0, 0)}); }
  int32_t vocab() { return harness_.runner().vocab_size(); }
  int32_t max_length() const { return limits_.max_sequence_length; }

 private:
  const RunnerLimits limits_;
  mutable Harness harness_;
  const std::vector<Sequence> sequences_ = {sequence(kTreeSlot), sequence(kPathSlot),
                                            sequence(kOtherSlot)};
};

inline RunnerLimits tree_limits(int32_t max_length, int32_t block_tokens) {
  RunnerLimits limits = roomy_limits(3, 128, max_length, block_tokens);
  limits.max_logits = 128;
  limits.has_trees = true;
  return limits;
}

inline Ids some_tokens(int32_t count, int32_t seed, int32_t vocab) {
  Ids tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back((seed + i * i * 7 + i * 31) % vocab);
  return tokens;
}

// Seven drafts; behind 60 tokens they cross the end of a block and of a tile.
inline const Ids kParents = {-1, -1, 0, 0, 1, 2, 5};

inline StatusOr<TreeRunner::Nodes> TreeRunner::nodes_after(int32_t length) {
  const Ids prompt = some_tokens(length, 3, vocab()), other = some_tokens(30, 5, vocab());
  const Tree tree = {some_tokens(7, 11, vocab()), kParents};
  const int32_t start = length / 2;  // of the row with the tree
  if (start > 0) write(kTreeSlot, {prompt.begin(), prompt.begin() + start});
  ASSIGN_OR_RETURN(Result got, run(message(prompt, start, tree, {row(kOtherSlot, other, 0, 1)})));
  Nodes nodes = {std::move(got.logits), {}};
  for (int32_t i = kNoParent; i < 7; ++i) {
    Ids text = prompt;
    for (const int32_t token : tree.path_to(i)) text.push_back(token);
    nodes.alone.push_back(logits_after(text));
  }
  return nodes;
}

}  // namespace nereid::exec
