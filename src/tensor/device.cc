// Names of devices and instruction sets; how a device fails.
#include "tensor/device.h"

#include "base/check.h"

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

// A copy of its own for each caller, since thread checkers cannot see into the reference
// count of a shared one.
Status Device::failure() const {
  if (!has_failed_) return ok();
  std::lock_guard lock(mutex_);
  return Status(failure_.code(), failure_.message());
}

void Device::fail(const Status& error) {
  NEREID_CHECK(!error.ok());
  std::lock_guard lock(mutex_);
  if (has_failed_) return;
  failure_ = unavailable("device {} has failed: {}", info().id(), message(error));
  has_failed_ = true;
}

}  // namespace nereid
