// Stores inputs of attention_hopper.cu for all-rotary or non-rotary heads: keys and values of the
// step's tokens in the cache, rotated queries as bf16 at the locations of their results, bf16 keys
// and values of an 8-bit cache (attention_wide.cuh). Same numbers as the kernel in attention.cu; a
// thread has eight columns of a head, four of each half, and loads all its heads before it stores.
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/attention/attention_wide.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/overlap.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kThreads = 256, kBlocks = 4;  // resident per SM
constexpr int kNumbers = 8;                 // columns of a head per thread
constexpr int kLoaded = 3;                  // heads per thread in flight
constexpr int kManyStored = 512;            // tokens whose blocks fill a device

// A thread's columns of a head: c to c + 3 and the same of the second half.
struct Piece {
  float4 low, high;

  __device__ void load(const float* from, int half) {
    low = *reinterpret_cast<const float4*>(from);
    high = *reinterpret_cast<const float4*>(from + half);
  }
  __device__ void turn(const Piece& angles) {
    turn(low.x, high.x, angles.low.x, angles.high.x);
    turn(low.y, high.y, angles.low.y, angles.high.y);
    turn(low.z, high.z, angles.low.z, angles.high.z);
    turn(low.w, high.w, angles.low.w, angles.high.w);
  }
  __device__ void multiply(float factor) {
    low = {__fmul_rn(low.x, factor), __fmul_rn(low.y, factor), __fmul_rn(low.z, factor),
           __fmul_rn(low.w, factor)};
    high = {__fmul_rn(high.x, factor), __fmul_rn(high.y, factor), __fmul_rn(high.z, factor),
            __fmul_rn(high.w, factor)};
  }
  __device__ uint32_t largest() const { return max(largest(low), largest(high)); }
  __device__ void store(__nv_bfloat16* to, int half) const {
    *reinterpret_cast<uint2*>(to) = {pack(low.x, low.y), pack(low.z, low.w)};
    *reinterpret_cast<uint2*>(to + half) = {pack(high.x, high.y), pack(high.z, high.w)};
  }

 private:
  __device__ static void turn(float& x, float& y, float cosine, float sine) {
    const float2 pair = rotate({x, y}, cosine, sine);
    x = pair.x, y = pair.y;
  }
  __device__ static uint32_t largest(const float4& x) {
    return max(max(magnitude(x.x), magnitude(x.y)), max(magnitude(x.z), magnitude(x.w)));
  }
};

// Four cells in a word; replaces x by their values times `scale`.
template <class Cache>
__device__ uint32_t to_cells(float4& x, float scale) {
  uint32_t word;
  auto* const cells = reinterpret_cast<typename Cache::Cell*>(&word);
  float* const numbers = &x.x;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    Cache::write(cells + i, numbers[i]);
    numbers[i] = Cache::read(cells + i) * scale;
  }
  return word;
}

// Stores a key or a value; kLanes threads. `wide`: null if there is none.
template <class Cache, int kLanes>
__device__ void store_cells(Piece& x, const CellIndex& place, int column, void* cache,
                            float* scales, __nv_bfloat16* wide) {
  constexpr int kHalf = kLanes * kNumbers / 2;
  auto* const cells = static_cast<typename Cache::Cell*>(cache) + place.first + column;
  if constexpr (!Cache::kHasScales) {
    x.store(cells, kHalf);
  } else {
    // Other lanes of the warp may have a query.
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const uint32_t own = ((1u << kLanes) - 1) << lane / kLanes * kLanes;
    uint32_t most = x.largest();
#pragma unroll
    for (int step = kLanes / 2; step > 0; step /= 2)
      most = max(most, __shfl_xor_sync(own, most, step));
    const float largest = __uint_as_float(most);
    const bool finite = most < 0x7f800000u, keep = finite && largest >= kSmallestScaled;
    const float scale = keep ? __fdiv_rn(largest, Cache::kLimit) : finite ? 0 : NAN;
    if (column == 0) scales[place.scale] = scale;
    if (keep)
      x.multiply(__fdiv_rn(Cache::kLimit, largest));
    else
      x = {};
    *reinterpret_cast<uint32_t*>(cells) = to_cells<Cache>(x.low, scale);
    *reinterpret_cast<uint32_t*>(cells + kHalf) = to_cells<Cache>(x.high, scale);
    if (wide) x.store(wide + column, kHalf);
  }
}

// Converts the row's keys and values from before the step to bf16; each token of the row takes a
// share of their positions.
template <class Cache, int kDim>
__device__ void widen_before(const AttentionParams& p, int64_t token, int row, int first_block) {
  constexpr int kCells = 16, kPieces = kDim / kCells;
  const int first = p.row_begin[row], step = p.row_begin[row + 1] - first;
  const int own = static_cast<int>(token) - first, before = p.positions[first];
  const int lines = 2 * p.num_kv_heads;
  const int count = own < before ? ((before - 1 - own) / step + 1) * lines * kPieces : 0;
  const int threads = static_cast<int>(gridDim.y) * kThreads;
#pragma unroll 2
  for (int i = static_cast<int>(blockIdx.y * kThreads + threadIdx.x); i < count; i += threads) {
    const int piece = i % kPieces, line = i / kPieces % lines, head = line % p.num_kv_heads;
    const bool is_value = line >= p.num_kv_heads;
    const int position = own + i / (kPieces * lines) * step;
    const CellIndex place = place_of(p, row, position, head);
    const auto* const cache = static_cast<const uint8_t*>(is_value ? p.v_cache : p.k_cache);
    const uint4 cells = *reinterpret_cast<const uint4*>(cache + place.first + kCells * piece);
    const float scale = (is_value ? p.v_scales : p.k_scales)[place.scale];
    auto* const out = reinterpret_cast<uint4*>(wide_line(p, first_block, head, position, is_value) +
                                               kCells * piece);
    const auto scaled = [&](uint32_t pair) {
      const float2 x = unpack(pair);
      return pack(x.x * scale, x.y * scale);
    };
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint4 x = Cache::widen8(reinterpret_cast<const typename Cache::Cell*>(&cells) + 8 * h);
      out[h] = {scaled(x.x), scaled(x.y), scaled(x.z), scaled(x.w)};
    }
  }
}

// The heads of a token, kDim / kNumbers threads each. Grid [token, share of the heads].
template <class Cache, int kDim>
__global__ void __launch_bounds__(kThreads, kBlocks) store_vectors_kernel(AttentionParams p) {
  constexpr int kLanes = kDim / kNumbers, kHalf = kDim / 2, kTogether = kThreads / kLanes;
  let_next_begin();
  const int64_t token = blockIdx.x;
  const int row = p.row_of_token[token], position = p.positions[token];
  const bool is_few = p.row_begin[row + 1] - p.row_begin[row] <= p.few_tokens && !has_tree(p, row);
  const int wide_block = Cache::kHasScales && !is_few ? find_wide_blocks(p, row) : -1;
  wait_for_previous();
  if (is_few) return;
  const int column = static_cast<int>(threadIdx.x) % kLanes * (kNumbers / 2);
  const int cell = cell_of(p, token, position), in_table = cell / p.block_tokens;
  const int block = p.block_table[static_cast<int64_t>(row) * p.max_blocks + in_table];
  const float* const from = p.qkv + token * p.qkv_stride + column;
  Piece angles = {};
  if (p.rope_table) angles.load(p.rope_table + int64_t{position} * kDim + column, kHalf);
  const int end = p.num_heads + 2 * p.num_kv_heads, step = static_cast<int>(gridDim.y) * kTogether;
  for (int first =
           static_cast<int>(blockIdx.y) * kTogether + static_cast<int>(threadIdx.x) / kLanes;
       first < end; first += kLoaded * step) {
    Piece x[kLoaded];
#pragma unroll
    for (int i = 0; i < kLoaded; ++i)
      if (first + i * step < end) x[i].load(from + (first + i * step) * kDim, kHalf);
#pragma unroll
    for (int i = 0; i < kLoaded; ++i) {
      const int head = first + i * step, line = head - p.num_heads;
      if (head >= end) break;
      const bool is_value = line >= p.num_kv_heads;
      if (p.rope_table && !is_value) x[i].turn(angles);
      if (line < 0) {
        x[i].multiply(p.scale * kLog2E);
        x[i].store(p.out + token * p.out_stride + head * kDim + column, kHalf);
        continue;
      }
      const int kv_head = is_value ? line - p.num_kv_heads : line;
      const int in_block = kv_head * p.block_tokens + cell - in_table * p.block_tokens;
      store_cells<Cache, kLanes>(
          x[i],
          {block * p.block_stride + int64_t{in_block} * kDim, block * p.scale_stride + in_block},
          column, is_value ? p.v_cache : p.k_cache, is_value ? p.v_scales : p.k_scales,
          wide_block < 0 ? nullptr : wide_line(p, wide_block, kv_head, position, is_value));
    }
  }
  if constexpr (Cache::kHasScales)
    if (wide_block >= 0) widen_before<Cache, kDim>(p, token, row, wide_block);
}

template <class Cache>
cudaError_t enqueue(const AttentionParams& p, int num_tokens, cudaStream_t stream) {
  // Few tokens: more blocks, to fill the device.
  const dim3 blocks(static_cast<unsigned>(num_tokens), num_tokens < kManyStored ? 4 : 1);
  const auto kernel =
      p.head_dim == 64 ? store_vectors_kernel<Cache, 64> : store_vectors_kernel<Cache, 128>;
  return launch_overlapped(kernel, num_tokens, blocks, kThreads, 0, stream, p);
}

}  // namespace

bool takes_vectors(const AttentionParams& p) {
  return is_aligned(p.qkv) && p.qkv_stride % 4 == 0 && is_aligned(p.rope_table) &&
         (!p.rope_table || (p.rotated == p.head_dim && !p.interleaved));
}

cudaError_t launch_store_vectors(const AttentionParams& p, DType cache, int num_tokens,
                                 cudaStream_t stream) {
  return with_cache(cache, [&]<class Cache>() { return enqueue<Cache>(p, num_tokens, stream); });
}

}  // namespace nereid::kernels::cuda
