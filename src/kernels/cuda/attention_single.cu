// Attention of rows of one token (decoding) with an f8e4m3 cache and up to four query heads for a
// KV head: as attention_few.cu, but keys and values are the left operands of the tensor cores, 16
// keys or columns at a time, and the query vectors the right ones: four of them fill its eight
// columns, each as the sum of two bf16. So a product does four times the work that counts, and half
// the registers hold the sums. With a bf16 cache this is no faster (0.98 to 1.01 of the
// tokens/s), nor with two right operands for seven heads (0.96 to 1.00).
#include "kernels/cuda/attention_launch.h"
#include "kernels/cuda/attention_parts.cuh"
#include "kernels/cuda/overlap.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr float kFactor = kBy<Fp8Cache>;
constexpr int kKeys = 16;    // of a warp at a time
constexpr int kVectors = 4;  // of the right operand, whose columns i and i + 4 are one vector
constexpr int kQueryLines = 2 * kVectors;
constexpr int kStride = kAttentionWarps * kKeys;  // from a tile of a warp to its next

// One warp's tile in shared memory: lines of keys, of values, and their scales.
template <int kDim>
struct Tile {
  static constexpr int kCells = kDim * static_cast<int>(sizeof(Fp8Cache::Cell));
  // Lines lie apart so that what is read at once is in different banks.
  static constexpr int kKeyLine = kCells + 32, kValueLine = kCells + 16;
  static constexpr int kValues = kKeys * kKeyLine;
  static constexpr int kScales = kValues + kKeys * kValueLine;
  static constexpr int kBytes = kScales + 2 * kKeys * static_cast<int>(sizeof(float));
};
template <int kDim>
constexpr int shared_bytes() {
  const int queries = Lines<kDim>::bytes(kQueryLines);
  const int tiles = kAttentionWarps * Tile<kDim>::kBytes;
  const int merge = kAttentionWarps * kVectors * kDim * static_cast<int>(sizeof(float));
  return queries + (tiles > merge ? tiles : merge);
}

// False for a block that has nothing to do.
__device__ bool find_tile(const AttentionParams& p, QueryTile& tile) {
  tile.row = static_cast<int>(blockIdx.z);
  find_heads(p, tile);
  tile.tokens = 1;
  tile.first_token = tile.row;
  if (p.is_single) return true;
  tile.first_token = p.row_begin[tile.row];
  return p.row_begin[tile.row + 1] - tile.first_token == 1 && !has_tree(p, tile.row);
}

__device__ void copy_4(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
               "r"(valid ? 4 : 0)
               : "memory");
}
// An 8 x 8 matrix of 16 bits, rows by lane / 4, transposed.
__device__ uint32_t transpose(uint32_t x) {
  uint32_t y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

// Fetches the lines of the tile of keys or values of which `count` exist; lane i % 16 knows where
// the i-th is.
template <int kDim, int kLine>
__device__ void fetch(const AttentionParams& p, const void* cache, int64_t first, int count,
                      uint8_t* lines) {
  constexpr int kPieces = Tile<kDim>::kCells / 16;
  constexpr int kParts = kPieces <= 4 ? 4 : kPieces <= 8 ? 8 : 16;  // threads of a line
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int i = 0; i < kKeys; i += kWarp / kParts) {
    const int line = i + lane / kParts;
    const int64_t at = __shfl_sync(kAllLanes, static_cast<long long>(first), line);
    fetch_line<Fp8Cache, kDim>(p, cache, at, line < count, lane % kParts, kParts,
                               lines + line * kLine);
  }
}

// The rotated and scaled query vectors as lines of bf16, then what bf16 leaves out.
template <int kDim>
__device__ void load_queries(const AttentionParams& p, const QueryTile& tile, int position,
                             uint8_t* lines) {
  constexpr int kHalf = kDim / 2, kPitch = Lines<kDim>::kPitch;
  const float factor = p.scale * kLog2E * kFactor;
  const float* const qkv = p.qkv + tile.first_token * p.qkv_stride;
#pragma unroll 2
  for (int i = threadIdx.x; i < kVectors * kHalf; i += kAttentionThreads) {
    const int m = i / kHalf, c = i % kHalf;
    float2 pair = {0, 0};
    int2 at = {2 * c, 2 * c + 1};
    if (c < p.head_dim / 2) {
      at = columns(p, c);
      if (m < tile.heads)
        pair = load_pair(p, qkv + static_cast<int64_t>(tile.head(m)) * p.head_dim, c, position);
      pair.x *= factor, pair.y *= factor;
    }
    at = {place_of_f8(at.x), place_of_f8(at.y)};
    auto* const high = reinterpret_cast<__nv_bfloat16*>(lines + m * kPitch);
    auto* const low = high + kVectors * kPitch / 2;
    const __nv_bfloat16 x = __float2bfloat16_rn(pair.x), y = __float2bfloat16_rn(pair.y);
    high[at.x] = x;
    high[at.y] = y;
    low[at.x] = __float2bfloat16_rn(pair.x - __bfloat162float(x));
    low[at.y] = __float2bfloat16_rn(pair.y - __bfloat162float(y));
  }
}

// One warp's work on its tiles. A thread has keys lane / 4 and lane / 4 + 8 of a tile (register
// r / 2 of scores) and vectors 2 (lane % 2) + r % 2, which lanes 2 apart both know; of the
// sums of values, its columns of the right operand.
template <int kDim>
struct Warp {
  using Memory = Tile<kDim>;
  static constexpr int kPitch = Lines<kDim>::kPitch;

  const AttentionParams& p;
  const QueryTile& tile;
  const KeyRange& range;
  const uint8_t* queries;
  int position;  // of the token
  float largest[2], sum[2];
  float value[kDim / 16][4];

  __device__ void clear() {
#pragma unroll
    for (int c = 0; c < 2; ++c) largest[c] = -INFINITY, sum[c] = 0;
#pragma unroll
    for (int i = 0; i < kDim / 16; ++i)
#pragma unroll
      for (int r = 0; r < 4; ++r) value[i][r] = 0;
  }

  // Fetches the keys of the tile that starts at key `first` and the scales; where the line of this
  // lane's key is.
  __device__ int64_t fetch_keys(int first, int end, uint8_t* memory) const {
    const int lane = threadIdx.x % kWarp, key = first + lane % kKeys;
    const Place place = place_of(p, tile.row, range.position(min(key, end - 1)), tile.kv_head);
    copy_4(shared_address(memory + Memory::kScales) + 4 * lane,
           (lane < kKeys ? p.k_scales : p.v_scales) + place.scale, key < end);
    fetch<kDim, Memory::kKeyLine>(p, p.k_cache, place.first, end - first, memory);
    return place.first;
  }
  __device__ void fetch_values(int64_t place, int first, int end, uint8_t* memory) const {
    fetch<kDim, Memory::kValueLine>(p, p.v_cache, place, end - first, memory + Memory::kValues);
  }

  __device__ void score(const uint8_t* keys, float (&scores)[4]) const {
    const int lane = threadIdx.x % kWarp;
    float chains[2][4] = {};
    const uint32_t query = shared_address(queries) + lane % 8 * kPitch + lane / 8 * 16;
    const uint8_t* const key = keys + lane / 4 * Memory::kKeyLine + lane % 4 * 8;
#pragma unroll
    for (int k = 0; k < kDim / 32; ++k) {
      uint32_t a[2][4];
      const uint2 x = *reinterpret_cast<const uint2*>(key + 32 * k);
      const uint2 y = *reinterpret_cast<const uint2*>(key + 8 * Memory::kKeyLine + 32 * k);
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        const uint32_t upper = w == 0 ? x.x : x.y, lower = w == 0 ? y.x : y.y;
        a[w][0] = Fp8Cache::even_bits(upper), a[w][2] = Fp8Cache::odd_bits(upper);
        a[w][1] = Fp8Cache::even_bits(lower), a[w][3] = Fp8Cache::odd_bits(lower);
      }
      uint32_t b[4];
      load_matrices(b, query + 64 * k);
      multiply(chains[0], a[0], b[0], b[1]);
      multiply(chains[1], a[1], b[2], b[3]);
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float x = chains[0][r] + chains[1][r];
      scores[r] = x + __shfl_xor_sync(kAllLanes, x, 2);
    }
  }

  // The scales of this thread's keys or values.
  __device__ static float2 scales_of(const float* scales) {
    const int key = static_cast<int>(threadIdx.x) % kWarp / 4;
    return {scales[key] * kFactor, scales[key + 8] * kFactor};
  }
  __device__ static void multiply_scales(float2 by, float (&x)[4]) {
#pragma unroll
    for (int r = 0; r < 4; ++r) x[r] *= r < 2 ? by.x : by.y;
  }

  // Cap, ALiBi, and the keys that do not exist.
  __device__ void judge(int first, int count, float (&scores)[4]) const {
    const int lane = threadIdx.x % kWarp;
    if (!is_plain(p)) bend(first, scores);
    if (count >= kKeys) return;
#pragma unroll
    for (int r = 0; r < 4; ++r)
      if (lane / 4 + 8 * (r / 2) >= count) scores[r] = -INFINITY;
  }
  __device__ void bend(int first, float (&scores)[4]) const {
    const int lane = threadIdx.x % kWarp;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int m = min(2 * (lane % 2) + r % 2, tile.heads - 1);
      const int at = range.position(first + lane / 4 + 8 * (r / 2));
      float bent = scores[r];
      if (p.cap > 0) bent = p.cap * kLog2E * tanhf(bent / (p.cap * kLog2E));
      if (p.alibi > 0) bent -= slope_of(p, tile.head(m)) * static_cast<float>(position - at);
      scores[r] = bent;
    }
  }

  // Scores become weights relative to the new largest score, the state is rescaled to it.
  __device__ void weigh(float (&scores)[4]) {
    float top[2];
    bool grows = false;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float x = fmaxf(largest[c], fmaxf(scores[c], scores[2 + c]));
#pragma unroll
      for (int by = 4; by < kWarp; by *= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, by));
      grows |= x > largest[c];
      top[c] = x;
    }
    if (__any_sync(kAllLanes, grows)) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const float correction = weight_of(largest[c], top[c]);
        sum[c] *= correction;
        largest[c] = top[c];
        // The sums' columns are those of the right operand.
#pragma unroll
        for (int i = 0; i < kDim / 16; ++i) {
          value[i][c] *= correction;
          value[i][2 + c] *= correction;
        }
      }
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      scores[r] = weight_of(scores[r], largest[r % 2]);
      sum[r % 2] += scores[r];
    }
  }

  // Adds the values of the tile times their weights.
  __device__ void add_values(const uint8_t* values, const float (&weights)[4]) {
    const int lane = threadIdx.x % kWarp;
    uint32_t b[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float x = weights[2 * h], y = weights[2 * h + 1];
      uint32_t mine = pack(x, y);
      const float2 kept = unpack(mine);
      if (lane % 4 >= 2) mine = pack(x - kept.x, y - kept.y);
      b[h] = transpose(mine);
    }
    const uint32_t at = shared_address(values) + lane % 16 * Memory::kValueLine + lane / 16 * 16;
#pragma unroll
    for (int i = 0; i < Memory::kCells / 32; ++i) {
      uint32_t m[4];  // keys 0 to 7 and 8 to 15 of 16 bytes, then of the next 16
      load_transposed(m, at + 32 * i);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint32_t a[4] = {Fp8Cache::even_bits(m[2 * h]), Fp8Cache::odd_bits(m[2 * h]),
                               Fp8Cache::even_bits(m[2 * h + 1]), Fp8Cache::odd_bits(m[2 * h + 1])};
        multiply(value[2 * i + h], a, b[0], b[1]);
      }
    }
  }

  // Fetches the tile that starts at key `first`, if it begins before `end`.
  __device__ void fetch_tile(int first, int end, uint8_t* memory) const {
    int64_t place = 0;
    if (first < end) place = fetch_keys(first, end, memory);
    end_copies();
    if (first < end) fetch_values(place, first, end, memory);
    end_copies();
  }

  // The walk over the tiles, the first of which is on its way. The next keys are fetched as soon as
  // the scores are there, the next values when the values have been added.
  __device__ void attend(int first, int end, uint8_t* memory) {
    const auto* const scales = reinterpret_cast<const float*>(memory + Memory::kScales);
    for (; first < end; first += kStride) {
      const int next = first + kStride;
      float scores[4];
      wait_for_copies<1>();
      __syncwarp();
      score(memory, scores);
      multiply_scales(scales_of(scales), scores);
      const float2 value_scales = scales_of(scales + kKeys);
      __syncwarp();
      int64_t place = 0;
      if (next < end) place = fetch_keys(next, end, memory);
      end_copies();
      judge(first, end - first, scores);
      weigh(scores);
      multiply_scales(value_scales, scores);
      wait_for_copies<1>();
      __syncwarp();
      add_values(memory + Memory::kValues, scores);
      __syncwarp();
      if (next < end) fetch_values(place, next, end, memory);
      end_copies();
    }
    wait_for_copies<0>();
  }

  // The column of the head that register r of value[.][i] is.
  __device__ static int column_of(int i, int r) {
    const int n = static_cast<int>(threadIdx.x) % kWarp / 4;
    return 16 * i + 2 * n + r / 2;
  }

  // Leaves the state for combine_warps(); all warps have left their tiles.
  __device__ void leave(float* values, float* tops, float* sums) {
    const int lane = threadIdx.x % kWarp;
    const int first = 2 * (lane % 2);
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float total = sum[c];
#pragma unroll
      for (int by = 4; by < kWarp; by *= 2) total += __shfl_xor_sync(kAllLanes, total, by);
      if (lane < 2) tops[first + c] = largest[c], sums[first + c] = total;
    }
#pragma unroll
    for (int i = 0; i < kDim / 16; ++i)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const float x = value[i][r];
        const float whole = (x + __shfl_xor_sync(kAllLanes, x, 2)) * kFactor;
        if (r / 2 == lane % 4 / 2) values[(first + r % 2) * kDim + column_of(i, r)] = whole;
      }
  }
};

// The fifth block at once leaves registers enough.
constexpr int kBlocks = 5;

template <int kDim>
__global__ void __launch_bounds__(kAttentionThreads, kBlocks)
    single_token_kernel(AttentionParams p) {
  using Memory = Tile<kDim>;
  extern __shared__ __align__(16) uint8_t memory[];
  __shared__ float largest[kAttentionWarps][kVectors], sums[kAttentionWarps][kVectors];
  __shared__ int arrived;
  let_next_begin();
  // Positions and the lines of earlier steps are there: see embed_kernel().
  QueryTile tile;
  if (!find_tile(p, tile)) return wait_for_previous();
  const int position = p.positions[tile.first_token];
  const KeyRange range = keys_of(p, position, position);
  // The row's keys in equal parts of at most chunk_keys.
  const int num_parts = (range.count + p.chunk_keys - 1) / p.chunk_keys;
  if (static_cast<int>(blockIdx.x) >= num_parts) return wait_for_previous();
  const int part_keys = ((range.count + num_parts - 1) / num_parts + kKeys - 1) / kKeys * kKeys;
  const int part_first = static_cast<int>(blockIdx.x) * part_keys;
  const int end = min(range.count, part_first + part_keys);

  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  uint8_t* const tiles = memory + Lines<kDim>::bytes(kQueryLines);
  uint8_t* const mine = tiles + warp * Memory::kBytes;
  Warp<kDim> work = {p, tile, range, memory, position};
  const int first = part_first + warp * kKeys;
  const bool is_old = min(first + kKeys, end) < range.count;
  if (is_old) work.fetch_tile(first, end, mine);
  wait_for_qkv(p);
  // The new key and value, of the last part. Blocks that share a KV head write the same bytes.
  if (end == range.count && warp < 2)
    store_token<Fp8Cache>(p, tile.first_token, tile.row, tile.kv_head, warp == 1);
  load_queries<kDim>(p, tile, position, memory);
  work.clear();
  if (end == range.count) __threadfence_block();
  __syncthreads();
  if (!is_old) work.fetch_tile(first, end, mine);
  work.attend(first, end, mine);
  __syncthreads();  // all warps are done with their tiles, which the values overlay
  auto* const values = reinterpret_cast<float*>(tiles);
  work.leave(values + warp * kVectors * kDim, largest[warp], sums[warp]);
  __syncthreads();
  combine_warps<kVectors, kDim>(tile, values, largest, sums);
  finish<kDim>(p, tile, num_parts, values, largest[0], sums[0], &arrived);
  wait_for_previous();
}

template <int kDim>
cudaError_t enqueue(const AttentionParams& p, dim3 grid, cudaStream_t stream) {
  constexpr int kBytes = shared_bytes<kDim>();
  const auto kernel = single_token_kernel<kDim>;
  return launch_overlapped(kernel, p.num_rows, grid, kAttentionThreads, kBytes, stream, p);
}

}  // namespace

bool takes_single_tokens(const AttentionParams& p, DType cache) {
  return cache == DType::kF8E4M3 && p.latent == 0 && p.heads_per_block <= kVectors &&
         p.head_dim <= 128;
}

cudaError_t launch_single_tokens(const AttentionParams& p, int num_chunks, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(num_chunks),
                  static_cast<unsigned>(p.num_kv_heads * p.head_blocks),
                  static_cast<unsigned>(p.num_rows));
  return p.head_dim <= 64 ? enqueue<64>(p, grid, stream) : enqueue<128>(p, grid, stream);
}

}  // namespace nereid::kernels::cuda
