// Encoder inputs of a step, and which encoder's output each row attends to.
#pragma once

#include "runtime/step_module.h"

namespace nereid::runtime {

class EncoderInputs final : public StepModule {
 public:
  bool planned(const sched::StepPlan& plan, const sched::Scheduler&,
               exec::StepMessage& step) override;
  void write(const sched::ScheduledRow& row, const RowMessage& to) override;
};

}  // namespace nereid::runtime
