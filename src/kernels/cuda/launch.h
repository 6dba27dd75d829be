// What the CUDA sources and the table share: an op's row, raw launches of products, limits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string_view>

#include "kernels/api/ops.h"

namespace nereid::kernels::cuda {

// What a stream has for its kernels, see CudaStream.
struct Scratch {
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  void* unpacked = nullptr;  // kUnpackedBytes beside it
  int32_t* counters = nullptr;
  int64_t num_counters = 0;
  int num_units = 0;  // multiprocessors
  int sm = 0;         // compute capability, 90 for Hopper
};

// The kernel of an op, in what nvcc takes; table.cc makes the table's row of it. The launch takes
// sizes and pointers as they are (the row checks them first), waits for nothing and returns the
// launch error.
template <class Op>
struct Row {
  cudaError_t (*launch)(const Op&, const Scratch&, cudaStream_t) = nullptr;
  bool (*takes)(const Op&) = nullptr;  // null: all
  std::string_view name = "cuda";
};

// Specialised for every op but Linear, ExpertLinear and Attention, which have several kernels, in
// the source of its kernel; an op without one has no launch.
template <class Op>
Row<Op> row();

// The product without a library.
cudaError_t launch_plain(const Linear& args, const Scratch&, cudaStream_t stream);
// The most rows for which a row's sums have one order.
inline constexpr int64_t kMaxPlainFewRows = 8;

// Whether x and weight are of one type, bf16 or f8e4m3, and their rows whole pieces of 16 bytes.
inline bool is_in_pieces(const Linear& a) {
  const int64_t piece = a.x.dtype == DType::kF8E4M3 ? 16 : 8;
  return (a.x.dtype == DType::kF8E4M3 || a.weight.format.is_float()) && a.weight.k % piece == 0 &&
         a.x.stride % piece == 0;
}

// Whether 16 bytes can be read at once from there.
inline bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// Whether sums of squares, where given, are whole pieces of 16 bytes.
inline bool fits_squares(const View& v) { return v.stride % 4 == 0 && is_aligned(v.data); }

// Bytes of Scratch::unpacked.
inline constexpr int64_t kUnpackedBytes = int64_t{32} << 20;

// A product of up to eight rows (gemv.cu), and whether it can be one.
inline constexpr int64_t kMaxGemvRows = 8;
inline constexpr int kGemvBlocksPerUnit = 2;
bool takes_gemv(const Linear& args);
bool takes_gemv(const FusedLinear& args);
cudaError_t launch_gemv(const Linear& args, const Scratch& scratch, cudaStream_t stream);
cudaError_t launch_gemv(const FusedLinear& args, const Scratch& scratch, cudaStream_t stream);
// Of up to four rows of f8e4m3 or two with integers, on Hopper (gemv_narrow.cu).
bool takes_narrow_gemv(const Linear& args, int sm);
cudaError_t launch_narrow_gemv(const Linear& args, const Scratch& scratch, cudaStream_t stream);

// A product of few rows by Hopper's tensor cores (skinny.cu), and whether it can be one.
inline constexpr int64_t kSkinnyRows = 64;
inline constexpr int64_t kMaxSkinnyParts = 65536;
bool takes_skinny(const Linear& args, int sm);
cudaError_t launch_skinny(const Linear& args, const Scratch& scratch, cudaStream_t stream);
// In the form of kSkinnyRows rows whatever their number, so that a row's bits do not depend on it.
cudaError_t launch_invariant_skinny(const Linear& args, const Scratch& scratch,
                                    cudaStream_t stream);

// The plain product with experts, and the one by Hopper's tensor cores (experts_hopper.cu): whether
// there can be one for the weight and for these rows.
cudaError_t launch_plain_experts(const ExpertLinear& args, const Scratch& scratch,
                                 cudaStream_t stream);
bool can_be_hopper_experts(const ExpertLinear& args);
bool takes_hopper_experts(const ExpertLinear& args, const Scratch& scratch);
cudaError_t launch_hopper_experts(const ExpertLinear& args, const Scratch& scratch,
                                  cudaStream_t stream);
// In one form whatever the number of rows.
cudaError_t launch_invariant_experts(const ExpertLinear& args, const Scratch& scratch,
                                     cudaStream_t stream);

// A product of few rows with integers of 4 or 8 bits (integer.cu), and whether it can be one.
bool takes_few_rows_of_integers(const Linear& args);
cudaError_t launch_few_rows_of_integers(const Linear& args, const Scratch& scratch,
                                        cudaStream_t stream);
// Writes x to `to` [rows, k], columns in the order in which skinny.cu has integers.
cudaError_t launch_order(const Linear& args, void* to, cudaStream_t stream);
// Writes rows [row0, row0 + rows) of integers as bf16 to `to` [rows, k]; k is a multiple of 8.
cudaError_t launch_unpack(const WeightView& weight, int64_t row0, int64_t rows, void* to,
                          cudaStream_t stream);

// Attention by the cheapest forms of its kernels, and by one form for all rows, so that the bits of
// a token's result depend on its own keys alone.
bool takes_attention(const Attention& args);
cudaError_t launch_attention(const Attention& args, const Scratch& scratch, cudaStream_t stream);
cudaError_t launch_invariant_attention(const Attention& args, const Scratch& scratch,
                                       cudaStream_t stream);
// Latent heads by tensor cores (attention_latent.cu), on processors with room for its tiles; trees
// of drafts, and rows that lie otherwise than it reads them, by launch_attention().
bool takes_latent_attention(const Attention& args, int sm);
cudaError_t launch_latent_attention(const Attention& args, const Scratch& scratch,
                                    cudaStream_t stream);

// Whether rows can be read four neighbours at a time; `part`: columns from one part of a row to the
// next.
inline bool fits_vectors(const View& v, int64_t part) {
  const auto bytes = static_cast<int64_t>(4 * size_of(v.dtype));
  return part % 4 == 0 && v.stride % 4 == 0 && reinterpret_cast<uintptr_t>(v.data) % bytes == 0;
}

// Writes the bias in every row of `out`: what a product with beta = 1 adds to.
cudaError_t launch_bias(const Linear& args, cudaStream_t stream);

// Limits of the kernels.
inline constexpr int32_t kMaxPlainDim = 1024;  // of heads of attention_plain.cu
inline constexpr int64_t kMaxLinearOutputs = int64_t{65535} * 64;

}  // namespace nereid::kernels::cuda
