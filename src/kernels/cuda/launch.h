// Shared by the CUDA kernels and the table: an op's row, launches of products, limits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string_view>

#include "kernels/api/ops.h"

namespace nereid::kernels::cuda {

// A stream's memory and device properties for kernels, see CudaStream.
struct Scratch {
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  void* unpacked = nullptr;  // kUnpackedBytes, separate from the workspace
  int32_t* counters = nullptr;
  int64_t num_counters = 0;
  int num_units = 0;  // SMs
  int sm = 0;         // compute capability, 90 for Hopper
};

// An op's kernel in types that nvcc accepts; table.cc wraps it in a table row, which checks sizes
// and pointers. The launch does not synchronise and returns the launch error.
template <class Op>
struct Row {
  cudaError_t (*launch)(const Op&, const Scratch&, cudaStream_t) = nullptr;
  bool (*takes)(const Op&) = nullptr;  // null: all
  std::string_view name = "cuda";
};

// Specialised in the kernel's source for all ops except Linear, ExpertLinear and Attention, which
// have several kernels; an op without a kernel has no launch.
template <class Op>
Row<Op> row();

// Product without a library.
cudaError_t launch_plain(const Linear& args, const Scratch&, cudaStream_t stream);
// Max rows with the same order of sums.
inline constexpr int64_t kMaxPlainFewRows = 8;

// Whether x and weight have one type, bf16 or f8e4m3, and rows of whole 16-byte pieces.
inline bool is_in_pieces(const Linear& a) {
  const int64_t piece = a.x.dtype == DType::kF8E4M3 ? 16 : 8;
  return (a.x.dtype == DType::kF8E4M3 || a.weight.format.is_float()) && a.weight.k % piece == 0 &&
         a.x.stride % piece == 0;
}

// Whether the address allows 16-byte loads.
inline bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// Whether sums of squares, if given, are in whole 16-byte pieces.
inline bool fits_squares(const View& v) { return v.stride % 4 == 0 && is_aligned(v.data); }

// Bytes of Scratch::unpacked.
inline constexpr int64_t kUnpackedBytes = int64_t{32} << 20;

// Products of up to eight rows (gemv.cu), and their support.
inline constexpr int64_t kMaxGemvRows = 8;
inline constexpr int kGemvBlocksPerUnit = 2;
bool takes_gemv(const Linear& args);
bool takes_gemv(const FusedLinear& args);
cudaError_t launch_gemv(const Linear& args, const Scratch& scratch, cudaStream_t stream);
cudaError_t launch_gemv(const FusedLinear& args, const Scratch& scratch, cudaStream_t stream);
// <= 4 f8e4m3 rows, or <= 2 rows with integers, Hopper (gemv_narrow.cu).
bool takes_narrow_gemv(const Linear& args, int sm);
cudaError_t launch_narrow_gemv(const Linear& args, const Scratch& scratch, cudaStream_t stream);

// Products of few rows by wgmma (skinny.cu), and their support.
inline constexpr int64_t kSkinnyRows = 64;
inline constexpr int64_t kMaxSkinnyParts = 65536;
bool takes_skinny(const Linear& args, int sm);
cudaError_t launch_skinny(const Linear& args, const Scratch& scratch, cudaStream_t stream);
// In the form of kSkinnyRows rows for any row count: a row's bits do not depend on it.
cudaError_t launch_invariant_skinny(const Linear& args, const Scratch& scratch,
                                    cudaStream_t stream);

// Plain product with experts, and the one by wgmma (experts_hopper.cu): support for the weight and
// for these rows.
cudaError_t launch_plain_experts(const ExpertLinear& args, const Scratch& scratch,
                                 cudaStream_t stream);
bool can_be_hopper_experts(const ExpertLinear& args);
bool takes_hopper_experts(const ExpertLinear& args, const Scratch& scratch);
cudaError_t launch_hopper_experts(const ExpertLinear& args, const Scratch& scratch,
                                  cudaStream_t stream);
// In one form for any row count.
cudaError_t launch_invariant_experts(const ExpertLinear& args, const Scratch& scratch,
                                     cudaStream_t stream);

// Products of few rows with 4- or 8-bit integers (integer.cu), and their support.
bool takes_few_rows_of_integers(const Linear& args);
cudaError_t launch_few_rows_of_integers(const Linear& args, const Scratch& scratch,
                                        cudaStream_t stream);
// Columns of x in the integers' order: whole pieces of 64 bytes of a row of integers.
inline int64_t order_columns(int64_t k, int bits) {
  const int64_t columns = 512 / bits;
  return (k + columns - 1) / columns * columns;
}
// Writes x to `to` [rows, order_columns()] in the integers' order (boxes.cuh).
cudaError_t launch_order(const Linear& args, void* to, cudaStream_t stream);
// Converts rows [row0, row0 + rows) of integers to bf16, `to` [rows, k]; k % 8 == 0.
cudaError_t launch_unpack(const WeightView& weight, int64_t row0, int64_t rows, void* to,
                          cudaStream_t stream);

// Attention by the fastest kernels; by one form for all rows: bits depend on a token's keys only.
bool takes_attention(const Attention& args);
cudaError_t launch_attention(const Attention& args, const Scratch& scratch, cudaStream_t stream);
cudaError_t launch_invariant_attention(const Attention& args, const Scratch& scratch,
                                       cudaStream_t stream);
// Latent heads (MLA) on tensor cores (attention_latent.cu) if its tiles fit the shared memory;
// draft trees and unsupported row layouts: launch_attention().
bool takes_latent_attention(const Attention& args, int sm);
cudaError_t launch_latent_attention(const Attention& args, const Scratch& scratch,
                                    cudaStream_t stream);

// Whether rows can be read in vectors of four; `part`: columns between parts of a row.
inline bool fits_vectors(const View& v, int64_t part) {
  const auto bytes = static_cast<int64_t>(4 * size_of(v.dtype));
  return part % 4 == 0 && v.stride % 4 == 0 && reinterpret_cast<uintptr_t>(v.data) % bytes == 0;
}

// Writes the bias to every row of `out`, for a product with beta = 1.
cudaError_t launch_bias(const Linear& args, cudaStream_t stream);

// Limits of the kernels.
inline constexpr int32_t kMaxPlainDim = 1024;  // of heads of attention_plain.cu
inline constexpr int64_t kMaxLinearOutputs = int64_t{65535} * 64;

}  // namespace nereid::kernels::cuda
