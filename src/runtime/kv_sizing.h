// KV cache size of a model, and its maximum sequence length.
#pragma once

#include <span>

#include "base/status.h"
#include "exec/runner.h"
#include "io/plan.h"
#include "nereid/executor.h"
#include "tensor/device.h"

namespace nereid::runtime {

// Device blocks: kv_cache.max_tokens, or kv_cache.memory_fraction of what weights and buffers leave
// of memory_bytes (0: of the free memory); with both the smaller one. Without both: what
// memory_bytes leaves, at most a full batch of the longest sequences; without memory_bytes a share
// of the free memory, at most half a full batch. Host blocks: host_cache_bytes. Sequences are
// shortened to what the cache holds, with a window to the blocks they hold at once. Applies to each
// cache group; exec/memory.h divides memory among groups.
// Rows of logits: one per sequence, more for context logits up to 256 and 1/64 of the memory.
// `all_states` (hidden states of all positions for the host): all tokens of a step within 1/64, and
// steps of at most 4 MiB of states if prompts may be chunked. `bytes_beside`: memory of a draft
// model. Precondition: check_config(). InvalidArgument: an option that the model excludes;
// ResourceExhausted with the numbers: the model does not fit.
StatusOr<exec::RunnerLimits> size_kv_cache(const io::Plan& plan, const ExecutorConfig& config,
                                           const Device& device, size_t bytes_beside = 0,
                                           bool all_states = false);

// A rank of a model in parts.
struct RankPart {
  const io::Plan* plan = nullptr;
  const Device* device = nullptr;
  // Instances on a GPU that do not have their memory yet, this one included; 0: all.
  int32_t num_unopened = 0;
};

// Limits for all ranks, in their order: the least that each has memory for. Ranks on one device (a
// CPU, too) share memory_bytes, or its free memory, with those of all num_instances; all ranks
// share host_cache_bytes. bytes_beside: on the first rank's device.
StatusOr<exec::RunnerLimits> size_kv_cache(std::span<const RankPart> ranks,
                                           const ExecutorConfig& config, size_t bytes_beside = 0,
                                           bool all_states = false);

// Limits of a draft model for a target model with `limits`: as many rows, tokens per step and
// cached tokens, within the draft model's positions and with its own window.
StatusOr<exec::RunnerLimits> size_draft_cache(const io::Plan& draft, const ExecutorConfig& config,
                                              const exec::RunnerLimits& limits);

}  // namespace nereid::runtime
