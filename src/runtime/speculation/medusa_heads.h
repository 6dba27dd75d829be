// Drafts from Medusa heads on the target model's hidden states.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "exec/runner.h"
#include "exec/step_message.h"
#include "runtime/speculation/draft_tree.h"
#include "runtime/speculation/drawn_states.h"
#include "runtime/speculation/speculation.h"

namespace nereid::runtime {

// Medusa-1: from the state of the last sampled token, head i predicts token i behind the known ones
// (models/drafts/medusa.h). A call runs as many heads in parallel as drafts are deep, one row per
// sequence. Drafts are the nodes of a tree: rank r at depth d is the r-th candidate of head d.
//
// Rank 0 is sampled with the sequence's parameters, seed and position, as in DraftModel; the others
// follow by probability. Penalties ignore the tokens of earlier heads.
class MedusaHeads : public Proposer {
 public:
  // A runner per head: no KV cache, hidden states as embeddings, the target model's vocabulary and
  // number of rows. Tree depth <= number of heads.
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
  void completed(const sched::ScheduledRow& row, const exec::RowResult& result) override {
    states_.completed(row, result, static_cast<size_t>(heads_[0]->embedding_width()));
  }

 private:
  // Its index is its slot.
  struct Row {
    DraftQuestion* question = nullptr;
    const std::vector<BF16>* state = nullptr;
    int32_t num_drafts = 0;
    int32_t depth = 0;  // depth of the drafts
  };

  void choose_rows(std::span<DraftQuestion> questions);
  Status compute();
  StatusOr<exec::Ticket> launch(size_t head);
  Status take(exec::Ticket& ticket, size_t head);
  void add_token_candidates(size_t head, size_t row, const exec::RowResult& result);
  void answer(size_t row);

  const std::vector<std::unique_ptr<exec::Runner>> heads_;
  const DraftTree tree_;
  const bool is_chain_;
  std::vector<int32_t> num_ranks_;  // by head
  DrawnStates states_;
  bool failed_ = false;  // logged; no more drafts
  // State of the current propose().
  std::vector<Row> rows_;
  std::vector<std::vector<std::vector<TokenId>>> token_candidates_;  // by head, row and rank
  exec::StepMessage step_;
  std::vector<std::byte> message_;
};

}  // namespace nereid::runtime
