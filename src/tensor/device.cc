// Names of devices and instruction sets.
#include "tensor/device.h"

namespace nereid {

std::string_view name_of(Isa isa) {
  constexpr std::string_view kNames[] = {"generic", "avx2", "avx512", "avx512_bf16", "amx"};
  return kNames[static_cast<size_t>(isa)];
}

std::string_view name_of(DeviceKind kind) { return kind == DeviceKind::kCpu ? "cpu" : "cuda"; }

std::string DeviceInfo::id() const {
  const std::string name(name_of(kind));
  return kind == DeviceKind::kCpu ? name : name + ":" + std::to_string(index);
}

}  // namespace nereid
