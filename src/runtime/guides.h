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

  // For a row that samples, of a sequence with a guide: its mask, where it needs one. All tokens
  // before the one that is drawn must be known. A guide that fails leaves no token; failure() says
  // why.
  void add(const sched::Row& row, exec::StepRow& out, exec::Step& step);

  // Of a sequence; OK where nothing failed.
  Status failure(RequestId id) const;
  void forget(RequestId id) { states_.erase(id); }

 private:
  struct State {
    text::GuidedOutput output;
    size_t num_matched = 0;  // tokens of the sequence that it has taken
    Status failure = {};
  };

  const int32_t vocab_size_;
  absl::flat_hash_map<RequestId, State> states_;
};

}  // namespace nereid::runtime
