// What the files of the products of up to eight rows share.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"

namespace nereid::kernels::cuda {

// With x and weight of f8e4m3 (gemv_f8.cu).
cudaError_t launch_f8_gemv(const Linear& args, const Scratch& scratch, cudaStream_t stream);

// With weights of f8e4m3 for up to two rows that it rounds, on Hopper (gemv_rounding.cu).
bool takes_rounding_gemv(const FusedLinear& args);
cudaError_t launch_rounding_gemv(const FusedLinear& args, const Scratch& scratch,
                                 cudaStream_t stream);

}  // namespace nereid::kernels::cuda
