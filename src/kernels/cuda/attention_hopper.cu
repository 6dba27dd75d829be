// Attention of rows with many tokens on Hopper: as in attention.cu, with products by groups of four
// warps whose operands lie in shared memory (wgmma). A block has three groups of 64 query vectors:
// while one weighs its scores the others keep the tensor cores busy.
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_launch.h"
#include "kernels/cuda/overlap.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kGroups = 3;
constexpr int kGroupVectors = 64;
constexpr int kVectors = kGroups * kGroupVectors;
constexpr int kThreads = kGroups * 4 * kWarp;
constexpr int kKeys = 64;   // of a tile
constexpr int kSlices = 4;  // of 16 keys
constexpr int kHalf = 64;   // columns of a swizzled matrix: rows of 128 bytes
constexpr int kHalfBytes = 64 * kHalf * 2;
static_assert(kVectors == kHopperVectors);

template <class Cache, int kDim>
struct TileMemory {
  static constexpr int kMatrix = kDim / kHalf * kHalfBytes;  // 64 lines
  static constexpr int kQueries = kGroups * kMatrix;
  static constexpr int kWide = 2 * kMatrix;  // keys, then values
  static constexpr int kStage = Cache::kHasScales ? 2 * kKeys * kDim : kWide;
  static constexpr int kBytes = kQueries + 2 * kStage + (Cache::kHasScales ? kWide : 0);
};

#if defined(NEREID_HOPPER)

// Where element `column` of a line lies in a matrix of 64 lines: halves of 64 columns, each line's
// pieces of 16 bytes permuted by its number (the 128-byte swizzle).
__device__ int place_in_matrix(int line, int column) {
  const int piece = column % kHalf / 8;
  return column / kHalf * kHalfBytes + line * 128 + (piece ^ line % 8) * 16 + column % 8 * 2;
}

// load_queries() into swizzled matrices.
template <int kDim>
__device__ void load_swizzled(const AttentionParams& p, const QueryTile& tile, uint8_t* queries) {
  constexpr int kPairs = kDim / 2, kMatrix = kDim / kHalf * kHalfBytes;
  const float factor = p.scale * kLog2E;
  const int vectors = tile.vectors();
#pragma unroll 4
  for (int i = threadIdx.x; i < kVectors * kPairs; i += kThreads) {
    const int m = i / kPairs, c = i % kPairs;
    const int2 at = columns(p, c);
    float2 pair = {0, 0};
    if (m < vectors) {
      const int64_t token = tile.token(m);
      pair = load_pair(
          p, p.qkv + token * p.qkv_stride + static_cast<int64_t>(tile.head(m)) * p.head_dim, c,
          p.positions[token]);
    }
    uint8_t* const matrix = queries + m / kGroupVectors * kMatrix;
    const int line = m % kGroupVectors;
    *reinterpret_cast<__nv_bfloat16*>(matrix + place_in_matrix(line, at.x)) =
        __float2bfloat16_rn(pair.x * factor);
    *reinterpret_cast<__nv_bfloat16*>(matrix + place_in_matrix(line, at.y)) =
        __float2bfloat16_rn(pair.y * factor);
  }
}

// Fetches the keys and values [first, first + kKeys) of the range, and their scales.
template <class Cache, int kDim>
__device__ void fetch(const AttentionParams& p, const QueryTile& tile, const KeyRange& range,
                      int first, uint8_t* stage, float (*scales)[kKeys]) {
  using Memory = TileMemory<Cache, kDim>;
  using Cell = typename Cache::Cell;
  constexpr int kCells = 16 / static_cast<int>(sizeof(Cell));  // of a piece
  constexpr int kPieces = kDim / kCells;
  const auto* keys = static_cast<const Cell*>(p.k_cache);
  const auto* values = static_cast<const Cell*>(p.v_cache);
  for (int i = threadIdx.x; i < kKeys * kPieces; i += kThreads) {
    const int line = i / kPieces, piece = i % kPieces, key = first + line;
    const bool valid = key < range.count;
    const Place place =
        place_of(p, tile.row, range.position(valid ? key : range.count - 1), tile.kv_head);
    const int to =
        Cache::kHasScales ? line * kDim + piece * 16 : place_in_matrix(line, piece * kCells);
    const int64_t from = place.first + piece * kCells;
    copy_16(shared_address(stage + to), keys + from, valid);
    copy_16(shared_address(stage + Memory::kStage / 2 + to), values + from, valid);
    if constexpr (Cache::kHasScales)
      if (piece == 0) {
        scales[0][line] = valid ? p.k_scales[place.scale] : 0.0f;
        scales[1][line] = valid ? p.v_scales[place.scale] : 0.0f;
      }
  }
}

// Lines as they were fetched to swizzled matrices of bf16.
template <class Cache, int kDim>
__device__ void widen(const uint8_t* stage, uint8_t* wide) {
  constexpr int kPieces = kDim / 8;
  for (int i = threadIdx.x; i < 2 * kKeys * kPieces; i += kThreads) {
    const int line = i / kPieces, piece = i % kPieces;
    uint8_t* const matrix = wide + line / kKeys * TileMemory<Cache, kDim>::kMatrix;
    *reinterpret_cast<uint4*>(matrix + place_in_matrix(line % kKeys, 8 * piece)) = Cache::widen8(
        reinterpret_cast<const typename Cache::Cell*>(stage + line * kDim) + 8 * piece);
  }
}

// One group's work on a tile of keys.
template <class Cache, int kDim>
__device__ void attend_tile(const AttentionParams& p, const KeyRange& range, const uint8_t* queries,
                            const QueryLimits (&limits)[2], int first, bool all_visible,
                            const uint8_t* tile, float (*scales)[kKeys], float (&largest)[2],
                            float (&sum)[2], float (&value)[kDim / 8][4]) {
  const int lane = threadIdx.x % kWarp;
  float scores[2 * kSlices][4] = {};
  products_begin();
#pragma unroll
  for (int h = 0; h < kDim / kHalf; ++h) {
    const uint64_t a = swizzled_matrix(queries + h * kHalfBytes);
    const uint64_t b = swizzled_matrix(tile + h * kHalfBytes);
#pragma unroll
    for (int k = 0; k < kHalf / 16; ++k) multiply_64(scores, a + 2 * k, b + 2 * k);
  }
  products_end();
  wait_for_products<0>();
  const auto multiply_scales = [&](const float* by_key) {
    if constexpr (Cache::kHasScales)
#pragma unroll
      for (int s = 0; s < 2 * kSlices; ++s)
#pragma unroll
        for (int r = 0; r < 4; ++r) scores[s][r] *= by_key[8 * s + 2 * (lane % 4) + r % 2];
  };
  multiply_scales(scales[0]);
  if (!all_visible)
    judge<kSlices>(
        p, is_plain(p), limits, range.count - first,
        [&](int i) { return range.position(first + i); }, scores);
  weigh<kSlices, kDim>(scores, largest, sum, value);
  multiply_scales(scales[1]);
  uint32_t weights[kSlices][4];
#pragma unroll
  for (int s = 0; s < kSlices; ++s)
#pragma unroll
    for (int r = 0; r < 4; ++r)
      weights[s][r] =
          pack(scores[2 * s + r / 2][2 * (r % 2)], scores[2 * s + r / 2][2 * (r % 2) + 1]);
  const uint64_t values = swizzled_columns(tile + TileMemory<Cache, kDim>::kMatrix, kHalfBytes);
  products_begin();
#pragma unroll
  for (int s = 0; s < kSlices; ++s) multiply_64(value, weights[s], values + s * (16 * 128 / 16));
  products_end();
  wait_for_products<0>();
}

#endif  // NEREID_HOPPER

template <class Cache, int kDim>
__global__ void __launch_bounds__(kThreads, 1) hopper_kernel(AttentionParams p) {
#if defined(NEREID_HOPPER)
  using Memory = TileMemory<Cache, kDim>;
  extern __shared__ __align__(1024) uint8_t memory[];
  __shared__ float scales[2][2][kKeys];
  let_next_begin();
  wait_for_previous();
  QueryTile tile;
  if (!find_many(p, tile)) return;
  uint8_t* const stages = memory + Memory::kQueries;
  uint8_t* const wide = stages + 2 * Memory::kStage;
  const int last_position = p.positions[tile.first_token + tile.tokens - 1];
  const KeyRange range = keys_of(p, p.positions[tile.first_token], last_position);
  fetch<Cache, kDim>(p, tile, range, 0, stages, scales[0]);
  end_copies();
  load_swizzled<kDim>(p, tile, memory);

  const int lane = threadIdx.x % kWarp, group = static_cast<int>(threadIdx.x) / (4 * kWarp);
  const int first_vector = group * kGroupVectors;
  const int first_row = first_vector + static_cast<int>(threadIdx.x) / kWarp % 4 * 16 + lane / 4;
  QueryLimits limits[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int m = first_row + 8 * h;
    const bool exists = m < tile.vectors();
    limits[h] = {exists ? p.positions[tile.token(m)] : -1, exists ? slope_of(p, tile.head(m)) : 0};
  }
  // Of the group: its first position, and the keys that its last vector sees.
  const bool has_work = first_vector < tile.vectors();
  const int last_vector = min(first_vector + kGroupVectors, tile.vectors()) - 1;
  const int group_first = has_work ? p.positions[tile.token(first_vector)] : 0;
  const int group_end =
      has_work ? range.count - (last_position - p.positions[tile.token(last_vector)]) : 0;
  const bool plain = is_plain(p);

  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {}, value[kDim / 8][4] = {};
  for (int first = 0, stage = 0; first < range.count; first += kKeys, stage ^= 1) {
    wait_for_copies<0>();
    writes_are_ready();
    __syncthreads();  // the tile is there, and everyone has left the one that is overwritten next
    if (first + kKeys < range.count)
      fetch<Cache, kDim>(p, tile, range, first + kKeys, stages + (stage ^ 1) * Memory::kStage,
                         scales[stage ^ 1]);
    end_copies();
    const uint8_t* lines = stages + stage * Memory::kStage;
    if constexpr (Cache::kHasScales) {
      widen<Cache, kDim>(lines, wide);
      writes_are_ready();
      __syncthreads();
      lines = wide;
    }
    if (first < group_end)
      attend_tile<Cache, kDim>(p, range, memory + group * Memory::kMatrix, limits, first,
                               plain && first + kKeys <= group_first + 1, lines, scales[stage],
                               largest, sum, value);
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int m = first_row + 8 * h;
    const float total = row_sum(sum[h]);
    if (m < tile.vectors()) write_vector<kDim>(p, tile, m, h, largest[h], total, value);
  }
#endif
}

template <class Cache, int kDim>
cudaError_t enqueue(const AttentionParams& p, dim3 grid, cudaStream_t stream) {
  constexpr int kBytes = TileMemory<Cache, kDim>::kBytes;
  const auto kernel = hopper_kernel<Cache, kDim>;
  return launch_overlapped(kernel, kMaxGemvRows + 1, grid, kThreads, kBytes, stream, p);
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
