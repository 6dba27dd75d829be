// Measured limits of a device: bandwidth and arithmetic.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "tensor/device.h"

namespace nereid::kernels {

struct Roofline {
  double read_bytes_per_s = 0;  // from memory, all threads
  double flops_per_s = 0;       // max of flops_by_kernel; 0: not measured (CUDA)
  struct Flops {
    std::string kernel;  // avx2, avx512, avx512_bf16, amx_bf16: as in kernel names
    double per_s = 0;    // a multiply-add counts as two
  };
  std::vector<Flops> flops_by_kernel;
};

// Takes about a second of the whole device and up to 1 GiB of its memory. CUDA: bandwidth of a copy
// (bytes read + written). ResourceExhausted: not enough memory.
StatusOr<Roofline> measure_roofline(Device& device);

}  // namespace nereid::kernels
