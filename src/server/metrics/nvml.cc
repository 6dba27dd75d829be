// GPU readings through NVML; see nvml.h. The declarations follow the library's
// documented, stable ABI.
#include "server/metrics/nvml.h"

#include <dlfcn.h>

#include <array>
#include <utility>

#include "base/log.h"

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
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned int*) = nullptr;
  int (*device)(unsigned int, Device*) = nullptr;
  int (*uuid)(Device, char*, unsigned int) = nullptr;
  int (*capability)(Device, int*, int*) = nullptr;
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

std::unique_ptr<Nvml> Nvml::open(const std::string& library) {
  auto f = std::make_unique<Functions>();
  f->handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (f->handle == nullptr) return nullptr;
  const bool is_usable = f->find("nvmlInit_v2", f->init) && f->find("nvmlShutdown", f->shutdown) &&
                         f->find("nvmlDeviceGetCount_v2", f->count) &&
                         f->find("nvmlDeviceGetHandleByIndex_v2", f->device) &&
                         f->find("nvmlDeviceGetUUID", f->uuid);
  f->find("nvmlDeviceGetCudaComputeCapability", f->capability);
  f->find("nvmlDeviceGetUtilizationRates", f->utilization);
  f->find("nvmlDeviceGetMemoryInfo", f->memory);
  f->find("nvmlDeviceGetPowerUsage", f->power);
  f->find("nvmlDeviceGetPowerManagementLimit", f->power_limit);
  f->find("nvmlDeviceGetTotalEnergyConsumption", f->energy);
  if (!is_usable || f->init() != kSuccess) {
    log_warn("{} cannot be used: no GPU is seen", library);
    dlclose(f->handle);
    return nullptr;
  }
  return std::unique_ptr<Nvml>(new Nvml(std::move(f)));
}

Nvml::Nvml(std::unique_ptr<Functions> functions) : functions_(std::move(functions)) {}

Nvml::~Nvml() {
  functions_->shutdown();
  dlclose(functions_->handle);
}

std::vector<GpuDevice> Nvml::devices() const {
  const Functions& f = *functions_;
  std::vector<GpuDevice> out;
  unsigned int count = 0;
  if (f.count(&count) != kSuccess) return out;
  for (unsigned int i = 0; i < count; ++i) {
    GpuDevice& gpu = out.emplace_back();
    Device device = nullptr;
    if (f.device(i, &device) != kSuccess) continue;
    std::array<char, 97> uuid{};
    if (f.uuid(device, uuid.data(), uuid.size() - 1) == kSuccess) gpu.uuid = uuid.data();
    int major = 0, minor = 0;
    if (f.capability != nullptr && f.capability(device, &major, &minor) == kSuccess) {
      gpu.capability = major + minor / 10.0;
    }
  }
  return out;
}

std::vector<GpuSample> Nvml::sample() const {
  const Functions& f = *functions_;
  std::vector<GpuSample> out;
  unsigned int count = 0;
  if (f.count(&count) != kSuccess) return out;
  for (unsigned int i = 0; i < count; ++i) {
    Device device = nullptr;
    std::array<char, 97> uuid{};
    if (f.device(i, &device) != kSuccess ||
        f.uuid(device, uuid.data(), uuid.size() - 1) != kSuccess) {
      continue;
    }
    GpuSample& s = out.emplace_back();
    s.uuid = uuid.data();
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
