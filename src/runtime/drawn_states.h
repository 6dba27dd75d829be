// Of each sequence the hidden state that its last token was drawn from, for heads that guess what
// comes behind it.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "exec/runner.h"
#include "sched/scheduler.h"
#include "tensor/dtype.h"

namespace nereid::runtime {

class DrawnStates {
 public:
  // Of a result with Proposer::States::kDrawn, whose states are `width` wide.
  void landed(const sched::Row& row, const exec::RowResult& result, size_t width);

  // Null: that of another token, drawn before it was paused or beside one that is not known yet.
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
