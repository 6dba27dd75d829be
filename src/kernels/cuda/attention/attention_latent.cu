// Attention of latent heads (MLA) on tensor cores: all heads share one key per position, whose last
// columns are the value. A block has up to 64 query vectors (heads of some tokens of a row) and
// iterates over their keys in steps of 32: each key is loaded once, for scores and values. If this
// gives few blocks, the keys are split among blocks and a second kernel merges the partial results.
// Queries and weights are rounded to bf16; keys of 8-bit caches are converted to bf16 here.
#include "kernels/cuda/attention/attention_latent.cuh"
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/attention/attention_products.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/overlap.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kKeys = 32;                       // per step
constexpr int kMostDim = 576;                   // columns of a key
constexpr int kMostLatent = 512;                // columns of a value
constexpr int kColumns = kMostLatent / kWarps;  // of a value, per warp
constexpr int kStages = 2;
constexpr int kLeastPartKeys = 32;  // min keys per block with split keys
constexpr int kMergeThreads = kMostLatent / 4;
constexpr int kLine = Lines<kMostDim>::kPitch, kWeightLine = Lines<kKeys>::kPitch;

// kTiles: of 16 query vectors.
template <int kTiles>
struct Memory {
  static constexpr int kVectors = 16 * kTiles;
  uint8_t queries[kVectors * kLine];
  uint8_t keys[kStages][kKeys * kLine];
  uint8_t weights[kVectors * kWeightLine];
  float scales[kStages][kKeys];
  float largest[2][kVectors];  // of the two halves of a step's keys
  float sums[2][kVectors];
  float corrections[kVectors];
};

// Issues loads of keys [first, first + kKeys) of the range, with scales; zeros past its end.
template <class Cache, int kTiles>
__device__ void fetch(const AttentionParams& p, const QueryTile& tile, const KeyRange& range,
                      int first, int stage, Memory<kTiles>& memory) {
  constexpr int kParts = kThreads / kKeys;  // threads per line
  const int line = static_cast<int>(threadIdx.x) / kParts, part = threadIdx.x % kParts;
  const bool valid = first + line < range.count;
  const CellIndex place = place_of(p, tile, range.position(valid ? first + line : range.count - 1));
  uint8_t* const to = memory.keys[stage] + line * kLine;
  const auto* const from = static_cast<const typename Cache::Cell*>(p.k_cache) + place.first;
  for (int c = part; c < p.head_dim / 8; c += kParts) {
    if constexpr (!Cache::kHasScales) {
      copy_16(shared_address(to) + 16 * c, from + 8 * c, valid);
    } else {
      *reinterpret_cast<uint4*>(to + 16 * c) = valid ? Cache::widen8(from + 8 * c) : uint4{};
    }
  }
  if (Cache::kHasScales && part == 0)
    memory.scales[stage][line] = valid ? p.k_scales[place.scale] : 0;
}

// A thread's scores of 16 query vectors and 16 keys, per warp: keys 8 i + 2 (lane % 4) + r % 2,
// vectors lane / 4 + 8 (r / 2).
__device__ void multiply_keys(int head_dim, const uint8_t* queries, const uint8_t* keys,
                              float (&scores)[2][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  uint32_t q = shared_address(queries) + lane % 16 * kLine + lane / 16 * 16;
  uint32_t k = shared_address(keys) + (lane / 16 * 8 + lane % 8) * kLine + lane / 8 % 2 * 16;
#pragma unroll 4
  for (int c = 0; c < head_dim; c += 16, q += 32, k += 32) {
    uint32_t a[4], b[4];
    load_matrices(a, q);
    load_matrices(b, k);
    multiply(scores[0], a, b[0], b[1]);
    multiply(scores[1], a, b[2], b[3]);
  }
}

// State of two query vectors, lane / 4 and lane / 4 + 8 of a warp's tile.
struct RowState {
  int position[2];                                             // -1: no such vector
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};  // sum: this thread's share
};

// Weights of a step, and the rescaling of earlier sums.
template <class Cache, int kTiles>
__device__ void weigh(const AttentionParams& p, const KeyRange& range, int first, int stage,
                      RowState& rows, Memory<kTiles>& memory) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = threadIdx.x / kWarp;
  const int tile = warp % kTiles, half = warp / kTiles;
  const bool takes_part = half < 2;
  const int row = 16 * tile + lane / 4;
  float scores[2][4] = {};
  if (takes_part) {
    multiply_keys(p.head_dim, memory.queries + 16 * tile * kLine,
                  memory.keys[stage] + 16 * half * kLine, scores);
    float largest[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int key = 16 * half + 8 * i + lane % 4 * 2 + r % 2;
        if constexpr (Cache::kHasScales) scores[i][r] *= memory.scales[stage][key];
        const bool seen = first + key < range.count &&
                          is_seen(p, range.position(first + key), rows.position[r / 2]);
        if (!seen) scores[i][r] = -INFINITY;
        largest[r / 2] = fmaxf(largest[r / 2], scores[i][r]);
      }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      for (int step = 1; step < 4; step *= 2)
        largest[r] = fmaxf(largest[r], __shfl_xor_sync(kAllLanes, largest[r], step));
      if (lane % 4 == 0) memory.largest[half][row + 8 * r] = largest[r];
    }
  }
  __syncthreads();
  if (takes_part) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float now = fmaxf(memory.largest[0][row + 8 * r], memory.largest[1][row + 8 * r]);
      const float largest = fmaxf(rows.largest[r], now);
      const float correction = weight_of(rows.largest[r], largest);
      rows.largest[r] = largest;
      rows.sum[r] *= correction;
      if (half == 0 && lane % 4 == 0) memory.corrections[row + 8 * r] = correction;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int key = 16 * half + 8 * i + lane % 4 * 2;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float low = weight_of(scores[i][2 * r], rows.largest[r]);
        float high = weight_of(scores[i][2 * r + 1], rows.largest[r]);
        rows.sum[r] += low + high;
        if constexpr (Cache::kHasScales)
          low *= memory.scales[stage][key], high *= memory.scales[stage][key + 1];
        *reinterpret_cast<uint32_t*>(memory.weights + (row + 8 * r) * kWeightLine + 2 * key) =
            pack(low, high);
      }
    }
  }
  __syncthreads();
}

// Adds weights * values in the warp's columns.
template <int kTiles>
__device__ void add_values(const AttentionParams& p, int stage, Memory<kTiles>& memory,
                           float (&values)[kTiles][kColumns / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first = static_cast<int>(threadIdx.x) / kWarp * kColumns;
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    const float low = memory.corrections[16 * t + lane / 4];
    const float high = memory.corrections[16 * t + lane / 4 + 8];
#pragma unroll
    for (auto& four : values[t]) four[0] *= low, four[1] *= low, four[2] *= high, four[3] *= high;
  }
  const uint32_t weights =
      shared_address(memory.weights) + lane % 16 * kWeightLine + lane / 16 * 16;
  const uint32_t keys = shared_address(memory.keys[stage]) + lane % 16 * kLine +
                        2 * (p.head_dim - p.latent + first) + lane / 16 * 16;
#pragma unroll
  for (int k = 0; k < kKeys; k += 16) {
    uint32_t a[kTiles][4];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) load_matrices(a[t], weights + 16 * t * kWeightLine + 2 * k);
#pragma unroll
    for (int n = 0; n < kColumns / 8; n += 2) {
      uint32_t b[4];
      load_transposed(b, keys + k * kLine + 16 * n);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        multiply(values[t][n], a[t], b[0], b[1]);
        multiply(values[t][n + 1], a[t], b[2], b[3]);
      }
    }
  }
}

// Calls f(query vector, column, value, next column's value) for each pair of the thread's values.
template <int kTiles, class F>
__device__ void for_pairs(const float (&values)[kTiles][kColumns / 8][4], F f) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first = static_cast<int>(threadIdx.x) / kWarp * kColumns + lane % 4 * 2;
#pragma unroll
  for (int t = 0; t < kTiles; ++t)
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll
      for (int r = 0; r < 4; r += 2)
        f(16 * t + lane / 4 + 4 * r, first + 8 * n, values[t][n][r], values[t][n][r + 1]);
}

// Writes the block's partial results.
template <int kTiles>
__device__ void leave_part(const AttentionParams& p, const QueryTile& tile,
                           const float (&values)[kTiles][kColumns / 8][4], int64_t at,
                           const Memory<kTiles>& memory) {
  for_pairs(values, [&](int m, int c, float x, float y) {
    if (m < tile.vectors() && c < p.latent)
      *reinterpret_cast<float2*>(p.part_values + (at + m) * p.latent + c) = {x, y};
  });
  const int m = static_cast<int>(threadIdx.x);
  if (m < tile.vectors())
    p.part_sums[at + m] = {memory.largest[0][m], memory.sums[0][m] + memory.sums[1][m]};
}

// One block per query vector of a tile: the sum of its parts, in order. Each lane has the factors
// of one of 32 parts.
template <int kVectors>
__global__ void __launch_bounds__(kMergeThreads) merge_kernel(AttentionParams p, int most_parts) {
  constexpr int kAhead = 8;  // parts loaded ahead
  const auto m = static_cast<int>(blockIdx.z);
  const int lane = static_cast<int>(threadIdx.x) % kWarp, c = 4 * static_cast<int>(threadIdx.x);
  let_next_begin();
  QueryTile tile;  // found before the wait: depends only on the step's inputs
  const bool found = find_many(p, tile) && m < tile.vectors();
  const int parts = found ? parts_of(p, keys_of(p, tile)) : 0;
  wait_for_previous();
  if (parts <= 1) return;
  const int64_t at = first_part(most_parts, kVectors) + m;
  const auto end_of = [&](int part) { return __ldcg(p.part_sums + at + part * kVectors); };
  float largest = -INFINITY, sum = 0;
  for (int j = lane; j < parts; j += kWarp) largest = fmaxf(largest, end_of(j).x);
  largest = warp_max(largest);
  for (int j = lane; j < parts; j += kWarp) sum += end_of(j).y * weight_of(end_of(j).x, largest);
  sum = warp_sum(sum);
  const float* const values = p.part_values + at * p.latent + (c < p.latent ? c : 0);
  float4 total = {};
  for (int begin = 0; begin < parts; begin += kWarp) {
    const int own = begin + lane;
    const float factor = own < parts ? weight_of(end_of(own).x, largest) / sum : 0;
    for (int j = begin; j < min(begin + kWarp, parts); j += kAhead) {
      float4 four[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i)
        four[i] = *reinterpret_cast<const float4*>(values + int64_t{min(j + i, parts - 1)} *
                                                                kVectors * p.latent);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const float by = __shfl_sync(kAllLanes, factor, j - begin + i);  // 0 past the last part
        total.x += by * four[i].x, total.y += by * four[i].y;
        total.z += by * four[i].z, total.w += by * four[i].w;
      }
    }
  }
  if (c >= p.latent) return;
  auto* const out = reinterpret_cast<uint32_t*>(p.out + tile.token(m) * p.out_stride +
                                                static_cast<int64_t>(tile.head(m)) * p.latent + c);
  out[0] = pack(total.x, total.y), out[1] = pack(total.z, total.w);
}

// Results of the block's query vectors when it has all their keys.
template <int kTiles>
__device__ void write_result(const AttentionParams& p, const QueryTile& tile,
                             const float (&values)[kTiles][kColumns / 8][4],
                             const Memory<kTiles>& memory) {
  for_pairs(values, [&](int m, int c, float x, float y) {
    if (m >= tile.vectors()) return;
    const float by = 1 / (memory.sums[0][m] + memory.sums[1][m]);
    *reinterpret_cast<uint32_t*>(p.out + tile.token(m) * p.out_stride +
                                 static_cast<int64_t>(tile.head(m)) * p.latent + c) =
        pack(x * by, y * by);
  });
}

template <class Cache, int kTiles>
__global__ void __launch_bounds__(kThreads) latent_kernel(AttentionParams p) {
  extern __shared__ uint4 latent_memory[];
  auto& memory = *reinterpret_cast<Memory<kTiles>*>(latent_memory);
  constexpr int kVectors = Memory<kTiles>::kVectors;
  let_next_begin();
  LatentWork work;
  const bool found = find_work(p, work);
  wait_for_previous();
  if (!found) return;
  const QueryTile& tile = work.tile;
  fetch<Cache>(p, tile, work.range, work.begin, 0, memory);
  end_copies();
  load_queries<kVectors, kThreads>(
      p, tile, [&](int m, int c) { return memory.queries + m * kLine + 2 * c; });
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = threadIdx.x / kWarp;
  const int row = 16 * (warp % kTiles) + lane / 4, half = warp / kTiles;
  RowState rows;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int m = row + 8 * r;
    rows.position[r] = m < tile.vectors() ? p.positions[tile.token(m)] : -1;
  }
  float values[kTiles][kColumns / 8][4] = {};
  const bool has_values = warp * kColumns < p.latent;
  for (int first = work.begin, stage = 0; first < work.end; first += kKeys, stage = 1 - stage) {
    if (first + kKeys < work.end)
      fetch<Cache>(p, tile, work.range, first + kKeys, 1 - stage, memory);
    end_copies();
    wait_for_copies<1>();
    __syncthreads();
    weigh<Cache>(p, work.range, first, stage, rows, memory);
    if (has_values) add_values(p, stage, memory, values);
    __syncthreads();  // the stage and the weights may be overwritten
  }
  if (half < 2) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = rows.sum[r];
      for (int step = 1; step < 4; step *= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
      if (lane % 4 == 0) {
        memory.sums[half][row + 8 * r] = sum;
        if (half == 0) memory.largest[0][row + 8 * r] = rows.largest[r];
      }
    }
  }
  __syncthreads();
  if (work.parts > 1) {
    const int64_t at = first_part(static_cast<int>(gridDim.z), kVectors) + work.part * kVectors;
    leave_part(p, tile, values, at, memory);
  } else if (has_values) {
    write_result(p, tile, values, memory);
  }
}

// Splits a step into tiles of `vectors` query vectors, and the tiles' keys, in units of `keys`,
// among blocks (`blocks` resident per SM). Returns the grid: tiles, heads, parts.
dim3 divide_latent(int num_tokens, int64_t most_keys, int vectors, int keys, int blocks,
                   const Scratch& scratch, AttentionParams& p) {
  const int group = p.num_heads / p.num_kv_heads, heads = std::min(group, vectors);
  p.tile_vectors = vectors;
  p.tile_tokens = vectors / heads;
  const int64_t tiles = num_tokens / p.tile_tokens + p.num_rows;
  const int64_t head_blocks = int64_t{p.num_kv_heads} * ((group + heads - 1) / heads);
  const int64_t part_bytes =
      vectors * (p.latent * int64_t{sizeof(float)} + int64_t{sizeof(float2)});
  const int64_t room =
      static_cast<int64_t>(scratch.workspace_bytes) / (tiles * head_blocks * part_bytes);
  // Splits keys until the SMs are full. One token per row: as many tiles with work as rows.
  const bool is_single = num_tokens == p.num_rows;
  const int64_t working = (is_single ? p.num_rows : tiles) * head_blocks;
  const int64_t wanted = std::min(int64_t{blocks} * scratch.num_units / working, room);
  most_keys += p.tile_tokens;  // with a window a tile sees one more key per token
  const int64_t steps = (most_keys + keys - 1) / keys;
  const int64_t parts =
      std::clamp<int64_t>(most_keys / kLeastPartKeys, 1, std::max<int64_t>(wanted, 1));
  p.chunk_keys = static_cast<int>((steps + parts - 1) / parts * keys);
  const int64_t chunks = (most_keys + p.chunk_keys - 1) / p.chunk_keys;
  p.part_sums = static_cast<float2*>(scratch.workspace);
  p.part_values = reinterpret_cast<float*>(p.part_sums + tiles * head_blocks * chunks * vectors);
  return {static_cast<unsigned>(tiles), static_cast<unsigned>(head_blocks),
          static_cast<unsigned>(chunks)};
}

template <int kVectors>
cudaError_t enqueue_merge(const AttentionParams& p, int num_tokens, dim3 grid,
                          cudaStream_t stream) {
  const auto chunks = static_cast<int>(grid.z);
  if (chunks == 1) return cudaSuccess;
  grid.z = kVectors;
  return launch_overlapped(merge_kernel<kVectors>, num_tokens, grid, kMergeThreads, 0, stream, p,
                           chunks);
}

template <int kTiles>
cudaError_t enqueue(AttentionParams p, DType cache, int num_tokens, int64_t most_keys,
                    const Scratch& scratch, cudaStream_t stream) {
  constexpr int kVectors = Memory<kTiles>::kVectors;
  const int blocks = kTiles == 1 && num_tokens > kMaxGemvRows ? 2 : 1;
  const dim3 grid = divide_latent(num_tokens, most_keys, kVectors, kKeys, blocks, scratch, p);
  const cudaError_t error = with_cache(cache, [&]<class Cache>() {
    return launch_overlapped(latent_kernel<Cache, kTiles>, num_tokens, grid, kThreads,
                             sizeof(Memory<kTiles>), stream, p);
  });
  return error == cudaSuccess ? enqueue_merge<kVectors>(p, num_tokens, grid, stream) : error;
}

cudaError_t enqueue_hopper(AttentionParams p, DType cache, int num_tokens, int64_t most_keys,
                           const Scratch& scratch, cudaStream_t stream) {
  const dim3 grid =
      divide_latent(num_tokens, most_keys, kLatentHopperVectors, kLatentHopperKeys, 1, scratch, p);
  const cudaError_t error = launch_latent_hopper(p, cache, num_tokens, grid, stream);
  return error == cudaSuccess ? enqueue_merge<kLatentHopperVectors>(p, num_tokens, grid, stream)
                              : error;
}

}  // namespace

bool takes_latent_attention(const Attention& a, int sm) {
  const bool has_room = sm == 80 || (sm >= 90 && sm < 110);  // shared memory for Memory<4>
  const Heads& h = a.heads;
  return has_room && takes_attention(a) && h.latent > 0 && h.latent <= kMostLatent &&
         h.latent % kColumns == 0 && h.dim <= kMostDim && h.dim % 16 == 0 && !is_given(a.sinks) &&
         !is_given(a.bias) && !a.bidirectional && a.cap == 0 && a.alibi == 0;
}

// Run-time conditions: no draft trees; layout of cache lines and queries.
bool takes_latent(const AttentionParams& p) {
  return p.wide_lines && !p.after && p.out_stride % 2 == 0 && p.rotated % 16 == 0 &&
         p.qkv_stride % 4 == 0 && is_aligned(p.qkv) && is_aligned(p.rope_table);
}

cudaError_t launch_latent(const AttentionParams& p, DType cache, int num_tokens, int64_t most_keys,
                          const Scratch& scratch, cudaStream_t stream) {
  if (num_tokens == p.num_rows && p.num_heads / p.num_kv_heads <= 16)
    return enqueue<1>(p, cache, num_tokens, most_keys, scratch, stream);
  if (takes_latent_hopper(p, scratch.sm))
    return enqueue_hopper(p, cache, num_tokens, most_keys, scratch, stream);
  return enqueue<4>(p, cache, num_tokens, most_keys, scratch, stream);
}

}  // namespace nereid::kernels::cuda
