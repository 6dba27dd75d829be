// GPU readings of NVML, NVIDIA's management library, opened at run time: the server needs neither
// the library nor its headers.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/gpus.h"

namespace nereid::server {

// One reading; values that the GPU does not offer are absent (a MIG slice: all but the memory).
struct GpuSample {
  std::string uuid;
  std::optional<double> utilization;                // 0 to 1
  std::optional<double> memory_total, memory_used;  // bytes
  std::optional<double> power_usage, power_limit;   // watts
  std::optional<double> energy;                     // joules since the driver was loaded
};

class Nvml {
 public:
  // For `gpus`, which are found by UUID: the library ignores CUDA_VISIBLE_DEVICES. Null without the
  // library, a usable driver, or any of them.
  static std::unique_ptr<Nvml> open(std::span<const Gpu> gpus,
                                    const std::string& library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::vector<GpuSample> sample() const;

 private:
  struct Functions;
  explicit Nvml(std::unique_ptr<Functions> functions);
  std::unique_ptr<Functions> functions_;
};

}  // namespace nereid::server
