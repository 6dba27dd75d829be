#include "runtime/speculation/drawn_states.h"

namespace nereid::runtime {

void DrawnStates::completed(const sched::ScheduledRow& row, const exec::RowResult& result,
                            size_t width) {
  if (result.drawn.empty()) return;  // the row failed, or its states are for another use
  const size_t num_drawn = result.drawn.size();
  const auto drawn = result.hidden.last(static_cast<size_t>(1 + row.num_drafts) * width);
  const size_t from = num_drawn == 1 ? 0 : 1 + static_cast<size_t>(result.path[num_drawn - 2]);
  const auto last = drawn.subspan(from * width, width);
  State& state = states_[row.sequence->id()];
  state.num_known = static_cast<size_t>(row.first_sampled()) + num_drawn;
  state.hidden.assign(last.begin(), last.end());
}

const std::vector<BF16>* DrawnStates::find(const sched::Sequence& sequence) const {
  const auto found = states_.find(sequence.id());
  if (found == states_.end() || found->second.num_known != sequence.tokens().size()) return nullptr;
  return &found->second.hidden;
}

}  // namespace nereid::runtime
