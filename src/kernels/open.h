// Opens a device by name together with the kernels that run on it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "kernels/api/registry.h"
#include "tensor/device.h"

namespace nereid::kernels {

struct OpenOptions {
  int num_threads = 0;  // CPU compute threads, 0 = one per physical core this process may use
  std::string isa;  // "" = best | generic | avx2 | avx512 | avx512_bf16 | amx; refused when the CPU
                    // lacks it
};

struct OpenedDevice {
  std::shared_ptr<void> library;  // keeps the device library loaded; released last
  Registry registry;
  std::unique_ptr<Device> device;
};

// "cpu", "cuda:N", or "auto": the first GPU where there is one, else, or where the instruction set
// of a CPU is named, the CPU. CUDA: opens libnereid_cuda.so ($NEREID_CUDA_LIBRARY, beside the
// binary,
// ../lib, the loader's path); errors say what is missing (library, driver, device number).
StatusOr<OpenedDevice> open_device(std::string_view name, const OpenOptions& options = {});

// What to force so that a row's bits do not depend on the rows or chunks beside it: the kernels
// named "invariant", of ops whose cheapest kernel's do. None on CPUs.
Choices invariant_kernels(const Registry& registry, DeviceKind device);

}  // namespace nereid::kernels
