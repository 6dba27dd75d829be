// Attention of rows with many tokens on Hopper (after Shah et al. 2024, "FlashAttention-3"). Four
// warps of a block fetch keys and values; two groups of four warps have 64 query vectors each and
// multiply with operands in shared memory (wgmma): while the weighted values of one tile of keys
// are added up, the scores of the next become weights.
#include <utility>

#include "kernels/cuda/attention_launch.h"
#include "kernels/cuda/attention_products.cuh"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/tensor_map.h"

namespace nereid::kernels::cuda {
namespace {

constexpr int kGroups = 2;
constexpr int kGroupVectors = 64;
constexpr int kGroupThreads = 4 * kWarp;
constexpr int kThreads = (kGroups + 1) * kGroupThreads;  // the last four warps fetch
constexpr int kGroupRegisters = 224, kFetchRegisters = 56;
constexpr int kKeys = 128;           // of a tile
constexpr int kSlices = kKeys / 16;  // of 16 keys
constexpr int kHalf = 64;            // columns of a swizzled matrix: rows of 128 bytes
constexpr int kLineBytes = 2 * kHalf;
constexpr int kStages = 2;
constexpr int kFetchMeets = kGroups + 1;     // number of the fetching warps' barrier
constexpr int kTurnMeets = kFetchMeets + 1;  // of the first group's turns
static_assert(kGroups * kGroupVectors == kHopperVectors);

template <int kDim>
struct TileMemory {
  static constexpr int kQueries = kDim / kHalf * kGroupVectors * kLineBytes;  // of a group
  static constexpr int kKeyHalf = kKeys * kLineBytes;
  static constexpr int kMatrix = kDim / kHalf * kKeyHalf;  // keys or values of a tile
  static constexpr int kRaw = kKeys * kDim;                // the same in 8 bits
  static constexpr int kTiles = kGroups * kQueries + 2 * kStages * kMatrix;
  template <class Cache>
  static constexpr int kBytes = kTiles + (Cache::kHasScales ? 2 * kRaw : 0);
};

// What the copy engine needs to fetch whole blocks; tile_blocks = 0: it cannot.
struct BlockMaps {
  CUtensorMap keys, values;
  int tile_blocks;  // that make a tile of keys
};

#if defined(NEREID_HOPPER)

// Keys or values of kStages tiles, with the barriers that say which are there and which are free.
struct Ring {
  uint8_t* tiles;
  uint64_t* full;
  uint64_t* empty;
  float (*scales)[kKeys];  // of 8-bit types, by stage
  int stage = 0;
  uint32_t parity = 0;

  __device__ void step() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// Where element `column` of a line lies in a matrix of `lines` lines: halves of 64 columns, each
// line's pieces of 16 bytes permuted by its number (the 128-byte swizzle).
__device__ int place_in_matrix(int lines, int line, int column) {
  const int piece = column % kHalf / 8;
  return (column / kHalf * lines + line) * kLineBytes + (piece ^ line % 8) * 16 + column % 8 * 2;
}

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

// Fetches the lines [first, first + kKeys) of the range, zeros past its end; the work of
// kGroupThreads threads.
template <int kDim>
__device__ void fetch_lines(const AttentionParams& p, const QueryTile& tile, const KeyRange& range,
                            int first, const void* cache, uint8_t* matrix) {
  constexpr int kPieces = kDim / 8;
#pragma unroll 4
  for (int i = threadIdx.x % kGroupThreads; i < kKeys * kPieces; i += kGroupThreads) {
    const int line = i / kPieces, piece = i % kPieces, key = first + line;
    const bool valid = key < range.count;
    const Place place = place_of(p, tile, range.position(valid ? key : range.count - 1));
    copy_16(shared_address(matrix + place_in_matrix(kKeys, line, 8 * piece)),
            static_cast<const __nv_bfloat16*>(cache) + place.first + 8 * piece, valid);
  }
}

// One tile of keys or values in bf16, fetched by the copy engine or by all four warps.
template <int kDim>
__device__ void fetch_tile(const AttentionParams& p, const BlockMaps& maps, const CUtensorMap& map,
                           const QueryTile& tile, const KeyRange& range, int first,
                           const void* cache, Ring& ring) {
  using Memory = TileMemory<kDim>;
  const int warp = static_cast<int>(threadIdx.x) / kWarp % 4, lane = threadIdx.x % kWarp;
  uint8_t* const matrix = ring.tiles + ring.stage * Memory::kMatrix;
  uint64_t* const full = ring.full + ring.stage;
  const bool whole =
      maps.tile_blocks > 0 && range.sink == 0 && range.begin % p.block_tokens == 0 &&
      first + kKeys <= range.count &&
      (!p.in_trees || cell_of(p, tile.first_token, range.position(first + kKeys - 1)) ==
                          range.position(first + kKeys - 1));
  if (warp == 0) barrier_wait(ring.empty + ring.stage, ring.parity ^ 1);
  if (whole) {
    if (warp == 0) {
      if (lane == 0) barrier_expect(full, Memory::kMatrix);
      __syncwarp();
      if (lane < maps.tile_blocks) {
        const int in_table = range.position(first) / p.block_tokens + lane;
        const int block = p.block_table[static_cast<int64_t>(tile.row) * p.max_blocks + in_table];
#pragma unroll
        for (int h = 0; h < kDim / kHalf; ++h)
          copy_box(matrix + h * Memory::kKeyHalf + lane * p.block_tokens * kLineBytes, &map,
                   h * kHalf, 0, tile.kv_head, block, full);
      }
      __syncwarp();
    }
  } else {
    meet(kFetchMeets, kGroupThreads);  // the stage is free
    fetch_lines<kDim>(p, tile, range, first, cache, matrix);
    end_copies();
    wait_for_copies<0>();
    writes_are_ready();
    meet(kFetchMeets, kGroupThreads);
    if (threadIdx.x % kGroupThreads == 0) barrier_arrive(full);
  }
  ring.step();
}

// Keys or values of a tile in 8 bits on their way to shared memory: each of kGroupThreads threads
// waits for the pieces that it fetched itself, and makes them bf16.
template <class Cache, int kDim>
struct RawTile {
  static constexpr int kPieces = kDim / 16;
  uint8_t* lines;
  const void* cache;
  const float* scales;
  float scale = 0;  // of line threadIdx.x % kGroupThreads

  __device__ void fetch(const AttentionParams& p, const QueryTile& tile, const KeyRange& range,
                        int first) {
    const int mine = first + static_cast<int>(threadIdx.x) % kGroupThreads;
    const Place place = place_of(p, tile, range.position(min(mine, range.count - 1)));
    scale = mine < range.count ? scales[place.scale] : 0.0f;
    const auto* const cells = static_cast<const uint8_t*>(cache);
    for_own_pieces([&](int in_warp, int line, int piece) {
      const int64_t at = __shfl_sync(kAllLanes, static_cast<long long>(place.first), in_warp);
      copy_16(shared_address(lines + line * kDim + 16 * piece), cells + at + 16 * piece,
              first + line < range.count);
    });
  }

  __device__ void widen(Ring& ring) {
    uint8_t* const matrix = ring.tiles + ring.stage * TileMemory<kDim>::kMatrix;
    barrier_wait(ring.empty + ring.stage, ring.parity ^ 1);
    for_own_pieces([&](int, int line, int piece) {
      const auto* const raw =
          reinterpret_cast<const typename Cache::Cell*>(lines + line * kDim + 16 * piece);
      *reinterpret_cast<uint4*>(matrix + place_in_matrix(kKeys, line, 16 * piece)) =
          Cache::widen8(raw);
      *reinterpret_cast<uint4*>(matrix + place_in_matrix(kKeys, line, 16 * piece + 8)) =
          Cache::widen8(raw + 8);
    });
    ring.scales[ring.stage][threadIdx.x % kGroupThreads] = scale;
    writes_are_ready();
    meet(kFetchMeets, kGroupThreads);
    if (threadIdx.x % kGroupThreads == 0) barrier_arrive(ring.full + ring.stage);
    ring.step();
  }

 private:
  // A warp has 32 lines, whose places its lanes know.
  template <class Work>
  __device__ static void for_own_pieces(Work work) {
    const int lane = threadIdx.x % kWarp;
    const int first = static_cast<int>(threadIdx.x) % kGroupThreads - lane;
    constexpr int kLines = kWarp / kPieces;  // at a time
#pragma unroll
    for (int i = 0; i < kWarp; i += kLines) {
      const int in_warp = i + lane / kPieces;
      work(in_warp, first + in_warp, lane % kPieces);
    }
  }
};

// The fetching warps' work on all tiles.
template <class Cache, int kDim>
__device__ void fetch_all(const AttentionParams& p, const BlockMaps& maps, const QueryTile& tile,
                          const KeyRange& range, uint8_t* raw, Ring keys, Ring values) {
  if constexpr (Cache::kHasScales) {
    RawTile<Cache, kDim> raw_keys = {raw, p.k_cache, p.k_scales};
    RawTile<Cache, kDim> raw_values = {raw + TileMemory<kDim>::kRaw, p.v_cache, p.v_scales};
    raw_keys.fetch(p, tile, range, 0);
    end_copies();
    raw_values.fetch(p, tile, range, 0);
    end_copies();
    for (int next = kKeys; next < range.count + kKeys; next += kKeys) {
      wait_for_copies<1>();
      raw_keys.widen(keys);
      if (next < range.count) raw_keys.fetch(p, tile, range, next);
      end_copies();
      wait_for_copies<1>();
      raw_values.widen(values);
      if (next < range.count) raw_values.fetch(p, tile, range, next);
      end_copies();
    }
    wait_for_copies<0>();
  } else {
    for (int first = 0; first < range.count; first += kKeys) {
      fetch_tile<kDim>(p, maps, maps.keys, tile, range, first, p.k_cache, keys);
      fetch_tile<kDim>(p, maps, maps.values, tile, range, first, p.v_cache, values);
    }
  }
}

// Keeps the compiler from moving registers of products that may still run.
template <int kRows>
__device__ void hold(float (&x)[kRows][4]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i)
    asm volatile("" : "+f"(x[i][0]), "+f"(x[i][1]), "+f"(x[i][2]), "+f"(x[i][3])::"memory");
}

// The state of a group's thread: rows lane / 4 and lane / 4 + 8 of its warp.
template <class Cache, int kDim>
struct Group {
  using Memory = TileMemory<kDim>;
  static constexpr int kNumScores = kKeys / 8;
  static constexpr int kChains = 4;  // of dependent additions, side by side

  const AttentionParams& p;
  const KeyRange& range;
  const uint8_t* queries;
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
    if (!is_plain(p) || first + kKeys > min(first_position + 1, range.count))
      judge<kSlices>(
          p, is_plain(p), limits, range.count - first,
          [&](int i) { return range.position(first + i); }, scores);
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

  __device__ void release(const Ring& ring) {
    if constexpr (Cache::kHasScales) __syncwarp();  // all lanes have read the scales
    if (threadIdx.x % kWarp == 0) barrier_arrive(ring.empty + ring.stage);
  }

  // The scores of the tile at key `first`, which are under way, become weights. kPending: products
  // enqueued behind them.
  template <int kPending>
  __device__ void finish_scores(int first, Ring& keys, float (&scores)[kNumScores][4]) {
    wait_for_products<kPending>();
    hold(scores);
    if constexpr (!Cache::kHasScales) release(keys);
    weigh(first, keys.scales[keys.stage], scores);
    if constexpr (Cache::kHasScales) release(keys);
    keys.step();
  }
  __device__ void prepare_weights(const Ring& values, float (&scores)[kNumScores][4]) {
    barrier_wait(values.full + values.stage, values.parity);
    if constexpr (Cache::kHasScales) multiply_scales(values.scales[values.stage], scores);
    pack_weights(scores);
  }
  __device__ void finish_values(Ring& values) {
    wait_for_products<0>();
    hold(value);
    release(values);
    values.step();
  }

  // The groups enqueue products by turns: while one has the tensor cores, the other has scores to
  // weigh.
  __device__ void take_turn() { meet(kTurnMeets + index, kGroups * kGroupThreads); }
  __device__ void pass_turn() { arrive(kTurnMeets + 1 - index, kGroups * kGroupThreads); }

  // All tiles. The scores of a tile are made, and become weights, while the values of the one
  // before are added up.
  __device__ void run(Ring keys, Ring values) {
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
      finish_values(values);
      correct();
      prepare_weights(values, scores);
    }
    add_values(values.tiles + values.stage * Memory::kMatrix);
    finish_values(values);
  }
};

#endif  // NEREID_HOPPER

template <class Cache, int kDim>
__global__ void __launch_bounds__(kThreads, 1)
    hopper_kernel(AttentionParams p, const __grid_constant__ BlockMaps maps) {
#if defined(NEREID_HOPPER)
  using Memory = TileMemory<kDim>;
  extern __shared__ __align__(1024) uint8_t memory[];
  __shared__ uint64_t barriers[4][kStages];
  __shared__ float scales[2][kStages][kKeys];
  if (threadIdx.x == 0) {
    for (int i = 0; i < 4 * kStages; ++i)
      barrier_init(barriers[0] + i, i < 2 * kStages ? 1 : kGroups * kGroupThreads / kWarp);
    barriers_are_ready();
  }
  __syncthreads();
  let_next_begin();
  wait_for_previous();
  QueryTile tile;
  if (!find_many(p, tile)) return;
  const int last_position = p.positions[tile.first_token + tile.tokens - 1];
  KeyRange range = keys_of(p, p.positions[tile.first_token], last_position);
  // From the start of a block, so that tiles are whole blocks. A tile of one token begins where its
  // window does: its sums must not depend on the blocks.
  if (range.sink == 0 && p.tile_tokens > 1) {
    const int before = range.begin % p.block_tokens;
    range.begin -= before, range.count += before;
  }
  uint8_t* const tiles = memory + kGroups * Memory::kQueries;
  Ring keys = {tiles, barriers[0], barriers[2], scales[0]};
  Ring values = {tiles + kStages * Memory::kMatrix, barriers[1], barriers[3], scales[1]};

  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  if (group == kGroups) {
    give_registers<kFetchRegisters>();
    fetch_all<Cache, kDim>(p, maps, tile, range, memory + Memory::kTiles, keys, values);
    return;
  }
  take_registers<kGroupRegisters>();
  const int first_vector = group * kGroupVectors;
  uint8_t* const queries = memory + group * Memory::kQueries;
  load_swizzled<kDim>(p, tile, first_vector, queries);
  writes_are_ready();
  meet(group + 1, kGroupThreads);
  const int first_row = first_vector + static_cast<int>(threadIdx.x) / kWarp % 4 * 16 +
                        static_cast<int>(threadIdx.x) % kWarp / 4;
  Group<Cache, kDim> work = {p, range, queries, group};
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
  const auto kernel = hopper_kernel<Cache, kDim>;
  return launch_overlapped(kernel, kMaxGemvRows + 1, grid, kThreads,
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
