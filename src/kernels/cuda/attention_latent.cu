// Attention of latent heads on tensor cores: all heads share one key for each position, whose last
// columns are the value. A block takes up to 64 query vectors, heads of some tokens of a row, and
// walks their keys in steps of 32: each key is fetched once, for scores and for values. Where few
// blocks would work, blocks divide the keys, and the last one merges what they leave. Queries and
// weights are rounded to bf16, the keys of 8-bit caches are widened as they are stored here.
#include "kernels/cuda/attention_launch.h"
#include "kernels/cuda/attention_products.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/overlap.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kKeys = 32;                       // of a step
constexpr int kMostDim = 576;                   // columns of a key
constexpr int kMostLatent = 512;                // and of a value
constexpr int kColumns = kMostLatent / kWarps;  // of a value, for one warp
constexpr int kStages = 2;
constexpr int kLeastSteps = 2;  // of a block, where blocks divide the keys
constexpr int kLine = Lines<kMostDim>::kPitch, kWeightLine = Lines<kKeys>::kPitch;

// kTiles: of 16 query vectors.
template <int kTiles>
struct Memory {
  static constexpr int kVectors = 16 * kTiles;
  uint8_t queries[kVectors * kLine];
  uint8_t keys[kStages][kKeys * kLine];
  uint8_t weights[kVectors * kWeightLine];
  float scales[kStages][kKeys];
  float largest[2][kVectors];  // of the first and the second half of a step's keys
  float sums[2][kVectors];
  float corrections[kVectors];
  int arrived;  // of ends_last()
};

// Rotated queries, so scaled that powers of 2 give the softmax; zeros past the tile's vectors.
template <int kTiles>
__device__ void load_queries(const AttentionParams& p, const QueryTile& tile,
                             Memory<kTiles>& memory) {
  const int half = p.head_dim / 2, vectors = tile.vectors();
  const float factor = p.scale * kLog2E;
  for (int i = static_cast<int>(threadIdx.x); i < Memory<kTiles>::kVectors * half; i += kThreads) {
    const int m = i / half, c = i % half;
    auto* const line = reinterpret_cast<__nv_bfloat16*>(memory.queries + m * kLine);
    float2 pair = {0, 0};
    if (m < vectors) {
      const int64_t token = tile.token(m);
      const float* const head =
          p.qkv + token * p.qkv_stride + static_cast<int64_t>(tile.head(m)) * p.head_dim;
      pair = load_pair(p, head, c, p.positions[token]);
    }
    const int2 at = columns(p, c);
    store(line + at.x, pair.x * factor);
    store(line + at.y, pair.y * factor);
  }
}

// Asks for the keys [first, first + kKeys) of the range, and their scales; zeros past its end.
template <class Cache, int kTiles>
__device__ void fetch(const AttentionParams& p, const QueryTile& tile, const KeyRange& range,
                      int first, int stage, Memory<kTiles>& memory) {
  constexpr int kParts = kThreads / kKeys;  // threads for a line
  const int line = static_cast<int>(threadIdx.x) / kParts, part = threadIdx.x % kParts;
  const bool valid = first + line < range.count;
  const Place place = place_of(p, tile, range.position(valid ? first + line : range.count - 1));
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

// A thread's part of the scores of 16 query vectors and of 16 keys, a warp's work: keys 8 i + 2
// (lane % 4) + r % 2 of vectors lane / 4 + 8 (r / 2).
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

// Of two query vectors, lane / 4 and lane / 4 + 8 of a warp's tile.
struct RowState {
  int position[2];                                             // -1: there is no such vector
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};  // this thread's share
};

__device__ bool is_seen(const AttentionParams& p, int key, int query) {
  return key <= query && (p.window == 0 || key > query - p.window || key < p.sink);
}

// The weights of a step, and what corrects the sums before it.
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

// Values times weights, for the warp's columns.
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

// Calls f(query vector, column, value, the next column's) with each pair of the thread's values.
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

// Leaves the block's part of its query vectors; true in the block of them that ends last.
template <int kTiles>
__device__ bool leave_part(const AttentionParams& p, const QueryTile& tile, int parts,
                           const float (&values)[kTiles][kColumns / 8][4], int64_t at,
                           Memory<kTiles>& memory) {
  const int64_t group = static_cast<int64_t>(blockIdx.x) * gridDim.y + blockIdx.y;
  for_pairs(values, [&](int m, int c, float x, float y) {
    if (m < tile.vectors() && c < p.latent)
      *reinterpret_cast<float2*>(p.part_values + (at + m) * p.latent + c) = {x, y};
  });
  const int m = static_cast<int>(threadIdx.x);
  if (m < tile.vectors())
    p.part_sums[at + m] = {memory.largest[0][m], memory.sums[0][m] + memory.sums[1][m]};
  return ends_last(p, group, parts, &memory.arrived);
}

// The sums of all parts, in order.
__device__ void merge_parts(const AttentionParams& p, const QueryTile& tile, int parts, int64_t at,
                            int64_t stride) {
  for (int i = static_cast<int>(threadIdx.x); i < tile.vectors() * p.latent; i += kThreads) {
    const int m = i / p.latent, c = i % p.latent;
    float largest = -INFINITY, sum = 0, value = 0;
    for (int j = 0; j < parts; ++j)
      largest = fmaxf(largest, __ldcg(p.part_sums + at + j * stride + m).x);
    for (int j = 0; j < parts; ++j) {
      const int64_t part = at + j * stride + m;
      const float2 sums = __ldcg(p.part_sums + part);
      const float by = weight_of(sums.x, largest);
      sum += by * sums.y;
      value += by * __ldcg(p.part_values + part * p.latent + c);
    }
    store(p.out + tile.token(m) * p.out_stride + static_cast<int64_t>(tile.head(m)) * p.latent + c,
          value / sum);
  }
}

// What the block's query vectors give, where it has all of their keys.
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
  wait_for_previous();
  QueryTile tile;
  if (!find_many(p, tile)) return;
  const KeyRange range =
      keys_of(p, p.positions[tile.first_token], p.positions[tile.first_token + tile.tokens - 1]);
  const int parts = (range.count + p.chunk_keys - 1) / p.chunk_keys;
  const auto part = static_cast<int>(blockIdx.z);
  if (part >= parts) return;
  const int begin = part * p.chunk_keys, end = min(begin + p.chunk_keys, range.count);
  load_queries(p, tile, memory);
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
  fetch<Cache>(p, tile, range, begin, 0, memory);
  end_copies();
  for (int first = begin, stage = 0; first < end; first += kKeys, stage = 1 - stage) {
    if (first + kKeys < end) fetch<Cache>(p, tile, range, first + kKeys, 1 - stage, memory);
    end_copies();
    wait_for_copies<1>();
    __syncthreads();
    weigh<Cache>(p, range, first, stage, rows, memory);
    if (has_values) add_values(p, stage, memory, values);
    __syncthreads();  // the stage and the weights may be written again
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
  if (parts > 1) {
    const int64_t group = static_cast<int64_t>(blockIdx.x) * gridDim.y + blockIdx.y;
    const int64_t at = group * gridDim.z * kVectors;
    if (leave_part(p, tile, parts, values, at + part * kVectors, memory))
      merge_parts(p, tile, parts, at, kVectors);
    return;
  }
  if (has_values) write_result(p, tile, values, memory);
}

template <class Cache, int kTiles>
cudaError_t enqueue(AttentionParams p, int num_tokens, int64_t most_keys, const Scratch& scratch,
                    cudaStream_t stream) {
  constexpr int kVectors = Memory<kTiles>::kVectors;
  const int group = p.num_heads / p.num_kv_heads, heads = std::min(group, kVectors);
  p.tile_vectors = kVectors;
  p.tile_tokens = kVectors / heads;
  const int64_t tiles = num_tokens / p.tile_tokens + p.num_rows;
  const int64_t head_blocks = int64_t{p.num_kv_heads} * ((group + heads - 1) / heads);
  const int64_t part_bytes =
      kVectors * (p.latent * int64_t{sizeof(float)} + int64_t{sizeof(float2)});
  const int64_t room =
      static_cast<int64_t>(scratch.workspace_bytes) / (tiles * head_blocks * part_bytes);
  // Keys are divided until there is a block for each multiprocessor. Where each row has one token,
  // as many tiles as there are rows have work.
  const bool is_single = num_tokens == p.num_rows;
  const int64_t working = (is_single ? p.num_rows : tiles) * head_blocks;
  const int64_t wanted = std::min<int64_t>(scratch.num_units / working, room);
  most_keys += p.tile_tokens;  // over a window a tile sees one more for each token
  const int64_t steps = (most_keys + kKeys - 1) / kKeys;
  const int64_t parts =
      tiles * head_blocks > scratch.num_counters
          ? 1
          : std::clamp<int64_t>(steps / kLeastSteps, 1, std::max<int64_t>(wanted, 1));
  p.chunk_keys = static_cast<int>((steps + parts - 1) / parts * kKeys);
  const auto chunks = static_cast<unsigned>((most_keys + p.chunk_keys - 1) / p.chunk_keys);
  p.part_sums = static_cast<float2*>(scratch.workspace);
  p.part_values = reinterpret_cast<float*>(p.part_sums + tiles * head_blocks * chunks * kVectors);
  p.counters = scratch.counters;
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(head_blocks), chunks);
  return launch_overlapped(latent_kernel<Cache, kTiles>, num_tokens, grid, kThreads,
                           sizeof(Memory<kTiles>), stream, p);
}

template <class Cache>
cudaError_t enqueue(const AttentionParams& p, int num_tokens, int64_t most_keys,
                    const Scratch& scratch, cudaStream_t stream) {
  const bool is_few = num_tokens == p.num_rows && p.num_heads / p.num_kv_heads <= 16;
  return is_few ? enqueue<Cache, 1>(p, num_tokens, most_keys, scratch, stream)
                : enqueue<Cache, 4>(p, num_tokens, most_keys, scratch, stream);
}

}  // namespace

bool takes_latent_attention(const Attention& a, int sm) {
  const bool has_room = sm == 80 || (sm >= 90 && sm < 110);  // for Memory<4>
  const Heads& h = a.heads;
  return has_room && takes_attention(a) && h.latent > 0 && h.latent <= kMostLatent &&
         h.latent % kColumns == 0 && h.dim <= kMostDim && h.dim % 16 == 0 && !is_given(a.sinks) &&
         a.cap == 0 && a.alibi == 0;
}

// What is known when a step runs: trees of drafts, and how lines lie.
bool takes_latent(const AttentionParams& p) {
  return p.wide_lines && !p.after && p.out_stride % 2 == 0;
}

cudaError_t launch_latent(const AttentionParams& p, DType cache, int num_tokens, int64_t most_keys,
                          const Scratch& scratch, cudaStream_t stream) {
  return with_cache(cache, [&]<class Cache>() {
    return enqueue<Cache>(p, num_tokens, most_keys, scratch, stream);
  });
}

}  // namespace nereid::kernels::cuda
