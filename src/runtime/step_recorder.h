// Statistics of each step and of the scheduler, for ExecutorStats and the rings.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "nereid/stats.h"
#include "runtime/outputs/stats_rings.h"
#include "runtime/progress.h"
#include "runtime/step_module.h"

namespace nereid::runtime {

// Bytes of the model's buffers; constant while it runs.
struct MemoryTotals {
  int64_t cpu = 0, gpu = 0, pinned = 0;
};

class StepRecorder : public StepModule {
 public:
  // The references must outlive it.
  StepRecorder(const MemoryTotals& memory, const Progress& progress, StatsRings& rings)
      : memory_(memory), progress_(progress), rings_(rings) {}

  void attach(sched::Scheduler& sched) override { sched_ = &sched; }
  bool planned(const sched::StepPlan& plan, const sched::Scheduler& sched,
               exec::StepMessage&) override;
  void finished(const FinishedStep& step) override;
  void report(ExecutorStats& stats) const override;

 private:
  // A step with rows, from its plan to its end.
  struct Open {
    IterationStats stats;
    int64_t num_generation_tokens = 0;
    std::vector<RequestStats> requests;  // empty unless request statistics are kept
  };

  void push_iteration(IterationStats stats, const FinishedStep& step);
  void report_scheduler(ExecutorStats& stats) const;

  const MemoryTotals memory_;
  const Progress& progress_;
  StatsRings& rings_;
  const sched::Scheduler* sched_ = nullptr;
  std::vector<Open> open_;  // oldest first
  // Figures of the last step that ended.
  int64_t num_context_tokens_ = 0, num_generation_tokens_ = 0;
  int64_t num_context_requests_ = 0, num_generation_requests_ = 0;
  double seconds_ = 0;
  Time last_end_;
  int64_t num_steps_ = 0;          // that have ended
  sched::SchedulerStats planned_;  // as of the last plan
  int64_t num_ended_ = 0;          // sequences, as of the end of the last step
};

}  // namespace nereid::runtime
