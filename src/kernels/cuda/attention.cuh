// What the attention kernels share: their parameters, how cached lines are found, written and
// fetched, and one warp's part of the work: scores, online softmax (Milakov and Gimelshein 2018,
// "Online normalizer calculation for softmax") and the weighted sum of values on tensor cores.
#pragma once

#include "kernels/api/ops.h"
#include "kernels/cuda/cache_types.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/ptx.cuh"

namespace nereid::kernels::cuda {

constexpr int kAttentionThreads = 128;
constexpr int kAttentionWarps = kAttentionThreads / kWarp;
constexpr int kHopperVectors = 128;  // query vectors of a block of attention_hopper.cu
constexpr int kFewVectors = 16;      // query vectors of a block of the kernel for few tokens
constexpr float kLog2E = 1.4426950408889634f;

struct AttentionParams {
  const float* qkv;
  int64_t qkv_stride;
  void* k_cache;
  void* v_cache;
  float* k_scales;  // one for each vector of the cache, or null
  float* v_scales;
  const float* rope_table;     // or null
  const __nv_bfloat16* sinks;  // or null
  const int32_t* positions;
  const int32_t* row_begin;
  const int32_t* row_of_token;
  const int32_t* block_table;
  __nv_bfloat16* out;
  int64_t out_stride;
  int64_t block_stride, scale_stride;  // from block to block of the cache
  int num_rows, max_blocks, num_heads, num_kv_heads, head_dim, block_tokens, window, sink;
  int latent;                     // columns of values that lie in their keys, 0: they do not
  int heads_per_block;            // query heads of a block, all of one group
  int head_blocks;                // blocks for one group
  int tile_vectors, tile_tokens;  // of a block of the kernel for many tokens
  int few_tokens;  // rows with as many tokens or fewer go to the kernel for few tokens
  float scale, cap, alibi;
  int alibi_heads;  // the largest power of two up to num_heads
  int rotated;      // columns of a head that turn
  bool interleaved, wide_lines;
  bool stores_queries;  // rows with many tokens: the kernel that stores keys rounds queries too
  // Few tokens: keys of a block, and where blocks of one row and head leave their parts.
  int chunk_keys, part_vectors;
  float* part_values;  // [row, head block, chunk, part_vectors, head_dim]
  float2* part_sums;   // [..., part_vectors]: largest score, sum of the weights
  int32_t* counters;   // [row, head block], zero
};

// Index of a position's head vector's first element in a layer's K or V cache, and of its scale.
struct Place {
  int64_t first, scale;
};

inline __device__ Place place_of(const AttentionParams& p, int row, int position, int kv_head) {
  const int in_table = position / p.block_tokens;
  const int64_t block = p.block_table[static_cast<int64_t>(row) * p.max_blocks + in_table];
  const int line = kv_head * p.block_tokens + position - in_table * p.block_tokens;
  return {block * p.block_stride + static_cast<int64_t>(line) * p.head_dim,
          block * p.scale_stride + line};
}

// Columns of pair `i` of a head, as they are rotated together.
inline __device__ int2 columns(const AttentionParams& p, int i) {
  return pair_columns(i, p.rotated, p.interleaved);
}

// Pair `i` of a head vector, rotated for its position when it is one that turns.
inline __device__ float2 load_pair(const AttentionParams& p, const float* head, int i,
                                   int position) {
  const int2 at = columns(p, i);
  const float2 pair = {head[at.x], head[at.y]};
  if (i >= p.rotated / 2) return pair;
  const float* angles = p.rope_table + static_cast<int64_t>(position) * p.rotated;
  return rotate(pair, angles[i], angles[i + p.rotated / 2]);
}

// Writes a head vector, whose pairs of columns `pair(i)` gives, to its place; a warp's work.
template <class Cache, class Pair>
__device__ void store_line(const AttentionParams& p, Pair pair, const Place& place, void* cache,
                           float* scales) {
  const int half = p.head_dim / 2, lane = threadIdx.x % kWarp;
  auto* out = static_cast<typename Cache::Cell*>(cache) + place.first;
  float factor = 1;
  bool keep = true;
  if constexpr (Cache::kHasScales) {
    uint32_t most = 0;
    for (int c = lane; c < half; c += kWarp) {
      const float2 x = pair(c);
      most = max(most, max(magnitude(x.x), magnitude(x.y)));
    }
    most = warp_max(most);
    const float largest = __uint_as_float(most);
    const bool finite = most < 0x7f800000u;
    keep = finite && largest >= kSmallestScaled;
    factor = keep ? __fdiv_rn(Cache::kLimit, largest) : 0;
    if (lane == 0)
      scales[place.scale] = keep ? __fdiv_rn(largest, Cache::kLimit) : finite ? 0 : NAN;
  }
  for (int c = lane; c < half; c += kWarp) {
    const float2 x = keep ? pair(c) : make_float2(0, 0);
    const int2 at = columns(p, c);
    Cache::write(out + at.x, __fmul_rn(x.x, factor));
    Cache::write(out + at.y, __fmul_rn(x.y, factor));
  }
}

// Writes the key of a token and KV head to the cache, or the value, which does not lie in the key;
// a warp's work.
template <class Cache>
__device__ void store_token(const AttentionParams& p, int64_t token, int row, int kv_head,
                            bool is_value) {
  const int position = p.positions[token];
  const Place place = place_of(p, row, position, kv_head);
  const float* head =
      p.qkv + token * p.qkv_stride + static_cast<int64_t>(p.num_heads + kv_head) * p.head_dim;
  if (!is_value)
    return store_line<Cache>(
        p, [&](int c) { return load_pair(p, head, c, position); }, place, p.k_cache, p.k_scales);
  head += static_cast<int64_t>(p.num_kv_heads) * p.head_dim;
  store_line<Cache>(
      p,
      [&](int i) {
        const int2 at = columns(p, i);
        return make_float2(head[at.x], head[at.y]);
      },
      place, p.v_cache, p.v_scales);
}

// Which query vectors a block has: vector m is token first_token + m / heads, head first_head +
// m % heads.
struct QueryTile {
  int row, first_token, tokens, first_head, heads, kv_head;
  __device__ int vectors() const { return tokens * heads; }
  __device__ int64_t token(int m) const { return first_token + m / heads; }
  __device__ int head(int m) const { return first_head + m % heads; }
};

// Where the result of a tile's query vector goes.
inline __device__ __nv_bfloat16* result_of(const AttentionParams& p, const QueryTile& tile, int m) {
  return p.out + tile.token(m) * p.out_stride + static_cast<int64_t>(tile.head(m)) * p.head_dim;
}

// The tile of a block of a kernel for many tokens. Blocks are numbered so that row r starts at
// row_begin[r] / tile_tokens + r: no table is needed, and at most one block per row finds nothing
// to do. False for such a block. The last tokens, which see the most keys, come first.
inline __device__ bool find_many(const AttentionParams& p, QueryTile& tile) {
  const int block = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  int low = 0, high = p.num_rows - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (p.row_begin[middle] / p.tile_tokens + middle <= block)
      low = middle;
    else
      high = middle - 1;
  }
  tile.row = low;
  const int end = p.row_begin[low + 1];
  if (end - p.row_begin[low] <= p.few_tokens) return false;
  const int index = block - (p.row_begin[low] / p.tile_tokens + low);
  tile.first_token = p.row_begin[low] + index * p.tile_tokens;
  tile.tokens = min(p.tile_tokens, end - tile.first_token);
  const int group = p.num_heads / p.num_kv_heads;
  const int heads = min(group, p.tile_vectors), head_blocks = (group + heads - 1) / heads;
  const int part = static_cast<int>(blockIdx.y) % head_blocks;
  tile.kv_head = static_cast<int>(blockIdx.y) / head_blocks;
  tile.first_head = tile.kv_head * group + part * heads;
  tile.heads = min(heads, group - part * heads);
  return tile.tokens > 0;
}

// The keys that the queries of a tile see, as one row of keys without the gap between the sinks of
// the window and the window.
struct KeyRange {
  int sink, begin, count;
  __device__ int position(int key) const { return key < sink ? key : key - sink + begin; }
};
inline __device__ KeyRange keys_of(const AttentionParams& p, int first_position,
                                   int last_position) {
  const int end = last_position + 1;
  KeyRange k;
  k.sink = p.window > 0 ? min(p.sink, end) : 0;
  k.begin = p.window > 0 ? max(k.sink, first_position - p.window + 1) : 0;
  k.count = k.sink + max(0, end - k.begin);
  return k;
}

// alibi_slope() of ops.h in log2 units; 0 without ALiBi.
inline __device__ float slope_of(const AttentionParams& p, int head) {
  if (p.alibi == 0) return 0;
  const int n = p.alibi_heads;
  const double power = head < n ? head + 1 : head - n + 0.5;
  return static_cast<float>(exp2(-static_cast<double>(p.alibi) * power / n)) * kLog2E;
}

inline __device__ float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// 2^(score - largest), 0 for a key that is not seen.
inline __device__ float weight_of(float score, float largest) {
  return score == -INFINITY ? 0.0f : power_of_2(score - largest);
}

// Rows of kDim bf16 in shared memory, 16 bytes apart so that eight rows lie in different banks.
template <int kDim>
struct Lines {
  static constexpr int kPitch = 2 * kDim + 16;  // bytes
  static constexpr int bytes(int lines) { return lines * kPitch; }
};

// Rotates the tile's query vectors, scales them so that powers of 2 give the softmax, and writes
// them, times `by`, as bf16 lines to `high`; with kExact, what bf16 leaves out to `low`. Columns
// past the head's and vectors past the tile's are zero. place_of_column(c): where column c goes.
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

// Fetches one line of a cache, of which this is the `part`-th thread of `parts`: bf16 to where it
// is used, others as they are; zeros past the head's columns or without `valid`.
template <class Cache, int kDim>
__device__ void fetch_line(const AttentionParams& p, const void* cache, int64_t first, bool valid,
                           int part, int parts, uint8_t* line) {
  const auto* from = static_cast<const typename Cache::Cell*>(cache) + first;
  if constexpr (!Cache::kHasScales) {
    for (int c = part; c < kDim / 8; c += parts) {
      const bool inside = valid && c * 8 < p.head_dim;
      copy_16(shared_address(line) + 16 * c, inside ? from + 8 * c : from, inside);
    }
  } else if (p.wide_lines) {
    for (int c = part; c < kDim / 16; c += parts) {
      const bool inside = valid && c * 16 < p.head_dim;
      copy_16(shared_address(line) + 16 * c, inside ? from + 16 * c : from, inside);
    }
  } else {
    for (int c = part; c < kDim / 8; c += parts) {
      const bool inside = valid && c * 8 < p.head_dim;
      copy_8(shared_address(line) + 8 * c, inside ? from + 8 * c : from, inside);
    }
  }
}

// Eight cells as they were fetched to eight bf16.
template <class Cache>
__device__ void widen_8(const uint8_t* raw, uint8_t* line, int c) {
  *reinterpret_cast<uint4*>(line + 16 * c) =
      Cache::widen8(reinterpret_cast<const typename Cache::Cell*>(raw) + 8 * c);
}

// What a query vector needs to judge a score.
struct QueryLimits {
  int position;  // -1: there is no such vector
  float slope;
};

// The running state of one warp for kTiles * 16 query vectors: in registers as tensor cores leave
// them, each thread has rows lane / 4 and lane / 4 + 8 of a tile.
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

// Scores of 16 * kSlices keys: register r of scores[t][s] is vector lane / 4 + 8 (r / 2) of tile t
// and key 8 s + 2 (lane % 4) + r % 2. `high`, `low`: the warp's first query line; `keys`: the first
// key line.
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
  float lower[kExact ? kTiles : 1][2 * kSlices][4] = {};  // sums of their own: shorter chains
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

// Cap, ALiBi and visibility; keys [0, count) of the block of keys exist, key i is at position
// position_of(i). `plain`: there is neither a window nor a cap nor ALiBi.
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
      const bool visible = key < count && at <= position &&
                           (p.window == 0 || at > position - p.window || at < p.sink);
      float bent = scores[s][r];
      if (p.cap > 0) bent = p.cap * kLog2E * tanhf(bent / (p.cap * kLog2E));
      if (p.alibi > 0) bent -= limits[r / 2].slope * static_cast<float>(position - at);
      scores[s][r] = visible ? bent : -INFINITY;
    }
}

inline __device__ bool is_plain(const AttentionParams& p) {
  return p.window == 0 && p.cap == 0 && p.alibi == 0;
}

// Scores become weights relative to the new largest score, the state is rescaled to it.
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

// Adds the values of 16 * kSlices keys times their weights.
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

// Writes a vector of the output: rows h of value's registers, relative to 2^largest.
template <int kDim>
__device__ void write_vector(const AttentionParams& p, const QueryTile& tile, int m, int h,
                             float largest, float sum, const float (&value)[kDim / 8][4]) {
  const int head = tile.head(m);
  const float sink = p.sinks ? load(p.sinks + head) * kLog2E : -INFINITY;
  const float top = fmaxf(sink, largest), factor = weight_of(largest, top);
  const float share = factor / (sum * factor + weight_of(sink, top));
  __nv_bfloat16* const out = result_of(p, tile, m) + 2 * (static_cast<int>(threadIdx.x) % 4);
#pragma unroll
  for (int i = 0; i < kDim / 8; ++i)
    if (8 * i < p.head_dim)
      *reinterpret_cast<uint32_t*>(out + 8 * i) =
          pack(value[i][2 * h] * share, value[i][2 * h + 1] * share);
}

// The sum of a row over the four threads that have it.
inline __device__ float row_sum(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

}  // namespace nereid::kernels::cuda
