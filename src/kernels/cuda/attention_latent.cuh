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
  return key <= query && lets_see(p, key, query);
}

// How many blocks divide the keys of a tile.
inline __device__ int parts_of(const AttentionParams& p, const KeyRange& range) {
  return (range.count + p.chunk_keys - 1) / p.chunk_keys;
}

// What a block has of a step: a tile and `part` of `parts` of its keys, [begin, end).
struct LatentWork {
  QueryTile tile;
  KeyRange range;
  int part, parts, begin, end;
};
// Depends on the step's data alone. False: there is nothing for this block.
inline __device__ bool find_work(const AttentionParams& p, LatentWork& work) {
  if (!find_many(p, work.tile)) return false;
  work.range = keys_of(p, work.tile);
  work.part = static_cast<int>(blockIdx.z);
  work.parts = parts_of(p, work.range);
  work.begin = work.part * p.chunk_keys;
  work.end = min(work.begin + p.chunk_keys, work.range.count);
  return work.part < work.parts;
}

// The first query vector of a tile's first part among all that blocks leave; `most_parts`: of the
// blocks of a tile.
inline __device__ int64_t first_part(int most_parts, int num_vectors) {
  const int64_t group = static_cast<int64_t>(blockIdx.x) * gridDim.y + blockIdx.y;
  return group * most_parts * num_vectors;
}

// Eight columns of a query from `first` on, rotated by the angles of its position.
inline __device__ void load_columns(const AttentionParams& p, const float* head,
                                    const float* angles, int first, float (&x)[8]) {
  const auto load = [](const float* from, float(&to)[8]) {
    const Vector<4> low(from), high(from + 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = low[i], to[4 + i] = high[i];
  };
  load(head + first, x);
  if (first >= p.rotated) return;
  const int half = p.rotated / 2;
  if (p.interleaved) {
    const Vector<4> cosine(angles + first / 2), sine(angles + half + first / 2);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 turned = rotate({x[2 * i], x[2 * i + 1]}, cosine[i], sine[i]);
      x[2 * i] = turned.x, x[2 * i + 1] = turned.y;
    }
    return;
  }
  const bool is_first = first < half;
  float other[8], cosine[8], sine[8];
  load(head + (is_first ? first + half : first - half), other);
  load(angles + first % half, cosine);
  load(angles + half + first % half, sine);
#pragma unroll
  for (int i = 0; i < 8; ++i)
    x[i] = is_first ? rotate({x[i], other[i]}, cosine[i], sine[i]).x
                    : rotate({other[i], x[i]}, cosine[i], sine[i]).y;
}

// Queries by kThreads threads, a warp for each vector, so scaled that powers of 2 give the softmax,
// rounded to bf16; zeros past the tile's vectors. place(m, c): where eight columns from c on of
// query vector m go.
template <int kVectors, int kThreads, class Place>
__device__ void load_queries(const AttentionParams& p, const QueryTile& tile, Place place) {
  const float factor = p.scale * kLog2E;
#pragma unroll 2
  for (int m = static_cast<int>(threadIdx.x) / kWarp; m < kVectors; m += kThreads / kWarp) {
    const bool exists = m < tile.vectors();
    const int64_t token = tile.token(exists ? m : 0);
    const float* const head =
        p.qkv + token * p.qkv_stride + static_cast<int64_t>(tile.head(m)) * p.head_dim;
    const float* const angles = p.rope_table + int64_t{p.positions[token]} * p.rotated;
#pragma unroll 3
    for (int c = 8 * (static_cast<int>(threadIdx.x) % kWarp); c < p.head_dim; c += 8 * kWarp) {
      float x[8] = {};
      if (exists) load_columns(p, head, angles, c, x);
      *reinterpret_cast<uint4*>(place(m, c)) = {
          pack(x[0] * factor, x[1] * factor), pack(x[2] * factor, x[3] * factor),
          pack(x[4] * factor, x[5] * factor), pack(x[6] * factor, x[7] * factor)};
    }
  }
}

}  // namespace nereid::kernels::cuda
