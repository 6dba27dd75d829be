// Which tokens the guides of sequences allow next, and which they leave no choice of.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "exec/step_message.h"
#include "runtime/draft_choice.h"
#include "sched/scheduler.h"
#include "text/grammar/guided_output.h"

namespace nereid::runtime {

// Owned by the engine thread.
class Guides {
 public:
  // `jumps_ahead`: offer() does something.
  Guides(int32_t vocab_size, bool jumps_ahead)
      : vocab_size_(vocab_size), jumps_ahead_(jumps_ahead) {}

  // Before a plan: what running sequences must go on with becomes their drafts, so that one step
  // computes it, if that pays. Other tokens may write the same text: the sampler decides, as with
  // every draft. False: first all steps in flight should land (`in_flight`: there are some).
  [[nodiscard]] bool offer(sched::Scheduler& scheduler, bool in_flight,
                           const SpeculationCosts& costs);
  // Says in `out`, the message's row for `row`, whether it waits for a mask: where it samples, of a
  // sequence with a guide.
  void add(const sched::Row& row, exec::StepRow& out);
  // The masks of such rows of a launched step, when every step before it has landed. Rows that need
  // none, and those of sequences that have ended or start over by now, have none. A guide that
  // fails leaves no token; failure() says why.
  void fill(const sched::StepPlan& plan, exec::Masks& masks);

  // A row is about to be committed with so many tokens.
  void landed(const sched::Row& row, size_t num_drawn);

  // Why the guide of a sequence failed; OK where it did not.
  Status failure(RequestId id) const;
  void forget(RequestId id) { states_.erase(id); }

 private:
  struct State {
    text::GuidedOutput output;
    size_t num_matched = 0;  // tokens of the output that it has taken
    size_t num_asked = 0;    // tokens of the sequence when offer() looked at it last
    Status failure = {};
  };
  // What a sequence must go on with, behind the tokens that the host knows.
  struct Forced {
    RequestId id = 0;
    State* state = nullptr;
    size_t num_known = 0;  // tokens of the sequence
    std::vector<TokenId> tokens;
    int32_t num_unknown = 0;  // of these, those that the device has drawn
  };

  void find_forced(const sched::Scheduler& scheduler);
  bool pays(size_t num_rows, const SpeculationCosts& costs) const;
  static void catch_up(State& state, const sched::Sequence& sequence);
  void fill(State& state, const sched::Row& row, exec::Masks& masks) const;
  void add_mask(text::GuidedOutput& output, Status& status, std::span<const TokenId> end_ids,
                exec::Masks& masks) const;

  const int32_t vocab_size_;
  const bool jumps_ahead_;
  absl::flat_hash_map<RequestId, State> states_;
  std::vector<Forced> forced_;  // of a call of offer()
  // Forced tokens whose forerunner was drawn, and of those the ones that were drawn as well.
  double num_tested_ = 0, num_held_ = 0;
};

}  // namespace nereid::runtime
