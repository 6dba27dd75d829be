// When waiting requests are a batch: preferred sizes, the longest wait, and which requests can go
// together.
#pragma once

#include <cstdint>
#include <vector>

#include "server/batching/batch_strategy.h"
#include "server/config/model_config.h"
#include "server/request/request.h"

namespace nereid::server {

struct BatchRule {
  std::vector<int32_t> preferred_sizes;  // none: up to the model's max_batch_size
  uint64_t max_delay_us = 0;
  const BatchStrategy* strategy = nullptr;  // asked as well; null: none
};

// Whether two requests have the same inputs, of the same shapes where the model does not allow
// ragged batches.
bool fit_together(const ModelConfig& config, const InferenceRequest& a, const InferenceRequest& b);

// How many of `order`, from the front, run now as one execution. 0: not yet; `wake_ns` is then when
// to look again. `is_last`: nothing more will come.
size_t size_of_batch(const ModelConfig& config, const BatchRule& rule,
                     const std::vector<const InferenceRequest*>& order, uint64_t now, bool is_last,
                     uint64_t& wake_ns);

}  // namespace nereid::server
