#include "base/gpus.h"

#include <dlfcn.h>

#include <array>
#include <cstring>

#include "base/log.h"

namespace nereid {
namespace {

constexpr std::string_view kGpuPrefix = "GPU-", kSlicePrefix = "MIG-";

using Uuid = std::array<unsigned char, 16>;

// Functions of the driver, by its documented, stable ABI.
struct Driver {
  static constexpr int kSuccess = 0, kNoDevice = 100;
  static constexpr int kCapabilityMajor = 75, kCapabilityMinor = 76;

  int (*init)(unsigned int) = nullptr;
  int (*count)(int*) = nullptr;
  int (*device)(int*, int) = nullptr;
  int (*name)(char*, int, int) = nullptr;
  int (*attribute)(int*, int, int) = nullptr;
  int (*uuid)(Uuid*, int) = nullptr;        // of a MIG slice
  int (*whole_uuid)(Uuid*, int) = nullptr;  // of the whole GPU
  int (*error_name)(int, const char**) = nullptr;

  // False: a function is missing.
  bool find(void* handle) {
    const auto get = [&](const char* symbol, auto& function) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, symbol));
      return function != nullptr;
    };
    get("cuGetErrorName", error_name);
    get("cuDeviceGetUuid", whole_uuid);
    if (!get("cuDeviceGetUuid_v2", uuid)) uuid = whole_uuid;
    return get("cuInit", init) && get("cuDeviceGetCount", count) && get("cuDeviceGet", device) &&
           get("cuDeviceGetName", name) && get("cuDeviceGetAttribute", attribute) &&
           uuid != nullptr;
  }

  std::string text_of(int error) const {
    const char* text = nullptr;
    if (error_name != nullptr && error_name(error, &text) == kSuccess && text != nullptr)
      return text;
    return fmt::format("error {}", error);
  }

  Gpu describe(int device_handle) const {
    Gpu gpu;
    std::array<char, 257> text{};
    if (name(text.data(), static_cast<int>(text.size()) - 1, device_handle) == kSuccess)
      gpu.name = text.data();
    int major = 0, minor = 0;
    if (attribute(&major, kCapabilityMajor, device_handle) == kSuccess &&
        attribute(&minor, kCapabilityMinor, device_handle) == kSuccess)
      gpu.capability = major + minor / 10.0;
    Uuid own{}, whole{};
    if (uuid(&own, device_handle) != kSuccess) return gpu;
    const bool is_slice =
        gpu.name.find(" MIG ") != std::string::npos ||
        (whole_uuid != nullptr && whole_uuid(&whole, device_handle) == kSuccess && whole != own);
    gpu.uuid = is_slice ? kSlicePrefix : kGpuPrefix;
    for (size_t i = 0; i < own.size(); ++i)
      gpu.uuid += fmt::format("{}{:02x}", i >= 4 && i <= 10 && i % 2 == 0 ? "-" : "", own[i]);
    return gpu;
  }
};

}  // namespace

std::vector<Gpu> visible_gpus(const std::string& path) {
  std::vector<Gpu> out;
  // Never closed: the driver keeps threads and exit handlers.
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return out;
  Driver driver;
  if (!driver.find(handle)) {
    log_warn("{} lacks a function: no GPU is seen", path);
    return out;
  }
  int count = 0;
  int error = driver.init(0);
  if (error == Driver::kSuccess) error = driver.count(&count);
  if (error != Driver::kSuccess && error != Driver::kNoDevice)
    log_warn("{}: {}: no GPU is seen", path, driver.text_of(error));
  if (error != Driver::kSuccess) return out;
  for (int i = 0; i < count; ++i) {
    int device = 0;
    out.push_back(driver.device(&device, i) == Driver::kSuccess ? driver.describe(device) : Gpu());
  }
  return out;
}

std::string gpu_uuid(std::string_view device) {
  const std::vector<Gpu> gpus = device.starts_with("cuda:") ? visible_gpus() : std::vector<Gpu>();
  for (size_t i = 0; i < gpus.size(); ++i)
    if (device == fmt::format("cuda:{}", i)) return gpus[i].uuid;
  return "";
}

bool is_gpu_uuid(std::string_view name) {
  return name.starts_with(kGpuPrefix) || name.starts_with(kSlicePrefix);
}

StatusOr<int32_t> find_gpu(std::span<const Gpu> gpus, std::string_view uuid) {
  std::string found, all;
  int32_t index = -1;
  for (size_t i = 0; i < gpus.size(); ++i) {
    all += fmt::format("{}cuda:{} is {}", i == 0 ? "" : ", ", i, gpus[i].uuid);
    if (!gpus[i].uuid.starts_with(uuid)) continue;
    if (index >= 0)
      return invalid_argument("device '{}': the UUIDs of cuda:{} and cuda:{} begin so", uuid, index,
                              i);
    index = static_cast<int32_t>(i);
  }
  if (index >= 0) return index;
  return not_found("device '{}' is not visible: {}", uuid,
                   all.empty() ? "the CUDA driver shows no GPU" : all);
}

}  // namespace nereid
