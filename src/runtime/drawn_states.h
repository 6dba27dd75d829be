// The hidden state that each sequence's last token was drawn from, for heads that guess what comes
// behind it.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "exec/runner.h"
#include "sched/scheduler.h"
#include "tensor/dtype.h"

namespace nereid::runtime {

class DrawnStates {
 public:
  // Keeps the state of a result with Proposer::States::kDrawn; states are `width` wide.
  void landed(const sched::Row& row, const exec::RowResult& result, size_t width);

  // Null: what is kept is of another token, drawn before a pause or beside one not known yet.
  const std::vector<BF16>* find(const sched::Sequence& sequence) const;

  void forget(RequestId id) { states_.erase(id); }
  void forget_all() { states_.clear(); }

 private:
  struct State {
    size_t num_known = 0;  // tokens of the sequence, the last of which was drawn from it
    std::vector<BF16> hidden;
  };
  absl::flat_hash_map<RequestId, State> states_;
};

}  // namespace nereid::runtime
