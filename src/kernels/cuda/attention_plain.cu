// Attention of latent heads, whose values are the last columns of their keys, and of heads whose
// width suits no other kernel: a block takes one query vector of one token and walks its keys.
// Scores and weights are f32.
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_launch.h"
#include "kernels/cuda/launch.h"

namespace nereid::kernels::cuda {
namespace {

constexpr int kKeys = 32;                                   // of a step of the walk
constexpr int kColumns = kMaxPlainDim / kAttentionThreads;  // of a value, for one thread

// The rotated query of a head.
__device__ void load_query(const AttentionParams& p, int64_t token, int head, float* query) {
  const float* from = p.qkv + token * p.qkv_stride + static_cast<int64_t>(head) * p.head_dim;
  const int position = p.positions[token];
  for (int i = threadIdx.x; i < p.head_dim / 2; i += kAttentionThreads) {
    const float2 pair = load_pair(p, from, i, position);
    const int2 at = columns(p, i);
    query[at.x] = pair.x;
    query[at.y] = pair.y;
  }
}

// The score of a key in log2 units, by a warp.
template <class Cache>
__device__ float score_of(const AttentionParams& p, const float* query, const Place& place,
                          float slope, int distance) {
  const auto* key = static_cast<const typename Cache::Cell*>(p.k_cache) + place.first;
  float dot = 0;
  for (int c = threadIdx.x % kWarp; c < p.head_dim; c += kWarp)
    dot += query[c] * Cache::read(key + c);
  dot = warp_sum(dot);
  if constexpr (Cache::kHasScales) dot *= p.k_scales[place.scale];
  float score = dot * p.scale;
  if (p.cap > 0) score = p.cap * tanhf(score / p.cap);
  return score * kLog2E - slope * static_cast<float>(distance);
}

template <class Cache>
__global__ void __launch_bounds__(kAttentionThreads) plain_kernel(AttentionParams p) {
  __shared__ float query[kMaxPlainDim], scores[kKeys], scales[kKeys];
  __shared__ int64_t lines[kKeys];  // first element of each value
  const int64_t token = blockIdx.x;
  const int head = static_cast<int>(blockIdx.y), kv_head = head / (p.num_heads / p.num_kv_heads);
  const int row = p.row_of_token[token], position = p.positions[token];
  const bool is_latent = p.latent > 0;
  const int width = is_latent ? p.latent : p.head_dim;  // of a value
  const auto* const cached =
      static_cast<const typename Cache::Cell*>(is_latent ? p.k_cache : p.v_cache);
  const float* const value_scales = is_latent ? p.k_scales : p.v_scales;
  load_query(p, token, head, query);
  const float slope = slope_of(p, head);
  const KeyRange range = keys_of(p, position, position);
  float largest = p.sinks ? load(p.sinks + head) * kLog2E : -INFINITY, sum = p.sinks ? 1 : 0;
  float values[kColumns] = {};
  for (int first = 0; first < range.count; first += kKeys) {
    const int count = min(kKeys, range.count - first);
    __syncthreads();  // the query is there, and everyone has left the keys before
    for (int i = threadIdx.x / kWarp; i < count; i += kAttentionWarps) {
      const int at = range.position(first + i);
      const Place place = place_of(p, row, cell_of(p, token, at), kv_head);
      const float score = score_of<Cache>(p, query, place, slope, position - at);
      if (threadIdx.x % kWarp != 0) continue;
      scores[i] = score;
      scales[i] = Cache::kHasScales ? value_scales[place.scale] : 1;
      lines[i] = place.first + p.head_dim - width;
    }
    __syncthreads();
    float now = largest;
    for (int i = 0; i < count; ++i) now = fmaxf(now, scores[i]);
    const float correction = exp2f(largest - now);
    largest = now;
    sum *= correction;
#pragma unroll
    for (int j = 0; j < kColumns; ++j) values[j] *= correction;
    for (int i = 0; i < count; ++i) {
      const float weight = exp2f(scores[i] - now);
      sum += weight;
      const auto* value = cached + lines[i];
#pragma unroll
      for (int j = 0; j < kColumns; ++j)
        if (const int c = threadIdx.x + j * kAttentionThreads; c < width)
          values[j] += weight * scales[i] * Cache::read(value + c);
    }
  }
  __nv_bfloat16* out = p.out + token * p.out_stride + static_cast<int64_t>(head) * width;
#pragma unroll
  for (int j = 0; j < kColumns; ++j)
    if (const int c = threadIdx.x + j * kAttentionThreads; c < width)
      store(out + c, values[j] / sum);
}

template <class Cache>
cudaError_t enqueue_plain(const AttentionParams& p, dim3 grid, cudaStream_t stream) {
  plain_kernel<Cache><<<grid, kAttentionThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_plain_heads(const AttentionParams& p, DType cache, int num_tokens,
                               cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(num_tokens), static_cast<unsigned>(p.num_heads));
  if (cache == DType::kI8) return enqueue_plain<Int8Cache>(p, grid, stream);
  if (cache == DType::kF8E4M3) return enqueue_plain<Fp8Cache>(p, grid, stream);
  return enqueue_plain<Bf16Cache>(p, grid, stream);
}

}  // namespace nereid::kernels::cuda
