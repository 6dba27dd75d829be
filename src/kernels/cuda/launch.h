// Raw launches of the CUDA kernels, one per op: sizes and pointers are taken as they are (the rows
// in table.cc check them first), nothing is waited for, and the launch error is returned.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/api/ops.h"

namespace nereid::kernels::cuda {

cudaError_t launch(const Embed& args, cudaStream_t stream);
cudaError_t launch(const AddPositions& args, cudaStream_t stream);
cudaError_t launch(const Norm& args, cudaStream_t stream);
cudaError_t launch(const Linear& args, cudaStream_t stream);
cudaError_t launch(const Rope& args, cudaStream_t stream);
cudaError_t launch(const Attention& args, cudaStream_t stream);
cudaError_t launch(const Glu& args, cudaStream_t stream);
cudaError_t launch(const Activate& args, cudaStream_t stream);
cudaError_t launch(const SoftCap& args, cudaStream_t stream);
cudaError_t launch(const Add& args, cudaStream_t stream);
cudaError_t launch(const Route& args, cudaStream_t stream);
cudaError_t launch(const ExpertLinear& args, cudaStream_t stream);
cudaError_t launch(const WeightedSum& args, cudaStream_t stream);
cudaError_t launch(const GatherRows& args, cudaStream_t stream);
cudaError_t launch(const Sample& args, cudaStream_t stream);

// Writes the bias in every row of `out`: what a product with beta = 1 adds to.
cudaError_t launch_bias(const Linear& args, cudaStream_t stream);

// Limits of the kernels, for `can`.
inline constexpr int32_t kMaxHeadDim = 256;
inline constexpr int32_t kHeadDimUnit = 8;  // one 16-byte load of a cached key
inline constexpr int64_t kMaxLinearOutputs = int64_t{65535} * 64;

}  // namespace nereid::kernels::cuda
