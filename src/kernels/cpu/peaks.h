// Peak rates of the processor, for comparison with kernels.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tensor/device.h"

namespace nereid::kernels::cpu {

// Independent multiply-adds in registers, with the instructions of one kind of kernel.
struct FlopsProbe {
  std::string_view name;  // as in kernel names: avx2, avx512, avx512_bf16, amx_bf16
  // Runs `iterations` rounds on the calling thread; returns the floating-point operations.
  double (*run)(int64_t iterations) = nullptr;
};

// The probes of a device, best last.
std::vector<FlopsProbe> flops_probes(const DeviceInfo& device);

// Reads [data, data + bytes) with the widest loads of the device.
void read_bytes(const DeviceInfo& device, const void* data, int64_t bytes);

}  // namespace nereid::kernels::cpu
