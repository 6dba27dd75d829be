// out [rows, n] = x [rows, k] . weight [n, k]^T, bf16, <= 8 rows: bound by one read of the weight.
// A block takes tiles of 16 outputs in turn; its warps take 64 bytes of k in turn, loaded directly
// to the registers of tensor-core operands. Prefetch continues across tiles. The order of additions
// depends on k only.
//
// The 16 bytes of a weight row that a thread loads are used as an operand unpermuted: words 0 and 2
// as row i of the product's left matrix, words 1 and 3 as row i + 8. A row of x is two columns of
// the right matrix, with the same words; the results are (i, column) and (i + 8, column + 1).
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
constexpr int kOutputs = 16;  // per tile
constexpr int kDepth = 32;    // columns per step
constexpr int kStride = kWarps * kDepth;
constexpr int kInSet = 4;  // rows of x per product
template <int kRows>
constexpr int kAheadOf = kRows <= kInSet ? 8 : 6;  // steps in flight

struct Params {
  const __nv_bfloat16* x;
  const __nv_bfloat16* weight;
  EndParams end;
  int64_t x_stride;
  int k;
  int turns;  // pipeline turns per tile
};

// kRows: max rows. kTiles: the pipeline has steps of one tile, or all steps of two.
template <int kRows, int kTiles, bool kFused>
__global__ void __launch_bounds__(kThreads, kGemvBlocksPerUnit) gemv_kernel(Params p) {
  constexpr int kSets = kRows / kInSet, kAhead = kAheadOf<kRows>, kSteps = kAhead / kTiles;
  using End = ProductEnd<kRows, kOutputs, kThreads, kFused>;
  __shared__ typename End::Shared of_end;
  End end(p.end, of_end);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int first_k = warp * kDepth + lane % 4 * 8;                 // of this thread
  const int steps = (p.k - warp * kDepth + kStride - 1) / kStride;  // of this warp per tile
  const int blocks = static_cast<int>(gridDim.x);
  const int tiles = (p.end.tiles - static_cast<int>(blockIdx.x) + blocks - 1) / blocks;

  uint4 weights[kAhead][2];
  uint2 inputs[kSteps][kSets] = {};
  // The next turn: its first tile of the block's, its number within that tile, its start, and this
  // warp's number of steps in it.
  int next = 0, turn = 0;
  const __nv_bfloat16* rows[kTiles][2];
  int left[kTiles];
  const auto aim = [&] {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      left[t] = next + t < tiles ? steps - turn * kSteps : 0;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int tile = static_cast<int>(blockIdx.x) + (next + t) * blocks;
        const int row = min(end.weight_row(tile, 8 * h + lane / 4), p.end.n - 1);
        rows[t][h] = p.weight + int64_t{row} * p.k + (turn * (kSteps * kStride) + first_k);
      }
    }
  };
  const auto load_weights = [&](int a) {
    const int t = a / kSteps, s = a % kSteps;
    if (s >= left[t]) return;
#pragma unroll
    for (int h = 0; h < 2; ++h) weights[a][h] = load_once(rows[t][h] + s * kStride);
  };
  // Columns 2 i and 2 i + 1 of the right matrix are words 0 and 2, and 1 and 3, of row i.
  const int x_row = lane / 8;
  const __nv_bfloat16* const x = p.x + x_row * p.x_stride + (first_k + lane / 4 % 2 * 2);
  const auto load_inputs = [&](int s) {
    if (s >= left[0]) return;
#pragma unroll
    for (int i = 0; i < kSets; ++i)
      if (i * kInSet + x_row < p.end.rows) {
        const auto* const from = reinterpret_cast<const uint32_t*>(
            x + i * kInSet * p.x_stride + (turn * (kSteps * kStride) + s * kStride));
        inputs[s][i] = {from[0], from[2]};
      }
  };
  aim();
#pragma unroll
  for (int a = 0; a < kAhead; ++a) load_weights(a);
  end.begin();
  let_next_begin();
  wait_for_previous();
#pragma unroll
  for (int s = 0; s < kSteps; ++s) load_inputs(s);
  end.begin_behind();
  if constexpr (kFused)
    end.make_factors([](int) { return 1.0f; },
                     [&](int row) { return p.end.x_squares + row * p.end.x_squares_stride; });

  float results[kTiles][kSets][2][4] = {};
  const auto put_tile = [&](int t, int buffer) {
#pragma unroll
    for (int i = 0; i < kSets; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float(&r)[4] = results[t][i][h];
        if (const int row = i * kInSet + lane % 4; row < p.end.rows)
          end.put(buffer, warp, row, 8 * h + lane / 4, r[0] + r[3]);
        r[0] = r[1] = r[2] = r[3] = 0;
      }
  };
  int buffers = 0;
  for (int done = 0; done < tiles;) {
    int now[kTiles];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) now[t] = left[t];
    const bool is_last = ++turn == p.turns;  // of the tile
    if (is_last) turn = 0, next += kTiles;
    aim();
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int t = a / kSteps, s = a % kSteps;
      if (s < now[t]) {
#pragma unroll
        for (int i = 0; i < kSets; ++i)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const uint4& w = weights[a][h];
            multiply(results[t][i][h], {w.x, w.y, w.z, w.w}, inputs[s][i].x, inputs[s][i].y);
          }
      }
      load_weights(a);
      if (kTiles == 1 && p.turns > 1) load_inputs(s);
    }
    if (!is_last) continue;
    const int count = min(kTiles, tiles - done);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) put_tile(t, buffers + t);
    __syncthreads();
    end.end(done, count, buffers);
    done += kTiles, buffers ^= kTilesTogether;
  }
  end.end_all();
}

template <int kRows, int kTiles, bool kFused>
cudaError_t enqueue(Params p, int num_units, cudaStream_t stream) {
  constexpr int kSteps = kAheadOf<kRows> / kTiles;
  p.turns = (p.k + kSteps * kStride - 1) / (kSteps * kStride);
  const auto blocks = static_cast<unsigned>(std::min(p.end.tiles, kGemvBlocksPerUnit * num_units));
  return launch_overlapped(gemv_kernel<kRows, kTiles, kFused>, p.end.rows, blocks, kThreads, 0,
                           stream, p);
}

template <bool kFused, class Op>
cudaError_t enqueue(const Op& a, const Scratch& scratch, cudaStream_t stream) {
  Params p = {static_cast<const __nv_bfloat16*>(a.x.data),
              static_cast<const __nv_bfloat16*>(a.weight.data), end_of(a), a.x.stride,
              static_cast<int>(a.weight.k)};
  p.end.tiles = tiles_of(p.end, kOutputs);
  if (p.end.rows > kInSet) return enqueue<kMaxGemvRows, 1, kFused>(p, scratch.num_units, stream);
  constexpr int kShort = kAheadOf<kInSet> / 2 * kStride;
  return p.k <= kShort ? enqueue<kInSet, 2, kFused>(p, scratch.num_units, stream)
                       : enqueue<kInSet, 1, kFused>(p, scratch.num_units, stream);
}

}  // namespace

bool takes_gemv(const Linear& a) {
  const int64_t step = a.x.dtype == DType::kF8E4M3 ? 16 : kDepth;
  return a.x.rows <= kMaxGemvRows && is_in_pieces(a) && a.weight.k % step == 0 &&
         is_aligned(a.x.data) && is_aligned(a.weight.data);
}
bool takes_gemv(const FusedLinear& a) {
  return !a.rounds && a.weight.format.is_float() && a.x.rows <= kMaxGemvRows &&
         a.weight.k % kDepth == 0 && a.x.stride % 8 == 0 && a.x_squares.stride % 4 == 0;
}

cudaError_t launch_gemv(const Linear& a, const Scratch& scratch, cudaStream_t stream) {
  return a.x.dtype == DType::kF8E4M3 ? launch_f8_gemv(a, scratch, stream)
                                     : enqueue<false>(a, scratch, stream);
}
cudaError_t launch_gemv(const FusedLinear& a, const Scratch& scratch, cudaStream_t stream) {
  return enqueue<true>(a, scratch, stream);
}

}  // namespace nereid::kernels::cuda
