// Opens a device by name with its kernels.
#pragma once

#include <memory>
#include <string>
#include <string_view>

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

// Names: "cpu", "cuda:N", "auto" = the first GPU; the CPU if there is none or options.isa is set.
// CUDA needs libnereid_cuda.so. Search order: $NEREID_CUDA_LIBRARY, the binary's directory, ../lib,
// the loader's path. Errors name the missing part (library, driver, device number).
StatusOr<OpenedDevice> open_device(std::string_view name, const OpenOptions& options = {});

// Kernels to force so that a row's bits do not depend on other rows or chunks: those named
// "invariant", for ops whose default kernel is not. Empty on CPUs.
KernelChoices invariant_kernels(const Registry& registry, DeviceKind device);

}  // namespace nereid::kernels
