// Timed steps with made-up contents.
#include "exec/measure.h"

#include <algorithm>

#include "base/clock.h"

namespace nereid::exec {
namespace {

// The rows of a step and what they point at.
struct MadeUpStep {
  std::vector<int32_t> tokens, blocks;
  std::vector<StepRow> rows;

  MadeUpStep(const Runner& runner, const StepShape& shape) {
    const RunnerLimits& limits = runner.limits();
    const int32_t end = shape.context + shape.tokens_per_row;
    const int32_t per_row = (end - 1) / limits.block_tokens + 1;
    for (int32_t i = 0; i < shape.tokens_per_row; ++i)
      tokens.push_back(static_cast<int32_t>(i * int64_t{7919} % runner.vocab_size()));
    const size_t num_groups = runner.groups().size();
    for (size_t g = 0; g < num_groups; ++g)
      for (int32_t i = 0; i < shape.batch * per_row; ++i)
        blocks.push_back(i % limits.num_blocks[g]);
    for (int32_t r = 0; r < shape.batch; ++r) {
      StepRow& row = rows.emplace_back(StepRow{r, shape.context, tokens, {}, 1});
      for (size_t g = 0; g < num_groups; ++g)
        row.blocks[g] = std::span(blocks).subspan((g * shape.batch + r) * per_row, per_row);
    }
  }
};

StatusOr<double> median_step_seconds(Runner& runner, const MadeUpStep& step, int32_t num_steps) {
  std::vector<double> times;
  ASSIGN_OR_RETURN(Ticket flying, runner.launch(step.rows, {}, nullptr));
  Time last = now();
  for (int32_t i = 0; i < num_steps; ++i) {
    auto next = runner.launch(step.rows, {}, nullptr);
    Status status = runner.wait(flying);
    RETURN_IF_ERROR(next.status());
    flying = *std::move(next);
    if (!status.ok()) {
      // The first error is the interesting one, but no step may be left behind.
      static_cast<void>(runner.wait(flying));
      return status;
    }
    const Time at = now();
    times.push_back(seconds(at - last));
    last = at;
  }
  RETURN_IF_ERROR(runner.wait(flying));
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

}  // namespace

StatusOr<StepCost> measure_steps(Runner& runner, const StepShape& shape, int32_t num_steps) {
  if (shape.batch < 1 || shape.context < 0 || shape.tokens_per_row < 1 || num_steps < 1)
    return invalid_argument("cannot measure {} steps of {} rows, {} tokens after {}", num_steps,
                            shape.batch, shape.tokens_per_row, shape.context);
  const int32_t room = runner.limits().max_sequence_length - shape.tokens_per_row;
  if (shape.context > room)
    return invalid_argument("context {} and {} new tokens exceed {} positions", shape.context,
                            shape.tokens_per_row, runner.limits().max_sequence_length);
  const MadeUpStep step(runner, shape);
  StepCost cost;
  ASSIGN_OR_RETURN(cost.seconds, median_step_seconds(runner, step, num_steps));
  runner.set_profiling(true);
  const auto profiled = median_step_seconds(runner, step, num_steps);
  cost.ops = runner.profile();
  runner.set_profiling(false);
  RETURN_IF_ERROR(profiled.status());
  const int32_t num_runs = num_steps + 1;
  for (OpTime& op : cost.ops) {
    op.num_calls /= num_runs;
    op.seconds /= num_runs;
    op.bytes /= static_cast<uint64_t>(num_runs);
  }
  return cost;
}

}  // namespace nereid::exec
