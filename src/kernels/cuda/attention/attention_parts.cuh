// Shared by the few-token kernels: split of a row's keys among blocks, ordered merge of the states
// of warps and blocks.
#pragma once

#include <type_traits>

#include "kernels/cuda/attention/attention_products.cuh"

namespace nereid::kernels::cuda {

// f8e4m3 cells are converted to bf16 in the registers of products.
template <class Cache>
constexpr bool kIsFp8 = std::is_same_v<Cache, Fp8Cache>;
// Factor of queries, weights and then sums when cells are 2^-120 of their numbers: avoids overflow
// and underflow in f32.
template <class Cache>
constexpr float kBy = kIsFp8<Cache> ? 0x1p60f : 1.0f;
static_assert(0x1p60f * 0x1p60f == Fp8Cache::kBitsFactor);

// Index of column c of a query: a thread's eight cells of 32 columns are its operands of two
// products, one word each, even and odd cells.
inline __device__ int place_of_f8(int c) {
  return c / 32 * 32 + c % 8 / 4 * 16 + c % 2 * 8 + c % 32 / 8 * 2 + c % 4 / 2;
}

// The heads of a block's tile.
inline __device__ void find_heads(const AttentionParams& p, QueryTile& tile) {
  const int group = p.num_heads / p.num_kv_heads;
  const int part = static_cast<int>(blockIdx.y) % p.head_blocks;
  tile.kv_head = static_cast<int>(blockIdx.y) / p.head_blocks;
  tile.first_head = tile.kv_head * group + part * p.heads_per_block;
  tile.heads = min(p.heads_per_block, group - part * p.heads_per_block);
}

// Merges the warps' states in shared memory, values [warp][kVectors][kDim] relative to 2^largest,
// into the first warp's. Precondition: all values are written.
template <int kVectors, int kDim>
__device__ void combine_warps(const QueryTile& tile, float* values, float (*largest)[kVectors],
                              float (*sums)[kVectors]) {
  for (int i = threadIdx.x; i < tile.vectors() * kDim; i += kAttentionThreads) {
    const int m = i / kDim;
    float top = largest[0][m];
#pragma unroll
    for (int w = 1; w < kAttentionWarps; ++w) top = fmaxf(top, largest[w][m]);
    float value = 0;
#pragma unroll
    for (int w = 0; w < kAttentionWarps; ++w)
      value += values[w * kVectors * kDim + i] * weight_of(largest[w][m], top);
    values[i] = value;  // element i of warp 0, read by this thread only
  }
  __syncthreads();
  if (threadIdx.x < tile.vectors()) {
    const int m = static_cast<int>(threadIdx.x);
    float top = largest[0][m], sum = 0;
    for (int w = 1; w < kAttentionWarps; ++w) top = fmaxf(top, largest[w][m]);
    for (int w = 0; w < kAttentionWarps; ++w) sum += sums[w][m] * weight_of(largest[w][m], top);
    largest[0][m] = top;
    sums[0][m] = sum;
  }
  __syncthreads();
}

// Writes this block's partial result; true in the block that ends last, which merges.
template <int kDim>
__device__ bool leave_part(const AttentionParams& p, const QueryTile& tile, int num_parts,
                           int64_t group, const float* values, const float* largest,
                           const float* sums, int* shared) {
  const int64_t part = (group * gridDim.x + blockIdx.x) * p.part_vectors;
  for (int i = threadIdx.x; i < tile.vectors() * p.head_dim; i += kAttentionThreads)
    p.part_values[part * p.head_dim + i] = values[i / p.head_dim * kDim + i % p.head_dim];
  if (threadIdx.x < tile.vectors())
    p.part_sums[part + threadIdx.x] = {largest[threadIdx.x], sums[threadIdx.x]};
  return ends_last(p, group, num_parts, shared);
}

inline __device__ float sink_of(const AttentionParams& p, int head) {
  return p.sinks ? load(p.sinks + head) * kLog2E : -INFINITY;
}

inline __device__ void write(const AttentionParams& p, const QueryTile& tile, int m, int c,
                             float value) {
  store(p.out + tile.token(m) * p.out_stride + static_cast<int64_t>(tile.head(m)) * p.head_dim + c,
        value);
}

// One warp merges a query vector (half a warp: <= 64 columns): each lane has four columns at a time
// and loads the next parts' values while the factors are computed. Kept short: runs once per block,
// so instruction fetches matter.
template <int kDim>
__device__ void merge_parts(const AttentionParams& p, const QueryTile& tile, int num_parts,
                            int64_t group) {
  constexpr int kLanes = kDim <= 2 * kWarp ? kWarp / 2 : kWarp;  // per vector
  constexpr int kSets = kWarp / kLanes;  // sets of parts, one per lane, computed together
  constexpr int kAhead = 8;              // parts loaded together
  const int64_t first = group * gridDim.x * p.part_vectors;
  const int lane = threadIdx.x % kLanes;
  const auto combine = [](float x, auto f) {
#pragma unroll
    for (int by = kLanes / 2; by > 0; by /= 2) x = f(x, __shfl_xor_sync(kAllLanes, x, by));
    return x;
  };
  for (int vector = 0; vector < tile.vectors(); vector += kAttentionThreads / kLanes) {
    const int mine = vector + static_cast<int>(threadIdx.x) / kLanes;
    const int m = min(mine, tile.vectors() - 1);
    const float2* const parts = p.part_sums + first + m;
    const float sink = sink_of(p, tile.head(m));
    const auto part_at = [&](int part) { return __ldcg(parts + int64_t{part} * p.part_vectors); };
    for (int c = 4 * lane; c < p.head_dim + 4 * lane; c += 4 * kLanes) {
      const bool inside = c < p.head_dim;
      const float* const values = p.part_values + (first + m) * p.head_dim + (inside ? c : 0);
      float4 ahead[kAhead];
      const auto fetch = [&](int begin) {
#pragma unroll
        for (int i = 0; i < kAhead; ++i)
          if (begin + i < num_parts)
            ahead[i] = __ldcg(reinterpret_cast<const float4*>(
                values + int64_t{begin + i} * p.part_vectors * p.head_dim));
      };
      fetch(0);
      float2 ends[kSets];
#pragma unroll
      for (int s = 0; s < kSets; ++s) {
        const int part = s * kLanes + lane;
        ends[s] = part < num_parts ? part_at(part) : float2{-INFINITY, 0};
      }
      float top = sink, total = 0;
#pragma unroll
      for (int s = 0; s < kSets; ++s) top = fmaxf(top, ends[s].x);
      for (int part = lane + kWarp; part < num_parts; part += kLanes)
        top = fmaxf(top, part_at(part).x);
      top = combine(top, [](float x, float y) { return fmaxf(x, y); });
#pragma unroll
      for (int s = 0; s < kSets; ++s) total += ends[s].y * weight_of(ends[s].x, top);
      for (int part = lane + kWarp; part < num_parts; part += kLanes)
        total += part_at(part).y * weight_of(part_at(part).x, top);
      total = combine(total, [](float x, float y) { return x + y; });
      const float scale = 1 / (total + weight_of(sink, top));
      float factors[kSets];  // of the next kWarp parts
#pragma unroll
      for (int s = 0; s < kSets; ++s) factors[s] = weight_of(ends[s].x, top) * scale;
      float4 sum = {};
      for (int begin = 0; begin < num_parts; begin += kAhead) {
        if (begin > 0 && begin % kWarp == 0)
#pragma unroll
          for (int s = 0; s < kSets; ++s) {
            const int part = begin + s * kLanes + lane;
            factors[s] = part < num_parts ? weight_of(part_at(part).x, top) * scale : 0;
          }
        const float factor = begin % kWarp < kLanes ? factors[0] : factors[kSets - 1];
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
          const float f = __shfl_sync(kAllLanes, factor, begin % kLanes + i, kLanes);
          if (begin + i >= num_parts) continue;
          sum.x += f * ahead[i].x, sum.y += f * ahead[i].y;
          sum.z += f * ahead[i].z, sum.w += f * ahead[i].w;
        }
        fetch(begin + kAhead);
      }
      if (!inside || m != mine) continue;
      write(p, tile, m, c, sum.x), write(p, tile, m, c + 1, sum.y);
      write(p, tile, m, c + 2, sum.z), write(p, tile, m, c + 3, sum.w);
    }
  }
}

// Merged result of a block: written directly if it is the only part, else by the last block.
template <int kDim>
__device__ void finish(const AttentionParams& p, const QueryTile& tile, int num_parts,
                       const float* values, const float* largest, const float* sums, int* arrived) {
  if (num_parts > 1) {
    const int64_t group = static_cast<int64_t>(tile.row) * gridDim.y + blockIdx.y;
    if (leave_part<kDim>(p, tile, num_parts, group, values, largest, sums, arrived))
      merge_parts<kDim>(p, tile, num_parts, group);
    return;
  }
  for (int i = threadIdx.x; i < tile.vectors() * p.head_dim; i += kAttentionThreads) {
    const int m = i / p.head_dim, c = i % p.head_dim;
    const float sink = sink_of(p, tile.head(m)), top = fmaxf(sink, largest[m]);
    const float factor = weight_of(largest[m], top);
    write(p, tile, m, c, values[m * kDim + c] * factor / (sums[m] * factor + weight_of(sink, top)));
  }
}

}  // namespace nereid::kernels::cuda
