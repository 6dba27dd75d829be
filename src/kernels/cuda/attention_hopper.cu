// Attention of rows with many tokens on Hopper (after Shah et al. 2024, "FlashAttention-3"). Some
// warps of a block fetch keys and values; two groups of four warps have 64 query vectors each and
// multiply with operands in shared memory (wgmma): while the weighted values of one tile of keys
// are added up, the scores of the next become weights.
#include <utility>

#include "kernels/cuda/attention_fetch.cuh"
#include "kernels/cuda/attention_launch.h"
#include "kernels/cuda/attention_products.cuh"
#include "kernels/cuda/overlap.cuh"

namespace nereid::kernels::cuda {
namespace {

// The last four warps fetch, of 8-bit types the last eight: four keys, four values.
template <class Cache>
constexpr int kFetchGroups = Cache::kHasScales ? 2 : 1;
template <class Cache>
constexpr int kThreads = (kGroups + kFetchGroups<Cache>)*kGroupThreads;
template <class Cache>
constexpr int kGroupRegisters = Cache::kHasScales ? 200 : 232;
template <class Cache>
constexpr int kFetchRegisters = Cache::kHasScales ? 56 : 40;

#if defined(NEREID_HOPPER)

constexpr int kSlices = kKeys / 16;          // of 16 keys
constexpr int kTurnMeets = kFetchMeets + 2;  // of the first group's turns

// A group's queries, which the kernel in front left where the results go, to a swizzled matrix.
template <int kDim>
__device__ void load_swizzled(const AttentionParams& p, const QueryTile& tile, int first_vector,
                              uint8_t* queries) {
  constexpr int kPieces = kDim / 8;
#pragma unroll 4
  for (int i = threadIdx.x % kGroupThreads; i < kGroupVectors * kPieces; i += kGroupThreads) {
    const int line = i / kPieces, m = first_vector + line, piece = i % kPieces;
    const bool valid = m < tile.vectors();
    const __nv_bfloat16* const from = result_of(p, tile, valid ? m : 0) + 8 * piece;
    copy_16(shared_address(queries + place_in_matrix(kGroupVectors, line, 8 * piece)), from, valid);
  }
  end_copies();
  wait_for_copies<0>();
}

// Keeps the compiler from moving registers of products that may still run.
template <int kRows>
__device__ void hold(float (&x)[kRows][4]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i)
    asm volatile("" : "+f"(x[i][0]), "+f"(x[i][1]), "+f"(x[i][2]), "+f"(x[i][3])::"memory");
}

// The state of a group's thread: rows lane / 4 and lane / 4 + 8 of its warp.
template <class Cache, int kDim, bool kPlain>
struct Group {
  using Memory = TileMemory<kDim>;
  static constexpr int kNumScores = kKeys / 8;
  static constexpr int kChains = 4;  // of dependent additions, side by side

  const AttentionParams& p;
  const KeyRange& range;
  uint8_t* queries;
  int index;  // of the group
  QueryLimits limits[2];
  int first_position;  // of the group's first vector
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {}, correction[2];
  float value[kDim / 8][4] = {};
  uint32_t weights[kSlices][4];

  // Enqueues the products of queries and a tile of keys.
  __device__ void score(const uint8_t* keys, float (&scores)[kNumScores][4]) {
    products_begin();
#pragma unroll
    for (int h = 0; h < kDim / kHalf; ++h) {
      const uint64_t a = swizzled_matrix(queries + h * kGroupVectors * kLineBytes);
      const uint64_t b = swizzled_matrix(keys + h * Memory::kKeyHalf);
#pragma unroll
      for (int k = 0; k < kHalf / 16; ++k) {
        if (h + k == 0)
          multiply_64<false>(scores, a, b);
        else
          multiply_64<true>(scores, a + 2 * k, b + 2 * k);
      }
    }
    products_end();
  }

  // Enqueues the weighted sum of a tile of values.
  __device__ void add_values(const uint8_t* values) {
    const uint64_t b = swizzled_columns(values, Memory::kKeyHalf);
    products_begin();
#pragma unroll
    for (int s = 0; s < kSlices; ++s)
      multiply_64(value, weights[s], b + s * (16 * kLineBytes / 16));
    products_end();
  }

  // Scores of the tile that starts at key `first` become weights relative to the new largest score;
  // `correction` brings what was added before to it.
  __device__ void weigh(int first, const float* key_scales, float (&scores)[kNumScores][4]) {
    if constexpr (Cache::kHasScales) multiply_scales(key_scales, scores);
    if constexpr (!kPlain)
      judge<kSlices>(
          p, false, limits, range.count - first, [&](int i) { return range.position(first + i); },
          scores);
    else if (first + kKeys > first_position + 1)
      hide_later(first, scores);
    float tops[kChains][2], base[2], sums[kChains][2] = {};
#pragma unroll
    for (int i = 0; i < kChains; ++i) tops[i][0] = largest[0], tops[i][1] = largest[1];
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
      base[h] = top == -INFINITY ? 0.0f : top;  // nothing is visible: all weights are 0
      correction[h] = power_of_2(largest[h] - base[h]);
      largest[h] = top;
    }
#pragma unroll
    for (int s = 0; s < kNumScores; ++s)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        scores[s][r] = power_of_2(scores[s][r] - base[r / 2]);
        sums[(2 * s + r % 2) % kChains][r / 2] += scores[s][r];
      }
#pragma unroll
    for (int h = 0; h < 2; ++h)
      sum[h] = sum[h] * correction[h] + ((sums[0][h] + sums[1][h]) + (sums[2][h] + sums[3][h]));
  }
  __device__ void multiply_scales(const float* by_key, float (&scores)[kNumScores][4]) {
    const int first = 2 * (static_cast<int>(threadIdx.x) % 4);
#pragma unroll
    for (int s = 0; s < kNumScores; ++s)
#pragma unroll
      for (int r = 0; r < 4; ++r) scores[s][r] *= by_key[8 * s + first + r % 2];
  }
  // Without a window key i is at position i, and those that exist end at the last token's.
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
  // Weights as the product with values reads them.
  __device__ void pack_weights(const float (&scores)[kNumScores][4]) {
#pragma unroll
    for (int s = 0; s < kSlices; ++s)
#pragma unroll
      for (int r = 0; r < 4; ++r)
        weights[s][r] =
            pack(scores[2 * s + r / 2][2 * (r % 2)], scores[2 * s + r / 2][2 * (r % 2) + 1]);
  }
  __device__ void correct() {
    if (!__any_sync(kAllLanes, correction[0] != 1.0f || correction[1] != 1.0f)) return;
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i)
#pragma unroll
      for (int r = 0; r < 4; ++r) value[i][r] *= correction[r / 2];
  }

  __device__ void release(const TileRing& ring) {
    if constexpr (Cache::kHasScales) __syncwarp();  // all lanes have read the scales
    if (threadIdx.x % kWarp == 0) barrier_arrive(ring.empty + ring.stage);
  }

  // The scores of the tile at key `first`, which are under way, become weights. kPending: products
  // enqueued behind them.
  template <int kPending>
  __device__ void finish_scores(int first, TileRing& keys, float (&scores)[kNumScores][4]) {
    wait_for_products<kPending>();
    hold(scores);
    if constexpr (!Cache::kHasScales) release(keys);
    weigh(first, keys.scales[keys.stage], scores);
    if constexpr (Cache::kHasScales) release(keys);
    keys.step();
  }
  __device__ void prepare_weights(const TileRing& values, float (&scores)[kNumScores][4]) {
    barrier_wait(values.full + values.stage, values.parity);
    if constexpr (Cache::kHasScales) multiply_scales(values.scales[values.stage], scores);
    pack_weights(scores);
  }
  __device__ void finish_values(TileRing& values, float (&scores)[kNumScores][4]) {
    // Never true: sums of weights. It keeps the compiler from waiting before the weights are made,
    // since a store stays in front of the wait.
    if (sum[0] + sum[1] < 0.0f) *queries = 0;
    wait_for_products<0>();
    hold(value);
    hold(scores);
    release(values);
    values.step();
  }

  // The groups enqueue products by turns: while one has the tensor cores, the other has scores to
  // weigh.
  __device__ void take_turn() { meet(kTurnMeets + index, kGroups * kGroupThreads); }
  __device__ void pass_turn() { arrive(kTurnMeets + 1 - index, kGroups * kGroupThreads); }

  // All tiles. The scores of a tile are made, and become weights, while the values of the one
  // before are added up.
  __device__ void run(TileRing keys, TileRing values) {
    float scores[kNumScores][4];
    barrier_wait(keys.full + keys.stage, keys.parity);
    take_turn();
    score(keys.tiles + keys.stage * Memory::kMatrix, scores);
    pass_turn();
    finish_scores<0>(0, keys, scores);
    prepare_weights(values, scores);
    for (int first = kKeys; first < range.count; first += kKeys) {
      barrier_wait(keys.full + keys.stage, keys.parity);
      take_turn();
      score(keys.tiles + keys.stage * Memory::kMatrix, scores);
      add_values(values.tiles + values.stage * Memory::kMatrix);
      pass_turn();
      finish_scores<1>(first, keys, scores);
      finish_values(values, scores);
      correct();
      prepare_weights(values, scores);
    }
    add_values(values.tiles + values.stage * Memory::kMatrix);
    finish_values(values, scores);
  }
};

#endif  // NEREID_HOPPER

template <class Cache, int kDim, bool kPlain>
__global__ void __launch_bounds__(kThreads<Cache>, 1)
    hopper_kernel(AttentionParams p, const __grid_constant__ BlockMaps maps) {
#if defined(NEREID_HOPPER)
  using Memory = TileMemory<kDim>;
  extern __shared__ __align__(1024) uint8_t memory[];
  __shared__ uint64_t barriers[4][kStages], landed;
  __shared__ float scales[2][kStages][kKeys];
  if (!p.has_neighbour) let_next_begin();
  QueryTile tile;  // found before the wait, since it depends on the step's data alone
  if (!find_many(p, tile)) return wait_for_previous();
  if (threadIdx.x == 0) {
    for (int i = 0; i < 4 * kStages; ++i)
      barrier_init(barriers[0] + i, i < 2 * kStages ? 1 : kGroups * kGroupThreads / kWarp);
    barrier_init(&landed, 1);
    barriers_are_ready();
  }
  const int last_position = p.positions[tile.first_token + tile.tokens - 1];
  KeyRange range = keys_of(p, p.positions[tile.first_token], last_position);
  // From the start of a block, so that tiles are whole blocks. A tile of one token begins where its
  // window does: its sums must not depend on the blocks.
  if (range.sink == 0 && p.tile_tokens > 1) {
    const int before = range.begin % p.block_tokens;
    range.begin -= before, range.count += before;
  }
  uint8_t* const tiles = memory + kGroups * Memory::kQueries;
  TileRing keys = {tiles, barriers[0], barriers[2], scales[0], &landed};
  TileRing values = {tiles + kStages * Memory::kMatrix, barriers[1], barriers[3], scales[1],
                     &landed};
  __syncthreads();
  wait_for_previous();
  if (p.has_neighbour) let_next_begin();

  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  if (group >= kGroups) {
    give_registers<kFetchRegisters<Cache>>();
    fetch_all<Cache, kDim>(p, maps, tile, range, group - kGroups, memory + Memory::kTiles, keys,
                           values);
    return;
  }
  take_registers<kGroupRegisters<Cache>>();
  const int first_vector = group * kGroupVectors;
  uint8_t* const queries = memory + group * Memory::kQueries;
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
  }
  work.first_position = first_vector < tile.vectors() ? p.positions[tile.token(first_vector)] : -1;
  if (group == 1) work.pass_turn();  // the first one begins
  work.run(keys, values);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int m = first_row + 8 * h;
    const float total = row_sum(work.sum[h]);
    if (m < tile.vectors()) write_vector<kDim>(p, tile, m, h, work.largest[h], total, work.value);
  }
#endif
}

// The blocks of a bf16 cache as an array [block, head, position, column].
cudaError_t describe_blocks(const AttentionParams& p, const void* cache, CUtensorMap& map) {
  constexpr cuuint64_t kAnyBlock = 0x7fffffff;
  const auto dim = static_cast<cuuint64_t>(p.head_dim),
             lines = static_cast<cuuint64_t>(p.block_tokens);
  return describe<4>(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, cache,
                     {dim, lines, static_cast<cuuint64_t>(p.num_kv_heads), kAnyBlock},
                     {2 * dim, 2 * dim * lines, 2 * static_cast<cuuint64_t>(p.block_stride)},
                     {kHalf, static_cast<cuuint32_t>(lines), 1, 1}, map);
}

template <class Cache, int kDim>
cudaError_t enqueue(const AttentionParams& p, dim3 grid, cudaStream_t stream) {
  BlockMaps maps = {};
  if (!Cache::kHasScales && p.block_tokens % 8 == 0 && kKeys % p.block_tokens == 0 &&
      encode_tiled() != nullptr) {
    for (auto [cache, map] : {std::pair(p.k_cache, &maps.keys), std::pair(p.v_cache, &maps.values)})
      if (const cudaError_t error = describe_blocks(p, cache, *map); error != cudaSuccess)
        return error;
    maps.tile_blocks = kKeys / p.block_tokens;
  }
  const auto kernel = p.window == 0 && p.cap == 0 && p.alibi == 0
                          ? hopper_kernel<Cache, kDim, true>
                          : hopper_kernel<Cache, kDim, false>;
  return launch_overlapped(kernel, kMaxGemvRows + 1, grid, kThreads<Cache>,
                           TileMemory<kDim>::template kBytes<Cache>, stream, p, maps);
}

}  // namespace

cudaError_t launch_many_hopper(const AttentionParams& p, DType cache, dim3 grid,
                               cudaStream_t stream) {
  const bool wide = p.head_dim > 64;
  if (cache == DType::kI8)
    return wide ? enqueue<Int8Cache, 128>(p, grid, stream)
                : enqueue<Int8Cache, 64>(p, grid, stream);
  if (cache == DType::kF8E4M3)
    return wide ? enqueue<Fp8Cache, 128>(p, grid, stream) : enqueue<Fp8Cache, 64>(p, grid, stream);
  return wide ? enqueue<Bf16Cache, 128>(p, grid, stream) : enqueue<Bf16Cache, 64>(p, grid, stream);
}

}  // namespace nereid::kernels::cuda
