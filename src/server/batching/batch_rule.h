// The dynamic batcher's rule: preferred batch sizes, maximum delay, and which requests
// may share a batch.
#pragma once

#include <cstdint>
#include <vector>

#include "server/batching/batch_strategy.h"
#include "server/config/model_config.h"
#include "server/request/request.h"

namespace nereid::server {

struct BatchRule {
  std::vector<int32_t> preferred_sizes;  // empty: up to the model's max_batch_size
  uint64_t max_delay_us = 0;
  const BatchStrategy* strategy = nullptr;  // an additional rule; null: none
};

// Whether two requests have the same inputs, with equal shapes unless the model
// allows ragged batches.
bool fit_together(const ModelConfig& config, const InferenceRequest& a, const InferenceRequest& b);

// The number of requests at the front of `order` that run now as one batch. 0: none yet; `wake_ns`
// is then the time of the next check. `is_last`: no request follows.
size_t size_of_batch(const ModelConfig& config, const BatchRule& rule,
                     const std::vector<const InferenceRequest*>& order, uint64_t now, bool is_last,
                     uint64_t& wake_ns);

}  // namespace nereid::server
