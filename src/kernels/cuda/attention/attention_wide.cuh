// bf16 copies of the keys and values of an 8-bit cache for attention_hopper.cu, whose blocks would
// each convert all keys they read: attention_store.cu converts once, into scratch memory. Rows with
// many tokens have blocks of kWideLines positions, row after row: [block, KV head, kWideLines,
// head_dim], all keys, then all values.
#pragma once

#include "kernels/cuda/attention/attention.cuh"

namespace nereid::kernels::cuda {

constexpr int kWideLines = 128;   // per block
constexpr int kWideTokens = 128;  // min tokens of a row with blocks
// Max ratio of the row's earlier keys to its tokens; above it conversion costs more than it saves.
constexpr int kMostBefore = 64;

inline __device__ int count_wide_blocks(const AttentionParams& p, int row) {
  const int end = p.row_begin[row + 1], tokens = end - p.row_begin[row];
  if (tokens < kWideTokens) return 0;
  const int keys = p.positions[end - 1] + 1;
  return keys - tokens > kMostBefore * tokens ? 0 : (keys + kWideLines - 1) / kWideLines;
}

// The row's first block; -1: none, or no capacity; one warp.
inline __device__ int find_wide_blocks(const AttentionParams& p, int row) {
  if (!p.wide) return -1;
  const int count = count_wide_blocks(p, row);
  if (count == 0) return -1;
  int before = 0;
#pragma unroll 4
  for (int r = static_cast<int>(threadIdx.x) % kWarp; r < row; r += kWarp)
    before += count_wide_blocks(p, r);
  before = __reduce_add_sync(kAllLanes, before);
  return before + count <= p.wide_blocks ? before : -1;
}

// Line of a position in a row whose blocks start at `first_block`.
inline __device__ __nv_bfloat16* wide_line(const AttentionParams& p, int first_block, int kv_head,
                                           int position, bool is_value) {
  const int64_t block = first_block + position / kWideLines + (is_value ? p.wide_blocks : 0);
  const int64_t line = (block * p.num_kv_heads + kv_head) * kWideLines + position % kWideLines;
  return p.wide + line * p.head_dim;
}

}  // namespace nereid::kernels::cuda
