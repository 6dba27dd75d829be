#include "server/model/gpus.h"

#include <algorithm>
#include <charconv>

namespace nereid::server {
namespace {

// Prefix of a MIG slice in CUDA_VISIBLE_DEVICES: MIG-<uuid>, or, with
// older drivers, MIG-GPU-<uuid>/<i>/<j>.
constexpr std::string_view kSlice = "MIG-";

// The GPU that an entry of CUDA_VISIBLE_DEVICES names; null: none.
const GpuDevice* find_gpu(const std::vector<GpuDevice>& all, std::string_view entry) {
  size_t index = 0;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), index);
  if (error == std::errc() && end == entry.data() + entry.size()) {
    return index < all.size() ? &all[index] : nullptr;
  }
  // A MIG slice is a device of its own, which NVML does not list: its compute capability is that of
  // its GPU, which not every name contains.
  if (entry.starts_with(kSlice)) {
    entry = entry.substr(kSlice.size(), entry.find('/') - kSlice.size());
    if (!entry.starts_with("GPU-")) return all.empty() ? nullptr : &all[0];
  }
  if (!entry.starts_with("GPU-")) return nullptr;
  const auto it = std::find_if(all.begin(), all.end(),
                               [&](const auto& gpu) { return gpu.uuid.starts_with(entry); });
  return it == all.end() ? nullptr : &*it;
}

std::vector<GpuDevice> select(const std::vector<GpuDevice>& all, std::string_view visible) {
  std::vector<GpuDevice> out;
  while (!visible.empty()) {
    const size_t comma = std::min(visible.find(','), visible.size());
    std::string_view entry = visible.substr(0, comma);
    while (entry.starts_with(' ')) entry.remove_prefix(1);
    while (entry.ends_with(' ')) entry.remove_suffix(1);
    const GpuDevice* gpu = find_gpu(all, entry);
    if (gpu == nullptr) break;
    out.push_back(*gpu);
    if (entry.starts_with(kSlice)) break;  // a process gets one slice
    visible.remove_prefix(std::min(comma + 1, visible.size()));
  }
  return out;
}

}  // namespace

UsableGpus usable_gpus(const Nvml* nvml, double min_capability, const char* visible) {
  UsableGpus out;
  out.min_capability = min_capability;
  if (nvml == nullptr) return out;
  std::vector<GpuDevice> gpus = nvml->devices();
  if (visible != nullptr) gpus = select(gpus, visible);
  for (size_t i = 0; i < gpus.size(); ++i) {
    constexpr double kRounding = 1e-6;
    if (gpus[i].capability + kRounding >= min_capability) out.ids.insert(static_cast<int32_t>(i));
  }
  return out;
}

}  // namespace nereid::server
