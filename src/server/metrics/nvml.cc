// GPU readings through NVML; see nvml.h. The declarations follow the library's
// documented, stable ABI.
#include "server/metrics/nvml.h"

#include <dlfcn.h>

#include <utility>

#include "base/log.h"
#include "server/log_switches.h"

namespace nereid::server {
namespace {

using Device = void*;
constexpr int kSuccess = 0;

}  // namespace

struct Nvml::Functions {
  struct Utilization {
    unsigned int gpu, memory;  // percent
  };
  struct Memory {
    unsigned long long total, free, used;  // NOLINT: the library's own types
  };

  void* handle = nullptr;
  std::vector<std::pair<std::string, Device>> devices;  // by UUID
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*device)(const char*, Device*) = nullptr;
  int (*utilization)(Device, Utilization*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  int (*power)(Device, unsigned int*) = nullptr;
  int (*power_limit)(Device, unsigned int*) = nullptr;
  int (*energy)(Device, unsigned long long*) = nullptr;  // NOLINT

  template <class Fn>
  bool find(const char* name, Fn& fn) {
    fn = reinterpret_cast<Fn>(dlsym(handle, name));
    return fn != nullptr;
  }
};

std::unique_ptr<Nvml> Nvml::open(std::span<const Gpu> gpus, const std::string& library) {
  if (gpus.empty()) return nullptr;
  auto f = std::make_unique<Functions>();
  f->handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (f->handle == nullptr) return nullptr;
  const bool is_usable = f->find("nvmlInit_v2", f->init) && f->find("nvmlShutdown", f->shutdown) &&
                         f->find("nvmlDeviceGetHandleByUUID", f->device);
  f->find("nvmlDeviceGetUtilizationRates", f->utilization);
  f->find("nvmlDeviceGetMemoryInfo", f->memory);
  f->find("nvmlDeviceGetPowerUsage", f->power);
  f->find("nvmlDeviceGetPowerManagementLimit", f->power_limit);
  f->find("nvmlDeviceGetTotalEnergyConsumption", f->energy);
  if (!is_usable || f->init() != kSuccess) {
    log_warn("{} cannot be used: no metrics of GPUs", library);
    dlclose(f->handle);
    return nullptr;
  }
  std::unique_ptr<Nvml> nvml(new Nvml(std::move(f)));
  auto& devices = nvml->functions_->devices;
  for (size_t i = 0; i < gpus.size(); ++i) {
    const Gpu& gpu = gpus[i];
    Device device = nullptr;
    if (nvml->functions_->device(gpu.uuid.c_str(), &device) != kSuccess) {
      log_warn("{} does not know GPU {}: {} ({}): no metrics of it", library, i, gpu.name,
               gpu.uuid);
      continue;
    }
    if (!is_log_terse()) log_info("Collecting metrics for GPU {}: {} ({})", i, gpu.name, gpu.uuid);
    devices.emplace_back(gpu.uuid, device);
  }
  return devices.empty() ? nullptr : std::move(nvml);
}

Nvml::Nvml(std::unique_ptr<Functions> functions) : functions_(std::move(functions)) {}

Nvml::~Nvml() {
  functions_->shutdown();
  dlclose(functions_->handle);
}

std::vector<GpuSample> Nvml::sample() const {
  const Functions& f = *functions_;
  std::vector<GpuSample> out;
  for (const auto& [uuid, handle] : f.devices) {
    Device device = handle;
    GpuSample& s = out.emplace_back();
    s.uuid = uuid;
    Functions::Utilization utilization{};
    if (f.utilization != nullptr && f.utilization(device, &utilization) == kSuccess) {
      s.utilization = utilization.gpu / 100.0;
    }
    Functions::Memory memory{};
    if (f.memory != nullptr && f.memory(device, &memory) == kSuccess) {
      s.memory_total = static_cast<double>(memory.total);
      s.memory_used = static_cast<double>(memory.used);
    }
    const auto milli = [&](auto fn, auto value, std::optional<double>& to) {
      if (fn != nullptr && fn(device, &value) == kSuccess) to = static_cast<double>(value) / 1000;
    };
    milli(f.power, 0u, s.power_usage);
    milli(f.power_limit, 0u, s.power_limit);
    milli(f.energy, 0ull, s.energy);
  }
  return out;
}

}  // namespace nereid::server
