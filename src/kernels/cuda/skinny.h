// Shared by skinny.cu and skinny_float.cu: products of few rows.
#pragma once

#include "kernels/cuda/launch.h"

namespace nereid::kernels::cuda {

// bf16 or f8e4m3 product in the form of `rows` rows; larger limit than for integers.
inline constexpr int64_t kSkinnyFloatRows = 128;
cudaError_t launch_skinny_floats(const Linear& args, int64_t rows, const Scratch& scratch,
                                 cudaStream_t stream);

}  // namespace nereid::kernels::cuda
