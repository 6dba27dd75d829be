// Loads of attention_hopper.cu: tiles of 128 keys in shared memory in the layout of wgmma. TMA
// loads whole blocks of bf16 and of f8e4m3 keys; other ranges are loaded by four warps. 8-bit
// values and int8 keys are converted to bf16 and multiplied by their scales on the way.
#pragma once

#include <type_traits>

#include "kernels/cuda/attention/attention_wide.cuh"
#include "kernels/cuda/tensor_map.h"

namespace nereid::kernels::cuda {

constexpr int kGroups = 2;
constexpr int kGroupVectors = 64;
constexpr int kGroupThreads = 4 * kWarp;
constexpr int kKeys = 128;  // per tile
constexpr int kStages = 2;
constexpr int kRawStages = 2;             // of 8-bit types
constexpr int kFetchMeets = kGroups + 1;  // id of the first loading group's barrier
static_assert(kGroups * kGroupVectors == kHopperVectors);

// Keys of these caches are multiplied in 8 bits.
template <class Cache>
constexpr bool kNarrowKeys = std::is_same_v<Cache, Fp8Cache>;
// Bytes per key column.
template <class Cache>
constexpr int kKeyBytes = kNarrowKeys<Cache> ? 1 : 2;

template <class Cache, int kDim>
struct TileMemory {
  static constexpr int kQueryParts = kNarrowKeys<Cache> ? 2 : kDim / kHalf;
  static constexpr int kQueries = kQueryParts * kGroupVectors * kLineBytes;  // per group
  static constexpr int kHalfTile = kKeys * kLineBytes;
  static constexpr int kValueTile = kDim / kHalf * kHalfTile;
  static constexpr int kKeyTile = kNarrowKeys<Cache> ? kHalfTile : kValueTile;
  static constexpr int kRaw = kKeys * kDim;  // 8-bit keys or values of a tile
  static constexpr int kTiles = kGroups * kQueries + kStages * (kKeyTile + kValueTile);
  static constexpr int kRawParts = !Cache::kHasScales ? 0 : kNarrowKeys<Cache> ? 1 : 2;
  static constexpr int kBytes = kTiles + kRawParts * kRawStages * kRaw;
};

// TMA descriptors of whole blocks; tile_blocks = 0: TMA cannot be used.
struct BlockMaps {
  CUtensorMap keys, values;
  int tile_blocks;                     // blocks per tile of keys
  CUtensorMap wide_keys, wide_values;  // of AttentionParams::wide, if given
};
static_assert(kWideLines == kKeys);

#if defined(NEREID_HOPPER)

// Keys or values of kStages tiles, with barriers for full and free stages.
struct TileRing {
  uint8_t* tiles;
  int tile_bytes;
  uint64_t* full;
  uint64_t* empty;
  float (*scales)[kKeys];  // of 8-bit keys, by stage
  uint64_t* landed;        // barrier: the last tile's values have arrived
  int stage = 0;
  uint32_t parity = 0;

  __device__ uint8_t* tile() const { return tiles + stage * tile_bytes; }
  __device__ void step() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// Loads lines [first, first + kKeys) of the range, zeros past its end, and the scales of 8-bit
// keys; kGroupThreads threads.
template <class Cache, int kDim>
__device__ void fetch_lines(const AttentionParams& p, const QueryTile& tile, const KeyRange& range,
                            int first, const void* cache, const TileRing& ring) {
  constexpr bool kNarrow = kNarrowKeys<Cache>;
  constexpr int kPieces = kDim * kKeyBytes<Cache> / 16;
  uint8_t* const matrix = ring.tile();
#pragma unroll 4
  for (int i = threadIdx.x % kGroupThreads; i < kKeys * kPieces; i += kGroupThreads) {
    const int line = i / kPieces, piece = i % kPieces, key = first + line;
    const bool valid = key < range.count;
    const CellIndex place = place_of(p, tile, range.position(valid ? key : range.count - 1));
    const auto* const from = static_cast<const uint8_t*>(cache) + place.first * kKeyBytes<Cache>;
    copy_16(shared_address(matrix + place_in_matrix(kKeys, line, 8 * piece)), from + 16 * piece,
            valid);
    if (kNarrow && piece == 0) ring.scales[ring.stage][line] = p.k_scales[place.scale];
  }
}

// Whether TMA can load `num_keys` keys from `first`: they are whole blocks.
inline __device__ bool lies_in_blocks(const AttentionParams& p, const BlockMaps& maps,
                                      const QueryTile& tile, const KeyRange& range, int first,
                                      int num_keys) {
  if (maps.tile_blocks == 0 || range.sink > 0 || range.begin % p.block_tokens > 0) return false;
  const int last = range.position(first + num_keys - 1);
  return !p.in_trees || cell_of(p, tile.first_token, last) == last;
}

// Zeros lines [first, kKeys) of a matrix; one warp.
template <int kDim>
__device__ void clear_lines(int first, uint8_t* matrix) {
  constexpr int kPieces = kDim / 8;
  for (int i = first * kPieces + static_cast<int>(threadIdx.x) % kWarp; i < kKeys * kPieces;
       i += kWarp)
    *reinterpret_cast<uint4*>(matrix + place_in_matrix(kKeys, i / kPieces, i % kPieces * 8)) = {};
  writes_are_ready();
  __syncwarp();
}

// The lane's cache block of the tile at key `first`, which consists of blocks; 0 past its end.
inline __device__ int block_of(const AttentionParams& p, const QueryTile& tile,
                               const KeyRange& range, int first) {
  const int key = first + static_cast<int>(threadIdx.x) % kWarp * p.block_tokens;
  if (key >= min(first + kKeys, range.count)) return 0;
  const int in_table = range.position(key) / p.block_tokens;
  return p.block_table[static_cast<int64_t>(tile.row) * p.max_blocks + in_table];
}

// One tile of keys, or of bf16 values, by TMA; one warp; `block`: its lane's. Value lines past the
// end of the range (weight 0) are zeroed: memory may have NaN.
template <class Cache, int kDim, bool kValues>
__device__ void fetch_blocks(const AttentionParams& p, const CUtensorMap& map, int block_lines,
                             const QueryTile& tile, int num_keys, int block, const TileRing& ring) {
  using Memory = TileMemory<Cache, kDim>;
  constexpr int kHalves = kNarrowKeys<Cache> ? 1 : kDim / kHalf;
  constexpr int kScale = kNarrowKeys<Cache> ? sizeof(float) : 0;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  uint64_t* const full = ring.full + ring.stage;
  const int lines = (num_keys + block_lines - 1) / block_lines * block_lines;
  const bool clears = kValues && num_keys < kKeys;  // only in the range's last tile
  uint64_t* const arrived = clears ? ring.landed : full;
  if (lane == 0)
    barrier_expect(arrived, static_cast<uint32_t>(lines * (kHalves * kLineBytes + kScale)));
  __syncwarp();
  const int line = lane * block_lines;
  if (line < num_keys) {
#pragma unroll
    for (int h = 0; h < kHalves; ++h)
      copy_box(ring.tile() + h * Memory::kHalfTile + line * kLineBytes, &map, h * kHalf, 0,
               tile.kv_head, block, arrived);
    if constexpr (kScale > 0)
      copy_bytes(ring.scales[ring.stage] + line,
                 p.k_scales + block * p.scale_stride + tile.kv_head * p.block_tokens,
                 static_cast<uint32_t>(p.block_tokens * kScale), arrived);
  }
  __syncwarp();
  if (clears) {
    barrier_wait(ring.landed, 0);
    clear_lines<kDim>(num_keys, ring.tile());
    if (lane == 0) barrier_arrive(full);
  }
}

// All tiles of keys or values, each by TMA once a stage is free; one warp. lane_block(first): the
// lane's block of the tile at a key.
template <class Cache, int kDim, bool kValues, class LaneBlock>
__device__ void fetch_all_blocks(const AttentionParams& p, const CUtensorMap& map, int block_lines,
                                 const QueryTile& tile, const KeyRange& range, TileRing ring,
                                 LaneBlock lane_block) {
  int block = lane_block(0);
  for (int first = 0; first < range.count; first += kKeys) {
    const int next = lane_block(first + kKeys);  // loaded before a stage is free
    barrier_wait(ring.empty + ring.stage, ring.parity ^ 1);
    fetch_blocks<Cache, kDim, kValues>(p, map, block_lines, tile, min(kKeys, range.count - first),
                                       block, ring);
    ring.step();
    block = next;
  }
}

// One tile of keys, or of bf16 values, by four warps, or by TMA where possible.
template <class Cache, int kDim, bool kValues>
__device__ void fetch_tile(const AttentionParams& p, const BlockMaps& maps, const QueryTile& tile,
                           const KeyRange& range, int first, TileRing& ring) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp % 4;
  const int num_keys = min(kKeys, range.count - first);
  if (warp == 0) barrier_wait(ring.empty + ring.stage, ring.parity ^ 1);
  if (lies_in_blocks(p, maps, tile, range, first, num_keys)) {
    if (warp == 0)
      fetch_blocks<Cache, kDim, kValues>(p, kValues ? maps.values : maps.keys, p.block_tokens, tile,
                                         num_keys, block_of(p, tile, range, first), ring);
  } else {
    meet(kFetchMeets, kGroupThreads);  // the stage is free
    fetch_lines<Cache, kDim>(p, tile, range, first, kValues ? p.v_cache : p.k_cache, ring);
    end_copies();
    wait_for_copies<0>();
    writes_are_ready();
    meet(kFetchMeets, kGroupThreads);
    if (threadIdx.x % kGroupThreads == 0) barrier_arrive(ring.full + ring.stage);
  }
  ring.step();
}

// 8-bit keys or values: each of kGroupThreads threads waits for the pieces that it loaded itself
// and converts them to bf16.
template <class Cache, int kDim>
struct RawTiles {
  static constexpr int kPieces = kDim / 16;
  const AttentionParams& p;
  const QueryTile& tile;
  const KeyRange& range;
  const void* cache;
  const float* scales;
  uint8_t* lines;                   // kRawStages tiles
  int meets;                        // id of the group's barrier
  uint32_t scale[kRawStages] = {};  // of line threadIdx.x % kGroupThreads, duplicated bf16

  // All tiles; the next one is loading while one is converted.
  __device__ void run(TileRing ring) {
    fetch<0>(0);
    for (int first = 0; first < range.count; first += 2 * kKeys) {
      fetch<1>(first + kKeys);
      widen<0>(ring);
      if (first + kKeys >= range.count) break;
      fetch<0>(first + 2 * kKeys);
      widen<1>(ring);
    }
    wait_for_copies<0>();
  }

 private:
  template <int kStage>
  __device__ void fetch(int first) {
    if (first < range.count) {
      const int mine = first + static_cast<int>(threadIdx.x) % kGroupThreads;
      const CellIndex place = place_of(p, tile, range.position(min(mine, range.count - 1)));
      const float own = mine < range.count ? scales[place.scale] : 0.0f;
      scale[kStage] = pack(own, own);
      const auto* const cells = static_cast<const uint8_t*>(cache);
      for_own_pieces([&](int in_warp, int line, int piece) {
        const int64_t at = __shfl_sync(kAllLanes, static_cast<long long>(place.first), in_warp);
        copy_16(shared_address(raw<kStage>(line, piece)), cells + at + 16 * piece,
                first + line < range.count);
      });
    }
    end_copies();
  }

  template <int kStage>
  __device__ void widen(TileRing& ring) {
    using Cell = typename Cache::Cell;
    uint8_t* const matrix = ring.tile();
    wait_for_copies<1>();
    barrier_wait(ring.empty + ring.stage, ring.parity ^ 1);
    for_own_pieces([&](int in_warp, int line, int piece) {
      const uint32_t factor = __shfl_sync(kAllLanes, scale[kStage], in_warp);
      const uint4 cells = *reinterpret_cast<const uint4*>(raw<kStage>(line, piece));
      const auto* const half = reinterpret_cast<const Cell*>(&cells);
      const uint4 wide[2] = {scaled(Cache::widen8(half), factor),
                             scaled(Cache::widen8(half + 8), factor)};
      // Half of the pieces store their second half first: no bank conflicts.
      const bool turned = piece >= kPieces / 2;
      store(matrix, line, 2 * piece + turned, turned ? wide[1] : wide[0]);
      store(matrix, line, 2 * piece + !turned, turned ? wide[0] : wide[1]);
    });
    writes_are_ready();
    meet(meets, kGroupThreads);
    if (threadIdx.x % kGroupThreads == 0) barrier_arrive(ring.full + ring.stage);
    ring.step();
  }

  template <int kStage>
  __device__ uint8_t* raw(int line, int piece) {
    return lines + kStage * TileMemory<Cache, kDim>::kRaw + line * kDim + 16 * piece;
  }
  __device__ static uint4 scaled(const uint4& x, uint32_t factor) {
    return {multiply_pairs(x.x, factor), multiply_pairs(x.y, factor), multiply_pairs(x.z, factor),
            multiply_pairs(x.w, factor)};
  }
  __device__ static uint32_t multiply_pairs(uint32_t x, uint32_t y) {
    const __nv_bfloat162 product = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&x),
                                           *reinterpret_cast<const __nv_bfloat162*>(&y));
    return *reinterpret_cast<const uint32_t*>(&product);
  }
  __device__ static void store(uint8_t* matrix, int line, int piece, const uint4& wide) {
    *reinterpret_cast<uint4*>(matrix + place_in_matrix(kKeys, line, 8 * piece)) = wide;
  }

  // A warp has 32 lines, one cell address per lane.
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

// The loading warps on keys, or also on bf16 values: two warps with TMA, else all four.
template <class Cache, int kDim>
__device__ void fetch_all_tiles(const AttentionParams& p, const BlockMaps& maps,
                                const QueryTile& tile, const KeyRange& range, TileRing keys,
                                TileRing values) {
  constexpr bool kHasValues = !kNarrowKeys<Cache>;
  if (!p.in_trees && lies_in_blocks(p, maps, tile, range, 0, range.count)) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp % 4;
    const auto lane_block = [&](int first) { return block_of(p, tile, range, first); };
    if (warp == 0)
      fetch_all_blocks<Cache, kDim, false>(p, maps.keys, p.block_tokens, tile, range, keys,
                                           lane_block);
    if constexpr (kHasValues)
      if (warp == 1)
        fetch_all_blocks<Cache, kDim, true>(p, maps.values, p.block_tokens, tile, range, values,
                                            lane_block);
    return;
  }
  for (int first = 0; first < range.count; first += kKeys) {
    fetch_tile<Cache, kDim, false>(p, maps, tile, range, first, keys);
    if constexpr (kHasValues) fetch_tile<Cache, kDim, true>(p, maps, tile, range, first, values);
  }
}

// Same for a row with blocks of `wide` from the first key; two warps.
template <int kDim>
__device__ void fetch_wide(const AttentionParams& p, const BlockMaps& maps, const QueryTile& tile,
                           const KeyRange& range, int first_block, TileRing keys, TileRing values) {
  const auto lane_block = [&](int first) { return first_block + first / kKeys; };
  const int warp = static_cast<int>(threadIdx.x) / kWarp % 4;
  if (warp == 0)
    fetch_all_blocks<Bf16Cache, kDim, false>(p, maps.wide_keys, kWideLines, tile, range, keys,
                                             lane_block);
  if (warp == 1)
    fetch_all_blocks<Bf16Cache, kDim, true>(p, maps.wide_values, kWideLines, tile, range, values,
                                            lane_block);
}

// The first or second group of loading warps on all tiles.
template <class Cache, int kDim, int kGroup>
__device__ void fetch_all(const AttentionParams& p, const BlockMaps& maps, const QueryTile& tile,
                          const KeyRange& range, uint8_t* raw, TileRing keys, TileRing values) {
  if constexpr (kGroup == 0 && (kNarrowKeys<Cache> || !Cache::kHasScales)) {
    fetch_all_tiles<Cache, kDim>(p, maps, tile, range, keys, values);
  } else {
    constexpr int kRaw = kRawStages * TileMemory<Cache, kDim>::kRaw;
    constexpr bool kHasKeys = kGroup == 0;
    RawTiles<Cache, kDim> tiles = {p,
                                   tile,
                                   range,
                                   kHasKeys ? p.k_cache : p.v_cache,
                                   kHasKeys ? p.k_scales : p.v_scales,
                                   raw + (kNarrowKeys<Cache> ? 0 : kGroup * kRaw),
                                   kFetchMeets + kGroup};
    tiles.run(kHasKeys ? keys : values);
  }
}

#endif  // NEREID_HOPPER

}  // namespace nereid::kernels::cuda
