// Weights of all formats for plain kernels: one number at a time.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/f8_weights.h"

namespace nereid::kernels::cuda {

// Weights as stored, row-major, experts concatenated.
struct FloatWeight {
  static constexpr int kPieceBytes = 16;  // of the eight numbers of piece(); 0: unsupported
  const __nv_bfloat16* data;
  int64_t k;

  __device__ float at(int64_t row, int64_t col) const { return load(data + row * k + col); }
  // Eight adjacent numbers as bf16; rows are whole aligned pieces.
  __device__ uint4 piece(int64_t row, int64_t col) const {
    return *reinterpret_cast<const uint4*>(data + row * k + col);
  }
};

// f8e4m3 numbers; a row's scale is applied to the sum.
struct F8Weight {
  static constexpr int kPieceBytes = 0;
  const __nv_fp8_e4m3* data;
  int64_t k;

  __device__ float at(int64_t row, int64_t col) const { return load(data + row * k + col); }
};

// f8e4m3 numbers with one scale per group of columns.
struct F8Groups {
  static constexpr int kPieceBytes = 8;
  const __nv_fp8_e4m3* data;
  const float* scales;
  int64_t k, group, groups;

  __device__ float scale(int64_t row, int64_t col) const {
    return scales[row * groups + col / group];
  }
  __device__ float at(int64_t row, int64_t col) const {
    return __bfloat162float(__float2bfloat16_rn(scale(row, col) * load(data + row * k + col)));
  }
  __device__ uint4 piece(int64_t row, int64_t col) const {
    const uint2 codes = *reinterpret_cast<const uint2*>(data + row * k + col);
    const float by = scale(row, col);
    const auto two = [by](uint32_t pair) {
      const __half2 x =
          __half2(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(pair), __NV_E4M3));
      return pack(by * __low2float(x), by * __high2float(x));
    };
    return {two(codes.x), two(codes.x >> 16), two(codes.y), two(codes.y >> 16)};
  }
};

inline F8Groups f8_groups_of(const WeightView& w) {
  return {static_cast<const __nv_fp8_e4m3*>(w.data), w.scales, w.k, w.format.group_size(w.k),
          w.format.num_groups(w.k)};
}

template <int kBits>
struct IntegerWeight {
  static constexpr int kPieceBytes = 0;
  const uint8_t* data;
  const float* scales;
  const uint8_t* zeros;  // or null
  const float* minima;   // or null
  int64_t row_bytes, group, groups;

  __device__ float at(int64_t row, int64_t col) const {
    const uint8_t byte = data[row * row_bytes + (kBits == 4 ? col / 2 : col)];
    const int u = kBits == 4 ? byte >> (col % 2 * 4) & 15 : byte;
    const int64_t i = row * groups + col / group;
    if (minima)
      return __bfloat162float(
          __float2bfloat16_rn(__fmaf_rn(scales[i], static_cast<float>(u), -minima[i])));
    const int zero = zeros ? zeros[i] : 1 << (kBits - 1);
    return __bfloat162float(__float2bfloat16_rn(scales[i] * static_cast<float>(u - zero)));
  }
};

template <int kBits>
inline IntegerWeight<kBits> integers_of(const WeightView& w) {
  return {w.as_bytes(),
          w.scales,
          w.zeros,
          w.minima,
          w.format.row_bytes(w.k),
          w.format.group_size(w.k),
          w.format.num_groups(w.k)};
}

// MXFP4, layout kFragments: see integer_place() in kernels/api/pack.h.
struct Mxfp4Weight {
  static constexpr int kPieceBytes = 0;
  const uint8_t* data;
  const uint8_t* exponents;
  int64_t n, blocks, blocks_k;  // rows of an expert; its blocks, and of a row of them

  __device__ float at(int64_t row, int64_t col) const {
    const int64_t own = row % n;
    const int64_t block =
        row / n * blocks + own / kFragmentRows * blocks_k + col / kFragmentColumns;
    const int64_t line = block * kFragmentRows + own % kFragmentRows;
    constexpr int kHalf = kFragmentColumns / 2, kRunBytes = 8 * kHalf / 2;
    const auto in_block = static_cast<int>(col % kFragmentColumns);
    const auto in_rows = static_cast<int>(own % kFragmentRows);
    const int run = in_block / kHalf * (kFragmentRows / 8) + in_rows / 8;
    const int lane = in_rows % 8 * 4 + in_block % 8 / 2, piece = in_block / kFragmentPiece;
    const int nibble = in_block % kFragmentPiece / 8 + in_block % 2 * 4;
    const uint8_t byte = data[(block * 2 * (kFragmentRows / 8) + run) * kRunBytes + lane * 16 +
                              in_block % kHalf / kFragmentPiece * 4 + nibble / 2];
    const int bits = byte >> nibble % 2 * 4 & 15, power = bits >> 1 & 3;
    // Twice the number: subnormal or (2 + mantissa) * 2^(power - 1).
    const int twice = power == 0 ? bits & 1 : (2 | (bits & 1)) << (power - 1);
    const int exponent = exponents[line * (kFragmentColumns / kFragmentPiece) + piece];
    return ldexpf(static_cast<float>(bits & 8 ? -twice : twice), exponent - 128);
  }
};

inline Mxfp4Weight mxfp4_of(const WeightView& w) {
  return {w.as_bytes(), w.exponents, w.n, fragment_blocks(w.n, w.k),
          (w.k + kFragmentColumns - 1) / kFragmentColumns};
}

// Calls f with the weight's struct.
template <class F>
void with_weight(const WeightView& w, F f) {
  if (w.format.is_float())
    f(FloatWeight{static_cast<const __nv_bfloat16*>(w.data), w.k});
  else if (has_f8_groups(w.format))
    f(f8_groups_of(w));
  else if (has_f8_rows(w.format))
    f(F8Weight{static_cast<const __nv_fp8_e4m3*>(w.data), w.k});
  else if (w.format.scheme == Scheme::kFloat4)
    f(mxfp4_of(w));
  else if (w.format.bits == 8)
    f(integers_of<8>(w));
  else
    f(integers_of<4>(w));
}

}  // namespace nereid::kernels::cuda
