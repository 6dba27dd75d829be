// The entry of libnereid_cuda.so; see kernels/api/plugin.h.
#include "kernels/api/plugin.h"

#include "kernels/cuda/comm/gpu_group.h"
#include "kernels/cuda/table.h"
#include "tensor/cuda_device.h"

namespace {

nereid::Status open(int index, std::unique_ptr<nereid::Device>* device) {
  ASSIGN_OR_RETURN(*device, nereid::open_cuda_device(index));
  return nereid::ok();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const nereid::kernels::DevicePlugin*
nereid_device_plugin() {
  static const nereid::kernels::DevicePlugin plugin = {
      nereid::kernels::kDevicePluginVersion, nereid::num_cuda_devices, open,
      nereid::kernels::cuda::add_kernels, nereid::kernels::cuda::join};
  return &plugin;
}
