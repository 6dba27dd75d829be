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

}  // namespace nereid::backend
