// How many KV blocks a model gets, and the longest sequence that follows from it.
#pragma once

#include "base/status.h"
#include "exec/runner.h"
#include "io/plan.h"
#include "nereid/executor.h"
#include "tensor/device.h"

namespace nereid::runtime {

// With kv_cache.max_tokens: that many. Else what config.memory_bytes leaves after weights and
// activations; without that either, a share of the device's free memory, but no more than a full
// batch of half-length sequences needs. Sequences are shortened to what the cache holds when that
// is less than the model's limit. `config` has passed check_config(). ResourceExhausted with the
// numbers when the model does not fit.
StatusOr<exec::RunnerLimits> size_kv_cache(const io::Plan& plan, const ExecutorConfig& config,
                                           const Device& device);

}  // namespace nereid::runtime
