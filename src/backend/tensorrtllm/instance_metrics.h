// Metrics of the instances of a model: health, requests, restarts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/tensorrtllm/metric_set.h"
#include "nereid/stats.h"

namespace nereid::backend {

// One caller at a time. A model with one instance that is not restarted has no series.
class InstanceMetrics {
 public:
  InstanceMetrics(std::string model, int64_t version)
      : model_(std::move(model)), version_(version) {}

  void publish(std::span<const InstanceStats> instances);

 private:
  const std::string model_;
  const int64_t version_;
  MetricSet set_;
  std::vector<InstanceStats> last_;
};

}  // namespace nereid::backend
