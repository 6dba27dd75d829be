// Shared by the kernels of products of up to eight rows.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"

namespace nereid::kernels::cuda {

// x and weight f8e4m3 (gemv_f8.cu).
cudaError_t launch_f8_gemv(const Linear& args, const Scratch& scratch, cudaStream_t stream);

// f8e4m3 weights, <= 2 rows that the kernel quantises, Hopper (gemv_rounding.cu).
bool takes_rounding_gemv(const FusedLinear& args);
cudaError_t launch_rounding_gemv(const FusedLinear& args, const Scratch& scratch,
                                 cudaStream_t stream);

}  // namespace nereid::kernels::cuda
