// 4- and 8-bit integers as tensor-core operands.
#pragma once

#include "kernels/cuda/device.cuh"

namespace nereid::kernels::cuda {

// Converts a word of integers (in row order from its low bits) to bf16 pairs, and permutes x to the
// same order of k.
//
// kScaled: scaled and rounded as in the op's contract; else (integer - zero), exact, for a scaled
// sum. With a minimum, zero is 0; without one, the minimum is 0.
template <int kBits, bool kScaled>
struct Words;

// (q & mask) | bits: one instruction where the compiler makes two of it.
inline __device__ uint32_t masked_or(uint32_t q, uint32_t mask, uint32_t bits) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(q), "r"(mask), "r"(bits));
  return result;
}

inline constexpr float kMagic = 0x1p23f;  // 2^23: the low bits of the sum are the integer
inline constexpr uint32_t kMagicBits = 0x4b000000u;

template <bool kScaled>
struct Words<4, kScaled> {
  static constexpr int kPairs = 4;    // per word: columns i and i + 4
  static constexpr int kInWords = 4;  // words of x per word

  __device__ static void decode(uint32_t q, float scale, uint32_t zero, float minimum,
                                uint32_t (&pairs)[kPairs]) {
    if constexpr (kScaled) {
      const float base = kMagic + static_cast<float>(zero);
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        const float low = __uint_as_float((q >> 4 * i & 15u) | kMagicBits) - base;
        const float high = __uint_as_float((q >> (4 * i + 16) & 15u) | kMagicBits) - base;
        pairs[i] = pack(__fmaf_rn(scale, low, -minimum), __fmaf_rn(scale, high, -minimum));
      }
    } else {
      // 128 + u in bf16 has u in its low bits.
      const uint32_t base = (zero | 0x4300u) * 0x10001u;
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        const uint32_t u = masked_or(q >> 4 * i, 0x000f000fu, 0x43004300u);
        const __nv_bfloat162 d = __hsub2(reinterpret_cast<const __nv_bfloat162&>(u),
                                         reinterpret_cast<const __nv_bfloat162&>(base));
        pairs[i] = reinterpret_cast<const uint32_t&>(d);
      }
    }
  }
  __device__ static void order(const uint32_t (&x)[kInWords], uint32_t (&pairs)[kPairs]) {
    pairs[0] = __byte_perm(x[0], x[2], 0x5410), pairs[1] = __byte_perm(x[0], x[2], 0x7632);
    pairs[2] = __byte_perm(x[1], x[3], 0x5410), pairs[3] = __byte_perm(x[1], x[3], 0x7632);
  }
};

template <bool kScaled>
struct Words<8, kScaled> {
  static constexpr int kPairs = 2;  // adjacent
  static constexpr int kInWords = 2;

  __device__ static void decode(uint32_t q, float scale, uint32_t zero, float minimum,
                                uint32_t (&pairs)[kPairs]) {
    const float base = kMagic + static_cast<float>(zero);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      float low = __uint_as_float(__byte_perm(q, kMagicBits, 0x7650 + 2 * i)) - base;
      float high = __uint_as_float(__byte_perm(q, kMagicBits, 0x7651 + 2 * i)) - base;
      if constexpr (kScaled)
        low = __fmaf_rn(scale, low, -minimum), high = __fmaf_rn(scale, high, -minimum);
      pairs[i] = pack(low, high);
    }
  }
  __device__ static void order(const uint32_t (&x)[kInWords], uint32_t (&pairs)[kPairs]) {
    pairs[0] = x[0], pairs[1] = x[1];
  }
};

}  // namespace nereid::kernels::cuda
