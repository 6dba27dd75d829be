// Paged attention for mixed prefill and decode rows in one launch. A block takes up to eight query
// vectors that share a KV head (several tokens, several heads of the group, or both); its warps
// take tiles of 32 keys in turn, each with an online softmax of its own (Milakov and Gimelshein
// 2018, "Online normalizer calculation for softmax"), merged at the end in a fixed order.
#include "kernels/cuda/cache_types.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"

namespace nereid::kernels::cuda {
namespace {

constexpr int kStoreThreads = 128;
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kQueries = 8;  // query vectors of a block
constexpr float kLog2E = 1.4426950408889634f;

struct Params {
  const float* qkv;
  int64_t qkv_stride;
  void* k_cache;
  void* v_cache;
  float* k_scales;  // one for each vector of the cache, or null
  float* v_scales;
  const float* rope_table;     // or null
  const __nv_bfloat16* sinks;  // or null
  const int32_t* positions;
  const int32_t* row_begin;
  const int32_t* row_of_token;
  const int32_t* block_table;
  __nv_bfloat16* out;
  int64_t out_stride;
  int64_t block_stride, scale_stride;  // from block to block of the cache
  int num_rows, max_blocks, num_heads, num_kv_heads, head_dim, block_tokens, window, sink;
  int tile_tokens;      // tokens of a block
  int heads_per_block;  // query heads of a block, all of one group
  int head_blocks;      // blocks for one group
  float scale, cap, alibi;
  int alibi_heads;  // the largest power of two up to num_heads
  int rotated;      // columns of a head that turn
  bool interleaved;
};

// Index of a position's head vector's first element in a layer's K or V cache, and of its scale.
struct Place {
  int64_t first, scale;
};

__device__ Place place_of(const Params& p, int row, int position, int kv_head) {
  const int64_t block =
      p.block_table[static_cast<int64_t>(row) * p.max_blocks + position / p.block_tokens];
  const int64_t line = kv_head * p.block_tokens + position % p.block_tokens;
  return {block * p.block_stride + line * p.head_dim, block * p.scale_stride + line};
}

// Columns of pair `i` of a head, as they are rotated together.
__device__ int2 columns(const Params& p, int i) {
  return pair_columns(i, p.rotated, p.interleaved);
}

// Pair `i` of a head vector, rotated for its position when it is one that turns.
__device__ float2 load_pair(const Params& p, const float* head, int i, int position) {
  const int2 at = columns(p, i);
  const float2 pair = {head[at.x], head[at.y]};
  if (i >= p.rotated / 2) return pair;
  const float* angles = p.rope_table + static_cast<int64_t>(position) * p.rotated;
  return rotate(pair, angles[i], angles[i + p.rotated / 2]);
}

// Writes a head vector, whose pairs of columns `pair(i)` gives, to its place; the block's threads
// do it together.
template <class Cache, class Pair>
__device__ void store_line(const Params& p, Pair pair, Place place, void* cache, float* scales,
                           float* shared) {
  const int half = p.head_dim / 2, warp = threadIdx.x / kWarp;
  auto* out = static_cast<typename Cache::Cell*>(cache) + place.first;
  float factor = 1;
  bool keep = true;
  if constexpr (Cache::kHasScales) {
    float most = 0;  // infinity or NaN, as bits larger than any number, when one is among them
    for (int c = threadIdx.x; c < half; c += kStoreThreads) {
      const float2 x = pair(c);
      const float low = fabsf(x.x), high = fabsf(x.y);
      most = __uint_as_float(
          max(__float_as_uint(most), max(__float_as_uint(low), __float_as_uint(high))));
    }
    for (int step = kWarp / 2; step > 0; step /= 2)
      most = __uint_as_float(
          max(__float_as_uint(most), __shfl_xor_sync(kAllLanes, __float_as_uint(most), step)));
    if (threadIdx.x % kWarp == 0) shared[warp] = most;
    __syncthreads();
    for (int other = 0; other < kStoreThreads / kWarp; ++other)
      most = __uint_as_float(max(__float_as_uint(most), __float_as_uint(shared[other])));
    __syncthreads();
    const bool finite = __float_as_uint(most) < 0x7f800000u;
    keep = finite && most >= kSmallestScaled;
    factor = keep ? __fdiv_rn(Cache::kLimit, most) : 0;
    if (threadIdx.x == 0)
      scales[place.scale] = keep ? __fdiv_rn(most, Cache::kLimit) : finite ? 0 : NAN;
  }
  for (int c = threadIdx.x; c < half; c += kStoreThreads) {
    const float2 x = keep ? pair(c) : make_float2(0, 0);
    const int2 at = columns(p, c);
    Cache::write(out + at.x, __fmul_rn(x.x, factor));
    Cache::write(out + at.y, __fmul_rn(x.y, factor));
  }
}

// One block for each token and KV head.
template <class Cache>
__global__ void store_kernel(Params p) {
  __shared__ float shared[kStoreThreads / kWarp];
  const int64_t token = blockIdx.x;
  const int head = static_cast<int>(blockIdx.y);
  const int position = p.positions[token];
  const Place place = place_of(p, p.row_of_token[token], position, head);
  const float* key =
      p.qkv + token * p.qkv_stride + static_cast<int64_t>(p.num_heads + head) * p.head_dim;
  const float* value = key + static_cast<int64_t>(p.num_kv_heads) * p.head_dim;
  store_line<Cache>(
      p, [&](int c) { return load_pair(p, key, c, position); }, place, p.k_cache, p.k_scales,
      shared);
  store_line<Cache>(
      p,
      [&](int i) {
        const int2 at = columns(p, i);
        return make_float2(value[at.x], value[at.y]);
      },
      place, p.v_cache, p.v_scales, shared);
}

// Which query vectors a block has: vector m is token first_token + m / heads, head first_head +
// m % heads.
struct Work {
  int row, first_token, tokens, first_head, heads, kv_head;
  __device__ int vectors() const { return tokens * heads; }
};

// Blocks are numbered so that row r starts at row_begin[r] / tile_tokens + r: no table is needed,
// and at most one block per row finds nothing to do. False for such a block.
__device__ bool find_work(const Params& p, Work& w) {
  const int block = static_cast<int>(blockIdx.x);
  int low = 0, high = p.num_rows - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (p.row_begin[middle] / p.tile_tokens + middle <= block)
      low = middle;
    else
      high = middle - 1;
  }
  w.row = low;
  const int tile = block - (p.row_begin[low] / p.tile_tokens + low);
  w.first_token = p.row_begin[low] + tile * p.tile_tokens;
  w.tokens = min(p.tile_tokens, p.row_begin[low + 1] - w.first_token);
  const int group = p.num_heads / p.num_kv_heads;
  const int part = static_cast<int>(blockIdx.y) % p.head_blocks;
  w.kv_head = static_cast<int>(blockIdx.y) / p.head_blocks;
  w.first_head = w.kv_head * group + part * p.heads_per_block;
  w.heads = min(p.heads_per_block, group - part * p.heads_per_block);
  return w.tokens > 0;
}

// The running state of one warp: weights relative to 2^largest, this lane's share of their sum, and
// the weighted values of elements 2 * (lane + 32 * i) and the next one.
template <int kPairs>
struct State {
  float largest[kQueries];
  float sum[kQueries];
  float2 value[kQueries][kPairs];
};

__device__ float weight_of(float score, float largest) {
  return score == -INFINITY ? 0.0f : exp2f(score - largest);
}

// Dot products of this lane's key with every query vector (log2 units).
template <class Cache>
__device__ void score(const Params& p, const float* queries, int num_vectors, const Place& place,
                      float (&scores)[kQueries]) {
  const auto* key = static_cast<const typename Cache::Cell*>(p.k_cache) + place.first;
#pragma unroll
  for (int m = 0; m < kQueries; ++m) scores[m] = 0;
  for (int piece = 0; piece < p.head_dim / 8; ++piece) {
    float k[8];
    Cache::read8(key + piece * 8, k);
#pragma unroll
    for (int m = 0; m < kQueries; ++m) {
      if (m >= num_vectors) break;
      const auto* q = reinterpret_cast<const float4*>(queries + m * p.head_dim + piece * 8);
      const float4 low = q[0], high = q[1];
      float dot = scores[m];
      dot = fmaf(low.x, k[0], dot);
      dot = fmaf(low.y, k[1], dot);
      dot = fmaf(low.z, k[2], dot);
      dot = fmaf(low.w, k[3], dot);
      dot = fmaf(high.x, k[4], dot);
      dot = fmaf(high.y, k[5], dot);
      dot = fmaf(high.z, k[6], dot);
      dot = fmaf(high.w, k[7], dot);
      scores[m] = dot;
    }
  }
  if constexpr (Cache::kHasScales) {
    const float scale = p.k_scales[place.scale];
#pragma unroll
    for (int m = 0; m < kQueries; ++m) scores[m] *= scale;
  }
}

// Adds the weighted values of `count` keys; lanes past it hold the last key's place and weight
// zero.
template <class Cache, int kPairs>
__device__ void add_values(const Params& p, const float (*weights)[kWarp], int num_vectors,
                           int64_t first, int count, State<kPairs>& state) {
  const int lane = threadIdx.x % kWarp, half = p.head_dim / 2;
  for (int j = 0; j < count; j += 4) {
    typename Cache::Pair words[4][kPairs];
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      const int64_t from = __shfl_sync(kAllLanes, static_cast<long long>(first), j + u);
      const auto* v = reinterpret_cast<const typename Cache::Pair*>(
          static_cast<const typename Cache::Cell*>(p.v_cache) + from);
#pragma unroll
      for (int i = 0; i < kPairs; ++i)
        words[u][i] = lane + kWarp * i < half ? v[lane + kWarp * i] : typename Cache::Pair{};
    }
#pragma unroll
    for (int m = 0; m < kQueries; ++m) {
      if (m >= num_vectors) break;
      const float4 w = *reinterpret_cast<const float4*>(&weights[m][j]);
      const float by_key[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (int u = 0; u < 4; ++u) {
#pragma unroll
        for (int i = 0; i < kPairs; ++i) {
          const float2 v = Cache::read2(words[u][i]);
          state.value[m][i].x = fmaf(by_key[u], v.x, state.value[m][i].x);
          state.value[m][i].y = fmaf(by_key[u], v.y, state.value[m][i].y);
        }
      }
    }
  }
}

// alibi_slope() of ops.h in log2 units; 0 without ALiBi.
__device__ float slope_of(const Params& p, int head) {
  if (p.alibi == 0) return 0;
  const int n = p.alibi_heads;
  const double power = head < n ? head + 1 : head - n + 0.5;
  return static_cast<float>(exp2(-static_cast<double>(p.alibi) * power / n)) * kLog2E;
}

// Loads and rotates the block's query vectors, scaled so that exp2 gives the softmax.
__device__ void load_queries(const Params& p, const Work& w, float* queries, int* query_position,
                             float* query_slope) {
  const int half = p.head_dim / 2;
  const float factor = p.scale * kLog2E;
  for (int i = threadIdx.x; i < w.vectors() * half; i += kThreads) {
    const int m = i / half, c = i % half;
    const int64_t token = w.first_token + m / w.heads;
    const float* head = p.qkv + token * p.qkv_stride +
                        static_cast<int64_t>(w.first_head + m % w.heads) * p.head_dim;
    const float2 pair = load_pair(p, head, c, p.positions[token]);
    const int2 at = columns(p, c);
    queries[m * p.head_dim + at.x] = pair.x * factor;
    queries[m * p.head_dim + at.y] = pair.y * factor;
  }
  if (threadIdx.x < w.vectors()) {
    query_position[threadIdx.x] = p.positions[w.first_token + threadIdx.x / w.heads];
    query_slope[threadIdx.x] = slope_of(p, w.first_head + static_cast<int>(threadIdx.x) % w.heads);
  }
}

// Turns a tile's scores into weights in shared memory, in units of the value's scale, and rescales
// the state to the new largest.
template <int kPairs>
__device__ void update(const Params& p, const int* query_position, const float* query_slope,
                       int num_vectors, int key, bool has_key, float value_scale,
                       const float (&scores)[kQueries], float (*weights)[kWarp],
                       State<kPairs>& state) {
#pragma unroll
  for (int m = 0; m < kQueries; ++m) {
    if (m >= num_vectors) break;
    const int position = query_position[m];
    const bool visible =
        has_key && key <= position && (p.window == 0 || key > position - p.window || key < p.sink);
    float bent = scores[m];
    if (p.cap > 0) bent = p.cap * kLog2E * tanhf(bent / (p.cap * kLog2E));
    if (p.alibi > 0) bent -= query_slope[m] * static_cast<float>(position - key);
    const float value = visible ? bent : -INFINITY;
    const float largest = fmaxf(state.largest[m], warp_max(value));
    const float correction = weight_of(state.largest[m], largest);
    const float weight = weight_of(value, largest);
    state.largest[m] = largest;
    state.sum[m] = state.sum[m] * correction + weight;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      state.value[m][i].x *= correction;
      state.value[m][i].y *= correction;
    }
    // A value that this query does not see may not even be a number.
    weights[m][threadIdx.x % kWarp] = visible ? weight * value_scale : 0;
  }
}

// Sums the warps' states in warp order and writes the output vectors.
template <int kPairs>
__device__ void merge(const Params& p, const Work& w, const State<kPairs>& state, float* values,
                      float (*largest)[kQueries], float (*sums)[kQueries]) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
#pragma unroll
  for (int m = 0; m < kQueries; ++m) {
    const float sum = warp_sum(state.sum[m]);
    if (lane == 0) largest[warp][m] = state.largest[m], sums[warp][m] = sum;
  }
  __syncthreads();
#pragma unroll
  for (int m = 0; m < kQueries; ++m) {
    if (m >= w.vectors()) break;
    const float sink = p.sinks ? load(p.sinks + w.first_head + m % w.heads) * kLog2E : -INFINITY;
    float top = sink;
    for (int other = 0; other < kWarps; ++other) top = fmaxf(top, largest[other][m]);
    float total = weight_of(sink, top);
    for (int other = 0; other < kWarps; ++other)
      total += sums[other][m] * weight_of(largest[other][m], top);
    const float factor = weight_of(state.largest[m], top);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int pair = lane + kWarp * i;
      if (pair >= p.head_dim / 2) continue;
      values[warp * p.head_dim + 2 * pair] = state.value[m][i].x * factor;
      values[warp * p.head_dim + 2 * pair + 1] = state.value[m][i].y * factor;
    }
    __syncthreads();
    const int64_t token = w.first_token + m / w.heads;
    __nv_bfloat16* out = p.out + token * p.out_stride +
                         static_cast<int64_t>(w.first_head + m % w.heads) * p.head_dim;
    for (int c = threadIdx.x; c < p.head_dim; c += kThreads) {
      float value = 0;
      for (int other = 0; other < kWarps; ++other) value += values[other * p.head_dim + c];
      store(out + c, value / total);
    }
    __syncthreads();
  }
}

template <class Cache, int kPairs>
__global__ void __launch_bounds__(kThreads) attend_kernel(Params p) {
  extern __shared__ float4 dynamic[];
  __shared__ alignas(16) float weights[kWarps][kQueries][kWarp];
  __shared__ float largest[kWarps][kQueries];
  __shared__ float sums[kWarps][kQueries];
  __shared__ int query_position[kQueries];
  __shared__ float query_slope[kQueries];
  Work w;
  if (!find_work(p, w)) return;
  float* queries = reinterpret_cast<float*>(dynamic);
  float* values = queries + kQueries * p.head_dim;
  load_queries(p, w, queries, query_position, query_slope);
  __syncthreads();

  State<kPairs> state;
#pragma unroll
  for (int m = 0; m < kQueries; ++m) {
    state.largest[m] = -INFINITY;
    state.sum[m] = 0;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) state.value[m][i] = {0, 0};
  }
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, num_vectors = w.vectors();
  const int end = query_position[num_vectors - 1] + 1;
  // The keys of the sinks and those of the window, as one row of keys without the gap.
  const int sink = p.window > 0 ? min(p.sink, end) : 0;
  const int begin = p.window > 0 ? max(sink, query_position[0] - p.window + 1) : 0;
  const int num_keys = sink + max(0, end - begin);
  for (int tile = warp * kWarp; tile < num_keys; tile += kThreads) {
    const int count = min(kWarp, num_keys - tile);
    const int at = tile + min(lane, count - 1);
    const int key = at < sink ? at : at - sink + begin;
    const Place place = place_of(p, w.row, key, w.kv_head);
    float scores[kQueries], value_scale = 1;
    if constexpr (Cache::kHasScales) value_scale = p.v_scales[place.scale];
    score<Cache>(p, queries, num_vectors, place, scores);
    update(p, query_position, query_slope, num_vectors, key, lane < count, value_scale, scores,
           weights[warp], state);
    __syncwarp();
    add_values<Cache>(p, weights[warp], num_vectors, place.first, count, state);
    __syncwarp();
  }
  merge(p, w, state, values, largest, sums);
}

Params params_of(const Attention& a) {
  const int group = a.heads.num / a.heads.num_kv;
  Params p = {};
  p.qkv = static_cast<const float*>(a.qkv.data);
  p.qkv_stride = a.qkv.stride;
  p.k_cache = a.cache.keys;
  p.v_cache = a.cache.values;
  p.k_scales = a.cache.key_scales;
  p.v_scales = a.cache.value_scales;
  p.rope_table = is_given(a.angles) ? a.angles.data : nullptr;
  p.positions = a.step.positions;
  p.row_begin = a.step.row_begin;
  p.row_of_token = a.step.row_of_token;
  p.block_table = a.step.block_table;
  p.out = static_cast<__nv_bfloat16*>(a.out.data);
  p.out_stride = a.out.stride;
  p.block_stride = a.cache.block_stride;
  p.scale_stride = a.cache.scale_stride;
  p.num_rows = a.step.num_rows;
  p.max_blocks = a.step.max_blocks;
  p.num_heads = a.heads.num;
  p.num_kv_heads = a.heads.num_kv;
  p.head_dim = a.heads.dim;
  p.block_tokens = a.cache.block_tokens;
  p.window = a.cache.window;
  p.sink = a.cache.sink;
  p.heads_per_block = group < kQueries ? group : kQueries;
  p.head_blocks = (group + p.heads_per_block - 1) / p.heads_per_block;
  p.tile_tokens = kQueries / p.heads_per_block;
  p.scale = a.scale;
  p.cap = a.cap;
  p.alibi = a.alibi;
  p.alibi_heads = 1;
  while (p.alibi_heads <= p.num_heads / 2) p.alibi_heads *= 2;
  p.sinks = is_given(a.sinks) ? static_cast<const __nv_bfloat16*>(a.sinks.data) : nullptr;
  p.rotated = static_cast<int>(a.angles.cols);
  p.interleaved = a.interleaved;
  return p;
}

template <class Cache>
cudaError_t launch_typed(const Params& p, unsigned tokens, cudaStream_t stream) {
  const dim3 lines(tokens, static_cast<unsigned>(p.num_kv_heads));
  store_kernel<Cache><<<lines, kStoreThreads, 0, stream>>>(p);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  const dim3 blocks(
      tokens / static_cast<unsigned>(p.tile_tokens) + static_cast<unsigned>(p.num_rows),
      static_cast<unsigned>(p.num_kv_heads * p.head_blocks));
  const size_t shared = sizeof(float) * static_cast<size_t>((kQueries + kWarps) * p.head_dim);
  if (p.head_dim <= 64)
    attend_kernel<Cache, 1><<<blocks, kThreads, shared, stream>>>(p);
  else if (p.head_dim <= 128)
    attend_kernel<Cache, 2><<<blocks, kThreads, shared, stream>>>(p);
  else
    attend_kernel<Cache, 4><<<blocks, kThreads, shared, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch(const Attention& a, cudaStream_t stream) {
  const Params p = params_of(a);
  const auto tokens = static_cast<unsigned>(a.qkv.rows);
  switch (a.cache.type) {
    case DType::kI8:
      return launch_typed<Int8Cache>(p, tokens, stream);
    case DType::kF8E4M3:
      return launch_typed<Fp8Cache>(p, tokens, stream);
    default:
      return launch_typed<Bf16Cache>(p, tokens, stream);
  }
}

}  // namespace nereid::kernels::cuda
