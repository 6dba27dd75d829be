// Drafts from a recurrent network on the target model's hidden state.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "exec/runner.h"
#include "exec/step_message.h"
#include "runtime/prompts/embedding_rows.h"
#include "runtime/speculation/drawn_states.h"
#include "runtime/speculation/growing_tree.h"
#include "runtime/speculation/speculation.h"

namespace nereid::runtime {

// ReDrafter (models/drafts/redrafter.h): beam search with a recurrent network from the hidden state
// of the last known token. At each depth the likeliest candidates (by path probability) are
// expanded, one row each; the likeliest of all are tested as a tree with shared prefixes.
//
// The first candidate behind a token is sampled with the sequence's parameters, seed and position,
// as in DraftModel, and counts as the likeliest; the others follow by probability.
class RecurrentDrafter : public Proposer {
 public:
  // A runner without a KV cache, with the target model's vocabulary, embeddings of width 3 * `rows`
  // width, and at least the target model's number of rows; beams share the rest.
  RecurrentDrafter(std::unique_ptr<exec::Runner> runner, EmbeddingRows rows, TreeShape shape);

  std::string_view name() const override { return "redrafter"; }
  void propose(std::span<DraftQuestion> questions) override;
  void forget(RequestId id) override { states_.forget(id); }
  std::vector<exec::MemoryItem> memory() const override;
  States wanted_states() const override { return States::kDrawn; }
  bool makes_trees() const override { return !shape_.is_chain(); }
  int32_t usual_drafts() const override { return shape_.size(); }
  void completed(const sched::ScheduledRow& row, const exec::RowResult& result) override {
    states_.completed(row, result, width_);
  }

 private:
  // A candidate (at first: the root) to be expanded.
  struct Beam {
    int32_t node = GrowingTree::kRoot;
    std::vector<BF16> own;  // state of the network before it; empty: zeros
  };
  struct Row {
    DraftQuestion* question = nullptr;
    const std::vector<BF16>* state = nullptr;
    GrowingTree tree;
    std::vector<Beam> beams;  // of the current depth
  };

  void choose_rows(std::span<DraftQuestion> questions);
  Status compute();
  void add(const Row& row, const Beam& beam);
  Status take(exec::Ticket& ticket);
  void grow(Row& row);

  const std::unique_ptr<exec::Runner> runner_;
  const EmbeddingRows rows_of_tokens_;
  const TreeShape shape_;
  const size_t width_;
  DrawnStates states_;
  bool failed_ = false;  // logged; no more drafts
  // State of the current propose().
  std::vector<Row> rows_;
  std::vector<TokenCandidate> token_candidates_;
  exec::StepMessage step_;
  std::vector<std::byte> message_;
};

}  // namespace nereid::runtime
