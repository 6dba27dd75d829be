// Sizes of the buffers of a runner.
#include "exec/memory.h"

#include <algorithm>
#include <limits>

#include "base/round_up.h"
#include "exec/kv_cache.h"
#include "exec/step_data.h"
#include "kernels/api/sample.h"

namespace nereid::exec {
namespace {

constexpr int32_t kMaxRows = 1 << 16;
constexpr int32_t kMaxTokens = 1 << 20;
constexpr int32_t kMaxBlockTokens = 1024;
constexpr int32_t kMaxWindow = 1 << 30;
constexpr double kMaxCacheBytes = 1e18;  // sizes below fit in 64 bits
constexpr int32_t kMaxBlocks = std::numeric_limits<int32_t>::max();

Status check_range(std::string_view field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return ok();
  return invalid_argument("limit {}: {} is not in [{}, {}]", field, value, low, high);
}

std::string describe(const std::vector<MemoryItem>& table) {
  std::string text;
  for (const MemoryItem& item : table)
    text += fmt::format("{}{} {:.1f} MiB", text.empty() ? "" : ", ", item.what,
                        static_cast<double>(item.bytes) / (1 << 20));
  return text;
}

}  // namespace

Status check_limits(const io::Plan& plan, const RunnerLimits& limits) {
  RETURN_IF_ERROR(check_range("max_rows", limits.max_rows, 1, kMaxRows));
  RETURN_IF_ERROR(check_range("max_tokens", limits.max_tokens, 1, kMaxTokens));
  RETURN_IF_ERROR(
      check_range("max_sequence_length", limits.max_sequence_length, 1, plan.model.max_positions));
  RETURN_IF_ERROR(check_range("block_tokens", limits.block_tokens, 1, kMaxBlockTokens));
  RETURN_IF_ERROR(check_range("num_blocks", limits.num_blocks, 0, kMaxBlocks));
  RETURN_IF_ERROR(
      check_range("num_host_blocks", limits.num_host_blocks, 0, kMaxBlocks - limits.num_blocks));
  if (limits.kv_type != DType::kBF16 && !kernels::has_kv_scales(limits.kv_type))
    return invalid_argument("limit kv_type: {} is not one of bf16, i8, f8e4m3",
                            name_of(limits.kv_type));
  RETURN_IF_ERROR(check_range("window", limits.window, 0, kMaxWindow));
  RETURN_IF_ERROR(check_range("sink", limits.sink, 0, kMaxWindow));
  RETURN_IF_ERROR(check_range("max_logits", limits.max_logits, 0, kMaxTokens));
  const double blocks = static_cast<double>(limits.num_blocks) + limits.num_host_blocks;
  const double cache = blocks * static_cast<double>(kv_block_bytes(plan, limits));
  if (cache > kMaxCacheBytes)
    return resource_exhausted("limit num_blocks: {} blocks are a KV cache of {:.3g} bytes", blocks,
                              cache);
  return ok();
}

int32_t blocks_per_sequence(const RunnerLimits& limits) {
  return (limits.max_sequence_length - 1) / limits.block_tokens + 1;
}

int32_t blocks_held_per_sequence(const RunnerLimits& limits) {
  const int32_t all = blocks_per_sequence(limits);
  if (limits.window == 0) return all;
  const int64_t t = limits.block_tokens;
  // The window before a step's first token, the step's tokens, and a partial block at either end.
  const int64_t recent = (int64_t{limits.window} + limits.max_tokens + t - 1) / t + 1;
  const int64_t held = recent + (limits.sink + t - 1) / t;
  return static_cast<int32_t>(std::min<int64_t>(all, held));
}

int32_t window_of(int32_t window, const RunnerLimits& limits) {
  if (window == 0 || limits.window == 0) return std::max(window, limits.window);
  return std::min(window, limits.window);
}

int32_t model_window(const io::Plan& plan) {
  int32_t longest = 0;
  for (const io::Call& call : plan.calls) {
    const auto* attention = std::get_if<kernels::ids::Attention>(&call.op);
    if (!attention) continue;
    if (attention->window == 0) return 0;
    longest = std::max(longest, attention->window);
  }
  return longest;
}

size_t kv_block_bytes(const io::Plan& plan, const RunnerLimits& limits) {
  const KvLayout layout = KvLayout::of(plan, limits, 0);
  return size_t{2} * plan.model.num_layers * (layout.data_block + layout.scale_block);
}

size_t arena_bytes(const io::Plan& plan, const RunnerLimits& limits, io::Extent extent) {
  const int32_t rows = extent == io::Extent::kTokens ? limits.max_tokens : limits.num_logits_rows();
  return static_cast<size_t>(plan.arena_bytes_per_row[static_cast<int>(extent)]) * rows;
}

size_t rope_table_floats(const io::RopeTable& rope, const RunnerLimits& limits) {
  return static_cast<size_t>(limits.max_sequence_length) * 2 * rope.inverse_frequencies.size();
}

size_t rope_table_bytes(const io::Plan& plan, const RunnerLimits& limits) {
  size_t floats = 0;
  for (const io::RopeTable& rope : plan.model.ropes) floats += rope_table_floats(rope, limits);
  return floats * sizeof(float);
}

size_t SamplingBytes::total() const {
  return rows + params + results + top + history + kNumStaging * (staging + results + top);
}

SamplingBytes sampling_bytes(int32_t max_rows, int32_t max_sequence_length) {
  const auto slots = static_cast<size_t>(max_rows);
  SamplingBytes bytes{
      .rows = slots * sizeof(kernels::SampleRow),
      .params = slots * sizeof(kernels::SampleParams),
      .results = slots * sizeof(kernels::SampleResult),
      .top = slots * kernels::kMaxTopTokens * sizeof(kernels::TopToken),
      .history = slots * static_cast<size_t>(max_sequence_length) * sizeof(int32_t)};
  bytes.staging = round_up(bytes.rows, kUploadAlignment) +
                  slots * round_up(sizeof(kernels::SampleParams), kUploadAlignment);
  return bytes;
}

std::vector<MemoryItem> memory_table(const io::Plan& plan, const RunnerLimits& limits,
                                     const DeviceInfo& device) {
  // The staging areas in host memory, the device's copy, slot tokens.
  const size_t slots = static_cast<size_t>(limits.max_rows) * sizeof(int32_t);
  const size_t step_data = (kNumStaging + 1) * StepData::max_bytes(limits) + slots;
  return {{"weights", plan.blob_bytes},
          {"KV cache", KvLayout::of(plan, limits, limits.num_blocks).bytes()},
          {"activations", arena_bytes(plan, limits, io::Extent::kTokens) +
                              arena_bytes(plan, limits, io::Extent::kSampled)},
          {"step data", step_data},
          {"sampling", sampling_bytes(limits.max_rows, limits.max_sequence_length).total()},
          {"rope table", rope_table_bytes(plan, limits)},
          {"kernel workspace", device.workspace_bytes},
          {"host KV cache", KvLayout::of(plan, limits, limits.num_host_blocks).bytes()}};
}

StatusOr<int32_t> num_blocks_that_fit(const io::Plan& plan, const RunnerLimits& limits,
                                      const DeviceInfo& device, size_t budget_bytes) {
  RunnerLimits without = limits;
  without.num_blocks = without.num_host_blocks = 0;
  RETURN_IF_ERROR(check_limits(plan, without));
  const std::vector<MemoryItem> table = memory_table(plan, without, device);
  size_t fixed = KvLayout::max_padding(plan);
  for (const MemoryItem& item : table) fixed += item.bytes;
  const size_t block = kv_block_bytes(plan, limits);
  const size_t num_blocks = budget_bytes > fixed ? (budget_bytes - fixed) / block : 0;
  const auto needed = static_cast<size_t>(blocks_held_per_sequence(limits));
  if (num_blocks < needed)
    return resource_exhausted(
        "a memory budget of {:.1f} MiB leaves room for {} KV blocks; one sequence of {} positions "
        "needs {} of {} bytes each (besides: {})",
        static_cast<double>(budget_bytes) / (1 << 20), num_blocks, limits.max_sequence_length,
        needed, block, describe(table));
  return static_cast<int32_t>(std::min(num_blocks, static_cast<size_t>(kMaxBlocks)));
}

}  // namespace nereid::exec
