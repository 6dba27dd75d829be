// Speed limits of the processor, for comparing kernels with.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tensor/device.h"

namespace nereid::kernels::cpu {

// A loop of independent multiply-adds in registers with the instructions of one kind of kernel.
struct FlopsProbe {
  std::string_view name;  // as in kernel names: avx2, avx512, avx512_bf16, amx_bf16
  // Runs that many rounds on the calling thread; the floating-point operations done.
  double (*run)(int64_t iterations) = nullptr;
};

// Those that the device may use, best last.
std::vector<FlopsProbe> flops_probes(const DeviceInfo& device);

// Reads [data, data + bytes) with the widest loads the device may use.
void read_bytes(const DeviceInfo& device, const void* data, int64_t bytes);

}  // namespace nereid::kernels::cpu
