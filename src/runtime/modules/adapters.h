// Adapters of sequences: loaded into the device's places before their sequences have rows.
#pragma once

#include <vector>

#include "runtime/adapters/adapter_slots.h"
#include "runtime/step_module.h"

namespace nereid::runtime {

class Adapters : public StepModule {
 public:
  explicit Adapters(const exec::RunnerLimits& limits);

  void attach(sched::Scheduler& scheduler) override;
  void open(const sched::SequenceSpec& spec, const Submit& request) override;
  void close(RequestId id) override { places_.close(id); }
  bool empty() const override { return places_.empty(); }
  // A part of what the sequences wait for that have been let in.
  bool planned(const sched::StepPlan& plan, const sched::Scheduler& scheduler,
               exec::StepMessage& step) override;
  void write(const sched::ScheduledRow& row, const RowMessage& to) override;
  void finished(const FinishedStep& step) override;
  void report(ExecutorStats& stats) const override { places_.add_stats(stats.adapters); }

 private:
  AdapterSlots places_;
  std::vector<AdapterSlots::Use> uses_;  // of a call of planned()
};

}  // namespace nereid::runtime
