// Attention of rows with many tokens on Hopper (after Shah et al. 2024, "FlashAttention-3").
// Producer warps load keys and values; two consumer groups of four warps have 64 query vectors each
// and multiply from shared memory (wgmma): the weighted sum of one tile's values overlaps with the
// scores of the next. Keys of an fp8 cache that are not in blocks of attention_wide.cuh are
// multiplied in 8 bits, by queries in two f8e4m3 columns.
#include <algorithm>
#include <utility>

#include "kernels/cuda/attention/attention_fetch.cuh"
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/attention/attention_products.cuh"
#include "kernels/cuda/attention/attention_queries.cuh"
#include "kernels/cuda/overlap.cuh"

namespace nereid::kernels::cuda {
namespace {

// Producers: the last four warps; 8-bit types: the last eight (four for keys, four for values).
template <class Cache>
constexpr int kFetchGroups = Cache::kHasScales ? 2 : 1;
template <class Cache>
constexpr int kThreads = (kGroups + kFetchGroups<Cache>)*kGroupThreads;
// Registers per thread of consumers and of producers of keys and values; their total must not
// exceed the block's initial allocation.
template <class Cache>
constexpr int kGroupRegisters = !Cache::kHasScales   ? 232
                                : kNarrowKeys<Cache> ? 208
                                                     : 200;
template <class Cache>
constexpr int kKeyRegisters = !Cache::kHasScales   ? 40
                              : kNarrowKeys<Cache> ? 32
                                                   : 56;
template <class Cache>
constexpr int kValueRegisters = kNarrowKeys<Cache> ? 64 : 56;

#if defined(NEREID_HOPPER)

// Same for an 8-bit cache converted to bf16.
constexpr int kWideRegisters = 216, kWideFetchRegisters = 40;
constexpr int kSlices = kKeys / 16;          // of 16 keys
constexpr int kTurnMeets = kFetchMeets + 2;  // id of the first group's turn barrier

// The state of a group's thread: rows lane / 4 and lane / 4 + 8 of its warp.
template <class Cache, int kDim, bool kPlain>
struct Group {
  using Memory = TileMemory<Cache, kDim>;
  static constexpr bool kFoldsUnit = kNarrowKeys<Cache> && kPlain;
  static constexpr int kNumScores = kKeys / 8;
  static constexpr int kChains = 4;  // independent chains of comparisons
  static constexpr float kSlack = 8;

  const AttentionParams& p;
  const KeyRange& range;
  uint8_t* queries;
  int index;  // of the group
  QueryLimits limits[2];
  int first_position;                         // of the group's first vector
  float unit[2];                              // scale of scores with 8-bit keys
  float largest[2] = {-INFINITY, -INFINITY};  // reference maxima
  float sum[2] = {}, base[2], correction[2];
  float value[kDim / 8][4] = {};
  uint32_t weights[kSlices][4];

  // Enqueues the products of queries and a tile of keys.
  __device__ void score(const uint8_t* keys, float (&scores)[kNumScores][4]) {
    constexpr int kSteps = kNarrowKeys<Cache> ? kDim / 32 : kHalf / 16;
    products_begin();
#pragma unroll
    for (int h = 0; h < Memory::kQueryParts; ++h) {
      const uint64_t a = swizzled_matrix(queries + h * kGroupVectors * kLineBytes);
      const uint64_t b = swizzled_matrix(keys + (kNarrowKeys<Cache> ? 0 : h * Memory::kHalfTile));
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        if (h + k == 0)
          multiply<false>(scores, a, b);
        else
          multiply<true>(scores, a + 2 * k, b + 2 * k);
      }
    }
    products_end();
  }
  template <bool kAdd>
  __device__ static void multiply(float (&scores)[kNumScores][4], uint64_t a, uint64_t b) {
    if constexpr (kNarrowKeys<Cache>)
      multiply_64_f8<kAdd>(scores, a, b);
    else
      multiply_64<kAdd>(scores, a, b);
  }

  // Enqueues the weighted sum of a tile of values.
  __device__ void add_values(const uint8_t* values) {
    const uint64_t b = swizzled_columns(values, Memory::kHalfTile);
    products_begin();
#pragma unroll
    for (int s = 0; s < kSlices; ++s)
      multiply_64(value, weights[s], b + s * (16 * kLineBytes / 16));
    products_end();
  }

  // Masks and scales the scores of the tile at key `first`. The reference maximum is updated only
  // if a score exceeds it by more than kSlack: weights are <= 2^kSlack, as exact as below 1.
  // `correction`: rescaling of the earlier sums.
  __device__ void judge_scores(int first, const float* key_scales, float (&scores)[kNumScores][4]) {
    if constexpr (kNarrowKeys<Cache>) multiply_scales(key_scales, scores);
    if constexpr (kNarrowKeys<Cache> && !kFoldsUnit) multiply_units(scores);
    if constexpr (!kPlain)
      judge<kSlices>(
          p, false, limits, range.count - first, [&](int i) { return range.position(first + i); },
          scores);
    else if (first + kKeys > first_position + 1)
      hide_later(first, scores);
    float tops[kChains][2];
#pragma unroll
    for (int i = 0; i < kChains; ++i) tops[i][0] = tops[i][1] = -INFINITY;
#pragma unroll
    for (int s = 0; s < kNumScores; ++s)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        float& top = tops[(2 * s + r % 2) % kChains][r / 2];
        top = fmaxf(top, scores[s][r]);
      }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = fmaxf(fmaxf(tops[0][h], tops[1][h]), fmaxf(tops[2][h], tops[3][h]));
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2));
      if constexpr (kFoldsUnit) top *= unit[h];
      if (!(top > largest[h] + kSlack)) top = largest[h];
      base[h] = top == -INFINITY ? 0.0f : top;  // all keys are masked: weights are 0
      correction[h] = power_of_2(largest[h] - base[h]);
      largest[h] = top;
    }
  }
  __device__ void multiply_scales(const float* by_key, float (&scores)[kNumScores][4]) {
    const int first = 2 * (static_cast<int>(threadIdx.x) % 4);
#pragma unroll
    for (int s = 0; s < kNumScores; ++s)
#pragma unroll
      for (int r = 0; r < 4; ++r) scores[s][r] *= by_key[8 * s + first + r % 2];
  }
  __device__ void multiply_units(float (&scores)[kNumScores][4]) {
#pragma unroll
    for (int s = 0; s < kNumScores; ++s)
#pragma unroll
      for (int r = 0; r < 4; ++r) scores[s][r] *= unit[r / 2];
  }
  // Without a window key i is at position i; keys end at the last token's position.
  __device__ void hide_later(int first, float (&scores)[kNumScores][4]) {
    const int column = first + 2 * (static_cast<int>(threadIdx.x) % 4);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int last = limits[h].position - column;
#pragma unroll
      for (int s = 0; s < kNumScores; ++s)
#pragma unroll
        for (int r = 0; r < 2; ++r)
          if (8 * s + r > last) scores[s][2 * h + r] = -INFINITY;
    }
  }
  // Converts scores to weights, in the operand layout of the product with values.
  __device__ void weigh(float (&scores)[kNumScores][4]) {
    float sums[2][2] = {};
#pragma unroll
    for (int s = 0; s < kNumScores; ++s) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        scores[s][r] = power_of_2(kFoldsUnit ? fmaf(scores[s][r], unit[r / 2], -base[r / 2])
                                             : scores[s][r] - base[r / 2]);
        sums[r / 2][r % 2] += scores[s][r];
      }
#pragma unroll
      for (int h = 0; h < 2; ++h)
        weights[s / 2][s % 2 * 2 + h] = pack(scores[s][2 * h], scores[s][2 * h + 1]);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) sum[h] = sum[h] * correction[h] + (sums[h][0] + sums[h][1]);
  }
  __device__ void correct() {
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i)
#pragma unroll
      for (int r = 0; r < 4; ++r) value[i][r] *= correction[r / 2];
  }

  __device__ void release(const TileRing& ring) {
    if constexpr (kNarrowKeys<Cache>) __syncwarp();  // all lanes have read the scales
    if (threadIdx.x % kWarp == 0) barrier_arrive(ring.empty + ring.stage);
  }

  // Waits for the scores of the tile at key `first` and processes them. kPending: number of
  // products enqueued after them.
  template <int kPending>
  __device__ void finish_scores(int first, TileRing& keys, float (&scores)[kNumScores][4]) {
    wait_for_products<kPending>();
    hold(scores);
    if constexpr (!kNarrowKeys<Cache>) release(keys);
    judge_scores(first, keys.scales[keys.stage], scores);
    if constexpr (kNarrowKeys<Cache>) release(keys);
    keys.step();
  }
  __device__ void finish_values(TileRing& values) {
    // Never true: the store keeps the compiler from moving the wait before the scores' processing.
    if (base[0] == INFINITY) *queries = 0;
    wait_for_products<0>();
    hold(value);
    release(values);
    values.step();
  }

  // Ping-pong scheduling: one group's products run while the other computes its softmax.
  __device__ void take_turn() { meet(kTurnMeets + index, kGroups * kGroupThreads); }
  __device__ void pass_turn() { arrive(kTurnMeets + 1 - index, kGroups * kGroupThreads); }

  // All tiles; the sum of one tile's values overlaps with the scores of the next.
  __device__ void run(TileRing keys, TileRing values) {
    float scores[kNumScores][4];
    barrier_wait(keys.full + keys.stage, keys.parity);
    take_turn();
    score(keys.tile(), scores);
    pass_turn();
    finish_scores<0>(0, keys, scores);
    weigh(scores);
    for (int first = kKeys; first < range.count; first += kKeys) {
      barrier_wait(keys.full + keys.stage, keys.parity);
      barrier_wait(values.full + values.stage, values.parity);
      take_turn();
      score(keys.tile(), scores);
      add_values(values.tile());
      pass_turn();
      finish_scores<1>(first, keys, scores);
      finish_values(values);
      if (__any_sync(kAllLanes, correction[0] != 1.0f || correction[1] != 1.0f)) correct();
      weigh(scores);
    }
    barrier_wait(values.full + values.stage, values.parity);
    add_values(values.tile());
    finish_values(values);
  }
};

#endif  // NEREID_HOPPER

#if defined(NEREID_HOPPER)

// Shared memory beside the tiles.
struct BlockState {
  uint64_t barriers[4][kStages], landed;
  __align__(16) float scales[kStages][kKeys];
  float units[kGroups * kGroupVectors];
};

// The rings of keys and values.
template <class Cache, int kDim>
struct Rings {
  using Memory = TileMemory<Cache, kDim>;
  TileRing keys, values;

  __device__ Rings(uint8_t* memory, BlockState& state)
      : keys{memory + kGroups * Memory::kQueries,
             Memory::kKeyTile,
             state.barriers[0],
             state.barriers[2],
             state.scales,
             &state.landed},
        values{keys.tiles + kStages * Memory::kKeyTile,
               Memory::kValueTile,
               state.barriers[1],
               state.barriers[3],
               nullptr,
               &state.landed} {}
};

// One consumer group: 64 vectors.
template <class Cache, int kDim, bool kPlain>
__device__ void attend(const AttentionParams& p, const QueryTile& tile, const KeyRange& range,
                       uint8_t* memory, BlockState& state) {
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  const int first_vector = group * kGroupVectors;
  uint8_t* const queries = memory + group * TileMemory<Cache, kDim>::kQueries;
  float* const units = state.units;
  if constexpr (kNarrowKeys<Cache>)
    load_swizzled_f8<kDim>(p, tile, first_vector, queries, units + first_vector);
  else
    load_swizzled<kDim>(p, tile, first_vector, queries);
  writes_are_ready();
  meet(group + 1, kGroupThreads);
  const int first_row = first_vector + static_cast<int>(threadIdx.x) / kWarp % 4 * 16 +
                        static_cast<int>(threadIdx.x) % kWarp / 4;
  Group<Cache, kDim, kPlain> work = {p, range, queries, group};
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int m = first_row + 8 * h;
    const bool exists = m < tile.vectors();
    work.limits[h] = {exists ? p.positions[tile.token(m)] : -1,
                      exists ? slope_of(p, tile.head(m)) : 0};
    if constexpr (kNarrowKeys<Cache>) work.unit[h] = units[m];
  }
  work.first_position = first_vector < tile.vectors() ? p.positions[tile.token(first_vector)] : -1;
  if (group == 1) work.pass_turn();  // the first group starts
  const Rings<Cache, kDim> rings(memory, state);
  work.run(rings.keys, rings.values);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int m = first_row + 8 * h;
    const float total = row_sum(work.sum[h]);
    if (m < tile.vectors())
      write_pieces(result_of(p, tile, m), share_of(p, tile.head(m), work.largest[h], total), h,
                   work.value);
  }
}

// A block on keys in the cache.
template <class Cache, int kDim, bool kPlain>
__device__ void work_on_cache(const AttentionParams& p, const BlockMaps& maps,
                              const QueryTile& tile, const KeyRange& range, uint8_t* memory,
                              BlockState& state) {
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  if (group < kGroups) {
    take_registers<kGroupRegisters<Cache>>();
    return attend<Cache, kDim, kPlain>(p, tile, range, memory, state);
  }
  const Rings<Cache, kDim> rings(memory, state);
  uint8_t* const raw = memory + TileMemory<Cache, kDim>::kTiles;
  if (group == kGroups) {
    give_registers<kKeyRegisters<Cache>>();
    fetch_all<Cache, kDim, 0>(p, maps, tile, range, raw, rings.keys, rings.values);
  } else if constexpr (Cache::kHasScales) {
    give_registers<kValueRegisters<Cache>>();
    fetch_all<Cache, kDim, 1>(p, maps, tile, range, raw, rings.keys, rings.values);
  }
}

// A block on bf16 keys in the row's blocks of `wide`.
template <int kDim, bool kPlain>
__device__ void work_on_wide(const AttentionParams& p, const BlockMaps& maps, const QueryTile& tile,
                             const KeyRange& range, int first_block, uint8_t* memory,
                             BlockState& state) {
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  if (group < kGroups) {
    take_registers<kWideRegisters>();
    return attend<Bf16Cache, kDim, kPlain>(p, tile, range, memory, state);
  }
  give_registers<kWideFetchRegisters>();
  const Rings<Bf16Cache, kDim> rings(memory, state);
  if (group == kGroups)
    fetch_wide<kDim>(p, maps, tile, range, first_block, rings.keys, rings.values);
}

#endif  // NEREID_HOPPER

template <class Cache, int kDim, bool kPlain>
__global__ void __launch_bounds__(kThreads<Cache>, 1)
    hopper_kernel(AttentionParams p, const __grid_constant__ BlockMaps maps) {
#if defined(NEREID_HOPPER)
  extern __shared__ __align__(1024) uint8_t memory[];
  __shared__ BlockState state;
  if (!p.has_neighbour) let_next_begin();
  QueryTile tile;  // found before the wait: depends only on the step's inputs
  if (!find_many(p, tile)) return wait_for_previous();
  int wide_block = -1;
  if constexpr (Cache::kHasScales) wide_block = find_wide_blocks(p, tile.row);
  if (threadIdx.x == 0) {
    for (int i = 0; i < 4 * kStages; ++i)
      barrier_init(state.barriers[0] + i, i < 2 * kStages ? 1 : kGroups * kGroupThreads / kWarp);
    barrier_init(&state.landed, 1);
    barriers_are_ready();
  }
  const int last_position = p.positions[tile.first_token + tile.tokens - 1];
  KeyRange range = keys_of(p, p.positions[tile.first_token], last_position);
  // Starts at a block boundary, so that tiles are whole blocks. A tile of one token starts at its
  // window: its sums must not depend on block boundaries.
  if (range.sink == 0 && p.tile_tokens > 1) {
    const int before = range.begin % p.block_tokens;
    range.begin -= before, range.count += before;
  }
  __syncthreads();
  wait_for_previous();
  if (p.has_neighbour) let_next_begin();
  if constexpr (Cache::kHasScales)
    if (wide_block >= 0)
      return work_on_wide<kDim, kPlain>(p, maps, tile, range, wide_block, memory, state);
  work_on_cache<Cache, kDim, kPlain>(p, maps, tile, range, memory, state);
#endif
}

cudaError_t describe_wide(const AttentionParams& p, BlockMaps& maps) {
  const int64_t stride = int64_t{p.num_kv_heads} * kWideLines * p.head_dim;
  const auto describe = [&](const __nv_bfloat16* blocks, CUtensorMap& map) {
    return describe_blocks<2>(blocks, p.head_dim, kWideLines, p.num_kv_heads, stride, kWideLines,
                              map);
  };
  const cudaError_t error = describe(p.wide, maps.wide_keys);
  if (error != cudaSuccess) return error;
  return describe(p.wide + p.wide_blocks * stride, maps.wide_values);
}

// Whether tiles of keys are whole blocks that TMA can load.
template <class Cache>
bool has_boxes(const AttentionParams& p) {
  if (p.block_tokens % 8 != 0 || kKeys % p.block_tokens != 0 || encode_tiled() == nullptr)
    return false;
  if (!Cache::kHasScales) return true;
  return kNarrowKeys<Cache> && p.scale_stride % 4 == 0 && is_aligned(p.k_scales);
}

template <class Cache, int kDim>
constexpr int shared_bytes = std::max(TileMemory<Cache, kDim>::kBytes,
                                      TileMemory<Bf16Cache, kDim>::kBytes);

template <class Cache, int kDim>
cudaError_t enqueue(const AttentionParams& p, dim3 grid, cudaStream_t stream) {
  BlockMaps maps = {};
  if (has_boxes<Cache>(p)) {
    for (auto [cache, map] : {std::pair(p.k_cache, &maps.keys), std::pair(p.v_cache, &maps.values)})
      if (const cudaError_t error =
              describe_blocks<kKeyBytes<Cache>>(cache, p.head_dim, p.block_tokens, p.num_kv_heads,
                                                p.block_stride, p.block_tokens, *map);
          error != cudaSuccess)
        return error;
    maps.tile_blocks = kKeys / p.block_tokens;
  }
  if (p.wide)
    if (const cudaError_t error = describe_wide(p, maps); error != cudaSuccess) return error;
  const auto kernel = p.window == 0 && p.cap == 0 && p.alibi == 0
                          ? hopper_kernel<Cache, kDim, true>
                          : hopper_kernel<Cache, kDim, false>;
  return launch_overlapped(kernel, kMaxGemvRows + 1, grid, kThreads<Cache>,
                           shared_bytes<Cache, kDim>, stream, p, maps);
}

}  // namespace

cudaError_t launch_many_hopper(const AttentionParams& p, DType cache, dim3 grid,
                               cudaStream_t stream) {
  return with_cache(cache, [&]<class Cache>() {
    return p.head_dim > 64 ? enqueue<Cache, 128>(p, grid, stream)
                           : enqueue<Cache, 64>(p, grid, stream);
  });
}

}  // namespace nereid::kernels::cuda
