// Shared by the latent-head (MLA) kernels: keys of a block, its queries, layout of partial results.
#pragma once

#include "kernels/cuda/attention/attention.cuh"

namespace nereid::kernels::cuda {

// The keys visible to the tokens of a tile.
inline __device__ KeyRange keys_of(const AttentionParams& p, const QueryTile& tile) {
  return keys_of(p, p.positions[tile.first_token], p.positions[tile.first_token + tile.tokens - 1]);
}

inline __device__ bool is_seen(const AttentionParams& p, int key, int query) {
  return key <= query && lets_see(p, key, query);
}

// Number of blocks that split the keys of a tile.
inline __device__ int parts_of(const AttentionParams& p, const KeyRange& range) {
  return (range.count + p.chunk_keys - 1) / p.chunk_keys;
}

// Work of a block in a step: a tile and `part` of `parts` of its keys, [begin, end).
struct LatentWork {
  QueryTile tile;
  KeyRange range;
  int part, parts, begin, end;
};
// Depends only on the step's inputs. False: no work.
inline __device__ bool find_work(const AttentionParams& p, LatentWork& work) {
  if (!find_many(p, work.tile)) return false;
  work.range = keys_of(p, work.tile);
  work.part = static_cast<int>(blockIdx.z);
  work.parts = parts_of(p, work.range);
  work.begin = work.part * p.chunk_keys;
  work.end = min(work.begin + p.chunk_keys, work.range.count);
  return work.part < work.parts;
}

// First query vector of a tile's first part in the partial results; `most_parts`: blocks per tile.
inline __device__ int64_t first_part(int most_parts, int num_vectors) {
  const int64_t group = static_cast<int64_t>(blockIdx.x) * gridDim.y + blockIdx.y;
  return group * most_parts * num_vectors;
}

// Eight columns of a query from `first`, rotated by the angles of its position.
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

// Loads queries with kThreads threads, one warp per vector, scaled for a base-2 softmax, rounded to
// bf16; zeros past the tile's. place(m, c): destination of columns [c, c + 8) of vector m.
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
