// Metrics of LoRA adapters: occupancy of device and host cache, loads, hits and evictions.
#pragma once

#include <cstdint>
#include <string>

#include "backend/tensorrtllm/metric_set.h"
#include "nereid/stats.h"

namespace nereid::backend {

// One caller at a time. Without adapter slots there are no series.
class LoraMetrics {
 public:
  LoraMetrics(std::string model, int64_t version) : model_(std::move(model)), version_(version) {}

  void publish(const AdapterStats& stats);

 private:
  enum Index : size_t;

  void open();

  const std::string model_;
  const int64_t version_;
  MetricSet set_;
  bool is_open_ = false;
  AdapterStats last_;
};

}  // namespace nereid::backend
