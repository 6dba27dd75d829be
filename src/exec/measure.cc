// Timed steps with made-up tokens and cache contents.
#include "exec/measure.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "exec/step_message.h"

namespace nereid::exec {
namespace {

// `is_first`: with the sampling parameters of the rows' slots.
std::vector<std::byte> made_up_message(const Runner& runner, const StepShape& shape,
                                       bool is_first) {
  const RunnerLimits& limits = runner.limits();
  const auto per_row = static_cast<int32_t>(num_blocks_for(
      std::max<int64_t>(int64_t{shape.context} + shape.tokens_per_row, shape.prompt_tokens),
      limits.block_tokens));
  const size_t num_groups = runner.groups().size();
  StepMessage step;
  for (int32_t r = 0; r < shape.batch + (shape.prompt_tokens > 0 ? 1 : 0); ++r) {
    const bool is_prompt = r == shape.batch;
    PerGroup<std::vector<int32_t>> blocks;
    PerGroup<std::span<const int32_t>> tables;
    for (size_t g = 0; g < num_groups; ++g) {
      for (int32_t i = 0; i < per_row; ++i)
        blocks[g].push_back((r * per_row + i) % limits.num_blocks[g]);
      tables[g] = blocks[g];
    }
    // Different ones in each row: equal rows would all go to the same experts.
    std::vector<int32_t> tokens;
    const int32_t num_tokens = is_prompt ? shape.prompt_tokens : shape.tokens_per_row;
    for (int32_t i = 0; i < num_tokens; ++i)
      tokens.push_back(
          static_cast<int32_t>((int64_t{r} * num_tokens + i) * 7919 % runner.vocab_size()));
    const int32_t adapter = shape.num_adapters > 0 ? r % shape.num_adapters : -1;
    if (is_first && shape.sampling) step.loads.push_back({.params = *shape.sampling, .slot = r});
    step.add({.slot = r,
              .start = is_prompt ? 0 : shape.context,
              .num_logits = 1,
              .samples = shape.sampling ? 1 : 0,
              .adapter = adapter},
             tokens, tables, num_groups, limits.block_tokens);
  }
  std::vector<std::byte> message;
  encode(step, message);
  return message;
}

StatusOr<double> median_step_seconds(Runner& runner, std::span<const std::byte> first,
                                     std::span<const std::byte> message, int32_t num_steps) {
  std::vector<double> times;
  ASSIGN_OR_RETURN(Ticket flying, runner.launch(first));
  Time last = now();
  for (int32_t i = 0; i < num_steps; ++i) {
    auto next = runner.launch(message);
    const Status status = runner.wait(flying).status();
    RETURN_IF_ERROR(next.status());
    flying = *std::move(next);
    if (!status.ok()) {
      // Returns the first error, after all steps in flight have ended.
      runner.wait(flying).IgnoreError();
      return status;
    }
    const Time at = now();
    times.push_back(seconds(at - last));
    last = at;
  }
  RETURN_IF_ERROR(runner.wait(flying).status());
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

}  // namespace

uint64_t StepCost::bytes() const {
  uint64_t sum = 0;
  for (const OpTime& op : ops) sum += op.bytes;
  return sum;
}

std::string StepCost::table(const StepLimits& limits) const {
  std::string text =
      fmt::format("  {:<14} {:<12} {:<24} {:>6} {:>10} {:>7} {:>8} {:>7} {:>9}\n", "op", "kernel",
                  "shape", "calls", "us", "GB/s", "GFLOP/s", "% roof", "% busy");
  double sum = 0;
  for (const OpTime& op : ops) {
    sum += op.seconds;
    if (op.seconds <= 0) continue;
    const auto bytes = static_cast<double>(op.bytes);
    double least = limits.read_bytes_per_s > 0 ? bytes / limits.read_bytes_per_s : 0;
    if (const auto peak = limits.flops_per_s.find(op.kernel); peak != limits.flops_per_s.end())
      least = std::max(least, op.flops / peak->second);
    std::string busy = "-";
    if (!op.busy.empty()) {
      const auto [fewest, most] = std::minmax_element(op.busy.begin(), op.busy.end());
      busy = fmt::format("{:.0f}-{:.0f}", 100 * *fewest / op.seconds, 100 * *most / op.seconds);
    }
    text += fmt::format("  {:<14} {:<12} {:<24} {:>6} {:>10.1f} {:>7.1f} {:>8.0f} {:>7} {:>9}\n",
                        op.op, op.kernel, op.shape, op.num_calls, op.seconds * 1e6,
                        bytes / op.seconds / 1e9, op.flops / op.seconds / 1e9,
                        least > 0 ? fmt::format("{:.0f}", 100 * least / op.seconds) : "-", busy);
  }
  if (sum > 0)
    text += fmt::format("  calls {:.1f} us, outside of calls {:.1f} us\n", sum * 1e6,
                        std::max(0.0, profiled_seconds - sum) * 1e6);
  return text;
}

StatusOr<StepCost> measure_steps(Runner& runner, const StepShape& shape, int32_t num_steps) {
  if (shape.batch < 1 || shape.context < 0 || shape.tokens_per_row < 1 || shape.prompt_tokens < 0 ||
      num_steps < 1)
    return invalid_argument("cannot measure {} steps of {} rows, {} tokens after {}", num_steps,
                            shape.batch, shape.tokens_per_row, shape.context);
  const int32_t room = runner.limits().max_sequence_length - shape.tokens_per_row;
  if (shape.context > room || shape.prompt_tokens > runner.limits().max_sequence_length)
    return invalid_argument("context {} and {} new tokens, or a prompt of {}, exceed {} positions",
                            shape.context, shape.tokens_per_row, shape.prompt_tokens,
                            runner.limits().max_sequence_length);
  const std::vector<std::byte> first = made_up_message(runner, shape, true);
  const std::vector<std::byte> message = made_up_message(runner, shape, false);
  StepCost cost;
  ASSIGN_OR_RETURN(cost.seconds, median_step_seconds(runner, first, message, num_steps));
  runner.set_profiling(true);
  const auto profiled = median_step_seconds(runner, first, message, num_steps);
  cost.ops = runner.profile();
  runner.set_profiling(false);
  ASSIGN_OR_RETURN(cost.profiled_seconds, profiled);
  const int32_t num_runs = num_steps + 1;
  for (OpTime& op : cost.ops) {
    op.num_calls /= num_runs;
    op.seconds /= num_runs;
    op.bytes /= static_cast<uint64_t>(num_runs);
    op.flops /= num_runs;
    for (double& seconds : op.busy) seconds /= num_runs;
  }
  return cost;
}

}  // namespace nereid::exec
