// Shared by the attention kernels: parameters, addressing of cache lines, assignment of queries and
// keys to blocks.
#pragma once

#include "kernels/api/ops.h"
#include "kernels/cuda/cache_types.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/ptx.cuh"

namespace nereid::kernels::cuda {

constexpr int kAttentionThreads = 128;
constexpr int kAttentionWarps = kAttentionThreads / kWarp;
constexpr int kHopperVectors = 128;  // query vectors per block of attention_hopper.cu
constexpr int kFewVectors = 16;      // query vectors per block of the few-token kernel

struct AttentionParams {
  const float* qkv;
  int64_t qkv_stride;
  void* k_cache;
  void* v_cache;
  float* k_scales;  // one per cache vector, or null
  float* v_scales;
  const float* rope_table;     // or null
  const __nv_bfloat16* sinks;  // or null
  const float* bias;           // relative position bias [num_heads, bias_width], or null
  const int32_t* positions;    // null: cross attention
  const int32_t* last;         // bidirectional: BatchView::last, or null
  const int32_t* row_begin;
  const int32_t* row_of_token;
  const int32_t* block_table;
  const int32_t* after;  // BatchView::after, or null: no row of the step has a tree
  const int32_t* cells;
  // Cross attention: keys of each row; null: none in any row. Storing: keys of each row that are
  // stored; null: all.
  const int32_t* cross_lengths;
  const uint32_t* cross_mask;  // cross attention: BatchView::cross_mask, or null
  int cross_mask_words;
  __nv_bfloat16* out;
  int64_t out_stride;
  int64_t block_stride, scale_stride;  // between blocks of the cache
  int num_rows, max_blocks, num_heads, num_kv_heads, head_dim, block_tokens, window, sink;
  int chunk;                      // chunked attention: positions per chunk; 0: off
  int latent;                     // value columns within the keys (MLA); 0: separate values
  int heads_per_block;            // query heads per block, all of one group
  int head_blocks;                // blocks per group
  int tile_vectors, tile_tokens;  // per block of the many-token kernel
  int few_tokens;                 // rows with <= few_tokens go to the few-token kernel
  bool plain_heads;               // attention_plain.cu only
  bool bidirectional;             // queries attend to all positions of their row
  int bias_first, bias_width;     // distance key - query of the bias's first column, columns
  bool takes_single;              // one-token rows go to the single-token kernel
  bool is_single;                 // all rows of the step have one token
  float scale, cap, alibi, alibi_scale;
  int alibi_first;  // index of the first head among all
  int alibi_heads;  // largest power of two <= number of all heads
  int rotated;      // rotary columns per head
  bool interleaved, wide_lines;
  bool in_trees;        // many-token kernel: rows with trees, one token per tile
  bool stores_queries;  // rows with many tokens: the store kernel also rounds queries
  // attention_hopper.cu and the kernel after it run side by side, see launch_attention().
  bool has_neighbour, is_neighbour;
  bool heads_first;  // grid order: the blocks of all KV heads of a token tile are adjacent
  // Few tokens: keys per block, query vectors per partial result.
  int chunk_keys, part_vectors;
  int plain_chunks;    // attention_plain.cu: max chunks of a token's keys; 0: one block
  float* part_values;  // [row, head block, chunk, part_vectors, head_dim]
  float2* part_sums;   // [..., part_vectors]: running maximum, sum of weights
  int32_t* counters;   // [row, head block], initially 0
  // bf16 keys and values of rows with many tokens, see attention_wide.cuh, or null.
  __nv_bfloat16* wide;
  int wide_blocks;  // capacity of `wide` in blocks
};

// Few-token kernels: waits for the kernel that computes qkv. A neighbour of the many-token kernel
// is launched after that; it only invalidates the L1 cache.
inline __device__ void wait_for_qkv(const AttentionParams& p) {
  if (p.is_neighbour)
    __threadfence();
  else
    wait_for_previous();
}

// Tree tokens are the last of their row.
inline __device__ bool has_tree(const AttentionParams& p, int row) {
  return p.after && p.after[p.row_begin[row + 1] - 1] > 0;
}

// cell_of() of op.h.
inline __device__ int cell_of(const AttentionParams& p, int64_t token, int position) {
  if (!p.after) return position;
  int after = p.after[token];
  while (after > 0 && p.positions[token] > position) {
    token -= after;
    after = p.after[token];
  }
  return after > 0 ? p.cells[token] : position;
}

// Indices of a cell's head vector in a layer's K or V cache, and of its scale.
struct CellIndex {
  int64_t first, scale;
};

inline __device__ CellIndex place_of(const AttentionParams& p, int row, int cell, int kv_head) {
  const int in_table = cell / p.block_tokens;
  const int64_t block = p.block_table[static_cast<int64_t>(row) * p.max_blocks + in_table];
  const int line = kv_head * p.block_tokens + cell - in_table * p.block_tokens;
  return {block * p.block_stride + static_cast<int64_t>(line) * p.head_dim,
          block * p.scale_stride + line};
}

// Columns of rotary pair `i` of a head.
inline __device__ int2 columns(const AttentionParams& p, int i) {
  return pair_columns(i, p.rotated, p.interleaved);
}

// Pair `i` of a head vector, rotated by the angles of its position if it is a rotary pair.
inline __device__ float2 load_pair(const AttentionParams& p, const float* head, int i,
                                   int position) {
  const int2 at = columns(p, i);
  const float2 pair = {head[at.x], head[at.y]};
  if (i >= p.rotated / 2) return pair;
  const float* angles = p.rope_table + static_cast<int64_t>(position) * p.rotated;
  return rotate(pair, angles[i], angles[i + p.rotated / 2]);
}

// Writes a head vector, given as column pairs pair(i), to the cache; one warp.
template <class Cache, class Pair>
__device__ void store_line(const AttentionParams& p, Pair pair, const CellIndex& place, void* cache,
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

// Writes the key of a token and KV head, or its separate value, to a place in `cells` and `scales`,
// which may be shared memory; one warp.
template <class Cache>
__device__ void store_token_at(const AttentionParams& p, int64_t token, int kv_head, int position,
                               bool is_value, const CellIndex& place, void* cells, float* scales) {
  const float* head =
      p.qkv + token * p.qkv_stride + static_cast<int64_t>(p.num_heads + kv_head) * p.head_dim;
  if (!is_value)
    return store_line<Cache>(
        p, [&](int c) { return load_pair(p, head, c, position); }, place, cells, scales);
  head += static_cast<int64_t>(p.num_kv_heads) * p.head_dim;
  store_line<Cache>(
      p,
      [&](int i) {
        const int2 at = columns(p, i);
        return make_float2(head[at.x], head[at.y]);
      },
      place, cells, scales);
}

// Same, to the cache.
template <class Cache>
__device__ void store_token(const AttentionParams& p, int64_t token, int row, int kv_head,
                            bool is_value) {
  const int position = p.positions[token];
  const CellIndex place = place_of(p, row, cell_of(p, token, position), kv_head);
  store_token_at<Cache>(p, token, kv_head, position, is_value, place,
                        is_value ? p.v_cache : p.k_cache, is_value ? p.v_scales : p.k_scales);
}

// Query vectors of a block: vector m is token first_token + m / heads, head first_head + m % heads.
struct QueryTile {
  int row, first_token, tokens, first_head, heads, kv_head;
  __device__ int vectors() const { return tokens * heads; }
  __device__ int64_t token(int m) const { return first_token + m / heads; }
  __device__ int head(int m) const { return first_head + m % heads; }
};

// Cell of a position as seen by the tokens of a tile; a tile in a tree has one token.
inline __device__ CellIndex place_of(const AttentionParams& p, const QueryTile& tile,
                                     int position) {
  const int cell = p.in_trees ? cell_of(p, tile.first_token, position) : position;
  return place_of(p, tile.row, cell, tile.kv_head);
}

// Output address of a tile's query vector.
inline __device__ __nv_bfloat16* result_of(const AttentionParams& p, const QueryTile& tile, int m) {
  return p.out + tile.token(m) * p.out_stride + static_cast<int64_t>(tile.head(m)) * p.head_dim;
}

// The tile of a block of a many-token kernel. Row r starts at block row_begin[r] / tile_tokens + r:
// no table, at most one empty block per row (returns false). The last tokens, which have the most
// keys, come first.
inline __device__ bool find_many(const AttentionParams& p, QueryTile& tile) {
  const auto head_block = static_cast<int>(p.heads_first ? blockIdx.x : blockIdx.y);
  const auto block =
      static_cast<int>(p.heads_first ? gridDim.y - 1 - blockIdx.y : gridDim.x - 1 - blockIdx.x);
  int low = 0, high = p.num_rows - 1;
  while (low < high) {  // 32-ary search; each lane tests one row
    const int step = (high - low + kWarp - 1) / kWarp;
    const int row = low + (static_cast<int>(threadIdx.x) % kWarp + 1) * step;
    const bool begun = row <= high && p.row_begin[row] / p.tile_tokens + row <= block;
    low += __popc(__ballot_sync(kAllLanes, begun)) * step;
    high = min(high, low + step - 1);
  }
  tile.row = low;
  const int end = p.row_begin[low + 1];
  if (has_tree(p, low) != p.in_trees) return false;
  if (!p.in_trees && end - p.row_begin[low] <= p.few_tokens) return false;
  const int index = block - (p.row_begin[low] / p.tile_tokens + low);
  tile.first_token = p.row_begin[low] + index * p.tile_tokens;
  tile.tokens = min(p.tile_tokens, end - tile.first_token);
  const int group = p.num_heads / p.num_kv_heads;
  const int heads = min(group, p.tile_vectors), head_blocks = (group + heads - 1) / heads;
  const int part = head_block % head_blocks;
  tile.kv_head = head_block / head_blocks;
  tile.first_head = tile.kv_head * group + part * heads;
  tile.heads = min(heads, group - part * heads);
  return tile.tokens > 0;
}

// Whether window and chunks let a query attend to a key position <= its own.
inline __device__ bool lets_see(const AttentionParams& p, int key, int query) {
  if (p.window == 0 || key < p.sink) return true;
  return key > query - p.window && (p.chunk == 0 || key >= query - query % p.chunk);
}

// The keys visible to the queries of a tile, indexed without the gap between sinks and window.
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
  if (p.chunk > 0) k.begin = max(k.begin, first_position - first_position % p.chunk);
  k.count = k.sink + max(0, end - k.begin);
  return k;
}

// Last position that a query sees; -1: none.
inline __device__ int last_of(const AttentionParams& p, int row, int position) {
  if (!p.positions) return p.cross_lengths ? p.cross_lengths[row] - 1 : -1;
  return p.bidirectional ? (p.last ? p.last : p.positions)[p.row_begin[row + 1] - 1] : position;
}

// Relative position bias * log2(e) of a query for the key `ahead` positions after it.
inline __device__ float bias_of(const AttentionParams& p, int head, int ahead) {
  const int column = min(max(ahead - p.bias_first, 0), p.bias_width - 1);
  return p.bias[static_cast<int64_t>(head) * p.bias_width + column] * kLog2E;
}

// alibi_slope() of ops.h * log2(e); 0 without ALiBi.
inline __device__ float slope_of(const AttentionParams& p, int head) {
  if (p.alibi == 0) return 0;
  const int n = p.alibi_heads;
  const int index = p.alibi_first + head;
  const double power = index < n ? index + 1 : index - n + 0.5;
  const double slope = exp2(-static_cast<double>(p.alibi) * power / n) * p.alibi_scale;
  return static_cast<float>(slope) * kLog2E;
}

// Blocks that write partial results to global memory; called by all threads. True in the last of
// `blocks` to arrive, in which all partial results are visible. `counter`: shared index into
// p.counters, zero before and after; `shared`: shared memory.
inline __device__ bool ends_last(const AttentionParams& p, int64_t counter, int blocks,
                                 int* shared) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) *shared = atomicAdd(p.counters + counter, 1);
  __syncthreads();
  if (*shared != blocks - 1) return false;
  __threadfence();
  if (threadIdx.x == 0) p.counters[counter] = 0;
  return true;
}

// 2^(score - largest); 0 for a masked key.
inline __device__ float weight_of(float score, float largest) {
  return score == -INFINITY ? 0.0f : power_of_2(score - largest);
}

}  // namespace nereid::kernels::cuda
