// Adjacent numbers of a row as bf16 pairs in registers, between its read and its quantisation.
#pragma once

#include "kernels/cuda/device.cuh"

namespace nereid::kernels::cuda {

// kWidth: 8, 4 or 1 adjacent numbers, accessed at once (aligned address).
template <int kWidth>
struct Pairs {
  static constexpr int kWords = (kWidth + 1) / 2;
  uint32_t words[kWords];

  Pairs() = default;
  explicit __device__ Pairs(const __nv_bfloat16* p) {
    if constexpr (kWidth == 8) {
      const uint4 eight = *reinterpret_cast<const uint4*>(p);
      words[0] = eight.x, words[1] = eight.y, words[2] = eight.z, words[3] = eight.w;
    } else if constexpr (kWidth == 4) {
      const uint2 four = *reinterpret_cast<const uint2*>(p);
      words[0] = four.x, words[1] = four.y;
    } else {
      words[0] = *reinterpret_cast<const uint16_t*>(p);
    }
  }
  // Rounded.
  explicit __device__ Pairs(const Vector<kWidth>& x) {
#pragma unroll
    for (int w = 0; w < kWords; ++w) words[w] = pack(x[2 * w], kWidth > 1 ? x[2 * w + 1] : 0.0f);
  }
  __device__ float operator[](int i) const {
    const float2 pair = unpack(words[i / 2]);
    return i % 2 == 0 ? pair.x : pair.y;
  }
  __device__ void store(__nv_bfloat16* p) const {
    if constexpr (kWidth == 8)
      *reinterpret_cast<uint4*>(p) = make_uint4(words[0], words[1], words[2], words[3]);
    else if constexpr (kWidth == 4)
      *reinterpret_cast<uint2*>(p) = make_uint2(words[0], words[1]);
    else
      *reinterpret_cast<uint16_t*>(p) = static_cast<uint16_t>(words[0]);
  }
};

// Max magnitudes of numbers at even and at odd indices, as two bf16; NaN is above all.
template <int kWidth>
inline __device__ uint32_t largest_pair(const Pairs<kWidth>& x, uint32_t largest) {
#pragma unroll
  for (const uint32_t word : x.words) {
    const __nv_bfloat162 most =
        __hmax2_nan(__habs2(*reinterpret_cast<const __nv_bfloat162*>(&word)),
                    *reinterpret_cast<const __nv_bfloat162*>(&largest));
    largest = *reinterpret_cast<const uint32_t*>(&most);
  }
  return largest;
}
// Max over a block's threads, as float bits, see block_max().
inline __device__ uint32_t block_largest(uint32_t pair, uint32_t* partial) {
  return block_max(max(pair << 16, pair & 0xffff0000u), partial);
}

// Same codes as F8Row::store(), two at a time.
template <int kWidth>
inline __device__ void store_f8(uint8_t* p, const Pairs<kWidth>& x, const F8Row& f8) {
  uint32_t codes[Pairs<kWidth>::kWords];
#pragma unroll
  for (int w = 0; w < Pairs<kWidth>::kWords; ++w) {
    const float2 pair = unpack(x.words[w]);
    const uint32_t two = __nv_cvt_float2_to_fp8x2(
        {__fmul_rn(pair.x, f8.factor), __fmul_rn(pair.y, f8.factor)}, __NV_SATFINITE, __NV_E4M3);
    codes[w] = f8.keep ? two : 0u;
  }
  if constexpr (kWidth == 8)
    *reinterpret_cast<uint2*>(p) = make_uint2(codes[0] | codes[1] << 16, codes[2] | codes[3] << 16);
  else if constexpr (kWidth == 4)
    *reinterpret_cast<uint32_t*>(p) = codes[0] | codes[1] << 16;
  else
    *p = static_cast<uint8_t>(codes[0]);
}

}  // namespace nereid::kernels::cuda
