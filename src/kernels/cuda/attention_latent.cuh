// What the kernels of latent heads share: which keys a block has, its queries, and where blocks
// that divide the keys of a tile leave their parts.
#pragma once

#include "kernels/cuda/attention.cuh"

namespace nereid::kernels::cuda {

// The keys that the tokens of a tile see.
inline __device__ KeyRange keys_of(const AttentionParams& p, const QueryTile& tile) {
  return keys_of(p, p.positions[tile.first_token], p.positions[tile.first_token + tile.tokens - 1]);
}

inline __device__ bool is_seen(const AttentionParams& p, int key, int query) {
  return key <= query && (p.window == 0 || key > query - p.window || key < p.sink);
}

// How many blocks divide the keys of a tile.
inline __device__ int parts_of(const AttentionParams& p, const KeyRange& range) {
  return (range.count + p.chunk_keys - 1) / p.chunk_keys;
}

// The first query vector of a tile's first part among all that blocks leave; `most_parts`: of the
// blocks of a tile.
inline __device__ int64_t first_part(int most_parts, int num_vectors) {
  const int64_t group = static_cast<int64_t>(blockIdx.x) * gridDim.y + blockIdx.y;
  return group * most_parts * num_vectors;
}

// Column c of a query, rotated.
inline __device__ float query_column(const AttentionParams& p, const float* head, int c,
                                     int position) {
  if (c >= p.rotated) return head[c];
  const int half = p.rotated / 2;
  const float2 pair = load_pair(p, head, p.interleaved ? c / 2 : c % half, position);
  return (p.interleaved ? c % 2 == 0 : c < half) ? pair.x : pair.y;
}

// Queries by kThreads threads, so scaled that powers of 2 give the softmax, rounded to bf16; zeros
// past the tile's vectors. place(m, c): where eight columns from c on of query vector m go.
template <int kVectors, int kThreads, class Place>
__device__ void load_queries(const AttentionParams& p, const QueryTile& tile, Place place) {
  const int groups = p.head_dim / 8, vectors = tile.vectors();
  const float factor = p.scale * kLog2E;
  const bool aligned = p.qkv_stride % 4 == 0 && reinterpret_cast<uintptr_t>(p.qkv) % 16 == 0;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < kVectors * groups; i += kThreads) {
    const int m = i / groups, first = 8 * (i % groups);
    float x[8] = {};
    if (m < vectors) {
      const int64_t token = tile.token(m);
      const float* const head =
          p.qkv + token * p.qkv_stride + static_cast<int64_t>(tile.head(m)) * p.head_dim;
      if (aligned && first >= p.rotated) {
        const Vector<4> low(head + first), high(head + first + 4);
#pragma unroll
        for (int c = 0; c < 4; ++c) x[c] = low[c] * factor, x[4 + c] = high[c] * factor;
      } else {
        const int position = p.positions[token];
#pragma unroll
        for (int c = 0; c < 8; ++c) x[c] = query_column(p, head, first + c, position) * factor;
      }
    }
    *reinterpret_cast<uint4*>(place(m, first)) = {pack(x[0], x[1]), pack(x[2], x[3]),
                                                  pack(x[4], x[5]), pack(x[6], x[7])};
  }
}

}  // namespace nereid::kernels::cuda
