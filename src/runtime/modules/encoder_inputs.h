// Encoder inputs of a step, and what each row reads of their results.
#pragma once

#include <cstdint>

#include "runtime/step_module.h"

namespace nereid::runtime {

class EncoderInputs final : public StepModule {
 public:
  // `block_tokens`: rows of a block of results.
  explicit EncoderInputs(int32_t block_tokens) : block_tokens_(block_tokens) {}

  void attach(sched::Scheduler& scheduler) override { scheduler_ = &scheduler; }
  bool planned(const sched::StepPlan& plan, const sched::Scheduler&,
               exec::StepMessage& step) override;
  void write(const sched::ScheduledRow& row, const RowMessage& to) override;
  // Encoder inputs computed, and results that were found.
  void report(ExecutorStats& stats) const override;

 private:
  const int32_t block_tokens_;
  const sched::Scheduler* scheduler_ = nullptr;
  int64_t num_computed_ = 0;
};

}  // namespace nereid::runtime
