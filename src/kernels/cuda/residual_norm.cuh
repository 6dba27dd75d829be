// RMS norm of a row of f32 numbers plus a bf16 residual, all of the row in registers, in one pass:
// shared by Norm and by the sum over ranks that ends in it, so both give the same bits.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/pairs.cuh"

namespace nereid::kernels::cuda {

// A row is divided among the threads of one block, or of a cluster numbered as one block; thread t
// of T has vectors of four t, t + T, ...
inline constexpr int kMaxNormThreads = 512;
// Max elements of a row in a thread's registers; the smaller kernel has more resident blocks.
inline constexpr int kFewNumbers = 8, kMostNumbers = 16;

// Threads of a row, a multiple of kWarp.
inline int64_t residual_norm_threads(int64_t width) {
  const int64_t kept = width <= kMaxNormThreads * kFewNumbers ? kFewNumbers : kMostNumbers;
  return (width + kept * kWarp - 1) / (kept * kWarp) * kWarp;
}

// The larger magnitude; NaN if either is.
inline __device__ float larger(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(fabsf(a)), "f"(fabsf(b)));
  return result;
}

struct RowSums {
  float squares;
  uint32_t largest;  // bits of a magnitude
};

// Over a warp.
inline __device__ RowSums warp_sums(float squares, float largest) {
  return {warp_sum(squares), __reduce_max_sync(kAllLanes, magnitude(largest))};
}
// Over the warps of a row.
inline __device__ RowSums sum_warps(const RowSums* partial, unsigned warps) {
  RowSums all = {};
  for (unsigned w = 0; w < warps; ++w) {
    all.squares += partial[w].squares;
    all.largest = max(all.largest, partial[w].largest);
  }
  return all;
}

// kept = (kept + add) * weight; kept + add goes to `total`, its squares are added up. kIsF8: amax
// is found before the row's common factor is known.
template <bool kIsF8, class Add>
inline __device__ void add_residual(Vector<4>& kept, const Add& add, const Pairs<4>& weight,
                                    float weight_offset, float* total, float& squares,
                                    float& largest) {
#pragma unroll
  for (int j = 0; j < 4; ++j) kept[j] += add[j];
  kept.store(total);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    squares = __fmaf_rn(kept[j], kept[j], squares);
    kept[j] *= weight[j] + weight_offset;
    if constexpr (kIsF8) largest = larger(kept[j], largest);
  }
}

// Writes the row; for_each(f) calls f(i, column) for each vector kept[i] of this thread.
// Out = uint8_t: f8e4m3, its scale to `row_scale` and the numbers as bf16 to `whole`, if not null.
template <class Out, int kKept, class ForEach>
inline __device__ void write_normed(Vector<4> (&kept)[kKept], const RowSums& sums, float per_width,
                                    float eps, Out* out, float* row_scale, const ForEach& for_each,
                                    __nv_bfloat16* whole = nullptr) {
  const float scale = rsqrtf(__fmaf_rn(sums.squares, per_width, eps));
  const auto result = [&](int i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) kept[i][j] = __fmul_rn(kept[i][j], scale);
    return Pairs<4>(kept[i]);
  };
  if constexpr (sizeof(Out) == 1) {
    // Rounding is monotonic, so this is the amax of the results.
    const float most = __fmul_rn(__uint_as_float(sums.largest), scale);
    const F8Row f8(magnitude(__bfloat162float(__float2bfloat16_rn(most))), kSmallestScaled);
    for_each([&](int i, int c) {
      const Pairs<4> numbers = result(i);
      store_f8(out + c, numbers, f8);
      if (whole) numbers.store(whole + c);
    });
    if (row_scale) *row_scale = f8.scale;
  } else {
    for_each([&](int i, int c) { result(i).store(out + c); });
  }
}

}  // namespace nereid::kernels::cuda
