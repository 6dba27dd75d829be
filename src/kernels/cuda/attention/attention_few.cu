// Attention of rows with few tokens (decoding, split-KV): a block has up to 16 query vectors that
// share a KV head, and a part of their keys, so that a long context is read by many SMs. Its warps
// take 16 keys in turn; their states, then those of the parts (in the block that ends last) are
// merged in order. Queries and weights are sums of two bf16 on tensor cores: nearly exact, at no
// cost, since the kernel is bound by reading keys and values.
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/attention/attention_steps.cuh"
#include "kernels/cuda/overlap.cuh"

namespace nereid::kernels::cuda {
namespace {

template <class Cache, int kDim>
constexpr int shared_bytes() {
  const int queries = 2 * Lines<kDim>::bytes(kFewVectors);
  const int tiles = kAttentionWarps * WarpMemory<Cache, kDim>::kBytes;
  const int merge = kAttentionWarps * kFewVectors * kDim * static_cast<int>(sizeof(float));
  return queries + (tiles > merge ? tiles : merge);
}

// False for a block without work.
__device__ bool find_tile(const AttentionParams& p, QueryTile& tile) {
  tile.row = static_cast<int>(blockIdx.z);
  tile.first_token = p.row_begin[tile.row];
  tile.tokens = p.row_begin[tile.row + 1] - tile.first_token;
  find_heads(p, tile);
  return tile.tokens > (p.takes_single ? 1 : 0) && tile.tokens <= p.few_tokens &&
         !has_tree(p, tile.row);
}

// score() of attention_products.cuh with kExact, f8e4m3 keys, queries in place_of_f8()'s order.
template <int kDim>
__device__ void score_f8(const uint8_t* high, const uint8_t* low, const uint8_t* keys,
                         float (&scores)[2][4]) {
  constexpr int kPitch = Lines<kDim>::kPitch, kLine = WarpMemory<Fp8Cache, kDim>::kLine;
  const int lane = threadIdx.x % kWarp;
  float lower[2][4] = {};
#pragma unroll
  for (int s = 0; s < 2; ++s)
#pragma unroll
    for (int r = 0; r < 4; ++r) scores[s][r] = 0;
  const int query_offset = lane % 16 * kPitch + lane / 16 * 16;
  const uint32_t high_at = shared_address(high) + query_offset;
  const uint32_t low_at = shared_address(low) + query_offset;
  const uint8_t* const key = keys + lane / 4 * kLine + lane % 4 * 8;
#pragma unroll
  for (int k = 0; k < kDim / 32; ++k) {
    uint2 words[2];
#pragma unroll
    for (int s = 0; s < 2; ++s)
      words[s] = *reinterpret_cast<const uint2*>(key + 8 * s * kLine + 32 * k);
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      uint32_t q[4], rest[4];
      load_matrices(q, high_at + 64 * k + 32 * w);
      load_matrices(rest, low_at + 64 * k + 32 * w);
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const uint32_t word = w == 0 ? words[s].x : words[s].y;
        const uint32_t even = Fp8Cache::even_bits(word), odd = Fp8Cache::odd_bits(word);
        multiply(scores[s], q, even, odd);
        multiply(lower[s], rest, even, odd);
      }
    }
  }
#pragma unroll
  for (int s = 0; s < 2; ++s)
#pragma unroll
    for (int r = 0; r < 4; ++r) scores[s][r] += lower[s][r];
}

// add_values() of attention_products.cuh with kExact, f8e4m3 values, columns as in column_of().
template <int kDim>
__device__ void add_values_f8(const float (&weights)[2][4], const uint8_t* values,
                              float (&value)[kDim / 8][4]) {
  constexpr int kLine = WarpMemory<Fp8Cache, kDim>::kLine;
  const int lane = threadIdx.x % kWarp;
  const uint32_t at = shared_address(values) + lane % 16 * kLine + lane / 16 * 16;
  uint32_t a[4], rest[4];
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const float x = weights[r / 2][2 * (r % 2)], y = weights[r / 2][2 * (r % 2) + 1];
    a[r] = pack(x, y);
    const float2 kept = unpack(a[r]);
    rest[r] = pack(x - kept.x, y - kept.y);
  }
#pragma unroll
  for (int i = 0; i < kDim / 32; ++i) {
    uint32_t b[4];  // words of two columns of two keys
    load_transposed(b, at + 32 * i);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint32_t even[2] = {Fp8Cache::even_bits(b[2 * h]), Fp8Cache::even_bits(b[2 * h + 1])};
      const uint32_t odd[2] = {Fp8Cache::odd_bits(b[2 * h]), Fp8Cache::odd_bits(b[2 * h + 1])};
      multiply(value[4 * i + 2 * h], a, even[0], even[1]);
      multiply(value[4 * i + 2 * h + 1], a, odd[0], odd[1]);
      multiply(value[4 * i + 2 * h], rest, even[0], even[1]);
      multiply(value[4 * i + 2 * h + 1], rest, odd[0], odd[1]);
    }
  }
}

// Multiplies by the scales of this thread's keys 8 s + 2 (lane % 4) + r % 2; lane i has the scale
// of key i.
template <class Cache>
__device__ void multiply_scales(float mine, float (&x)[2][4]) {
  if constexpr (!Cache::kHasScales) return;
  const int first = 2 * (static_cast<int>(threadIdx.x) % 4);
#pragma unroll
  for (int s = 0; s < 2; ++s)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float scale = __shfl_sync(kAllLanes, mine, 8 * s + first + c);
      x[s][c] *= scale;
      x[s][2 + c] *= scale;
    }
}

constexpr int kStride = kAttentionWarps * kStepKeys;  // between successive tiles of a warp

// One warp's loop over its keys: first, first + stride, ... of the range. The next keys are loaded
// once the scores are computed, the next values once the values are added.
template <class Cache, int kDim>
__device__ void attend_keys(const AttentionParams& p, const QueryTile& tile, const KeyRange& range,
                            const uint8_t* queries, const QueryLimits (&limits)[2], Found found,
                            int first, int end, uint8_t* memory, WarpState<1, kDim>& state) {
  uint8_t* const keys = memory;
  uint8_t* const values = keys + kStepKeys * WarpMemory<Cache, kDim>::kLine;
  uint8_t* const wide = values + kStepKeys * WarpMemory<Cache, kDim>::kLine;
  for (; first < end; first += kStride) {
    const int count = end - first, next = first + kStride;
    float scores[1][2][4];
    wait_for_copies<1>();
    __syncwarp();
    const uint8_t* const low = queries + Lines<kDim>::bytes(kFewVectors);
    if constexpr (kIsFp8<Cache>)
      score_f8<kDim>(queries, low, keys, scores[0]);
    else
      score<1, 1, kDim, true>(queries, low, widen<Cache, kDim>(keys, wide), scores);
    __syncwarp();
    Found next_found;
    if (next < end) {
      next_found = find<Cache>(p, tile, range, next, end);
      fetch<Cache, kDim>(p, p.k_cache, next_found.place, end - next, keys);
    }
    end_copies();
    multiply_scales<Cache>(found.key_scale, scores[0]);
    judge<1>(
        p, is_plain(p), limits, count, [&](int i) { return range.position(first + i); }, scores[0]);
    weigh<1, kDim>(scores[0], state.largest[0], state.sum[0], state.value[0]);
    multiply_scales<Cache>(found.value_scale, scores[0]);
    wait_for_copies<1>();
    __syncwarp();
    if constexpr (kIsFp8<Cache>)
      add_values_f8<kDim>(scores[0], values, state.value[0]);
    else
      add_values<1, 1, kDim, true>(scores, widen<Cache, kDim>(values, wide), state.value);
    __syncwarp();
    if (next < end) fetch<Cache, kDim>(p, p.v_cache, next_found.place, end - next, values);
    end_copies();
    found = next_found;
  }
  wait_for_copies<0>();
}

// Merges the warps' states: values [kFewVectors][kDim] relative to 2^largest, in shared memory.
template <class Cache, int kDim>
__device__ void merge_warps(const QueryTile& tile, WarpState<1, kDim>& state, float* values,
                            float (*largest)[kFewVectors], float (*sums)[kFewVectors]) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float sum = row_sum(state.sum[0][h]);
    if (lane % 4 == 0) {
      largest[warp][lane / 4 + 8 * h] = state.largest[0][h];
      sums[warp][lane / 4 + 8 * h] = sum;
    }
  }
  __syncthreads();  // all warps have finished with their tiles, which `values` overlays
#pragma unroll
  for (int i = 0; i < kDim / 8; ++i)
#pragma unroll
    for (int r = 0; r < 4; ++r)
      if (const int m = lane / 4 + 8 * (r / 2); m < tile.vectors())
        values[(warp * kFewVectors + m) * kDim + column_of<Cache>(i, r)] =
            state.value[0][i][r] * kBy<Cache>;
  __syncthreads();
  combine_warps<kFewVectors, kDim>(tile, values, largest, sums);
}

template <class Cache, int kDim>
__global__ void __launch_bounds__(kAttentionThreads, kDim <= 128 ? 4 : 1)
    few_tokens_kernel(AttentionParams p) {
  extern __shared__ __align__(16) uint8_t memory[];
  __shared__ float largest[kAttentionWarps][kFewVectors], sums[kAttentionWarps][kFewVectors];
  __shared__ int arrived;
  let_next_begin();
  // Positions and cache lines of earlier steps are visible: see embed_kernel().
  QueryTile tile;
  const bool has_tokens = find_tile(p, tile);
  const KeyRange range = has_tokens ? keys_of(p, p.positions[tile.first_token],
                                              p.positions[tile.first_token + tile.tokens - 1])
                                    : KeyRange{};
  // The row's keys in equal parts of <= chunk_keys.
  const int num_parts = (range.count + p.chunk_keys - 1) / p.chunk_keys;
  if (static_cast<int>(blockIdx.x) >= num_parts) return wait_for_previous();
  const int part_keys =
      ((range.count + num_parts - 1) / num_parts + kStepKeys - 1) / kStepKeys * kStepKeys;
  const int first = static_cast<int>(blockIdx.x) * part_keys;
  const int end = min(range.count, first + part_keys);
  const int old_keys = range.count - tile.tokens;

  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  uint8_t* const queries = memory;
  uint8_t* const tiles = memory + 2 * Lines<kDim>::bytes(kFewVectors);
  uint8_t* const mine = tiles + warp * WarpMemory<Cache, kDim>::kBytes;
  const int key = first + warp * kStepKeys;
  Found found;
  const auto fetch_first = [&] {
    if (key < end) {
      found = find<Cache>(p, tile, range, key, end);
      fetch<Cache, kDim>(p, p.k_cache, found.place, end - key, mine);
    }
    end_copies();
    if (key < end)
      fetch<Cache, kDim>(p, p.v_cache, found.place, end - key,
                         mine + kStepKeys * WarpMemory<Cache, kDim>::kLine);
    end_copies();
  };
  const bool is_old = min(key + kStepKeys, end) <= old_keys;
  if (is_old) fetch_first();
  QueryLimits limits[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int m = lane / 4 + 8 * h;
    const bool exists = m < tile.vectors();
    limits[h] = {exists ? p.positions[tile.token(m)] : -1, exists ? slope_of(p, tile.head(m)) : 0};
  }
  wait_for_qkv(p);
  // New keys and values of this part. Blocks that share a KV head write the same bytes.
  const int new_keys = max(0, first - old_keys);  // index of the first one
  const int new_lines = 2 * (min(tile.tokens, end - old_keys) - new_keys);
  for (int i = warp; i < new_lines; i += kAttentionWarps)
    store_token<Cache>(p, tile.first_token + new_keys + i / 2, tile.row, tile.kv_head, i % 2 != 0);
  load_queries<kDim, true>(p, tile, kFewVectors, kBy<Cache>, queries,
                           queries + Lines<kDim>::bytes(kFewVectors),
                           [](int c) { return kIsFp8<Cache> ? place_of_f8(c) : c; });
  WarpState<1, kDim> state;
  state.clear();
  if (new_lines > 0) __threadfence_block();
  __syncthreads();
  if (!is_old) fetch_first();
  attend_keys<Cache, kDim>(p, tile, range, queries, limits, found, key, end, mine, state);
  auto* const values = reinterpret_cast<float*>(tiles);
  merge_warps<Cache, kDim>(tile, state, values, largest, sums);
  finish<kDim>(p, tile, num_parts, values, largest[0], sums[0], &arrived);
  wait_for_previous();
}

template <class Cache, int kDim>
cudaError_t enqueue(const AttentionParams& p, dim3 grid, cudaStream_t stream) {
  constexpr int kBytes = shared_bytes<Cache, kDim>();
  const auto kernel = few_tokens_kernel<Cache, kDim>;
  return launch_overlapped(kernel, p.num_rows, grid, kAttentionThreads, kBytes, stream, p);
}

template <class Cache>
cudaError_t enqueue_dim(const AttentionParams& p, dim3 grid, cudaStream_t stream) {
  if (p.head_dim <= 64) return enqueue<Cache, 64>(p, grid, stream);
  if (p.head_dim <= 96) return enqueue<Cache, 96>(p, grid, stream);
  if (p.head_dim <= 128) return enqueue<Cache, 128>(p, grid, stream);
  return enqueue<Cache, 256>(p, grid, stream);
}

}  // namespace

cudaError_t launch_few_tokens(const AttentionParams& p, DType cache, int num_chunks,
                              cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(num_chunks),
                  static_cast<unsigned>(p.num_kv_heads * p.head_blocks),
                  static_cast<unsigned>(p.num_rows));
  return with_cache(cache, [&]<class Cache>() { return enqueue_dim<Cache>(p, grid, stream); });
}

}  // namespace nereid::kernels::cuda
