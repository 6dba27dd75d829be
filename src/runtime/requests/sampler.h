// Sampling part of step messages, and their sampling results.
#pragma once

#include <span>
#include <vector>

#include "exec/runner.h"
#include "exec/step_message.h"
#include "sched/step_plan.h"

namespace nereid::runtime {

// The sampled token of a row is a function of logits, parameters, seed, position and previous
// tokens; batch, slot and overlap do not matter. The runner keeps parameters and, where needed,
// tokens by slot; this class tracks the sequence of each slot and reloads it on a change. Owned by
// the engine thread.
class Sampler {
 public:
  struct Options {
    int32_t max_rows = 0;  // number of slots
    int32_t vocab_size = 0;
    bool normalize_log_probs = true;  // see ExecutorConfig
  };

  explicit Sampler(const Options& options);

  // Sets the sampling fields of the message row `out`, and which logits are returned: with
  // all_logits those of all positions, with generation logits those that tokens are sampled from.
  // Adds the slot's load to `step` if needed. Rows are added in the order of launches.
  void add(const sched::ScheduledRow& row, exec::StepRow& out, exec::StepMessage& step);

  // Sampled tokens of a row, none if it does not sample; valid until the next call.
  std::span<const sched::SampledTokens> drawn(const sched::ScheduledRow& row,
                                              const exec::RowResult& result);

 private:
  // The runner's contents of a slot.
  struct Slot {
    RequestId sequence = 0;
    int32_t beam = 0;
    int32_t next_position = -1;  // after the last sampled token; another position: reload. -1:
                                 // unknown until its drafts are tested
    bool keeps_history = false, draws = true;
  };

  void add_sample(const sched::ScheduledRow& row, exec::StepMessage& step);

  const Options options_;
  std::vector<Slot> slots_;
  // Results of the last drawn().
  std::vector<sched::SampledTokens> drawn_;
  std::vector<TokenLogProb> top_;
};

}  // namespace nereid::runtime
