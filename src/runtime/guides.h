// Which tokens the guides of sequences allow next.
#pragma once

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "exec/step_message.h"
#include "sched/step_plan.h"
#include "text/grammar/guided_output.h"

namespace nereid::runtime {

// Owned by the engine thread.
class Guides {
 public:
  explicit Guides(int32_t vocab_size) : vocab_size_(vocab_size) {}

  // Says in `out`, the message's row for `row`, whether it waits for a mask: where it samples, of a
  // sequence with a guide.
  void add(const sched::Row& row, exec::StepRow& out);
  // The masks of such rows of a launched step, when every step before it has landed. Rows that need
  // none, and those of sequences that have ended or start over by now, have none. A guide that
  // fails leaves no token; failure() says why.
  void fill(const sched::StepPlan& plan, exec::Masks& masks);

  // Of a sequence; OK where nothing failed.
  Status failure(RequestId id) const;
  void forget(RequestId id) { states_.erase(id); }

 private:
  struct State {
    text::GuidedOutput output;
    size_t num_matched = 0;  // tokens of the sequence that it has taken
    Status failure = {};
  };

  void fill(State& state, const sched::Sequence& sequence, int32_t row, exec::Masks& masks);

  const int32_t vocab_size_;
  absl::flat_hash_map<RequestId, State> states_;
};

}  // namespace nereid::runtime
