// out [rows, n] = x [rows, k] . weight [n, k]^T for up to eight rows: the time is that of reading
// the weight once. A block takes tiles of 16 or 32 outputs, one after the other; its warps take 64
// bytes of k in turn, straight from memory to the registers of the tensor cores' operands: since
// any order of k is as good as another, the sixteen bytes that a thread reads are parts of two
// products. What is on its way does not stop at the end of a tile of outputs. The order of
// additions depends on k alone.
//
// Weights do not depend on the kernel in front: the first are fetched while it still runs.
#include <cuda_bf16.h>

#include <algorithm>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/overlap.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
// Of 16 outputs that a block has at a time: more for f8e4m3, whose x has to be converted.
template <class In>
constexpr int kTilesOf = sizeof(In) == 1 ? 2 : 1;
template <class In>
constexpr int kAheadOf = 8 / kTilesOf<In>;  // steps that are on their way
constexpr int kDepthBytes = 64;             // of the columns of a step
constexpr int kBlocksPerUnit = 2;
constexpr int kMaxRows = kMaxGemvRows;

struct Params {
  const void* x;
  const void* weight;
  const __nv_bfloat16* bias;  // or null
  const float* scales;        // of outputs and of rows of x, for f8e4m3
  const float* x_scales;
  void* out;
  int64_t x_stride, x_scales_stride, out_stride, n, k;
  int rows, tiles;
};

// Four f8e4m3 numbers as two pairs of f16, each 2^-8 of the number: sign, exponent and mantissa
// move to their places, the exponents' biases differ by 8. Exact, and cheaper than the conversion
// that the products of f8e4m3 are made with. The pairs are bytes 1 and 3, then 0 and 2.
__device__ uint32_t high_pair(uint32_t four) {
  return (four >> 1 & 0x3f803f80u) | (four & 0x80008000u);
}
__device__ uint32_t low_pair(uint32_t four) { return high_pair(four << 8); }
constexpr float kPairsFactor = 0x1p16f;  // of a product of two such numbers

// results[t] += the products of 16 bytes of 16 weight rows (two of them this thread's) and of x.
template <int kTiles>
__device__ void multiply_piece(const __nv_bfloat16*, const uint4 (&w)[kTiles][2], uint4 b,
                               float (&results)[kTiles][4]) {
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    multiply(results[t], {w[t][0].x, w[t][1].x, w[t][0].y, w[t][1].y}, b.x, b.y);
    multiply(results[t], {w[t][0].z, w[t][1].z, w[t][0].w, w[t][1].w}, b.z, b.w);
  }
}
template <int kTiles>
__device__ void multiply_piece(const __nv_fp8_e4m3*, const uint4 (&w)[kTiles][2], uint4 b,
                               float (&results)[kTiles][4]) {
  const auto multiply_four = [&](uint32_t uint4::*word) {
    const uint32_t high = high_pair(b.*word), low = low_pair(b.*word);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const uint32_t x = w[t][0].*word, y = w[t][1].*word;
      multiply_f16(results[t], {high_pair(x), high_pair(y), low_pair(x), low_pair(y)}, high, low);
    }
  };
  multiply_four(&uint4::x);
  multiply_four(&uint4::y);
  multiply_four(&uint4::z);
  multiply_four(&uint4::w);
}

// In: of x and weight.
template <class In, class Out>
__global__ void __launch_bounds__(kThreads, kBlocksPerUnit) gemv_kernel(Params p) {
  constexpr int kDepth = kDepthBytes / sizeof(In), kStride = kWarps * kDepth;
  constexpr int kTiles = kTilesOf<In>, kAhead = kAheadOf<In>, kOutputs = 16 * kTiles;
  __shared__ float sums[2][kWarps][kOutputs][kMaxRows];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t first_k = warp * kDepth + lane % 4 * (kDepth / 4);  // this thread's
  const bool has_x = lane / 4 < p.rows;
  const In* const x = static_cast<const In*>(p.x) + (has_x ? lane / 4 : 0) * p.x_stride;
  // Steps of a tile, the same for all warps, and of all tiles of this block.
  const auto steps = static_cast<int>((p.k + kStride - 1) / kStride);
  const int total = (p.tiles - static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) - 1) /
                    static_cast<int>(gridDim.x) * steps;

  uint4 weights[kAhead][kTiles][2], inputs[kAhead];
  // The next step to fetch: its tile's rows, and its first column.
  int64_t tile = blockIdx.x, k = first_k;
  const In* rows[kTiles][2];
  const auto find_rows = [&] {
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        rows[t][h] = static_cast<const In*>(p.weight) +
                     min(tile * kOutputs + 16 * t + 8 * h + lane / 4, p.n - 1) * p.k;
  };
  find_rows();
  const auto load_weights = [&](int a) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int h = 0; h < 2; ++h) weights[a][t][h] = k < p.k ? load_once(rows[t][h] + k) : uint4{};
  };
  const auto load_inputs = [&](int a, int64_t column) {
    inputs[a] = has_x && column < p.k ? *reinterpret_cast<const uint4*>(x + column) : uint4{};
  };
  const auto to_next = [&] {
    k += kStride;
    if (k - first_k < int64_t{steps} * kStride) return;
    k = first_k, tile += gridDim.x;
    find_rows();
  };
#pragma unroll
  for (int a = 0; a < kAhead; ++a)
    if (a < total) load_weights(a), to_next();
  let_next_begin();
  wait_for_previous();
  int64_t column = first_k;
#pragma unroll
  for (int a = 0; a < kAhead; ++a) {
    load_inputs(a, column);
    column += kStride;
    if (column - first_k >= int64_t{steps} * kStride) column = first_k;
  }

  float results[kTiles][4] = {};
  int in_tile = 0, buffer = 0;
  int64_t done = blockIdx.x;  // the tile whose products are made
  const auto finish_tile = [&] {
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        sums[buffer][warp][16 * t + 8 * (r / 2) + lane / 4][lane % 4 * 2 + r % 2] = results[t][r];
        results[t][r] = 0;
      }
    __syncthreads();
    const int row = static_cast<int>(threadIdx.x) / kOutputs;
    const int output = static_cast<int>(threadIdx.x) % kOutputs;
    const int64_t n = done * kOutputs + output;
    if (row < p.rows && n < p.n) {
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += sums[buffer][w][output][row];
      if (sizeof(In) == 1)
        sum *= kPairsFactor * (p.scales[n] * p.x_scales[row * p.x_scales_stride]);
      store(static_cast<Out*>(p.out) + row * p.out_stride + n,
            p.bias ? sum + load(p.bias + n) : sum);
    }
    in_tile = 0, buffer ^= 1, done += gridDim.x;
  };
  for (int first = 0; first < total; first += kAhead) {
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (first + a >= total) break;
      multiply_piece(x, weights[a], inputs[a], results);
      if (first + a + kAhead < total) {
        load_weights(a);
        load_inputs(a, k);
        to_next();
      }
      if (++in_tile == steps) finish_tile();
    }
  }
  static_assert(kThreads >= kOutputs * kMaxRows);
}

bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <class In>
cudaError_t enqueue(const Linear& a, Params p, int num_units, cudaStream_t stream) {
  constexpr int kOutputs = 16 * kTilesOf<In>;
  p.tiles = static_cast<int>((p.n + kOutputs - 1) / kOutputs);
  const auto blocks = static_cast<unsigned>(std::min(p.tiles, kBlocksPerUnit * num_units));
  return launch_overlapped(
      a.out.dtype == DType::kBF16 ? gemv_kernel<In, __nv_bfloat16> : gemv_kernel<In, float>,
      a.x.rows, blocks, kThreads, 0, stream, p);
}

}  // namespace

bool takes_gemv(const Linear& a) {
  return a.x.rows <= kMaxRows && is_in_pieces(a) && is_aligned(a.x.data) &&
         is_aligned(a.weight.data);
}

cudaError_t launch_gemv(const Linear& a, const Scratch& scratch, cudaStream_t stream) {
  const Params p = {a.x.data,
                    a.weight.data,
                    static_cast<const __nv_bfloat16*>(a.bias.data),
                    a.weight.scales,
                    static_cast<const float*>(a.scales.data),
                    a.out.data,
                    a.x.stride,
                    a.scales.stride,
                    a.out.stride,
                    a.weight.n,
                    a.weight.k,
                    static_cast<int>(a.x.rows)};
  return a.x.dtype == DType::kF8E4M3 ? enqueue<__nv_fp8_e4m3>(a, p, scratch.num_units, stream)
                                     : enqueue<__nv_bfloat16>(a, p, scratch.num_units, stream);
}

}  // namespace nereid::kernels::cuda
