// The list of the engine's modules.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/clock.h"
#include "runtime/clock.h"
#include "runtime/grammars/grammar_masks.h"
#include "runtime/outputs/stats_rings.h"
#include "runtime/progress.h"
#include "runtime/speculation/speculation.h"
#include "runtime/step_module.h"
#include "runtime/step_recorder.h"

namespace nereid::runtime {

// Parameters of the modules; all that is pointed to must outlive them.
struct StepModuleOptions {
  MemoryTotals memory;                // for the statistics
  std::span<const float> score_head;  // [labels, hidden_size]
  Duration max_prefill{};             // in a step beside decodes; 0: no limit
  bool jumps_ahead = true;            // see ExecutorConfig::enable_jump_ahead
  int64_t guide_steps = GrammarMasks::kTurnSteps;
  Proposer* proposer = nullptr;  // of drafts; null: none
  Speculation::Options speculation;
  const Clock* clock = &steady_clock();
};

// All modules, in the order of their calls. References must outlive them. `scored(id)` is called on
// another thread when the scores of a prompt are made that updates have brought.
StepModules make_step_modules(const StepModuleOptions& options, const exec::Runner& runner,
                              Inbox& inbox, const Progress& progress, StatsRings& rings,
                              std::function<void(RequestId)> scored);

}  // namespace nereid::runtime
