// Queries and weights as f8e4m3 columns, the right operand of attention_single.cu: a number is the
// sum of three parts, each in units of 1/16 of the previous, in separate columns: 12 bits.
#pragma once

#include "kernels/cuda/attention/attention_boxes.cuh"

namespace nereid::kernels::cuda {

constexpr int kParts = 3;        // per query column or weight
constexpr int kSetHeads = 4;     // per set of columns
constexpr int kSetColumns = 16;  // some unused
constexpr int kMaxSets = 2;
constexpr int kSet = kSetColumns * kLine;  // bytes of a set's columns

#if defined(NEREID_HOPPER)

// The parts of two numbers |x| <= 448; the first number's in the low bytes.
inline __device__ void split(__half2 rest, __nv_fp8x2_storage_t (&parts)[kParts]) {
#pragma unroll
  for (int j = 0; j < kParts; ++j) {
    parts[j] = __nv_cvt_halfraw2_to_fp8x2(rest, __NV_SATFINITE, __NV_E4M3);
    const __half2 kept = __nv_cvt_fp8x2_to_halfraw2(parts[j], __NV_E4M3);
    rest = __hmul2(__hsub2(rest, kept), __floats2half2_rn(16, 16));  // exact
  }
}
// Column of part j of head m: one thread has all parts of a head in the set's sums.
inline __device__ int column_of(int m, int j) {
  return m / kSetHeads * kSetColumns + m % kSetHeads * 2 + j / 2 * 8 + j % 2;
}
// Sum of the parts of row r = lane / 4 or lane / 4 + 8 of a set's sums.
inline __device__ float join(const float* sums, int r) {
  return sums[2 * r] + (sums[2 * r + 1] + sums[2 * r + 4] * 0x1p-4f) * 0x1p-4f;
}

// The queries of a warp: its s-th is head warp + 4 s of the tile.
template <int kSets>
struct Queries {
  static constexpr int kPairs = kLine / 2 / kWarp;  // per lane
  float2 pairs[kSets][kPairs];

  __device__ static int head_of(int set) {
    return static_cast<int>(threadIdx.x) / kWarp + set * kAttentionWarps;
  }
  __device__ static int pair_of(int i) { return static_cast<int>(threadIdx.x) % kWarp + i * kWarp; }
  __device__ void load(const AttentionParams& p, const QueryTile& tile, int position) {
#pragma unroll
    for (int s = 0; s < kSets; ++s) {
      const bool exists = head_of(s) < tile.heads;
      const float* const head = p.qkv + tile.first_token * p.qkv_stride +
                                static_cast<int64_t>(tile.first_head + head_of(s)) * p.head_dim;
#pragma unroll
      for (int i = 0; i < kPairs; ++i)
        pairs[s][i] = exists && pair_of(i) < p.head_dim / 2
                          ? load_pair(p, head, pair_of(i), position)
                          : float2{0, 0};
    }
  }
  // Stores the parts, and the factors of the scores.
  __device__ void store(const AttentionParams& p, uint8_t* lines, float* factors) const {
#pragma unroll
    for (int s = 0; s < kSets; ++s) {
      uint32_t most = 0;
#pragma unroll
      for (const float2& pair : pairs[s])
        most = max(most, max(magnitude(pair.x), magnitude(pair.y)));
      const F8Row row(warp_max(most), kSmallestScaled);
      if (threadIdx.x % kWarp == 0) factors[head_of(s)] = row.scale * p.scale * kLog2E;
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        const int c = pair_of(i);
        const int2 at = c < p.head_dim / 2 ? columns(p, c) : int2{2 * c, 2 * c + 1};
        const float2 pair = row.keep ? pairs[s][i] : float2{0, 0};
        __nv_fp8x2_storage_t parts[kParts];
        split(__floats2half2_rn(pair.x * row.factor, pair.y * row.factor), parts);
#pragma unroll
        for (int j = 0; j < kParts; ++j) {
          const int line = column_of(head_of(s), j);
          lines[place_in_lines(line, at.x)] = static_cast<uint8_t>(parts[j]);
          lines[place_in_lines(line, at.y)] = static_cast<uint8_t>(parts[j] >> 8);
        }
      }
    }
  }
};

#endif  // NEREID_HOPPER

}  // namespace nereid::kernels::cuda
