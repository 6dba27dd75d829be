// Opens the CPU, or a GPU through the device library.
#include "kernels/open.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/gpus.h"
#include "base/log.h"
#include "comm/thread_group.h"
#include "kernels/api/plugin.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/ref/ref.h"
#include "tensor/cpu_device.h"

namespace nereid::kernels {
namespace {

constexpr char kCudaLibrary[] = "libnereid_cuda.so";
constexpr char kCudaLibraryVariable[] = "NEREID_CUDA_LIBRARY";

StatusOr<OpenedDevice> open_cpu(const OpenOptions& options) {
  OpenedDevice opened;
  ASSIGN_OR_RETURN(opened.device,
                   make_cpu_device({.num_threads = options.num_threads, .isa = options.isa}));
  opened.registry.add_all([]<class Op>() { return cpu::table<Op>(); });
  ref::add_kernels(opened.registry);
  return opened;
}

// Candidate paths of the library, in order; the last one uses the loader's search.
std::vector<std::string> candidate_paths() {
  if (const char* path = std::getenv(kCudaLibraryVariable); path && *path) return {path};
  std::vector<std::string> paths;
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    for (const auto& directory : {self.parent_path(), self.parent_path() / ".." / "lib"})
      if (std::filesystem::exists(directory / kCudaLibrary, error))
        paths.push_back((directory / kCudaLibrary).string());
  }
  paths.push_back(kCudaLibrary);
  return paths;
}

StatusOr<std::shared_ptr<void>> load_library() {
  std::string tried;
  for (const std::string& path : candidate_paths()) {
    if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL))
      return std::shared_ptr<void>(handle, [](void* h) { dlclose(h); });
    const char* reason = dlerror();
    tried += fmt::format("{}{}", tried.empty() ? "" : "; ", reason ? reason : path);
  }
  return unavailable(
      "no CUDA device library ({}): {}; take the bundle of `make gpu-bundle`, which has it, name "
      "it in ${}, or ask for the device cpu",
      kCudaLibrary, tried, kCudaLibraryVariable);
}

std::string path_of(void* library) {
  link_map* map = nullptr;
  return dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map ? map->l_name : kCudaLibrary;
}

StatusOr<const DevicePlugin*> find_plugin(void* library) {
  auto entry = reinterpret_cast<DevicePluginEntry>(dlsym(library, kDevicePluginSymbol));
  const DevicePlugin* plugin = entry ? entry() : nullptr;
  if (!plugin || !plugin->version)
    return unavailable("the CUDA device library does not export {}", kDevicePluginSymbol);
  if (std::strcmp(plugin->version, kDevicePluginVersion) != 0)
    return unavailable(
        "the CUDA device library {} has version {}, this program {}: both must be of one build",
        path_of(library), plugin->version, kDevicePluginVersion);
  return plugin;
}

StatusOr<OpenedDevice> open_cuda(int index) {
  OpenedDevice opened;
  ASSIGN_OR_RETURN(opened.library, load_library());
  ASSIGN_OR_RETURN(const DevicePlugin* plugin, find_plugin(opened.library.get()));
  if (const int num_devices = plugin->num_devices(); num_devices > 0 && index >= num_devices)
    return not_found("device 'cuda:{}' does not exist: {} GPU(s) are visible", index, num_devices);
  RETURN_IF_ERROR(plugin->open(index, &opened.device));
  plugin->add_kernels(opened.registry);
  return opened;
}

StatusOr<OpenedDevice> open_first(const OpenOptions& options) {
  if (!options.isa.empty()) return open_cpu(options);
  if (const auto library = load_library(); !library.ok()) {
    log_debug("the CPU is used: {}", message(library.status()));
    return open_cpu(options);
  }
  StatusOr<OpenedDevice> gpu = open_cuda(0);
  if (gpu.ok()) return gpu;
  log_warn("the CPU is used: {}", message(gpu.status()));
  return open_cpu(options);
}

}  // namespace

StatusOr<OpenedDevice> open_device(std::string_view name, const OpenOptions& options) {
  if (name == "auto") return open_first(options);
  if (name == "cpu") return open_cpu(options);
  constexpr std::string_view kCuda = "cuda:";
  if (name.starts_with(kCuda)) {
    const std::string_view digits = name.substr(kCuda.size());
    int index = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (error == std::errc() && end == digits.data() + digits.size() && index >= 0)
      return open_cuda(index);
  }
  if (is_gpu_uuid(name)) {
    ASSIGN_OR_RETURN(const int32_t index, find_gpu(visible_gpus(), name));
    return open_cuda(index);
  }
  return invalid_argument(
      "device '{}' is not known; allowed: auto, cpu, cuda:N (cuda:0 is the first GPU), the UUID of "
      "a GPU",
      name);
}

StatusOr<int32_t> num_gpus() {
  ASSIGN_OR_RETURN(const auto library, load_library());
  ASSIGN_OR_RETURN(const DevicePlugin* plugin, find_plugin(library.get()));
  return plugin->num_devices();
}

StatusOr<std::vector<std::unique_ptr<comm::Communicator>>> join_devices(
    std::span<const OpenedDevice* const> devices, const comm::GroupOptions& options) {
  if (devices.empty()) return invalid_argument("devices: a group has at least one rank");
  std::vector<Device*> ranks;
  for (const OpenedDevice* opened : devices) {
    const DeviceInfo& first = devices[0]->device->info();
    if (const DeviceInfo& info = opened->device->info(); info.kind != first.kind)
      return invalid_argument("devices: {} and {} cannot be ranks of one group", first.id(),
                              info.id());
    ranks.push_back(opened->device.get());
  }
  if (devices[0]->device->info().kind == DeviceKind::kCpu)
    return comm::make_thread_group(static_cast<int>(ranks.size()), options.time_limit);
  ASSIGN_OR_RETURN(const DevicePlugin* plugin, find_plugin(devices[0]->library.get()));
  if (!plugin->join) return unsupported("{}: this library joins no ranks", ranks[0]->info().id());
  std::vector<std::unique_ptr<comm::Communicator>> communicators;
  RETURN_IF_ERROR(plugin->join(ranks, options, &communicators));
  return communicators;
}

KernelChoices invariant_kernels(const Registry& registry, DeviceKind device) {
  constexpr std::string_view kInvariant = "invariant";
  KernelChoices choices;
  const auto look_at = [&]<class Op>(const Table<Op>& table) {
    if (std::ranges::any_of(table, [&](const Kernel<Op>& kernel) {
          return kernel.device == device && kernel.name == kInvariant;
        }))
      choices.push_back(fmt::format("{}:{}", Op::kName, kInvariant));
  };
  std::apply([&](const auto&... tables) { (look_at(tables), ...); }, registry.tables);
  return choices;
}

}  // namespace nereid::kernels
