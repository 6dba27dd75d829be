// The hidden state from which each sequence's last token was sampled, for draft heads.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "exec/runner.h"
#include "sched/scheduler.h"
#include "tensor/dtype.h"

namespace nereid::runtime {

class DrawnStates {
 public:
  // Keeps the state of a result with Proposer::States::kDrawn; `width`: numbers per state.
  void completed(const sched::ScheduledRow& row, const exec::RowResult& result, size_t width);

  // Null: the kept state is another token's (sampled before a preemption, or not yet on the host).
  const std::vector<BF16>* find(const sched::Sequence& sequence) const;

  void forget(RequestId id) { states_.erase(id); }
  void forget_all() { states_.clear(); }

 private:
  struct State {
    size_t num_known = 0;  // known tokens when it was kept; the last one was sampled from it
    std::vector<BF16> hidden;
  };
  absl::flat_hash_map<RequestId, State> states_;
};

}  // namespace nereid::runtime
