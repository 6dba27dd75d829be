// Load and latency metrics of a model under vLLM's names and buckets, so that dashboards and
// autoscalers made for vLLM work.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "backend/tensorrtllm/metric_set.h"
#include "nereid/executor.h"

namespace nereid::backend {

class VllmMetrics {
 public:
  VllmMetrics(const std::string& model, int64_t version);

  // Publishes the difference between two snapshots of the executor.
  void publish(const ExecutorStats& before, const ExecutorStats& now);
  // Records that a streamed request's next token came `seconds` after the previous one.
  void next_token(double seconds);
  // Records a request that ended with a result. `num_generated`: tokens of all its sequences and
  // beams; `is_streamed`: its tokens went through next_token().
  void finished(const Response& final_response, int64_t num_generated, bool is_streamed);

 private:
  enum Index : size_t;

  MetricSet set_;
  std::atomic<int64_t> tokens_per_block_{0};
};

}  // namespace nereid::backend
