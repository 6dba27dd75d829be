// Drafts from a recurrent network on the hidden state of the model that tests them.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "exec/runner.h"
#include "exec/step_message.h"
#include "runtime/drawn_states.h"
#include "runtime/embedding_rows.h"
#include "runtime/growing_tree.h"
#include "runtime/speculation.h"

namespace nereid::runtime {

// ReDrafter (models/redrafter.h): a beam search over guesses, each of which is one more token for
// the network behind the state that the last known token was drawn from. At each depth the
// likeliest guesses with all before them go on, as rows side by side; the likeliest of all are
// tested as a tree, in which beams share their beginnings.
//
// The first guess behind a token is drawn with the parameters, the seed and the position of the
// sequence itself, as the drafts of DraftModel, and counts as the likeliest; then come the
// likeliest others.
class RecurrentDrafter : public Proposer {
 public:
  // A runner without a KV cache, with the model's vocabulary, whose embeddings are three times as
  // wide as `rows`, and with as many rows as the model's at least. Beams share what it has more.
  RecurrentDrafter(std::unique_ptr<exec::Runner> runner, EmbeddingRows rows, TreeShape shape);

  std::string_view name() const override { return "redrafter"; }
  void propose(std::span<DraftQuestion> questions) override;
  void forget(RequestId id) override { states_.forget(id); }
  std::vector<exec::MemoryItem> memory() const override;
  States wanted_states() const override { return States::kDrawn; }
  bool makes_trees() const override { return !shape_.is_chain(); }
  int32_t usual_drafts() const override { return shape_.size(); }
  void landed(const sched::Row& row, const exec::RowResult& result) override {
    states_.landed(row, result, width_);
  }

 private:
  // A guess (or what is known, at first) whose next ones are computed.
  struct Beam {
    int32_t node = GrowingTree::kRoot;
    std::vector<BF16> own;  // state of the network in front of it; empty: zeros
  };
  struct Row {
    DraftQuestion* question = nullptr;
    const std::vector<BF16>* state = nullptr;
    GrowingTree tree;
    std::vector<Beam> beams;  // of the depth that is computed
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
  bool failed_ = false;  // and the log says so: there are no drafts any more
  // State of the propose() under way.
  std::vector<Row> rows_;
  std::vector<Guess> guesses_;
  exec::Step step_;
  std::vector<std::byte> message_;
};

}  // namespace nereid::runtime
