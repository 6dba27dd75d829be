// Grammar constraints of running sequences: token masks, and forced tokens (jump-forward).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "exec/step_message.h"
#include "runtime/draft_choice.h"
#include "runtime/mask_worker.h"
#include "sched/scheduler.h"
#include "text/grammar/guided_output.h"

namespace nereid::runtime {

// Owned by the engine thread, which spends at most a few milliseconds per turn here. Masks that
// take longer are made by another thread while their sequences are held.
class Guides {
 public:
  static constexpr int64_t kTurnSteps = 1'000'000;  // of text::Effort
  // Limit of a sequence's work on the other thread: kSlowSteps + kSlowStepsPerToken * tokens.
  static constexpr int64_t kSlowSteps = 1'000'000'000, kSlowStepsPerToken = 2'000'000;

  // `jumps_ahead`: enables offer(). `turn_steps`: limit for the masks of one step. `made` is called
  // on another thread when a mask that fill() reported in `late` is ready.
  Guides(int32_t vocab_size, bool jumps_ahead, int64_t turn_steps,
         std::function<void(RequestId)> made)
      : vocab_size_(vocab_size),
        jumps_ahead_(jumps_ahead),
        turn_steps_(turn_steps),
        worker_(std::move(made)) {}

  // Before a plan: forced tokens of running sequences become their drafts if one step for them
  // pays. Other tokens may spell the same text, so the sampler tests them like all drafts. False:
  // all steps in flight must land first (`in_flight`: there are some).
  [[nodiscard]] bool offer(sched::Scheduler& scheduler, bool in_flight,
                           const SpeculationCosts& costs);
  // Sets has_mask in the message row `out` if `row` samples under a grammar.
  void add(const sched::Row& row, exec::StepRow& out);
  // The masks of a launched step's rows with has_mask, after all earlier steps have landed. Rows
  // that may sample any token, and rows of ended or restarted sequences, get none. A failed grammar
  // yields an empty mask and failure(). `late`: indices of rows whose masks take longer; their
  // tokens are discarded, and no row of their sequences may be planned before take_mask().
  void fill(const sched::StepPlan& plan, exec::Masks& masks, std::vector<int32_t>& late);
  // After `made`: takes the mask for the next row. False: the sequence has ended.
  bool take_mask(RequestId id);

  // `row` is about to be committed with `num_drawn` tokens.
  void landed(const sched::Row& row, size_t num_drawn);

  // Error of a sequence's grammar, or OK.
  Status failure(RequestId id) const;
  // The mask of the next token; empty: unrestricted, or not available at once.
  std::vector<uint32_t> next_mask(const sched::Sequence& sequence);
  void forget(RequestId id);

 private:
  struct State {
    text::GuidedOutput output;
    size_t num_matched = 0;  // output tokens accepted by the matcher
    size_t num_asked = 0;    // length of the sequence at the last offer()
    Status failure = {};
    std::shared_ptr<MaskJob> job = {};  // owns the matcher until it is done
    std::vector<uint32_t> mask = {};    // made by a job, behind `num_matched` tokens
    int64_t slow_steps = 0;             // of all jobs
  };
  // Forced tokens behind the tokens known to the host.
  struct Forced {
    RequestId id = 0;
    State* state = nullptr;
    size_t num_known = 0;  // length of the sequence
    std::vector<TokenId> tokens;
    int32_t num_unknown = 0;  // leading tokens that the device has sampled already
  };

  void find_forced(const sched::Scheduler& scheduler);
  bool pays(size_t num_rows, const SpeculationCosts& costs) const;
  static bool catch_up(State& state, const sched::Sequence& sequence, text::Effort& effort);
  bool fill(State& state, const sched::Row& row, text::Effort& effort, exec::Masks& masks) const;
  void add_drafts(const State& state, const sched::Row& row, text::Effort& effort,
                  exec::Masks& masks) const;
  std::span<uint32_t> add_mask(exec::Masks& masks) const;
  void begin_job(State& state, const sched::Sequence& sequence);

  const int32_t vocab_size_;
  const bool jumps_ahead_;
  const int64_t turn_steps_;
  absl::flat_hash_map<RequestId, State> states_;
  std::vector<Forced> forced_;  // of a call of offer()
  // Acceptance of forced tokens behind an accepted one, decayed counts.
  double num_tested_ = 0, num_held_ = 0;
  MaskWorker worker_;
};

}  // namespace nereid::runtime
