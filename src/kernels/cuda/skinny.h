// Products of few rows: what skinny.cu and skinny_float.cu share.
#pragma once

#include "kernels/cuda/launch.h"

namespace nereid::kernels::cuda {

// A product of bf16 or f8e4m3 in the form of `rows` rows, which may be more than those of integers.
inline constexpr int64_t kSkinnyFloatRows = 128;
cudaError_t launch_skinny_floats(const Linear& args, int64_t rows, const Scratch& scratch,
                                 cudaStream_t stream);

}  // namespace nereid::kernels::cuda
