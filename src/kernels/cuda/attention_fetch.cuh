// How attention_hopper.cu brings keys and values to shared memory: tiles of 128 keys, in the layout
// that the tensor cores read. The copy engine fetches whole blocks of a bf16 cache; lines of other
// ranges are fetched by a group of four warps, and those of 8-bit types become bf16 on their way.
#pragma once

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/tensor_map.h"

namespace nereid::kernels::cuda {

constexpr int kGroups = 2;
constexpr int kGroupVectors = 64;
constexpr int kGroupThreads = 4 * kWarp;
constexpr int kKeys = 128;  // of a tile
constexpr int kHalf = 64;   // columns of a swizzled matrix: rows of 128 bytes
constexpr int kLineBytes = 2 * kHalf;
constexpr int kStages = 2;
constexpr int kRawStages = 2;             // of 8-bit types
constexpr int kFetchMeets = kGroups + 1;  // number of the first fetching group's barrier
static_assert(kGroups * kGroupVectors == kHopperVectors);

template <int kDim>
struct TileMemory {
  static constexpr int kQueries = kDim / kHalf * kGroupVectors * kLineBytes;  // of a group
  static constexpr int kKeyHalf = kKeys * kLineBytes;
  static constexpr int kMatrix = kDim / kHalf * kKeyHalf;  // keys or values of a tile
  static constexpr int kRaw = kKeys * kDim;                // the same in 8 bits
  static constexpr int kTiles = kGroups * kQueries + 2 * kStages * kMatrix;
  template <class Cache>
  static constexpr int kBytes = kTiles + (Cache::kHasScales ? 2 * kRawStages * kRaw : 0);
};

// What the copy engine needs to fetch whole blocks; tile_blocks = 0: it cannot.
struct BlockMaps {
  CUtensorMap keys, values;
  int tile_blocks;  // that make a tile of keys
};

#if defined(NEREID_HOPPER)

// Keys or values of kStages tiles, with the barriers that say which are there and which are free.
struct TileRing {
  uint8_t* tiles;
  uint64_t* full;
  uint64_t* empty;
  float (*scales)[kKeys];  // of 8-bit types, by stage
  uint64_t* landed;        // the last tile's values, of which lines are then cleared
  int stage = 0;
  uint32_t parity = 0;

  __device__ void step() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// Where element `column` of a line lies in a matrix of `lines` lines: halves of 64 columns, each
// line's pieces of 16 bytes permuted by its number (the 128-byte swizzle).
inline __device__ int place_in_matrix(int lines, int line, int column) {
  const int piece = column % kHalf / 8;
  return (column / kHalf * lines + line) * kLineBytes + (piece ^ line % 8) * 16 + column % 8 * 2;
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

// Whether the copy engine can fetch the `num_keys` keys from `first` on: they lie in whole blocks.
inline __device__ bool lies_in_blocks(const AttentionParams& p, const BlockMaps& maps,
                                      const QueryTile& tile, const KeyRange& range, int first,
                                      int num_keys) {
  if (maps.tile_blocks == 0 || range.sink > 0 || range.begin % p.block_tokens > 0) return false;
  const int last = range.position(first + num_keys - 1);
  return !p.in_trees || cell_of(p, tile.first_token, last) == last;
}

// The lines [first, kKeys) of a matrix become zeros; a warp's work.
template <int kDim>
__device__ void clear_lines(int first, uint8_t* matrix) {
  constexpr int kPieces = kDim / 8;
  for (int i = first * kPieces + static_cast<int>(threadIdx.x) % kWarp; i < kKeys * kPieces;
       i += kWarp)
    *reinterpret_cast<uint4*>(matrix + place_in_matrix(kKeys, i / kPieces, i % kPieces * 8)) = {};
  writes_are_ready();
  __syncwarp();
}

// One tile of keys or values in bf16, fetched by the copy engine or by all four warps. Of values,
// whose weights are 0 past the end of the range, the lines there are zeros: memory may hold NaN.
template <int kDim, bool kValues>
__device__ void fetch_tile(const AttentionParams& p, const BlockMaps& maps, const QueryTile& tile,
                           const KeyRange& range, int first, TileRing& ring) {
  using Memory = TileMemory<kDim>;
  const int warp = static_cast<int>(threadIdx.x) / kWarp % 4, lane = threadIdx.x % kWarp;
  uint8_t* const matrix = ring.tiles + ring.stage * Memory::kMatrix;
  uint64_t* const full = ring.full + ring.stage;
  const int num_keys = min(kKeys, range.count - first);
  if (warp == 0) barrier_wait(ring.empty + ring.stage, ring.parity ^ 1);
  if (lies_in_blocks(p, maps, tile, range, first, num_keys)) {
    if (warp == 0) {
      const int blocks = (num_keys + p.block_tokens - 1) / p.block_tokens;
      const bool clears = kValues && num_keys < kKeys;  // in the range's last tile alone
      uint64_t* const arrived = clears ? ring.landed : full;
      if (lane == 0)
        barrier_expect(arrived, static_cast<uint32_t>(blocks * p.block_tokens * kDim * 2));
      __syncwarp();
      if (lane < blocks) {
        const int in_table = range.position(first) / p.block_tokens + lane;
        const int block = p.block_table[static_cast<int64_t>(tile.row) * p.max_blocks + in_table];
#pragma unroll
        for (int h = 0; h < kDim / kHalf; ++h)
          copy_box(matrix + h * Memory::kKeyHalf + lane * p.block_tokens * kLineBytes,
                   kValues ? &maps.values : &maps.keys, h * kHalf, 0, tile.kv_head, block, arrived);
      }
      __syncwarp();
      if (clears) {
        barrier_wait(ring.landed, 0);
        clear_lines<kDim>(num_keys, matrix);
        if (lane == 0) barrier_arrive(full);
      }
    }
  } else {
    meet(kFetchMeets, kGroupThreads);  // the stage is free
    fetch_lines<kDim>(p, tile, range, first, kValues ? p.v_cache : p.k_cache, matrix);
    end_copies();
    wait_for_copies<0>();
    writes_are_ready();
    meet(kFetchMeets, kGroupThreads);
    if (threadIdx.x % kGroupThreads == 0) barrier_arrive(full);
  }
  ring.step();
}

// Keys or values in 8 bits on their way to shared memory: each of kGroupThreads threads waits for
// the pieces that it fetched itself, and makes them bf16.
template <class Cache, int kDim>
struct RawTiles {
  static constexpr int kPieces = kDim / 16;
  const AttentionParams& p;
  const QueryTile& tile;
  const KeyRange& range;
  const void* cache;
  const float* scales;
  uint8_t* lines;                // of kRawStages tiles
  int meets;                     // number of the group's barrier
  float scale[kRawStages] = {};  // of line threadIdx.x % kGroupThreads

  // All tiles, the next one under way while one is made bf16.
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
      const Place place = place_of(p, tile, range.position(min(mine, range.count - 1)));
      scale[kStage] = mine < range.count ? scales[place.scale] : 0.0f;
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
    uint8_t* const matrix = ring.tiles + ring.stage * TileMemory<kDim>::kMatrix;
    wait_for_copies<1>();
    barrier_wait(ring.empty + ring.stage, ring.parity ^ 1);
    for_own_pieces([&](int, int line, int piece) {
      const uint4 cells = *reinterpret_cast<const uint4*>(raw<kStage>(line, piece));
      const auto* const half = reinterpret_cast<const Cell*>(&cells);
      const uint4 wide[2] = {Cache::widen8(half), Cache::widen8(half + 8)};
      // The other half first for half of the pieces: no two threads then store to the same bank.
      const bool turned = piece >= kPieces / 2;
      store(matrix, line, 2 * piece + turned, turned ? wide[1] : wide[0]);
      store(matrix, line, 2 * piece + !turned, turned ? wide[0] : wide[1]);
    });
    ring.scales[ring.stage][threadIdx.x % kGroupThreads] = scale[kStage];
    writes_are_ready();
    meet(meets, kGroupThreads);
    if (threadIdx.x % kGroupThreads == 0) barrier_arrive(ring.full + ring.stage);
    ring.step();
  }

  template <int kStage>
  __device__ uint8_t* raw(int line, int piece) {
    return lines + kStage * TileMemory<kDim>::kRaw + line * kDim + 16 * piece;
  }
  __device__ static void store(uint8_t* matrix, int line, int piece, const uint4& wide) {
    *reinterpret_cast<uint4*>(matrix + place_in_matrix(kKeys, line, 8 * piece)) = wide;
  }

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

// The work of a group of fetching warps on all tiles.
template <class Cache, int kDim>
__device__ void fetch_all(const AttentionParams& p, const BlockMaps& maps, const QueryTile& tile,
                          const KeyRange& range, int group, uint8_t* raw, TileRing keys,
                          TileRing values) {
  if constexpr (Cache::kHasScales) {
    const bool has_keys = group == 0;
    constexpr int kRaw = kRawStages * TileMemory<kDim>::kRaw;
    RawTiles<Cache, kDim> tiles = {p,
                                   tile,
                                   range,
                                   has_keys ? p.k_cache : p.v_cache,
                                   has_keys ? p.k_scales : p.v_scales,
                                   raw + group * kRaw,
                                   kFetchMeets + group};
    tiles.run(has_keys ? keys : values);
  } else {
    for (int first = 0; first < range.count; first += kKeys) {
      fetch_tile<kDim, false>(p, maps, tile, range, first, keys);
      fetch_tile<kDim, true>(p, maps, tile, range, first, values);
    }
  }
}

#endif  // NEREID_HOPPER

}  // namespace nereid::kernels::cuda
