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
#include "runtime/grammars/mask_worker.h"
#include "runtime/speculation/draft_choice.h"
#include "runtime/step_module.h"
#include "text/grammar/guided_output.h"

namespace nereid::runtime {

// The engine's thread works for guides for a few milliseconds of each turn at most.
// Masks that need more are made by another thread; their sequences wait.
class GrammarMasks : public StepModule {
 public:
  static constexpr int64_t kTurnSteps = 1'000'000;  // of text::StepBudget
  // Limit of a sequence's work on the other thread: kSlowSteps + kSlowStepsPerToken * tokens.
  static constexpr int64_t kSlowSteps = 1'000'000'000, kSlowStepsPerToken = 2'000'000;

  // `jumps_ahead`: offer() does something. `turn_steps`: for the masks of one step. `costs` are
  // those of drafts; they must outlive it. `made` is called on another thread when a mask is made
  // that mask() called late.
  GrammarMasks(int32_t vocab_size, bool jumps_ahead, int64_t turn_steps,
               const SpeculationCosts& costs, std::function<void(RequestId)> made)
      : vocab_size_(vocab_size),
        jumps_ahead_(jumps_ahead),
        turn_steps_(turn_steps),
        costs_(costs),
        worker_(std::move(made)) {}

  // Before a plan: forced tokens of running sequences become their drafts, so that one step
  // computes them, if that pays. Other tokens may write the same text: the sampler decides.
  [[nodiscard]] bool offer(sched::Scheduler& scheduler, bool in_flight) override;
  // A row waits for a mask where it samples, of a sequence with a guide.
  void write(const sched::ScheduledRow& row, const RowMessage& to) override;
  // The masks of such rows of a launched step, when every step before it has completed. Rows that
  // need none, and those of sequences that have ended or start over by now, have none. A guide that
  // fails leaves no token; failure() has the reason.
  void mask(const sched::StepPlan& plan, exec::Masks& masks, std::vector<int32_t>& late) override;
  // After `made`: the mask is there for the next row. False: its sequence has ended.
  bool resume(RequestId id) override;

  Status completed(const LandedRow& completed, EngineUpdate& update) override;

  // Why the guide failed, or that its mask, biases and bans together leave no token.
  Status failure(const sched::ScheduledRow& row) override;
  void close(RequestId id) override;
  bool empty() const override { return states_.empty(); }

 private:
  struct State {
    text::ConstrainedOutput output;
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
  bool pays(size_t num_rows) const;
  static bool catch_up(State& state, const sched::Sequence& sequence, text::StepBudget& effort);
  bool fill(State& state, const sched::ScheduledRow& row, text::StepBudget& effort,
            exec::Masks& masks) const;
  void add_drafts(const State& state, const sched::ScheduledRow& row, text::StepBudget& effort,
                  exec::Masks& masks) const;
  std::span<uint32_t> add_mask(exec::Masks& masks) const;
  void begin_job(State& state, const sched::Sequence& sequence);
  // The mask of the next token; empty: it is not limited, or not known at once.
  std::vector<uint32_t> next_mask(const sched::Sequence& sequence);

  const int32_t vocab_size_;
  const bool jumps_ahead_;
  const int64_t turn_steps_;
  const SpeculationCosts& costs_;
  absl::flat_hash_map<RequestId, State> states_;
  std::vector<Forced> forced_;  // of a call of offer()
  // Acceptance of forced tokens behind an accepted one, decayed counts.
  double num_tested_ = 0, num_accepted_ = 0;
  MaskWorker worker_;
};

}  // namespace nereid::runtime
