// Statistics of each step, for ExecutorStats and the rings.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "nereid/stats.h"
#include "runtime/clock.h"
#include "runtime/sequence_news.h"
#include "runtime/stats_rings.h"
#include "sched/scheduler.h"

namespace nereid::runtime {

// What the model's buffers take, in bytes; does not change while it runs.
struct MemoryTotals {
  int64_t cpu = 0, gpu = 0, pinned = 0;
};

// Owned by the engine thread.
class StepRecorder {
 public:
  // A step between launch and finish.
  struct Open {
    Time launched;
    IterationStats stats;
    int64_t num_generation_tokens = 0;
    std::vector<RequestStats> requests;  // empty unless request statistics are kept
  };

  // The references must outlive it.
  StepRecorder(const MemoryTotals& memory, StatsRings& rings, const Clock& clock)
      : memory_(memory), rings_(rings), clock_(clock) {}

  // Just planned and not yet launched. `num_queued`: requests that never ran, those on their way to
  // the engine included.
  Open begin(const sched::StepPlan& plan, const sched::Scheduler& sched, int64_t num_queued);

  // Finished and committed with this news.
  void end(Open open, const sched::Scheduler& sched, std::span<const SequenceNews> news);

  void count_numeric_failure() { ++figures_.num_numeric_failures; }
  const ExecutorStats& figures() const { return figures_; }  // those of steps

 private:
  const MemoryTotals memory_;
  StatsRings& rings_;
  const Clock& clock_;
  ExecutorStats figures_;
  sched::SchedulerStats planned_;  // as of the last begin()
  int64_t num_ended_ = 0;          // sequences, as of the last end()
  Time last_end_;
};

}  // namespace nereid::runtime
