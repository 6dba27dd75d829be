// Opens a device by name with its kernels.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "kernels/api/registry.h"
#include "tensor/device.h"

namespace nereid::kernels {

struct OpenOptions {
  int num_threads = 0;  // CPU compute threads, 0 = one per physical core this process may use
  // "" = best | generic | avx2 | avx512 | avx512_bf16 | amx; an error if the CPU lacks it.
  std::string isa;
};

struct OpenedDevice {
  std::shared_ptr<void> library;  // keeps the device library loaded; destroyed last
  Registry registry;
  std::unique_ptr<Device> device;
};

// Names: "cpu", "cuda:N", the UUID of a GPU or MIG slice or the beginning of one (base/gpus.h),
// "auto" = the first GPU; the CPU if there is none or options.isa is set. CUDA needs
// libnereid_cuda.so. Search order: $NEREID_CUDA_LIBRARY, the binary's directory, ../lib, the
// loader's path. Errors name the missing part (library, driver, device number).
StatusOr<OpenedDevice> open_device(std::string_view name, const OpenOptions& options = {});

// GPUs that the driver shows. Unavailable: no device library.
StatusOr<int32_t> num_gpus();

// Ranks of one process, one for each device, in order; all are CPUs or all are GPUs, and one may
// stand there several times (opened once or each time). GPUs measure here how messages of each size
// travel fastest. The devices outlive the communicators, whose work is done before their
// destruction. InvalidArgument: kinds or number of devices; Unavailable: GPUs that do not reach
// each other's memory.
StatusOr<std::vector<std::unique_ptr<comm::Communicator>>> join_devices(
    std::span<const OpenedDevice* const> devices, const comm::GroupOptions& options = {});

// Kernels to force so that a row's bits do not depend on other rows or chunks: those named
// "invariant", for ops whose default kernel is not. Empty on CPUs.
KernelChoices invariant_kernels(const Registry& registry, DeviceKind device);

}  // namespace nereid::kernels
