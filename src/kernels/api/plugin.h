// The one symbol a device library (libnereid_cuda.so) exports. Objects with virtual functions pass
// between it and the program that opens it, so both must be compiled with the same headers; the
// version is compared before anything else is touched.
#pragma once

#include <memory>

#include "interface_hash.h"  // generated: NEREID_INTERFACE_HASH
#include "kernels/api/registry.h"
#include "tensor/device.h"

namespace nereid::kernels {

// Of the project, and of the headers.
inline constexpr char kDevicePluginVersion[] = NEREID_VERSION "+" NEREID_INTERFACE_HASH;

struct DevicePlugin {
  const char* version;   // kDevicePluginVersion; must equal the opener's
  int (*num_devices)();  // 0 when the driver or a GPU is missing
  Status (*open)(int index,
                 std::unique_ptr<Device>* device);  // Unavailable with the driver's reason
  void (*add_kernels)(Registry& registry);
};

using DevicePluginEntry = const DevicePlugin* (*)();
inline constexpr char kDevicePluginSymbol[] = "nereid_device_plugin";

}  // namespace nereid::kernels
