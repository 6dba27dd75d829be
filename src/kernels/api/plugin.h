// The one symbol a device library (libnereid_cuda.so) exports. Built from the same tree as the
// binary that opens it; the version string is compared before anything else is touched.
#pragma once

#include <memory>

#include "kernels/api/registry.h"
#include "tensor/device.h"

namespace nereid::kernels {

struct DevicePlugin {
  const char* version;   // project version; must equal the opener's
  int (*num_devices)();  // 0 when the driver or a GPU is missing
  Status (*open)(int index,
                 std::unique_ptr<Device>* device);  // Unavailable with the driver's reason
  void (*add_kernels)(Registry& registry);
};

using DevicePluginEntry = const DevicePlugin* (*)();
inline constexpr char kDevicePluginSymbol[] = "nereid_device_plugin";

}  // namespace nereid::kernels
