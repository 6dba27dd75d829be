// The prefill tokens of a step beside decodes, by the time that they will take.
#pragma once

#include <array>
#include <cstdint>

#include "base/clock.h"
#include "runtime/speculation/cost_table.h"
#include "runtime/step_module.h"

namespace nereid::runtime {

// Before each plan it gives the scheduler the number of tokens that `most` is enough for, by the
// cost of a prefill token in recent steps. It is their upper quartile: the last chunks of a prompt
// cost more than its first, and some steps are held up. A step's cost is its time without what its
// decodes take alone; steps with encoder inputs, which are not limited, are left out. The limit
// grows to at most twice the largest recent prefill: costs of small steps say little of large ones.
class PrefillLimit : public StepModule {
 public:
  // `most`: of a step's time for prefill, > 0. As much as the decodes of the step take is always
  // allowed, so that prefill has at least half of the device's time.
  explicit PrefillLimit(Duration most) : most_(seconds(most)) {}

  bool offer(sched::Scheduler& scheduler, bool in_flight) override;
  void finished(const FinishedStep& step) override;
  void report(ExecutorStats& stats) const override;

  // Tokens; 0 before the first prefill.
  int32_t tokens() const;

 private:
  static constexpr size_t kNumRecent = 16;

  struct Prefill {
    double token_seconds = 0;  // cost of a token
    int32_t num_tokens = 0;
  };

  const double most_;
  CostTable decodes_;          // by rows of steps without prefill
  double decode_seconds_ = 0;  // of the last step that had decodes, without its prefill
  Time last_end_;
  std::array<Prefill, kNumRecent> recent_;  // the newest steps with prefill, in a ring
  size_t num_prefills_ = 0;
};

}  // namespace nereid::runtime
