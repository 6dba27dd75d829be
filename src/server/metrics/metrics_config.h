// The settings of --metrics-config and related options: the latency metrics that models keep.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace nereid::server {

// A quantile of a summary and the allowed error of its rank, both in [0, 1].
struct SummaryQuantile {
  double quantile = 0, error = 0;
};

struct MetricsConfig {
  bool enabled = true, gpu = true, cpu = true;
  uint64_t interval_ms = 2000;  // between samples of CPUs and GPUs
  // False freezes all per-model counters, not only latencies, as in the stock server.
  bool counter_latencies = true;
  bool summary_latencies = false, histogram_latencies = false;
  std::vector<SummaryQuantile> quantiles = {
      {0.5, 0.05}, {0.9, 0.01}, {0.95, 0.001}, {0.99, 0.001}, {0.999, 0.001}};
};

// Sets one setting by its command-line name. InvalidArgument names the setting, the value
// and what is allowed.
Status set_metrics_config(MetricsConfig& config, std::string_view setting, std::string_view value);

}  // namespace nereid::server
