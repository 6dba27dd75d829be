// The step loop: one thread owns the scheduler and the runner of a model instance. Up to
// RunnerLimits::depth steps are in flight: with more than one, a step is launched before the
// previous step's results are read.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "exec/runner.h"
#include "exec/step_message.h"
#include "runtime/clock.h"
#include "runtime/engine_update.h"
#include "runtime/outputs/stats_rings.h"
#include "runtime/progress.h"
#include "runtime/requests/inbox.h"
#include "runtime/requests/sampler.h"
#include "runtime/step_module.h"
#include "sched/scheduler.h"
#include "tensor/health.h"

namespace nereid::runtime {

struct EngineOptions {
  sched::Limits limits;
  bool normalize_log_probs = true;       // see ExecutorConfig
  const Clock* clock = &steady_clock();  // must outlive the engine
};

// For one thread at a time (EngineThread; tests and replays call it by hand). It starts none of its
// own; its modules do for work that takes long.
class Engine {
 public:
  // All references must outlive the engine.
  Engine(const Health& health, exec::Runner& runner, const EngineOptions& options,
         StepModules modules, Inbox& inbox, UpdateSink& updates, Progress& progress,
         StatsRings& rings);

  // Takes what has come to the inbox for the next turn. `may_sleep`: waits for it where nothing
  // else is to be done. False: the inbox is closed and drained.
  bool take_commands(bool may_sleep);

  // One turn of the loop: applies the commands, launches the next step if there is one, and
  // finishes the oldest where as many are in flight as the runner takes, or nothing was launched.
  void turn();

  // Behind the last turn: finishes what is in flight. All sequences must have ended.
  void finish();

  bool device_has_failed() const { return device_failed_; }

 private:
  // A step on the device, or one whose launch failed; both end in finish_step().
  struct InFlightStep {
    sched::StepPlan plan;
    bool has_drafts = false;
    bool waits_for_masks = false;  // before it draws
    std::vector<int32_t> late;     // numbers of rows that draw nothing, as their masks take longer
    StatusOr<exec::Ticket> ticket;
    Time launched;
  };

  // Several sequences of one request.
  struct Group {
    int32_t size = 0;  // their ids follow that of the first
    int32_t num_open = 0;
  };

  void look_after_device();
  void check_counts();
  void apply(Command& command);
  void submit(Submit command);
  void cancel(RequestId id);
  void take_guide(const GrammarReady& made);
  int32_t num_sequences(RequestId id) const;
  bool launch_next();
  InFlightStep launch(sched::StepPlan plan);
  void write_message(const sched::StepPlan& plan);
  void draw_oldest();
  std::span<const TokenId> input_of(const sched::ScheduledRow& row);
  void finish_oldest();
  void take_onboards(bool may_wait);
  void finish_step(InFlightStep step);
  void commit(const InFlightStep& step, exec::StepResult results);
  Status land(const LandedRow& completed, EngineUpdate& update);
  void fail_numerically(const sched::ScheduledRow& row);
  void post(EngineUpdate update);
  void post(std::vector<sched::SequenceUpdate> rows);
  void close(RequestId id);
  void report();

  const Health& health_;
  exec::Runner& runner_;
  const Clock& clock_;
  Inbox& inbox_;
  UpdateSink& sink_;
  Progress& progress_;
  StatsRings& rings_;
  sched::Scheduler sched_;
  Sampler sampler_;
  const StepModules modules_;
  // Steps in flight, oldest first; less than the runner's depth when the next is planned.
  std::vector<InFlightStep> in_flight_;
  // Launched plans with unreported onboards, oldest first: the launch's error, or no value if the
  // runner will report them.
  std::deque<std::optional<Status>> onboards_;
  std::vector<EngineUpdate> updates_;  // of this turn, not yet posted
  // Memory that every turn uses again.
  std::vector<Command> commands_;
  sched::StepPlan former_plan_;
  exec::StepMessage step_;             // of the message
  exec::Masks masks_;                  // of the step that draws
  std::vector<TokenId> input_;         // of a row with drafts
  std::vector<std::byte> message_;     // the last one
  std::map<RequestId, Group> groups_;  // by the first one's id, while one of them is open
  int64_t num_refused_ = 0;            // accepted, then refused by the scheduler
  int64_t num_numeric_failures_ = 0;   // see ExecutorStats
  int64_t num_submitted_ = 0;          // taken from the inbox
  int64_t num_left_queue_ = 0;         // of those, reported as no longer queued
  bool idle_ = true;
  bool only_guides_ = false;    // nothing can be done before a guide or a mask is made
  bool device_failed_ = false;  // and the log has a line of it
  Time counts_checked_{};
};

}  // namespace nereid::runtime
