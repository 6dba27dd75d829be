// Drafts from Medusa heads on the hidden state of the model that tests them.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "exec/runner.h"
#include "exec/step_message.h"
#include "runtime/draft_tree.h"
#include "runtime/drawn_states.h"
#include "runtime/speculation.h"

namespace nereid::runtime {

// Medusa-1: head i guesses the token i places behind those that are known, from the state that the
// last of them was drawn from (models/medusa.h). One call computes one row of each sequence with as
// many heads as the guesses that are wanted are deep, side by side. The guesses are the nodes of a
// tree, each the token of its rank from the head of its depth.
//
// Rank 0 is drawn with the parameters, the seed and the position of the sequence itself, as the
// drafts of DraftModel; then come the likeliest others. Penalties do not see the guesses of the
// heads before.
class MedusaHeads : public Proposer {
 public:
  // A runner of each head: no KV cache, states as embeddings, the vocabulary of the model that
  // tests the drafts, and as many rows. The tree is as deep as there are heads at most.
  MedusaHeads(std::vector<std::unique_ptr<exec::Runner>> heads, DraftTree tree);

  std::string_view name() const override { return "medusa"; }
  void propose(std::span<DraftQuestion> questions) override;
  void forget(RequestId id) override { states_.forget(id); }
  std::vector<exec::MemoryItem> memory() const override;
  States wanted_states() const override { return States::kDrawn; }
  bool makes_trees() const override { return !is_chain_; }
  int32_t usual_drafts() const override {
    return is_chain_ ? 0 : static_cast<int32_t>(tree_.nodes.size());
  }
  void landed(const sched::Row& row, const exec::RowResult& result) override {
    states_.landed(row, result, static_cast<size_t>(heads_[0]->embedding_width()));
  }

 private:
  // Its place is its slot.
  struct Row {
    DraftQuestion* question = nullptr;
    const std::vector<BF16>* state = nullptr;
    int32_t num_drafts = 0;
    int32_t depth = 0;  // of these
  };

  void choose_rows(std::span<DraftQuestion> questions);
  Status compute();
  StatusOr<exec::Ticket> launch(size_t head);
  Status take(exec::Ticket& ticket, size_t head);
  void add_guesses(size_t head, size_t row, const exec::RowResult& result);
  void answer(size_t row);

  const std::vector<std::unique_ptr<exec::Runner>> heads_;
  const DraftTree tree_;
  const bool is_chain_;
  std::vector<int32_t> num_ranks_;  // by head
  DrawnStates states_;
  bool failed_ = false;  // and the log says so: there are no drafts any more
  // State of the propose() under way.
  std::vector<Row> rows_;
  std::vector<std::vector<std::vector<TokenId>>> guesses_;  // by head, row and rank
  exec::Step step_;
  std::vector<std::byte> message_;
};

}  // namespace nereid::runtime
