// Metrics of the ranks of a model on several: steps, and time in their exchange.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/tensorrtllm/metric_set.h"
#include "nereid/stats.h"

namespace nereid::backend {

// One caller at a time. A model on one rank has no series.
class RankMetrics {
 public:
  RankMetrics(std::string model, int64_t version) : model_(std::move(model)), version_(version) {}

  void publish(std::span<const RankStats> ranks);

 private:
  const std::string model_;
  const int64_t version_;
  MetricSet set_;
  std::vector<RankStats> last_;
};

// Blocks of the KV cache on the device and, where the model has a host pool, in host memory.
class TierMetrics {
 public:
  TierMetrics(std::string model, int64_t version) : model_(std::move(model)), version_(version) {}

  void publish(const ExecutorStats& stats);

 private:
  const std::string model_;
  const int64_t version_;
  MetricSet set_;
  size_t num_series_ = 0;
};

// Tokens of each expert of each layer; a model whose experts are not counted has no series.
class ExpertMetrics {
 public:
  ExpertMetrics(std::string model, int64_t version) : model_(std::move(model)), version_(version) {}

  void publish(std::span<const ExpertLoad> layers);

 private:
  const std::string model_;
  const int64_t version_;
  MetricSet set_;
  std::vector<int64_t> last_;  // of all layers' experts, end to end
};

}  // namespace nereid::backend
