// Sizes of the buffers of a runner.
#include "exec/memory.h"

#include <algorithm>
#include <limits>

#include "exec/step_data.h"

namespace nereid::exec {
namespace {

constexpr size_t kPlaneAlignment = 256;
constexpr int32_t kMaxRows = 1 << 16;
constexpr int32_t kMaxTokens = 1 << 20;
constexpr int32_t kMaxBlockTokens = 1024;
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
  const double cache = static_cast<double>(limits.num_blocks) * limits.block_tokens *
                       static_cast<double>(kv_block_bytes(plan, 1));
  if (cache > kMaxCacheBytes)
    return resource_exhausted("limit num_blocks: {} blocks are a KV cache of {:.3g} bytes",
                              limits.num_blocks, cache);
  return ok();
}

int32_t blocks_per_sequence(const RunnerLimits& limits) {
  return (limits.max_sequence_length - 1) / limits.block_tokens + 1;
}

size_t kv_plane_bytes(const io::Plan& plan, const RunnerLimits& limits) {
  const size_t bytes = static_cast<size_t>(limits.num_blocks) * plan.model.num_kv_heads *
                       limits.block_tokens * plan.model.head_dim * size_of(plan.model.kv_dtype);
  return (bytes + kPlaneAlignment - 1) / kPlaneAlignment * kPlaneAlignment;
}

size_t kv_block_bytes(const io::Plan& plan, int32_t block_tokens) {
  return size_t{2} * plan.model.num_layers * plan.model.num_kv_heads * block_tokens *
         plan.model.head_dim * size_of(plan.model.kv_dtype);
}

size_t kv_cache_bytes(const io::Plan& plan, const RunnerLimits& limits) {
  return size_t{2} * plan.model.num_layers * kv_plane_bytes(plan, limits);
}

size_t arena_bytes(const io::Plan& plan, const RunnerLimits& limits, io::Extent extent) {
  const int32_t rows = extent == io::Extent::kTokens ? limits.max_tokens : limits.max_rows;
  return static_cast<size_t>(plan.arena_bytes_per_row[static_cast<int>(extent)]) * rows;
}

size_t rope_table_bytes(const io::Plan& plan, const RunnerLimits& limits) {
  return static_cast<size_t>(limits.max_sequence_length) * plan.model.head_dim * sizeof(float);
}

std::vector<MemoryItem> memory_table(const io::Plan& plan, const RunnerLimits& limits) {
  // The staging areas in host memory, the device's copy, sampled ids on both sides, slot tokens.
  const size_t ids = static_cast<size_t>(limits.max_rows) * sizeof(int32_t);
  const size_t step_data = (kNumStaging + 1) * (StepData::max_bytes(limits) + ids) + ids;
  return {{"weights", plan.blob_bytes},
          {"KV cache", kv_cache_bytes(plan, limits)},
          {"activations", arena_bytes(plan, limits, io::Extent::kTokens) +
                              arena_bytes(plan, limits, io::Extent::kSampled)},
          {"step data", step_data},
          {"rope table", rope_table_bytes(plan, limits)}};
}

StatusOr<int32_t> num_blocks_that_fit(const io::Plan& plan, const RunnerLimits& limits,
                                      size_t budget_bytes) {
  RunnerLimits without = limits;
  without.num_blocks = 0;
  RETURN_IF_ERROR(check_limits(plan, without));
  const std::vector<MemoryItem> table = memory_table(plan, without);
  // Rounding of the planes costs at most one unit each.
  size_t fixed = size_t{2} * plan.model.num_layers * kPlaneAlignment;
  for (const MemoryItem& item : table) fixed += item.bytes;
  const size_t block = kv_block_bytes(plan, limits.block_tokens);
  const size_t num_blocks = budget_bytes > fixed ? (budget_bytes - fixed) / block : 0;
  const auto needed = static_cast<size_t>(blocks_per_sequence(limits));
  if (num_blocks < needed)
    return resource_exhausted(
        "a memory budget of {:.1f} MiB leaves room for {} KV blocks; one sequence of {} positions "
        "needs {} of {} bytes each (besides: {})",
        static_cast<double>(budget_bytes) / (1 << 20), num_blocks, limits.max_sequence_length,
        needed, block, describe(table));
  return static_cast<int32_t>(std::min(num_blocks, static_cast<size_t>(kMaxBlocks)));
}

}  // namespace nereid::exec
