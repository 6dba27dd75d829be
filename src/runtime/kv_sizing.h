// How many KV blocks a model gets, and the longest sequence that follows from it.
#pragma once

#include "base/status.h"
#include "exec/runner.h"
#include "io/plan.h"
#include "nereid/executor.h"
#include "tensor/device.h"

namespace nereid::runtime {

// Blocks on the device. With kv_cache.max_tokens: that many. With kv_cache.memory_fraction: that
// share of what is left of memory_bytes (of the free memory, when that is 0) after weights and
// buffers; with both, the smaller number. Else what memory_bytes leaves, at most what a full batch
// of the longest sequences needs; without that either, a share of the free memory, at most half a
// full batch. Host blocks: as many as host_cache_bytes hold. Sequences are shortened to what the
// cache holds when that is less than the model's limit; with a window they need no more than the
// blocks they hold at a time. All of it for each cache group, which share as exec::memory.h says.
// Rows of logits: up to 256 of the tokens of a step, as long as they take no more than a 64th of
// the memory, and one for each sequence in any case; with `all_states` (of all positions, for the
// host) all tokens of a step under the same bound, and steps of fewer tokens where max_num_tokens
// have more than 4 MiB of states and prompts may be cut. `bytes_beside`: what a draft model takes
// of the memory, wherever that decides. `config` has passed check_config(). InvalidArgument: an
// option that does not go with the model; ResourceExhausted with the numbers when the model does
// not fit.
StatusOr<exec::RunnerLimits> size_kv_cache(const io::Plan& plan, const ExecutorConfig& config,
                                           const Device& device, size_t bytes_beside = 0,
                                           bool all_states = false);

// What a draft model of the model with these limits gets: as many rows, tokens of a step and cached
// tokens, as far as its own positions reach. It looks back as far as it was trained to.
StatusOr<exec::RunnerLimits> size_draft_cache(const io::Plan& draft, const ExecutorConfig& config,
                                              const exec::RunnerLimits& limits);

}  // namespace nereid::runtime
