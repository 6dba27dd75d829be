// GPU readings of NVML, NVIDIA's management library, opened at run time: the server needs neither
// the library nor its headers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace nereid::server {

// One reading; values that the GPU does not offer are absent.
struct GpuSample {
  std::string uuid;                                 // "GPU-xxxxxxxx-..."
  std::optional<double> utilization;                // 0 to 1
  std::optional<double> memory_total, memory_used;  // bytes
  std::optional<double> power_usage, power_limit;   // watts
  std::optional<double> energy;                     // joules since the driver was loaded
};

struct GpuDevice {
  std::string uuid;
  double capability = 0;  // compute capability, such as 8.6; 0: unknown
};

class Nvml {
 public:
  // Null without the library or without a usable driver.
  static std::unique_ptr<Nvml> open(const std::string& library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::vector<GpuDevice> devices() const;  // empty: no GPU
  std::vector<GpuSample> sample() const;   // empty: no GPU

 private:
  struct Functions;
  explicit Nvml(std::unique_ptr<Functions> functions);
  std::unique_ptr<Functions> functions_;
};

}  // namespace nereid::server
