// Device functions shared by the CUDA kernels.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cstdint>

namespace nereid::kernels::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;
inline constexpr float kLog2E = 1.4426950408889634f;

// Fast 2^x, error <= 2 ulp; results below 2^-126 are 0.
inline __device__ float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Two bf16 in a word, lower address first.
inline __device__ float2 unpack(uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}

// Inverse of unpack(), rounded.
inline __device__ uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

inline __device__ float load(const __nv_bfloat16* p) { return __bfloat162float(*p); }
inline __device__ float load(const float* p) { return *p; }
inline __device__ float load(const __nv_fp8_e4m3* p) { return static_cast<float>(*p); }
inline __device__ void store(float* p, float x) { *p = x; }
inline __device__ void store(__nv_bfloat16* p, float x) { *p = __float2bfloat16_rn(x); }

// kWidth adjacent numbers, accessed at once if kWidth = 4 (aligned address).
template <int kWidth>
struct Vector {
  float x[kWidth];

  Vector() = default;
  explicit __device__ Vector(const float* p) {
    if constexpr (kWidth == 4) {
      const float4 four = *reinterpret_cast<const float4*>(p);
      x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
    } else {
      x[0] = *p;
    }
  }
  explicit __device__ Vector(const __nv_bfloat16* p) {
    if constexpr (kWidth == 4) {
      const uint2 four = *reinterpret_cast<const uint2*>(p);
      const float2 low = unpack(four.x), high = unpack(four.y);
      x[0] = low.x, x[1] = low.y, x[2] = high.x, x[3] = high.y;
    } else {
      x[0] = __bfloat162float(*p);
    }
  }
  __device__ void store(float* p) const {
    if constexpr (kWidth == 4)
      *reinterpret_cast<float4*>(p) = make_float4(x[0], x[1], x[2], x[3]);
    else
      *p = x[0];
  }
  __device__ void store(__nv_bfloat16* p) const {
    if constexpr (kWidth == 4)
      *reinterpret_cast<uint2*>(p) = make_uint2(pack(x[0], x[1]), pack(x[2], x[3]));
    else
      *p = __float2bfloat16_rn(x[0]);
  }
  // Rounds to bf16; returns the max of `largest` and their magnitudes.
  __device__ uint32_t round(uint32_t largest);
  __device__ float& operator[](int i) { return x[i]; }
  __device__ float operator[](int i) const { return x[i]; }
};

// Magnitude as float bits: infinity and NaN compare above all numbers.
inline __device__ uint32_t magnitude(float x) { return __float_as_uint(x) & 0x7fffffffu; }
inline __device__ uint32_t warp_max(uint32_t x) {
  for (int step = kWarp / 2; step > 0; step /= 2) x = max(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}
// Max over a block's threads, returned to all; `partial`: one word per warp.
inline __device__ uint32_t block_max(uint32_t x, uint32_t* partial) {
  x = warp_max(x);
  if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = x;
  __syncthreads();
  for (unsigned w = 0; w < blockDim.x / kWarp; ++w) x = max(x, partial[w]);
  return x;
}

template <int kWidth>
inline __device__ uint32_t Vector<kWidth>::round(uint32_t largest) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    x[i] = __bfloat162float(__float2bfloat16_rn(x[i]));
    largest = max(largest, magnitude(x[i]));
  }
  return largest;
}

// Quantisation of a row to f8e4m3, see QuantizeOf in ops.h; `smallest`: kSmallestScaled.
struct F8Row {
  float factor, scale;
  bool keep;

  __device__ F8Row(uint32_t largest, float smallest) {
    const float amax = __uint_as_float(largest);
    const bool finite = largest < 0x7f800000u;
    keep = finite && amax >= smallest;
    factor = keep ? __fdiv_rn(448.0f, amax) : 0.0f;
    scale = keep ? __fdiv_rn(amax, 448.0f) : finite ? 0.0f : NAN;
  }
  __device__ uint32_t code(float x) const {
    return keep ? __nv_cvt_float_to_fp8(__fmul_rn(x, factor), __NV_SATFINITE, __NV_E4M3) : 0u;
  }
  template <int kWidth>
  __device__ void store(uint8_t* p, const Vector<kWidth>& x) const {
    if constexpr (kWidth == 4)
      *reinterpret_cast<uint32_t*>(p) =
          code(x[0]) | code(x[1]) << 8 | code(x[2]) << 16 | code(x[3]) << 24;
    else
      *p = static_cast<uint8_t>(code(x[0]));
  }
};

// Rotates a pair. Products are rounded as in the reference: equal cached keys on all devices.
inline __device__ float2 rotate(float2 pair, float cosine, float sine) {
  return {__fsub_rn(__fmul_rn(pair.x, cosine), __fmul_rn(pair.y, sine)),
          __fadd_rn(__fmul_rn(pair.y, cosine), __fmul_rn(pair.x, sine))};
}

// The columns of pair `i` of a head with `rotated` rotary columns, see Rope in ops.h; non-rotary
// columns are paired (2i, 2i + 1).
inline __device__ int2 pair_columns(int i, int rotated, bool interleaved) {
  if (interleaved || i >= rotated / 2) return {2 * i, 2 * i + 1};
  return {i, i + rotated / 2};
}

// Butterfly reduction: all lanes get the same bits.
inline __device__ float warp_sum(float x) {
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}
inline __device__ float warp_max(float x) {
  for (int step = kWarp / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}

}  // namespace nereid::kernels::cuda
