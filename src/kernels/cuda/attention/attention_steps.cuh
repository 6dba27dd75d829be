// Shared by the few-token kernels whose warps take 16 keys at a time: shared memory of a warp,
// loads of cache lines.
#pragma once

#include "kernels/cuda/attention/attention_parts.cuh"

namespace nereid::kernels::cuda {

constexpr int kStepKeys = 16;  // per warp and step

// Other cell types than bf16 and f8e4m3 are converted to bf16 in shared memory.
template <class Cache>
constexpr bool kIsWidened = Cache::kHasScales && !kIsFp8<Cache>;
// Shared memory of one warp: lines of its keys and values; for converted types, the cells as loaded
// and one area for the current ones as bf16.
template <class Cache, int kDim>
struct WarpMemory {
  static constexpr int kLine = kIsFp8<Cache>       ? kDim + 16
                               : kIsWidened<Cache> ? kDim
                                                   : Lines<kDim>::kPitch;
  static constexpr int kBytes =
      2 * kStepKeys * kLine + (kIsWidened<Cache> ? Lines<kDim>::bytes(kStepKeys) : 0);
};

// Cell of this lane's key of 16, and the scales of its lines; 0 if the key does not exist.
struct Found {
  CellIndex place = {};
  float key_scale = 0, value_scale = 0;
};
template <class Cache>
__device__ Found find(const AttentionParams& p, const QueryTile& tile, const KeyRange& range,
                      int first, int end) {
  const int key = first + static_cast<int>(threadIdx.x) % kStepKeys;
  Found found;
  found.place = place_of(p, tile.row, range.position(min(key, end - 1)), tile.kv_head);
  if (Cache::kHasScales && key < end) {
    found.key_scale = p.k_scales[found.place.scale] * kBy<Cache>;
    found.value_scale = p.v_scales[found.place.scale] * kBy<Cache>;
  }
  return found;
}

// Loads the lines of 16 keys or values, `count` of which exist; lane i % 16 has the i-th place.
template <class Cache, int kDim>
__device__ void fetch(const AttentionParams& p, const void* cache, const CellIndex& place,
                      int count, uint8_t* lines) {
  constexpr int kPieces = kDim * static_cast<int>(sizeof(typename Cache::Cell)) / 16;
  constexpr int kParts = kPieces <= 4 ? 4 : kPieces <= 8 ? 8 : 16;  // threads per line
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int i = 0; i < kStepKeys; i += kWarp / kParts) {
    const int line = i + lane / kParts;
    const int64_t at = __shfl_sync(kAllLanes, static_cast<long long>(place.first), line);
    fetch_line<Cache, kDim, true>(p, cache, at, line < count, lane % kParts, kParts,
                                  lines + line * WarpMemory<Cache, kDim>::kLine);
  }
}

// The lines as bf16.
template <class Cache, int kDim>
__device__ const uint8_t* widen(const uint8_t* lines, uint8_t* wide) {
  if constexpr (kIsWidened<Cache>) {
    for (int i = threadIdx.x % kWarp; i < kStepKeys * kDim / 8; i += kWarp)
      widen_8<Cache>(lines + i / (kDim / 8) * kDim, wide + i / (kDim / 8) * Lines<kDim>::kPitch,
                     i % (kDim / 8));
    __syncwarp();
    return wide;
  }
  return lines;
}

// The head's column in register r of value[j].
template <class Cache>
__device__ int column_of(int j, int r) {
  const int n = 2 * (static_cast<int>(threadIdx.x) % 4) + r % 2;
  return kIsFp8<Cache> ? j / 2 * 16 + 2 * n + j % 2 : 8 * j + n;
}

}  // namespace nereid::kernels::cuda
