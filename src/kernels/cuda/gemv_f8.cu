// out [rows, n] = x [rows, k] . weight [n, k]^T, both f8e4m3, <= 8 rows; gemv_narrow.cu is faster
// where it applies. A block takes tiles of 32 outputs in turn; its warps take 64 bytes of k in
// turn, loaded directly to the registers of tensor-core operands. Prefetch continues across tiles.
// The order of additions depends on k only.
//
// Weights do not depend on the previous kernel: the first are loaded while it still runs.
#include <cuda_bf16.h>

#include <algorithm>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/product_end.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kTiles = 2;  // of 16 outputs, multiplied together: x is converted once for both
constexpr int kOutputs = 16 * kTiles;
constexpr int kAhead = 4;   // steps in flight
constexpr int kDepth = 64;  // columns per step
constexpr int kStride = kWarps * kDepth;
constexpr int kMaxRows = kMaxGemvRows;

struct Params {
  const void* x;
  const void* weight;
  EndParams end;
  int64_t x_stride;
  int k;
};

// Four f8e4m3 as two pairs of f16, each 2^-8 of the number: sign, exponent and mantissa are
// shifted; the exponent biases differ by 8. Exact, and cheaper than the conversion instruction.
// Pairs: bytes 1 and 3, then 0 and 2.
__device__ uint32_t high_pair(uint32_t four) {
  return (four >> 1 & 0x3f803f80u) | (four & 0x80008000u);
}
__device__ uint32_t low_pair(uint32_t four) { return high_pair(four << 8); }
constexpr float kPairsFactor = 0x1p16f;  // per product of two such numbers

// results[t] += products of 16 bytes of 16 weight rows (this thread has two rows) and of x.
__device__ void multiply_piece(const uint4 (&w)[kTiles][2], uint4 b, float (&results)[kTiles][4]) {
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

__global__ void __launch_bounds__(kThreads, kGemvBlocksPerUnit) gemv_f8_kernel(Params p) {
  using End = ProductEnd<kMaxRows, kOutputs, kThreads, false>;
  __shared__ End::Shared of_end;
  End end(p.end, of_end);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int first_k = warp * kDepth + lane % 4 * (kDepth / 4);  // of this thread
  const bool has_x = lane / 4 < p.end.rows;
  const uint8_t* const x = static_cast<const uint8_t*>(p.x) + (has_x ? lane / 4 : 0) * p.x_stride;
  // Steps per tile, the same for all warps, and of all tiles of this block.
  const int steps = steps_of(p.k, kStride, kAhead);
  const int total = (p.end.tiles - static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) - 1) /
                    static_cast<int>(gridDim.x) * steps;

  uint4 weights[kAhead][kTiles][2], inputs[kAhead];
  // The next step to load: its tile's rows, its first column.
  int tile = static_cast<int>(blockIdx.x), k = first_k;
  const uint8_t* rows[kTiles][2];
  const auto find_rows = [&] {
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        rows[t][h] =
            static_cast<const uint8_t*>(p.weight) +
            int64_t{min(end.weight_row(tile, 16 * t + 8 * h + lane / 4), p.end.n - 1)} * p.k;
  };
  find_rows();
  const auto load_weights = [&](int a) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int h = 0; h < 2; ++h) weights[a][t][h] = k < p.k ? load_once(rows[t][h] + k) : uint4{};
  };
  const auto load_inputs = [&](int a, int column) {
    inputs[a] = has_x && column < p.k ? *reinterpret_cast<const uint4*>(x + column) : uint4{};
  };
  const auto to_next = [&] {
    k += kStride;
    if (k - first_k < steps * kStride) return;
    k = first_k, tile += static_cast<int>(gridDim.x);
    find_rows();
  };
#pragma unroll
  for (int a = 0; a < kAhead; ++a)
    if (a < total) load_weights(a), to_next();
  end.begin();
  let_next_begin();
  wait_for_previous();
  int column = first_k;
#pragma unroll
  for (int a = 0; a < kAhead; ++a) {
    load_inputs(a, column);
    column += kStride;
    if (column - first_k >= steps * kStride) column = first_k;
  }
  end.begin_behind();

  float results[kTiles][4] = {};
  int in_tile = 0, buffers = 0;
  int pending = 0, ended = 0;  // tiles of this block with finished products; tiles ended
  const auto put_tile = [&] {
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        if (const int row = lane % 4 * 2 + r % 2; row < p.end.rows)
          end.put(buffers + pending, warp, row, 16 * t + 8 * (r / 2) + lane / 4,
                  kPairsFactor * results[t][r]);
        results[t][r] = 0;
      }
    in_tile = 0, ++pending;
  };
  const auto end_tiles = [&] {
    __syncthreads();
    end.end(ended, pending, buffers);
    ended += pending, pending = 0, buffers ^= kTilesTogether;
  };
  for (int first = 0; first < total; first += kAhead) {
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (first + a >= total) break;
      multiply_piece(weights[a], inputs[a], results);
      if (first + a + kAhead < total) {
        load_weights(a);
        load_inputs(a, k);
        to_next();
      }
      if (++in_tile == steps) put_tile();
    }
    if (pending > 0) end_tiles();
  }
}

}  // namespace

cudaError_t launch_f8_gemv(const Linear& a, const Scratch& scratch, cudaStream_t stream) {
  Params p = {a.x.data, a.weight.data, end_of(a), a.x.stride, static_cast<int>(a.weight.k)};
  p.end.tiles = tiles_of(p.end, kOutputs);
  const auto blocks =
      static_cast<unsigned>(std::min(p.end.tiles, kGemvBlocksPerUnit * scratch.num_units));
  return launch_overlapped(gemv_f8_kernel, a.x.rows, blocks, kThreads, 0, stream, p);
}

}  // namespace nereid::kernels::cuda
