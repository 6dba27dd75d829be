// Shared by the tensor-core attention kernels: lines in shared memory and one warp's scores, online
// softmax (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax") and weighted
// sum of values.
#pragma once

#include "kernels/cuda/attention/attention.cuh"

namespace nereid::kernels::cuda {

// Rows of kDim bf16 in shared memory, padded by 16 bytes so that eight rows are in different banks.
template <int kDim>
struct Lines {
  static constexpr int kPitch = 2 * kDim + 16;  // bytes
  static constexpr int bytes(int lines) { return lines * kPitch; }
};

// Rotates the tile's query vectors, scales them for a base-2 softmax and writes them, times `by`,
// as bf16 lines to `high`; kExact: the remainders to `low`. Zeros past the head's columns and the
// tile's vectors. place_of_column(c): destination of column c.
template <int kDim, bool kExact, class PlaceOf>
__device__ void load_queries(const AttentionParams& p, const QueryTile& tile, int lines, float by,
                             uint8_t* high, uint8_t* low, PlaceOf place_of_column) {
  constexpr int kHalf = kDim / 2, kPitch = Lines<kDim>::kPitch;
  const float factor = p.scale * kLog2E * by;
  const int half = p.head_dim / 2, vectors = tile.vectors();
#pragma unroll 2
  for (int i = threadIdx.x; i < vectors * kHalf; i += kAttentionThreads) {
    const int m = i / kHalf, c = i % kHalf;
    float2 pair = {0, 0};
    int2 at = {2 * c, 2 * c + 1};
    if (c < half) {
      const int64_t token = tile.token(m);
      const float* head =
          p.qkv + token * p.qkv_stride + static_cast<int64_t>(tile.head(m)) * p.head_dim;
      pair = load_pair(p, head, c, p.positions[token]);
      pair.x *= factor, pair.y *= factor;
      at = columns(p, c);
    }
    at = {place_of_column(at.x), place_of_column(at.y)};
    auto* line = reinterpret_cast<__nv_bfloat16*>(high + m * kPitch);
    const __nv_bfloat16 x = __float2bfloat16_rn(pair.x), y = __float2bfloat16_rn(pair.y);
    line[at.x] = x;
    line[at.y] = y;
    if constexpr (kExact) {
      line = reinterpret_cast<__nv_bfloat16*>(low + m * kPitch);
      line[at.x] = __float2bfloat16_rn(pair.x - __bfloat162float(x));
      line[at.y] = __float2bfloat16_rn(pair.y - __bfloat162float(y));
    }
  }
  for (int i = vectors * kPitch / 16 + threadIdx.x; i < lines * kPitch / 16;
       i += kAttentionThreads) {
    reinterpret_cast<uint4*>(high)[i] = uint4{};
    if constexpr (kExact) reinterpret_cast<uint4*>(low)[i] = uint4{};
  }
}

template <int kDim, bool kExact>
__device__ void load_queries(const AttentionParams& p, const QueryTile& tile, int lines,
                             uint8_t* high, uint8_t* low) {
  load_queries<kDim, kExact>(p, tile, lines, 1, high, low, [](int c) { return c; });
}

// Loads one line of a cache as `part`-th of `parts` threads: bf16 to its destination, other types
// unconverted; zeros past the head's columns or if not `valid`. kOnce: no other block reads it.
template <class Cache, int kDim, bool kOnce = false>
__device__ void fetch_line(const AttentionParams& p, const void* cache, int64_t first, bool valid,
                           int part, int parts, uint8_t* line) {
  const auto* from = static_cast<const typename Cache::Cell*>(cache) + first;
  const auto copy = [](uint32_t to, const void* cells, bool inside) {
    if constexpr (kOnce)
      copy_16(to, cells, inside, read_once());
    else
      copy_16(to, cells, inside);
  };
  if constexpr (!Cache::kHasScales) {
    for (int c = part; c < kDim / 8; c += parts) {
      const bool inside = valid && c * 8 < p.head_dim;
      copy(shared_address(line) + 16 * c, inside ? from + 8 * c : from, inside);
    }
  } else if (p.wide_lines) {
    for (int c = part; c < kDim / 16; c += parts) {
      const bool inside = valid && c * 16 < p.head_dim;
      copy(shared_address(line) + 16 * c, inside ? from + 16 * c : from, inside);
    }
  } else {
    for (int c = part; c < kDim / 8; c += parts) {
      const bool inside = valid && c * 8 < p.head_dim;
      copy_8(shared_address(line) + 8 * c, inside ? from + 8 * c : from, inside);
    }
  }
}

// Converts eight loaded cells to bf16.
template <class Cache>
__device__ void widen_8(const uint8_t* raw, uint8_t* line, int c) {
  *reinterpret_cast<uint4*>(line + 16 * c) =
      Cache::widen8(reinterpret_cast<const typename Cache::Cell*>(raw) + 8 * c);
}

// Per query vector, for masking.
struct QueryLimits {
  int position;  // -1: no such vector
  float slope;
};

// State of one warp for kTiles * 16 query vectors, in tensor-core register layout: a thread has
// rows lane / 4 and lane / 4 + 8 of a tile.
template <int kTiles, int kDim>
struct WarpState {
  float largest[kTiles][2];
  float sum[kTiles][2];  // this thread's share
  float value[kTiles][kDim / 8][4];

  __device__ void clear() {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int h = 0; h < 2; ++h) largest[t][h] = -INFINITY, sum[t][h] = 0;
#pragma unroll
      for (int i = 0; i < kDim / 8; ++i)
#pragma unroll
        for (int r = 0; r < 4; ++r) value[t][i][r] = 0;
    }
  }
};

// Scores of 16 * kSlices keys: register r of scores[t][s] is vector lane / 4 + 8 (r / 2) of tile t,
// key 8 s + 2 (lane % 4) + r % 2. `high`, `low`: first query line; `keys`: first key line.
template <int kTiles, int kSlices, int kDim, bool kExact>
__device__ void score(const uint8_t* high, const uint8_t* low, const uint8_t* keys,
                      float (&scores)[kTiles][2 * kSlices][4]) {
  constexpr int kPitch = Lines<kDim>::kPitch;
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int t = 0; t < kTiles; ++t)
#pragma unroll
    for (int s = 0; s < 2 * kSlices; ++s)
#pragma unroll
      for (int r = 0; r < 4; ++r) scores[t][s][r] = 0;
  float lower[kExact ? kTiles : 1][2 * kSlices][4] = {};  // own sums: shorter chains
  // Queries: rows, then columns; keys: columns, then rows.
  const int query_offset = lane % 16 * kPitch + lane / 16 * 16;
  const uint32_t high_at = shared_address(high) + query_offset;
  const uint32_t low_at = kExact ? shared_address(low) + query_offset : 0;
  const uint32_t key_at =
      shared_address(keys) + (lane % 8 + lane / 16 * 8) * kPitch + lane / 8 % 2 * 16;
#pragma unroll
  for (int k = 0; k < kDim / 16; ++k) {
    uint32_t q[kTiles][4], rest[kTiles][4];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      load_matrices(q[t], high_at + 16 * t * kPitch + 32 * k);
      if constexpr (kExact) load_matrices(rest[t], low_at + 16 * t * kPitch + 32 * k);
    }
#pragma unroll
    for (int s = 0; s < kSlices; ++s) {
      uint32_t b[4];
      load_matrices(b, key_at + 16 * s * kPitch + 32 * k);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        multiply(scores[t][2 * s], q[t], b[0], b[1]);
        multiply(scores[t][2 * s + 1], q[t], b[2], b[3]);
        if constexpr (kExact) {
          multiply(lower[t][2 * s], rest[t], b[0], b[1]);
          multiply(lower[t][2 * s + 1], rest[t], b[2], b[3]);
        }
      }
    }
  }
  if constexpr (kExact) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int s = 0; s < 2 * kSlices; ++s)
#pragma unroll
        for (int r = 0; r < 4; ++r) scores[t][s][r] += lower[t][s][r];
  }
}

// Soft cap, ALiBi and mask; keys [0, count) of the block of keys exist, key i is at position_of(i).
// `plain`: no window, cap or ALiBi.
template <int kSlices, class PositionOf>
__device__ void judge(const AttentionParams& p, bool plain, const QueryLimits (&limits)[2],
                      int count, PositionOf position_of, float (&scores)[2 * kSlices][4]) {
  const int first = 2 * (static_cast<int>(threadIdx.x) % 4);
  if (plain) {
#pragma unroll
    for (int s = 0; s < 2 * kSlices; ++s)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int key = 8 * s + first + r % 2;
        if (key >= count || position_of(key) > limits[r / 2].position) scores[s][r] = -INFINITY;
      }
    return;
  }
#pragma unroll
  for (int s = 0; s < 2 * kSlices; ++s)
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int key = 8 * s + first + r % 2, at = position_of(key);
      const int position = limits[r / 2].position;
      const bool visible = key < count && at <= position && lets_see(p, at, position);
      float bent = scores[s][r];
      if (p.cap > 0) bent = p.cap * kLog2E * tanhf(bent / (p.cap * kLog2E));
      if (p.alibi > 0) bent -= limits[r / 2].slope * static_cast<float>(position - at);
      scores[s][r] = visible ? bent : -INFINITY;
    }
}

inline __device__ bool is_plain(const AttentionParams& p) {
  return p.window == 0 && p.cap == 0 && p.alibi == 0;
}

// Converts scores to weights relative to the new maximum and rescales the state to it.
template <int kSlices, int kDim>
__device__ void weigh(float (&scores)[2 * kSlices][4], float (&largest)[2], float (&sum)[2],
                      float (&value)[kDim / 8][4]) {
  float top[2] = {largest[0], largest[1]};
#pragma unroll
  for (int s = 0; s < 2 * kSlices; ++s)
#pragma unroll
    for (int r = 0; r < 4; ++r) top[r / 2] = fmaxf(top[r / 2], scores[s][r]);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    top[h] = fmaxf(top[h], __shfl_xor_sync(kAllLanes, top[h], 1));
    top[h] = fmaxf(top[h], __shfl_xor_sync(kAllLanes, top[h], 2));
  }
  if (__any_sync(kAllLanes, top[0] > largest[0] || top[1] > largest[1])) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float correction = weight_of(largest[h], top[h]);
      sum[h] *= correction;
      largest[h] = top[h];
#pragma unroll
      for (int i = 0; i < kDim / 8; ++i) {
        value[i][2 * h] *= correction;
        value[i][2 * h + 1] *= correction;
      }
    }
  }
#pragma unroll
  for (int s = 0; s < 2 * kSlices; ++s)
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      scores[s][r] = weight_of(scores[s][r], largest[r / 2]);
      sum[r / 2] += scores[s][r];
    }
}

// Adds weights * values of 16 * kSlices keys.
template <int kTiles, int kSlices, int kDim, bool kExact>
__device__ void add_values(const float (&weights)[kTiles][2 * kSlices][4], const uint8_t* values,
                           float (&value)[kTiles][kDim / 8][4]) {
  constexpr int kPitch = Lines<kDim>::kPitch;
  const int lane = threadIdx.x % kWarp;
  const uint32_t at = shared_address(values) + lane % 16 * kPitch + lane / 16 * 16;
#pragma unroll
  for (int s = 0; s < kSlices; ++s) {
    uint32_t a[kTiles][4], rest[kTiles][4];
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        // Register r of a: keys 8 (r / 2) + ..., rows 8 (r % 2) + ...
        const float x = weights[t][2 * s + r / 2][2 * (r % 2)];
        const float y = weights[t][2 * s + r / 2][2 * (r % 2) + 1];
        a[t][r] = pack(x, y);
        if constexpr (kExact) {
          const float2 kept = unpack(a[t][r]);
          rest[t][r] = pack(x - kept.x, y - kept.y);
        }
      }
#pragma unroll
    for (int i = 0; i < kDim / 16; ++i) {
      uint32_t b[4];
      load_transposed(b, at + 16 * s * kPitch + 32 * i);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        multiply(value[t][2 * i], a[t], b[0], b[1]);
        multiply(value[t][2 * i + 1], a[t], b[2], b[3]);
        if constexpr (kExact) {
          multiply(value[t][2 * i], rest[t], b[0], b[1]);
          multiply(value[t][2 * i + 1], rest[t], b[2], b[3]);
        }
      }
    }
  }
}

// Normalisation of a head's weighted sums that are relative to 2^largest.
inline __device__ float share_of(const AttentionParams& p, int head, float largest, float sum) {
  const float sink = p.sinks ? load(p.sinks + head) * kLog2E : -INFINITY;
  const float top = fmaxf(sink, largest), factor = weight_of(largest, top);
  return factor / (sum * factor + weight_of(sink, top));
}

// Writes a vector of the output: rows h of value's registers, relative to 2^largest.
template <int kDim>
__device__ void write_vector(const AttentionParams& p, const QueryTile& tile, int m, int h,
                             float largest, float sum, const float (&value)[kDim / 8][4]) {
  const float share = share_of(p, tile.head(m), largest, sum);
  __nv_bfloat16* const out = result_of(p, tile, m) + 2 * (static_cast<int>(threadIdx.x) % 4);
#pragma unroll
  for (int i = 0; i < kDim / 8; ++i)
    if (8 * i < p.head_dim)
      *reinterpret_cast<uint32_t*>(out + 8 * i) =
          pack(value[i][2 * h] * share, value[i][2 * h + 1] * share);
}

// Same to `vector`, times `share`, in 16-byte stores: each lane has two columns of four groups of
// eight and receives one whole group from the four lanes of the vector.
template <int kGroups>
__device__ void write_pieces(__nv_bfloat16* vector, float share, int h,
                             const float (&value)[kGroups][4]) {
  static_assert(kGroups % 4 == 0);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const unsigned lanes = 0xfu << lane / 4 * 4;
  const bool odd = lane % 2 > 0, high = lane % 4 > 1;
  __nv_bfloat16* const out = vector + 8 * (lane % 4);
#pragma unroll
  for (int i = 0; i < kGroups; i += 4) {
    uint2 pairs[2];  // half a group each, of the first two and the last two groups
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const float* const first = value[i + 2 * s] + 2 * h;
      const float* const second = value[i + 2 * s + 1] + 2 * h;
      const uint32_t even_eight = pack(first[0] * share, first[1] * share);
      const uint32_t odd_eight = pack(second[0] * share, second[1] * share);
      const uint32_t other = __shfl_xor_sync(lanes, odd ? even_eight : odd_eight, 1);
      pairs[s] = odd ? uint2{other, odd_eight} : uint2{even_eight, other};
    }
    const uint2 sent = high ? pairs[0] : pairs[1];
    const uint2 other = {__shfl_xor_sync(lanes, sent.x, 2), __shfl_xor_sync(lanes, sent.y, 2)};
    *reinterpret_cast<uint4*>(out + 8 * i) = high ? uint4{other.x, other.y, pairs[1].x, pairs[1].y}
                                                  : uint4{pairs[0].x, pairs[0].y, other.x, other.y};
  }
}

// Sum of a row over its four threads.
inline __device__ float row_sum(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

}  // namespace nereid::kernels::cuda
