// The step loop: one thread owns the scheduler and the runner of a model instance.
#pragma once

#include <optional>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "exec/runner.h"
#include "runtime/inbox.h"
#include "runtime/outbox.h"
#include "runtime/progress.h"
#include "runtime/sampler.h"
#include "sched/scheduler.h"

namespace nereid::runtime {

class Engine {
 public:
  // Starts the thread. With `overlap` a step is launched before the results of the one before it
  // are looked at; without, the same code waits for each step. All references must outlive the
  // engine.
  Engine(exec::Runner& runner, Sampler& sampler, const sched::Limits& limits, bool overlap,
         Inbox& inbox, Outbox& outbox, Progress& progress);
  ~Engine();  // cancels what still runs, then joins

 private:
  // A step on the device, or one whose launch failed; both end in finish().
  struct Step {
    sched::StepPlan plan;
    StatusOr<exec::Ticket> ticket;
    int32_t area = 0;  // of the sampler's results
    Time launched;
  };

  void run();
  void apply(Command& command);
  void submit(sched::SequenceSpec spec);
  Step launch(sched::StepPlan plan);
  void finish(Step step);
  void report();

  exec::Runner& runner_;
  Sampler& sampler_;
  const bool overlap_;
  Inbox& inbox_;
  Outbox& outbox_;
  Progress& progress_;
  sched::Scheduler sched_;
  std::vector<sched::RowNews> news_;  // of this turn, not yet posted
  ExecutorStats figures_;             // of steps; the rest comes from sched_
  int64_t num_refused_ = 0;           // accepted, then refused by the scheduler
  int64_t num_submitted_ = 0;         // taken from the inbox
  int64_t num_left_queue_ = 0;        // of those, reported as no longer queued
  Time last_finish_;
  bool idle_ = true;
  std::thread thread_;
};

}  // namespace nereid::runtime
