// Element types of a KV cache on the device: conversions of cells.
#pragma once

#include <cuda_fp8.h>

#include "kernels/cuda/device.cuh"
#include "tensor/dtype.h"

namespace nereid::kernels::cuda {

struct Bf16Cache {
  using Cell = __nv_bfloat16;
  static constexpr bool kHasScales = false;

  static __device__ float read(const Cell* p) { return load(p); }
  static __device__ void write(Cell* p, float x) { store(p, x); }
};

struct Int8Cache {
  using Cell = int8_t;
  static constexpr bool kHasScales = true;
  static constexpr float kLimit = 127;

  static __device__ float read(const Cell* p) { return static_cast<float>(*p); }
  static __device__ void write(Cell* p, float x) {
    *p = static_cast<Cell>(max(-127, min(127, __float2int_rn(x))));
  }
  // Eight cells, 8-byte aligned, to bf16.
  static __device__ uint4 widen8(const Cell* p) {
    const uint2 word = *reinterpret_cast<const uint2*>(p);
    const auto cell = [&](int i) {
      return static_cast<float>(static_cast<int8_t>((i < 4 ? word.x : word.y) >> (8 * (i % 4))));
    };
    return {pack(cell(0), cell(1)), pack(cell(2), cell(3)), pack(cell(4), cell(5)),
            pack(cell(6), cell(7))};
  }
};

struct Fp8Cache {
  using Cell = uint8_t;
  static constexpr bool kHasScales = true;
  static constexpr float kLimit = 448;

  static __device__ float read(const Cell* p) {
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(*p, __NV_E4M3)));
  }
  static __device__ void write(Cell* p, float x) {
    *p = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
  }
  // Two cells in the high bytes of two 16-bit halves to bf16: exponent and mantissa are shifted,
  // the difference of exponent biases is a factor 2^120. Exact; no cell is NaN.
  static __device__ uint32_t widen2(uint32_t cells) {
    const uint32_t moved = (cells & 0x80008000u) | (cells & 0x7f007f00u) >> 4;
    __nv_bfloat162 pair = *reinterpret_cast<const __nv_bfloat162*>(&moved);
    pair = __hmul2(pair, __nv_bfloat162(__nv_bfloat16_raw{0x7b80}, __nv_bfloat16_raw{0x7b80}));
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
  // Cells 0 and 2, and 1 and 3, of a word as bf16, 2^-120 of the numbers: bit operations only.
  static constexpr float kBitsFactor = 0x1p120f;
  static __device__ uint32_t even_bits(uint32_t word) {
    return (word << 8 & 0x80008000u) | (word << 4 & 0x07f007f0u);
  }
  static __device__ uint32_t odd_bits(uint32_t word) {
    return (word & 0x80008000u) | (word >> 4 & 0x07f007f0u);
  }
  // Eight cells, 8-byte aligned, to bf16.
  static __device__ uint4 widen8(const Cell* p) {
    const uint2 word = *reinterpret_cast<const uint2*>(p);
    // Bytes 0 and 1, then 2 and 3, in the high bytes of halves.
    return {widen2(__byte_perm(word.x, 0, 0x1404)), widen2(__byte_perm(word.x, 0, 0x3424)),
            widen2(__byte_perm(word.y, 0, 0x1404)), widen2(__byte_perm(word.y, 0, 0x3424))};
  }
};

// Calls f.operator()<Cache>() with the cells of a cache.
template <class F>
auto with_cache(DType type, F f) {
  if (type == DType::kI8) return f.template operator()<Int8Cache>();
  if (type == DType::kF8E4M3) return f.template operator()<Fp8Cache>();
  return f.template operator()<Bf16Cache>();
}

}  // namespace nereid::kernels::cuda
