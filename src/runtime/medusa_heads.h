// Drafts from Medusa heads on the hidden state of the model that tests them.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "exec/runner.h"
#include "exec/step_message.h"
#include "runtime/speculation.h"

namespace nereid::runtime {

// The likeliest chain (Medusa-1, top 1): head i guesses the token i places behind those that are
// known, from the state that the last of them was drawn from (models/medusa.h). One call computes
// one row of each sequence with as many heads as guesses are wanted, side by side.
//
// Drafts are drawn with the parameters, the seed and the positions of the sequence itself, as those
// of DraftModel; penalties do not see the guesses of the heads before.
class MedusaHeads : public Proposer {
 public:
  // A runner of each head: no KV cache, states as embeddings, the vocabulary of the model that
  // tests the drafts, and as many rows.
  explicit MedusaHeads(std::vector<std::unique_ptr<exec::Runner>> heads);

  std::string_view name() const override { return "medusa"; }
  void propose(std::span<DraftQuestion> questions) override;
  void forget(RequestId id) override { states_.erase(id); }
  std::vector<exec::MemoryItem> memory() const override;
  States wanted_states() const override { return States::kDrawn; }
  void landed(const sched::Row& row, const exec::RowResult& result) override;

 private:
  struct State {
    size_t num_known = 0;  // tokens of the sequence, the last of which was drawn from it
    std::vector<BF16> hidden;
  };
  // Its place is its slot.
  struct Row {
    DraftQuestion* question = nullptr;
    const State* state = nullptr;
    int32_t num_drafts = 0;
    bool ended = false;  // a head could draw nothing: later guesses have nothing to follow
  };

  void choose_rows(std::span<DraftQuestion> questions);
  Status compute();
  StatusOr<exec::Ticket> launch(size_t head);
  Status take(exec::Ticket& ticket, size_t head);

  const std::vector<std::unique_ptr<exec::Runner>> heads_;
  absl::flat_hash_map<RequestId, State> states_;
  bool failed_ = false;  // and the log says so: there are no drafts any more
  // Of the call.
  std::vector<Row> rows_;
  exec::Step step_;
  std::vector<std::byte> message_;
};

}  // namespace nereid::runtime
