// Names of devices and instruction sets.
#include "tensor/device.h"

namespace nereid {

std::string_view name_of(Isa isa) {
  constexpr std::string_view kNames[] = {"generic", "avx2", "avx512", "avx512_bf16", "amx"};
  return kNames[static_cast<size_t>(isa)];
}

std::string DeviceInfo::id() const {
  return kind == DeviceKind::kCpu ? "cpu" : "cuda:" + std::to_string(index);
}

}  // namespace nereid
