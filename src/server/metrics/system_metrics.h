// The nv_cpu_*, nv_gpu_*, nv_pinned_memory_* and nv_cache_* metrics of a server.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "server/metrics/metrics_config.h"
#include "server/metrics/nvml.h"

namespace prometheus {
struct MetricFamily;
}

namespace nereid::server {

class ResponseCache;

// Clock ticks of all CPUs together since boot.
struct CpuTicks {
  uint64_t idle = 0, total = 0;
};

// Parses the first line of /proc/stat; nullopt for another format.
std::optional<CpuTicks> parse_cpu_ticks(const std::string& text);

// Samples CPUs and GPUs periodically on a thread of its own.
class SystemMetrics {
 public:
  // `cache`: null = off. `management_library`: see Nvml::open.
  SystemMetrics(const MetricsConfig& config, const ResponseCache* cache,
                std::span<const Gpu> gpus = {},
                const std::string& management_library = "libnvidia-ml.so.1");
  ~SystemMetrics();

  void collect(std::vector<prometheus::MetricFamily>& page) const;

 private:
  struct Sample {
    std::optional<double> cpu_utilization;            // 0 to 1, over the last interval
    std::optional<double> memory_total, memory_used;  // bytes
    std::vector<GpuSample> gpus;
  };

  void run();
  void sample();

  const MetricsConfig config_;
  const ResponseCache* const cache_;
  std::unique_ptr<Nvml> nvml_;
  std::map<std::string, double> energy_at_start_;  // joules by GPU
  CpuTicks ticks_;

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable stopped_;
  bool stop_ = false;
  Sample last_;
  std::thread thread_;
};

}  // namespace nereid::server
