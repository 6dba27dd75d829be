// A feature of the engine as the step loop sees it: hooks for each phase of a step.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "exec/runner.h"
#include "exec/step_message.h"
#include "nereid/stats.h"
#include "runtime/engine_update.h"
#include "runtime/requests/inbox.h"
#include "sched/scheduler.h"

namespace nereid::runtime {

// A row of the message that is being written. Its parts of the step's other arrays are appended.
struct RowMessage {
  exec::StepRow& out;         // in step.rows; has its slot, positions and how it draws
  std::span<TokenId> tokens;  // the row's input in step.tokens
  exec::StepMessage& step;
  int32_t& spare_logits;  // rows of logits that the step has room for beside those planned
};

// A row whose step is done, before the scheduler takes note of it.
struct LandedRow {
  const sched::ScheduledRow& row;
  const exec::RowResult& result;
  bool is_late = false;  // its mask took longer: nothing that it drew is used
};

// A step that is committed, or failed.
struct FinishedStep {
  const sched::StepPlan& plan;  // sequences that have ended are gone
  Time launched, finished;
  bool failed = false;  // its rows' sequences have ended
  const sched::Scheduler& scheduler;
  std::span<EngineUpdate> updates;  // that it gave
};

// A module has the hooks that its feature needs, and keeps data of sequences between open() and
// close(). The engine calls each hook of all modules in the order of their list (step_modules.cc).
// Engine's thread only.
class StepModule {
 public:
  virtual ~StepModule() = default;

  // Once, before all other calls; the scheduler outlives them.
  virtual void attach(sched::Scheduler&) {}

  // A sequence is about to be submitted. `request`, without its group, is what came with it.
  virtual void open(const sched::SequenceSpec&, const Submit& /*request*/) {}
  // The sequence has ended, or was refused. A row of it may still be in flight.
  virtual void close(RequestId) {}
  // Nothing is kept of any sequence.
  virtual bool empty() const { return true; }

  // Before a plan: drafts for the scheduler. They come behind tokens that the host has, so that the
  // module may need all steps in flight to complete first, if there are any (`in_flight`): then it
  // returns false, has done nothing, and later modules are not asked.
  [[nodiscard]] virtual bool offer(sched::Scheduler&, bool /*in_flight*/) { return true; }

  // Behind a plan, which may be empty: what the step does beside its rows. True: it does something,
  // so it is launched even without rows.
  virtual bool planned(const sched::StepPlan&, const sched::Scheduler&, exec::StepMessage&) {
    return false;
  }
  // Each row of the plan, in order; every module before the next row.
  virtual void write(const sched::ScheduledRow&, const RowMessage&) {}

  // A step that has rows with masks (StepRow::has_mask), when all before it have completed. `late`
  // gets the numbers of rows, ascending, whose masks take longer; their sequences are held until
  // resume() is true.
  virtual void mask(const sched::StepPlan&, exec::Masks&, std::vector<int32_t>& /*late*/) {}
  // MaskMade came: true if the module had the sequence wait for it.
  virtual bool resume(RequestId) { return false; }

  // A step with encoder inputs that did not fail, before its rows: outputs of those that asked for
  // them, in order.
  virtual void encoded(std::span<const exec::EncodedInput>) {}
  // Each row of a step that did not fail, in order, every module before the next row; but not rows
  // whose draw gave no token. Not OK: the sequence ends with it, later modules are not asked.
  virtual Status completed(const LandedRow&, EngineUpdate&) { return ok(); }
  // Why the row's request leaves it no token to draw; OK: not by this module.
  virtual Status failure(const sched::ScheduledRow&) { return ok(); }
  // Each step, oldest first.
  virtual void finished(const FinishedStep&) {}

  // Each turn: the module's figures.
  virtual void report(ExecutorStats&) const {}
};

using StepModules = std::vector<std::unique_ptr<StepModule>>;

}  // namespace nereid::runtime
