// What the messages of steps say of sampling, and what comes back of it.
#pragma once

#include <span>
#include <vector>

#include "exec/runner.h"
#include "exec/step_message.h"
#include "sched/step_plan.h"

namespace nereid::runtime {

// A row's token depends only on its logits, parameters, seed, position and the tokens before it:
// not on batch, slot or overlap. The runner keeps parameters and, where they are needed, tokens by
// slot; this knows which sequence they belong to and loads them again when that changes. Owned by
// the engine thread.
class Sampler {
 public:
  struct Options {
    int32_t max_rows = 0;  // number of slots
    int32_t vocab_size = 0;
    bool normalize_log_probs = true;  // see ExecutorConfig
  };

  explicit Sampler(const Options& options);

  // Says in `out`, the message's row for `row`, what is drawn and which logits come back: those of
  // all its positions when the row has all_logits, else those that it draws from when its request
  // wants generation logits. Adds to `step` what its slot has to be loaded with. The rows of all
  // steps must be added in the order in which the steps are launched.
  void add(const sched::Row& row, exec::StepRow& out, exec::Step& step);

  // What a row has drawn, none if it does not sample; valid until the next call.
  std::span<const sched::Drawn> drawn(const sched::Row& row, const exec::RowResult& result);

 private:
  // What the runner holds for a slot.
  struct Slot {
    RequestId sequence = 0;
    int32_t beam = 0;
    int32_t next_position = -1;  // after the last draw; any other means: load again. -1: not known
                                 // before its drafts are
    bool keeps_history = false, draws = true;
  };

  void add_sample(const sched::Row& row, exec::Step& step);

  const Options options_;
  std::vector<Slot> slots_;
  // Results of the last drawn().
  std::vector<sched::Drawn> drawn_;
  std::vector<TokenLogProb> top_;
};

}  // namespace nereid::runtime
