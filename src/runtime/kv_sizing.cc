// Sizing by exec's own memory table, so that what is planned is what is allocated.
#include "runtime/kv_sizing.h"

#include <algorithm>
#include <numeric>

#include "base/log.h"
#include "exec/memory.h"

namespace nereid::runtime {
namespace {

// What a model may take of the memory that is free when nobody says how much: host memory is shared
// with others.
constexpr double kHostShare = 0.5;
constexpr double kDeviceShare = 0.9;

size_t budget_of(const ExecutorConfig& config, const Device& device) {
  if (config.memory_bytes > 0) return static_cast<size_t>(config.memory_bytes);
  const double share = device.info().kind == DeviceKind::kCpu ? kHostShare : kDeviceShare;
  return static_cast<size_t>(share * static_cast<double>(device.free_bytes()));
}

int32_t blocks_for(int64_t tokens, int32_t block_tokens) {
  return static_cast<int32_t>((tokens + block_tokens - 1) / block_tokens);
}

Status check_budget(const io::Plan& plan, const exec::RunnerLimits& limits, size_t budget) {
  size_t total = 0;
  for (const exec::MemoryItem& item : exec::memory_table(plan, limits)) total += item.bytes;
  if (total <= budget) return ok();
  return resource_exhausted(
      "kv_cache.max_tokens: {} blocks of {} tokens need {} bytes with weights and activations; "
      "memory_bytes is {}",
      limits.num_blocks, limits.block_tokens, total, budget);
}

// Most blocks that fit, for the longest sequences for which that is enough.
StatusOr<int32_t> fit(const io::Plan& plan, exec::RunnerLimits limits, size_t budget) {
  StatusOr<int32_t> blocks = exec::num_blocks_that_fit(plan, limits, budget);
  const Status first = blocks.status();
  while (!blocks.ok() && limits.max_sequence_length > limits.block_tokens) {
    limits.max_sequence_length /= 2;
    blocks = exec::num_blocks_that_fit(plan, limits, budget);
  }
  return blocks.ok() ? blocks : StatusOr<int32_t>(first);
}

}  // namespace

StatusOr<exec::RunnerLimits> size_kv_cache(const io::Plan& plan, const ExecutorConfig& config,
                                           const Device& device) {
  const int32_t longest = plan.model.max_positions;
  exec::RunnerLimits limits{.max_rows = config.max_batch_size,
                            .max_tokens = config.max_num_tokens,
                            .max_sequence_length = longest,
                            .block_tokens = config.kv_cache.tokens_per_block};
  RETURN_IF_ERROR(exec::check_limits(plan, limits));
  const size_t budget = budget_of(config, device);
  if (config.kv_cache.max_tokens) {
    limits.num_blocks = blocks_for(*config.kv_cache.max_tokens, limits.block_tokens);
    if (config.memory_bytes > 0) RETURN_IF_ERROR(check_budget(plan, limits, budget));
  } else {
    ASSIGN_OR_RETURN(limits.num_blocks, fit(plan, limits, budget));
    const int64_t full = int64_t{config.max_batch_size} * longest;
    // More than a full batch of the longest sequences is never used, but for cached prefixes.
    const int64_t enough = config.memory_bytes > 0 ? full : std::max<int64_t>(full / 2, longest);
    limits.num_blocks = std::min(limits.num_blocks, blocks_for(enough, limits.block_tokens));
  }
  const int64_t capacity = int64_t{limits.num_blocks} * limits.block_tokens;
  if (capacity < longest) {
    limits.max_sequence_length = static_cast<int32_t>(capacity);
    log_warn("KV cache of {} tokens: sequences are limited to that; the model would allow {}",
             capacity, longest);
  }
  return limits;
}

}  // namespace nereid::runtime
