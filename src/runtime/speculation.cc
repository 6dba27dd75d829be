// Speculation: whom to ask, and when.
#include "runtime/speculation.h"

#include "base/check.h"

namespace nereid::runtime {

void Speculation::offer(sched::Scheduler& scheduler) {
  if (!proposer_) return;
  for (const sched::Sequence* sequence : scheduler.running()) {
    if (!sequence->may_draft()) continue;
    State& state = states_[sequence->id()];
    const size_t num_known = sequence->tokens().size();
    if (std::exchange(state.num_known, num_known) == num_known) continue;
    drafts_.clear();
    proposer_->propose(*sequence, options_.max_drafts, drafts_);
    NEREID_CHECK(drafts_.size() <= static_cast<size_t>(options_.max_drafts));
    scheduler.draft(sequence->id(), drafts_);
  }
}

void Speculation::forget(RequestId id) {
  if (!proposer_) return;
  states_.erase(id);
  proposer_->forget(id);
}

}  // namespace nereid::runtime
