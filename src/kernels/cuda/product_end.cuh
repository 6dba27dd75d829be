// Epilogue of products of few rows: scales, bias, and FusedLinear's fused ops (ops.h). Groups of a
// block's warps end its tiles in turn, one output of one row per thread; operands are loaded during
// the products into shared memory, as registers are full of weights. A single warp takes about 5
// cycles per instruction: values known before the wait for the previous kernel are computed there.
#pragma once

#include <algorithm>

#include "kernels/api/ops.h"
#include "kernels/cuda/activate.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/ptx.cuh"

namespace nereid::kernels::cuda {

struct EndParams {
  const __nv_bfloat16* bias;  // or null
  const float* scales;        // per output, or null
  const float* x_scales;      // per row, or null
  void* out;
  int rows, n, tiles;       // n: rows of the weight
  int columns, out_stride;  // of out
  int x_scales_stride;
  bool out_bf16;
  // FusedLinear
  bool gated, has_factor;  // has_factor: rows have a factor, see make_factors()
  Activation activation;
  float limit, up_offset, norm_offset, eps;
  float width_factor;      // 1 / k
  const float* x_squares;  // or null
  float* residual;         // or null; updated with the sum
  const __nv_bfloat16* norm;
  float* squares;
  int x_squares_stride, residual_stride, squares_stride;
};

inline EndParams end_of(const Linear& a) {
  EndParams p = {};
  p.bias = static_cast<const __nv_bfloat16*>(a.bias.data);
  if (a.weight.format.scheme == Scheme::kFloat8) p.scales = a.weight.scales;
  p.x_scales = static_cast<const float*>(a.scales.data);
  p.out = a.out.data;
  p.rows = static_cast<int>(a.x.rows), p.n = static_cast<int>(a.weight.n);
  p.columns = static_cast<int>(a.out.cols), p.out_stride = static_cast<int>(a.out.stride);
  p.x_scales_stride = static_cast<int>(a.scales.stride);
  p.out_bf16 = a.out.dtype == DType::kBF16;
  return p;
}
inline EndParams end_of(const FusedLinear& a) {
  EndParams p = end_of(Linear{a.x, {}, a.weight, a.bias, a.out});
  p.gated = a.gated;
  p.has_factor = a.rounds || is_given(a.x_squares);
  p.activation = a.activation;
  p.limit = a.limit, p.up_offset = a.up_offset, p.norm_offset = a.norm_offset, p.eps = a.eps;
  p.width_factor = 1.0f / static_cast<float>(a.weight.k);
  p.x_squares = static_cast<const float*>(a.x_squares.data);
  p.residual = static_cast<float*>(a.sum.data);
  p.norm = static_cast<const __nv_bfloat16*>(a.norm.data);
  p.squares = static_cast<float*>(a.squares.data);
  p.x_squares_stride = static_cast<int>(a.x_squares.stride);
  p.residual_stride = static_cast<int>(a.sum.stride);
  p.squares_stride = static_cast<int>(a.squares.stride);
  return p;
}

constexpr int kGates = 8;          // per tile of 16 outputs; the other half are up columns
constexpr int kTilesTogether = 2;  // max tiles that end in one turn of the pipeline

// Steps per tile, at least so many that <= kTilesTogether tiles end per turn.
__host__ __device__ constexpr int steps_of(int64_t columns, int64_t stride, int ahead) {
  return std::max(static_cast<int>((columns + stride - 1) / stride),
                  (ahead + kTilesTogether - 1) / kTilesTogether);
}

inline int tiles_of(const EndParams& p, int outputs) {
  const int columns = p.gated ? kGates : outputs;  // per tile
  return (p.columns + columns - 1) / columns;
}

// Copies bf16 number i of p by the 32-bit word that contains it.
inline __device__ void copy_number(uint32_t* to, const __nv_bfloat16* p, int i) {
  const auto at = reinterpret_cast<uintptr_t>(p + i);
  const int half = static_cast<int>(at & 2);
  copy_4(shared_address(to), reinterpret_cast<const void*>(at - half), 2 + half);
}
inline __device__ float number_in(uint32_t word, const __nv_bfloat16* p, int i) {
  const uint32_t half = (static_cast<uint32_t>(reinterpret_cast<uintptr_t>(p)) >> 1 ^ i) & 1;
  return __uint_as_float(half ? word & 0xffff0000u : word << 16);
}

template <int kRows, int kOutputs, int kThreads, bool kFused>
class ProductEnd {
 public:
  static constexpr int kWarps = kThreads / kWarp;
  static constexpr int kGroup = (kRows * kOutputs + kWarp - 1) / kWarp * kWarp;  // threads per tile
  static constexpr int kGroups = kThreads / kGroup;
  static_assert(kThreads % kGroup == 0 && kRows <= kWarps);

  struct Shared {
    // Each warp's sums of an output; the distance between threads avoids bank conflicts.
    static constexpr int kDistance = kOutputs == kWarp ? kWarps : kWarps + 4;
    __align__(16) float sums[2 * kTilesTogether][kGroup * kDistance];
    // Per thread.
    float scale[kThreads], x_scale[kThreads], residual[kThreads];
    uint32_t bias[kThreads], norm[kThreads];
    // Shared.
    float factor[kRows];
    float squares[kGroups][kRows];
  };

  __device__ ProductEnd(const EndParams& p, Shared& shared) : p_(p), s_(shared) {}

  // This thread's index among the threads that end a tile.
  __device__ static int group() { return static_cast<int>(threadIdx.x) / kGroup; }
  __device__ static int row() { return static_cast<int>(threadIdx.x) % kGroup / kOutputs; }
  __device__ static int output() { return static_cast<int>(threadIdx.x) % kOutputs; }

  // The weight row of output i of a tile.
  __device__ int weight_row(int tile, int i) const {
    if constexpr (kFused)
      if (p_.gated) return tile * kGates + i % kGates + (i < kGates ? 0 : p_.columns);
    return tile * kOutputs + i;
  }

  // Loads operands of the thread's first tile: weights, then (after the wait) earlier results.
  __device__ void begin() {
    fetch(first() + group() * stride());
    // Prefetches the arguments that only end() reads.
    asm volatile("" ::"l"(p_.out), "r"(p_.out_stride));
    if constexpr (kFused)
      asm volatile("" ::"f"(p_.limit), "l"(p_.squares), "r"(p_.squares_stride), "l"(p_.norm));
  }
  __device__ void begin_behind() { fetch_behind(first() + group() * stride()); }
  // Factors of rows' sums: the scale of their x times their norm factor. One warp per row; a block
  // barrier follows before a tile ends.
  template <class Scale, class Squares>
  __device__ void make_factors(Scale scale_of, Squares squares_of) {
    const int mine = static_cast<int>(threadIdx.x) / kWarp;
    if (mine >= p_.rows || !p_.has_factor) return;
    float factor = scale_of(mine);
    if (p_.x_squares) factor *= norm_factor(squares_of(mine));
    if (threadIdx.x % kWarp == 0) s_.factor[mine] = factor;
  }

  // Stores a warp's sum for the end of the tile; `buffer` < 2 * kTilesTogether.
  __device__ void put(int buffer, int warp, int row, int output, float sum) {
    s_.sums[buffer][(row * kOutputs + output) * Shared::kDistance + warp] = sum;
  }

  // Ends tiles [begun, begun + count) of the block, with sums in buffers from `buffer`.
  __device__ void end(int begun, int count, int buffer) {
    constexpr int kInWarp = kWarp / std::min(kWarp, kOutputs);  // rows per warp
    if (row() / kInWarp * kInWarp >= p_.rows) return;
    for (int i = (group() - begun) & (kGroups - 1); i < count; i += kGroups) {
      wait_for_copies<0>();
      const int tile = first() + (begun + i) * stride();
      end_tile(tile, s_.sums[buffer + i] + threadIdx.x % kGroup * Shared::kDistance);
      const int next = tile + kGroups * stride();
      if (next >= p_.tiles) break;
      fetch(next);
      fetch_behind(next);
    }
  }
  // After the last tile: sums of squares of this block's part of the rows, and zeros for blocks
  // that do not exist.
  __device__ void end_all() {
    if constexpr (kFused) {
      static_assert(kOutputs == kWarp / 2);
      if (!p_.residual) return;
      const auto has_tile = [&](int g) { return first() + g * stride() < p_.tiles; };
      float sum = squares_;
      if (has_tile(group())) {
#pragma unroll
        for (int step = kOutputs / 2; step > 0; step /= 2)
          sum += __shfl_xor_sync(kAllLanes, sum, step);
      }
      if (has_tile(1)) {
        if (output() == 0 && row() < kRows) s_.squares[group()][row()] = sum;
        __syncthreads();
      }
      if (group() > 0 || output() != 0 || row() >= p_.rows) return;
      for (int g = 1; g < kGroups && has_tile(g); ++g) sum += s_.squares[g][row()];
      float* const to = p_.squares + row() * p_.squares_stride;
      to[blockIdx.x] = sum;
      for (auto i = blockIdx.x + gridDim.x; i < kFusedSquares; i += gridDim.x) to[i] = 0;
    }
  }

 private:
  __device__ static int first() { return static_cast<int>(blockIdx.x); }
  __device__ static int stride() { return static_cast<int>(gridDim.x); }
  // The column of out (or of its gate) ended by this thread in a tile.
  __device__ int column(int tile) const {
    if constexpr (kFused)
      if (p_.gated) return tile * kGates + output() % kGates;
    return tile * kOutputs + output();
  }

  __device__ void fetch(int tile) {
    if (row() >= p_.rows || column(tile) >= p_.columns) return;
    const auto t = threadIdx.x;
    const int n = weight_row(tile, output());
    if (p_.scales) copy_4(shared_address(&s_.scale[t]), p_.scales + n);
    if (p_.bias) copy_number(&s_.bias[t], p_.bias, n);
    if constexpr (kFused)
      if (p_.residual) copy_number(&s_.norm[t], p_.norm, n);
    end_copies();
  }
  __device__ void fetch_behind(int tile) {
    if (tile >= p_.tiles || row() >= p_.rows || column(tile) >= p_.columns) return;
    const auto t = threadIdx.x;
    if constexpr (kFused) {
      if (!p_.residual) return;
      copy_4(shared_address(&s_.residual[t]),
             p_.residual + row() * p_.residual_stride + column(tile));
    } else {
      if (!p_.x_scales) return;
      copy_4(shared_address(&s_.x_scale[t]), p_.x_scales + row() * p_.x_scales_stride);
    }
    end_copies();
  }

  // 1 / root mean square of a row; one warp.
  __device__ float norm_factor(const float* squares) const {
    const auto lane = threadIdx.x % kWarp;
    const auto* const from = reinterpret_cast<const float4*>(squares);
    float4 four[kFusedSquares / 4 / kWarp];
#pragma unroll
    for (int i = 0; i < kFusedSquares / 4 / kWarp; ++i) four[i] = from[i * kWarp + lane];
    float sum = 0;
#pragma unroll
    for (const float4& v : four) sum += (v.x + v.y) + (v.z + v.w);
    return rsqrtf(fmaf(warp_sum(sum), p_.width_factor, p_.eps));
  }

  __device__ void end_tile(int tile, const float* sums) {
    const auto t = threadIdx.x;
    const float4 a = reinterpret_cast<const float4*>(sums)[0];
    const float4 b = reinterpret_cast<const float4*>(sums)[1];
    const int c = column(tile);
    bool exists = row() < p_.rows && c < p_.columns;
    float y = ((a.x + a.y) + (a.z + a.w)) + ((b.x + b.y) + (b.z + b.w));
    if constexpr (kFused) {
      if (p_.scales) y *= s_.scale[t];
      if (p_.has_factor) y *= s_.factor[row() % kRows];
    } else {
      if (p_.scales) y *= s_.scale[t] * s_.x_scale[t];
    }
    if (p_.bias) y += number_in(s_.bias[t], p_.bias, weight_row(tile, output()));
    if constexpr (kFused) {
      if (p_.gated) {
        const float up = __shfl_down_sync(kAllLanes, y, kGates);
        const auto act = [&](float x) { return activate(p_.activation, x); };
        y = gated_unit(act, y, up, p_.limit, p_.up_offset);
        exists = exists && output() < kGates;
      } else if (exists && p_.residual) {
        y += s_.residual[t];
        p_.residual[row() * p_.residual_stride + c] = y;
        squares_ += y * y;
        y *= number_in(s_.norm[t], p_.norm, c) + p_.norm_offset;
      }
    }
    if (!exists) return;
    const int at = row() * p_.out_stride + c;
    if (p_.out_bf16)
      store(static_cast<__nv_bfloat16*>(p_.out) + at, y);
    else
      store(static_cast<float*>(p_.out) + at, y);
  }

  const EndParams& p_;
  Shared& s_;
  float squares_ = 0;
};

}  // namespace nereid::kernels::cuda
