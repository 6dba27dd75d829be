// The single exported symbol of a device library (libnereid_cuda.so). Objects with virtual
// functions cross its border, so program and library must be compiled with the same headers; the
// version is compared first.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "interface_hash.h"  // generated: NEREID_INTERFACE_HASH
#include "kernels/api/registry.h"
#include "tensor/device.h"

namespace nereid::kernels {

// Version of the project + hash of the shared headers.
inline constexpr char kDevicePluginVersion[] = NEREID_VERSION "+" NEREID_INTERFACE_HASH;

struct DevicePlugin {
  const char* version;   // kDevicePluginVersion of the library
  int (*num_devices)();  // 0: no driver or GPU
  Status (*open)(int index,
                 std::unique_ptr<Device>* device);  // Unavailable with the driver's reason
  void (*add_kernels)(Registry& registry);
  // Ranks on these devices of open(), which outlive them; see join_devices(). Null: none.
  Status (*join)(std::span<Device* const> devices, const comm::GroupOptions& options,
                 std::vector<std::unique_ptr<comm::Communicator>>* ranks);
};

using DevicePluginEntry = const DevicePlugin* (*)();
inline constexpr char kDevicePluginSymbol[] = "nereid_device_plugin";

}  // namespace nereid::kernels
