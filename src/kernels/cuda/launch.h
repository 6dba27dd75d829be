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
cudaError_t launch(const Glu& args, cudaStream_t stream);
cudaError_t launch(const Activate& args, cudaStream_t stream);
cudaError_t launch(const SoftCap& args, cudaStream_t stream);
cudaError_t launch(const Add& args, cudaStream_t stream);
cudaError_t launch(const Route& args, cudaStream_t stream);
cudaError_t launch(const ExpertLinear& args, cudaStream_t stream);
cudaError_t launch(const HeadLinear& args, cudaStream_t stream);
cudaError_t launch(const WeightedSum& args, cudaStream_t stream);
cudaError_t launch(const GatherRows& args, cudaStream_t stream);
cudaError_t launch(const Quantize& args, cudaStream_t stream);
cudaError_t launch(const Sample& args, cudaStream_t stream);

// What a stream has for its kernels, see CudaStream.
struct Scratch {
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  int32_t* counters = nullptr;
  int64_t num_counters = 0;
  int num_units = 0;  // multiprocessors
  int sm = 0;         // compute capability, 90 for Hopper
};

cudaError_t launch(const Attention& args, const Scratch& scratch, cudaStream_t stream);

// Whether x and weight are of one type, bf16 or f8e4m3, and their rows whole pieces of 16 bytes.
inline bool is_in_pieces(const Linear& a) {
  const int64_t piece = a.x.dtype == DType::kF8E4M3 ? 16 : 8;
  return (a.x.dtype == DType::kF8E4M3 || a.weight.format.is_float()) && a.weight.k % piece == 0 &&
         a.x.stride % piece == 0;
}

// A product of up to eight rows (gemv.cu), and whether it can be one.
inline constexpr int64_t kMaxGemvRows = 8;
bool takes_gemv(const Linear& args);
cudaError_t launch_gemv(const Linear& args, const Scratch& scratch, cudaStream_t stream);

// A product of few rows by Hopper's tensor cores (skinny.cu), and whether it can be one.
inline constexpr int64_t kSkinnyRows = 64;
inline constexpr int64_t kMaxSkinnyParts = 65536;
bool takes_skinny(const Linear& args, int sm);
cudaError_t launch_skinny(const Linear& args, const Scratch& scratch, cudaStream_t stream);

// Whether rows can be read four neighbours at a time; `part`: columns from one part of a row to the
// next.
inline bool fits_vectors(const View& v, int64_t part) {
  const auto bytes = static_cast<int64_t>(4 * size_of(v.dtype));
  return part % 4 == 0 && v.stride % 4 == 0 && reinterpret_cast<uintptr_t>(v.data) % bytes == 0;
}

// Writes the bias in every row of `out`: what a product with beta = 1 adds to.
cudaError_t launch_bias(const Linear& args, cudaStream_t stream);

// Limits of the kernels, for `can`.
inline constexpr int64_t kMaxF8NormWidth = 8192;  // of a row that becomes f8e4m3
inline constexpr int64_t kMaxF8GluWidth = 32768;  // likewise
inline constexpr int32_t kMaxHeadDim = 256;
inline constexpr int32_t kMaxLatentDim = 1024;
inline constexpr int32_t kHeadDimUnit = 8;  // one 16-byte load of a cached key
inline constexpr int64_t kMaxLinearOutputs = int64_t{65535} * 64;

}  // namespace nereid::kernels::cuda
