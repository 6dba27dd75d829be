// The element types of a KV cache on the device: how cells are written and read.
#pragma once

#include <cuda_fp8.h>

#include "kernels/cuda/device.cuh"

namespace nereid::kernels::cuda {

struct Bf16Cache {
  using Cell = __nv_bfloat16;
  using Pair = uint32_t;
  static constexpr bool kHasScales = false;

  static __device__ void write(Cell* p, float x) { store(p, x); }
  static __device__ float2 read2(Pair pair) { return unpack(pair); }
  // Eight cells, 16-byte aligned.
  static __device__ void read8(const Cell* p, float (&out)[8]) {
    const uint4 word = *reinterpret_cast<const uint4*>(p);
    const uint32_t words[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = unpack(words[i]);
      out[2 * i] = pair.x;
      out[2 * i + 1] = pair.y;
    }
  }
};

struct Int8Cache {
  using Cell = int8_t;
  using Pair = uint16_t;
  static constexpr bool kHasScales = true;
  static constexpr float kLimit = 127;

  static __device__ void write(Cell* p, float x) {
    *p = static_cast<Cell>(max(-127, min(127, __float2int_rn(x))));
  }
  static __device__ float2 read2(Pair pair) {
    return {static_cast<float>(static_cast<int8_t>(pair)),
            static_cast<float>(static_cast<int8_t>(pair >> 8))};
  }
  // Eight cells, 8-byte aligned.
  static __device__ void read8(const Cell* p, float (&out)[8]) {
    const uint2 word = *reinterpret_cast<const uint2*>(p);
#pragma unroll
    for (int i = 0; i < 8; ++i)
      out[i] = static_cast<float>(static_cast<int8_t>((i < 4 ? word.x : word.y) >> (8 * (i % 4))));
  }
};

struct Fp8Cache {
  using Cell = uint8_t;
  using Pair = uint16_t;
  static constexpr bool kHasScales = true;
  static constexpr float kLimit = 448;

  static __device__ void write(Cell* p, float x) {
    *p = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
  }
  static __device__ float2 read2(Pair pair) {
    return __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3)));
  }
  // Eight cells, 8-byte aligned.
  static __device__ void read8(const Cell* p, float (&out)[8]) {
    const uint2 word = *reinterpret_cast<const uint2*>(p);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t part = i < 2 ? word.x : word.y;
      const float2 pair = read2(static_cast<Pair>(part >> (16 * (i % 2))));
      out[2 * i] = pair.x;
      out[2 * i + 1] = pair.y;
    }
  }
};

}  // namespace nereid::kernels::cuda
