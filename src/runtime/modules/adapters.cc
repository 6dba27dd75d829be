#include "runtime/modules/adapters.h"

#include <algorithm>

#include "exec/adapter_pool.h"

namespace nereid::runtime {

Adapters::Adapters(const exec::RunnerLimits& limits)
    : places_(limits.num_adapters, limits.num_adapter_pages, exec::max_load_weights(limits)) {}

void Adapters::attach(sched::Scheduler& scheduler) {
  scheduler.set_adapter_check([this](uint64_t adapter) { return places_.is_loaded(adapter); });
}

void Adapters::open(const sched::SequenceSpec& spec, const Submit& request) {
  if (request.adapter) places_.open(spec.id, request.adapter);
}

bool Adapters::planned(const sched::StepPlan& plan, const sched::Scheduler& scheduler,
                       exec::StepMessage& step) {
  for (size_t i = 0; i < plan.encodes.size(); ++i)
    step.encoder_inputs[i].adapter = places_.slot_of(plan.encodes[i].sequence->id());
  const auto running = scheduler.running();
  if (std::ranges::none_of(running, &sched::Sequence::awaits_adapter)) return false;
  uses_.clear();
  for (const sched::Sequence* sequence : running)
    if (const uint64_t key = sequence->spec().adapter; key != 0)
      uses_.push_back({sequence->id(), key});
  return places_.advance(uses_, step);
}

void Adapters::write(const sched::ScheduledRow& row, const RowMessage& to) {
  to.out.adapter = places_.slot_of(row.sequence->id());
}

void Adapters::finished(const FinishedStep& step) {
  if (step.failed) places_.forget();
}

}  // namespace nereid::runtime
