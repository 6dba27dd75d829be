// Attention of latent heads (values = last columns of the keys), of head widths without another
// kernel, and with a relative position bias; cross attention. A block has one query vector of a
// token, or four that share their keys; scores and weights are f32. Keys are summed in chunks,
// chunks in order: same bits whether one block has all chunks or (if there would be few blocks)
// each chunk has its own.
#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/overlap.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kKeys = 32;                                   // per step
constexpr int kColumns = kMaxPlainDim / kAttentionThreads;  // of a value, per thread
constexpr int kSharing = 4;                                 // heads per block, else 1
static_assert(kKeys == kWarp && kPlainChunkKeys % kKeys == 0 && kSharing <= kAttentionWarps);

// A thread's columns of one head: the sum of values with weights 2^(score - largest).
struct Part {
  float largest = -INFINITY, sum = 0, values[kColumns] = {};
};

// 2^(score - largest); 0 for a score of -infinity, also where all are.
__device__ float plain_weight(float score, float largest) {
  return score == -INFINITY ? 0.0f : exp2f(score - largest);
}

// Same rounding in all callers.
__device__ void add(const Part& part, Part& total) {
  const float largest = fmaxf(total.largest, part.largest);
  const float before = plain_weight(total.largest, largest);
  const float now = plain_weight(part.largest, largest);
  const auto joined = [&](float a, float b) { return __fmaf_rn(b, now, __fmul_rn(a, before)); };
  total.largest = largest;
  total.sum = joined(total.sum, part.sum);
#pragma unroll
  for (int i = 0; i < kColumns; ++i) total.values[i] = joined(total.values[i], part.values[i]);
}

// Cells loaded at once.
template <class Cache, int kVector>
struct alignas(kVector * sizeof(typename Cache::Cell)) Cells {
  typename Cache::Cell cells[kVector];
  __device__ float operator[](int i) const { return Cache::read(cells + i); }
};
template <class Cache, int kVector>
__device__ Cells<Cache, kVector> read_cells(const void* cache, int64_t first) {
  return *reinterpret_cast<const Cells<Cache, kVector>*>(
      static_cast<const typename Cache::Cell*>(cache) + first);
}

// Calls f(column, index in Part::values) for the thread's columns of a value, in steps of kVector.
template <int kVector, class F>
__device__ void for_columns(int width, F f) {
#pragma unroll
  for (int i = 0; i < kColumns; i += kVector)
    if (const int c = i * kAttentionThreads + static_cast<int>(threadIdx.x) * kVector; c < width)
      f(c, i);
}

template <int kHeads>
struct Shared {
  alignas(16) float queries[kHeads][kMaxPlainDim];
  float weights[kHeads][kKeys];  // scores, then weights
  float corrections[kHeads];     // rescaling of the earlier sums
  float largest[kHeads], sums[kHeads];
  float key_scales[kKeys], value_scales[kKeys];
  int64_t lines[kKeys];  // first element of each key
  int distances[kKeys];  // from the token
  bool hidden[kKeys];    // by the mask of cross attention
  int arrived;           // for ends_last()
};

// Work of a block: a token's heads from `head`.
struct Task {
  int64_t token;
  int row, position, head, kv_head;
  KeyRange range;
  int width;  // of a value
};

template <int kHeads>
__device__ Task find_task(const AttentionParams& p) {
  Task t;
  t.token = blockIdx.x;
  t.row = p.row_of_token[t.token];
  t.position = p.positions ? p.positions[t.token] : 0;
  t.head = static_cast<int>(blockIdx.y) * kHeads;
  t.kv_head = t.head / (p.num_heads / p.num_kv_heads);
  const int last = last_of(p, t.row, t.position);
  t.range = keys_of(p, last, last);
  t.width = p.latent > 0 ? p.latent : p.head_dim;
  return t;
}

// The rotated query of a head.
__device__ void load_query(const AttentionParams& p, const Task& t, int head, float* query) {
  const float* from = p.qkv + t.token * p.qkv_stride + static_cast<int64_t>(head) * p.head_dim;
  for (int i = threadIdx.x; i < p.head_dim / 2; i += kAttentionThreads) {
    const float2 pair = load_pair(p, from, i, t.position);
    const int2 at = columns(p, i);
    query[at.x] = pair.x;
    query[at.y] = pair.y;
  }
}

template <class Cache, int kHeads>
__device__ void find_keys(const AttentionParams& p, const Task& t, int first, int count,
                          Shared<kHeads>& shared) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= count) return;
  const int at = t.range.position(first + i);
  const CellIndex place = place_of(p, t.row, cell_of(p, t.token, at), t.kv_head);
  shared.lines[i] = place.first;
  shared.distances[i] = t.position - at;
  shared.hidden[i] =
      p.cross_mask && (p.cross_mask[t.token * p.cross_mask_words + at / 32] >> (at % 32) & 1) == 0;
  if constexpr (Cache::kHasScales) {
    shared.key_scales[i] = p.k_scales[place.scale];
    shared.value_scales[i] = (p.latent > 0 ? p.k_scales : p.v_scales)[place.scale];
  }
}

// In log2 units; one warp per key.
template <class Cache, int kHeads, int kVector>
__device__ void score_keys(const AttentionParams& p, const Task& t, const float (&slopes)[kHeads],
                           int count, Shared<kHeads>& shared) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int i = static_cast<int>(threadIdx.x) / kWarp; i < count; i += kAttentionWarps) {
    float scores[kHeads] = {};
    for (int c = lane * kVector; c < p.head_dim; c += kWarp * kVector) {
      const auto cells = read_cells<Cache, kVector>(p.k_cache, shared.lines[i] + c);
#pragma unroll
      for (int v = 0; v < kVector; ++v)
#pragma unroll
        for (int h = 0; h < kHeads; ++h) scores[h] += shared.queries[h][c + v] * cells[v];
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      float score = warp_sum(scores[h]);
      if constexpr (Cache::kHasScales) score *= shared.key_scales[i];
      score *= p.scale;
      if (p.cap > 0) score = p.cap * tanhf(score / p.cap);
      score = score * kLog2E - slopes[h] * static_cast<float>(shared.distances[i]);
      if (p.bias) score += bias_of(p, t.head + h, -shared.distances[i]);
      if (lane == 0) shared.weights[h][i] = shared.hidden[i] ? -INFINITY : score;
    }
  }
}

// Converts the step's scores to weights; one warp per head.
template <class Cache, int kHeads>
__device__ void weigh_keys(int count, Shared<kHeads>& shared) {
  const int h = static_cast<int>(threadIdx.x) / kWarp, i = static_cast<int>(threadIdx.x) % kWarp;
  if (h >= kHeads) return;
  const float score = i < count ? shared.weights[h][i] : -INFINITY;
  const float before = shared.largest[h], largest = fmaxf(before, warp_max(score));
  const float weight = plain_weight(score, largest);
  const float sum = warp_sum(weight), correction = plain_weight(before, largest);
  shared.weights[h][i] = Cache::kHasScales && i < count ? weight * shared.value_scales[i] : weight;
  __syncwarp();
  if (i > 0) return;
  shared.corrections[h] = correction;
  shared.largest[h] = largest;
  shared.sums[h] = shared.sums[h] * correction + sum;
}

template <class Cache, int kHeads, int kVector>
__device__ void add_values(const AttentionParams& p, const Task& t, int count,
                           const Shared<kHeads>& shared, Part (&parts)[kHeads]) {
  const void* const cache = p.latent > 0 ? p.k_cache : p.v_cache;
#pragma unroll
  for (int h = 0; h < kHeads; ++h)
#pragma unroll
    for (float& value : parts[h].values) value *= shared.corrections[h];
#pragma unroll 4
  for (int i = 0; i < count; ++i) {
    const int64_t line = shared.lines[i] + p.head_dim - t.width;
    for_columns<kVector>(t.width, [&](int c, int at) {
      const auto cells = read_cells<Cache, kVector>(cache, line + c);
#pragma unroll
      for (int v = 0; v < kVector; ++v)
#pragma unroll
        for (int h = 0; h < kHeads; ++h) parts[h].values[at + v] += shared.weights[h][i] * cells[v];
    });
  }
}

// One chunk of the task's keys, whole block.
template <class Cache, int kHeads, int kVector>
__device__ void walk_chunk(const AttentionParams& p, const Task& t, const float (&slopes)[kHeads],
                           int chunk, Shared<kHeads>& shared, Part (&parts)[kHeads]) {
  const int begin = chunk * kPlainChunkKeys, end = min(begin + kPlainChunkKeys, t.range.count);
#pragma unroll
  for (Part& part : parts) part = {};
  for (int first = begin; first < end; first += kKeys) {
    const int count = min(kKeys, end - first);
    __syncthreads();  // the queries are loaded; all threads have finished the previous step
    if (first == begin && threadIdx.x < kHeads) {
      shared.largest[threadIdx.x] = -INFINITY;
      shared.sums[threadIdx.x] = 0;
    }
    find_keys<Cache>(p, t, first, count, shared);
    __syncthreads();
    score_keys<Cache, kHeads, kVector>(p, t, slopes, count, shared);
    __syncthreads();
    weigh_keys<Cache>(count, shared);
    __syncthreads();
    add_values<Cache, kHeads, kVector>(p, t, count, shared, parts);
  }
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    parts[h].largest = shared.largest[h];
    parts[h].sum = shared.sums[h];
  }
}

// Index of a head's chunk in the workspace.
__device__ int64_t place_of_part(const AttentionParams& p, const Task& t, int h, int chunk) {
  return (t.token * p.num_heads + t.head + h) * p.plain_chunks + chunk;
}

// Writes the block's chunk; true in the block of these heads that ends last.
template <int kHeads, int kVector>
__device__ bool leave_parts(const AttentionParams& p, const Task& t, int chunks,
                            const Part (&parts)[kHeads], Shared<kHeads>& shared) {
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    const int64_t at = place_of_part(p, t, h, static_cast<int>(blockIdx.z));
    if (threadIdx.x == 0) p.part_sums[at] = {parts[h].largest, parts[h].sum};
    for_columns<kVector>(t.width, [&](int c, int i) {
      for (int v = 0; v < kVector; ++v)
        p.part_values[at * t.width + c + v] = parts[h].values[i + v];
    });
  }
  return ends_last(p, t.token * gridDim.y + blockIdx.y, chunks, &shared.arrived);
}

template <int kHeads, int kVector>
__device__ void read_parts(const AttentionParams& p, const Task& t, int chunk,
                           Part (&parts)[kHeads]) {
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    const int64_t at = place_of_part(p, t, h, chunk);
    const float2 sums = __ldcg(p.part_sums + at);
    parts[h].largest = sums.x;
    parts[h].sum = sums.y;
    for_columns<kVector>(t.width, [&](int c, int i) {
#pragma unroll
      for (int v = 0; v < kVector; ++v)
        parts[h].values[i + v] = __ldcg(p.part_values + at * t.width + c + v);
    });
  }
}

template <class Cache, int kHeads, int kVector>
__global__ void __launch_bounds__(kAttentionThreads) plain_kernel(AttentionParams p) {
  __shared__ Shared<kHeads> shared;
  let_next_begin();
  wait_for_previous();
  const Task t = find_task<kHeads>(p);
  const int chunks = (t.range.count + kPlainChunkKeys - 1) / kPlainChunkKeys;
  const bool is_divided = p.plain_chunks > 0;
  if (is_divided && blockIdx.z >= max(chunks, 1)) return;
  float slopes[kHeads];
  Part parts[kHeads], totals[kHeads];
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    load_query(p, t, t.head + h, shared.queries[h]);
    slopes[h] = slope_of(p, t.head + h);
    if (!p.sinks) continue;
    totals[h].largest = load(p.sinks + t.head + h) * kLog2E;
    totals[h].sum = 1;
  }
  if (is_divided && chunks > 0) {
    walk_chunk<Cache, kHeads, kVector>(p, t, slopes, blockIdx.z, shared, parts);
    if (!leave_parts<kHeads, kVector>(p, t, chunks, parts, shared)) return;
  }
  for (int chunk = 0; chunk < chunks; ++chunk) {
    if (is_divided)
      read_parts<kHeads, kVector>(p, t, chunk, parts);
    else
      walk_chunk<Cache, kHeads, kVector>(p, t, slopes, chunk, shared, parts);
#pragma unroll
    for (int h = 0; h < kHeads; ++h) add(parts[h], totals[h]);
  }
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    __nv_bfloat16* const out =
        p.out + t.token * p.out_stride + static_cast<int64_t>(t.head + h) * t.width;
    for_columns<kVector>(t.width, [&](int c, int i) {
#pragma unroll
      for (int v = 0; v < kVector; ++v)  // a query without keys: 0
        store(out + c + v, totals[h].sum == 0 ? 0 : totals[h].values[i + v] / totals[h].sum);
    });
  }
}

template <class Cache, int kHeads, int kVector>
cudaError_t enqueue(const AttentionParams& p, int num_tokens, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(num_tokens), static_cast<unsigned>(p.num_heads / kHeads),
                  static_cast<unsigned>(std::max(1, p.plain_chunks)));
  return launch_overlapped(plain_kernel<Cache, kHeads, kVector>, num_tokens, grid,
                           kAttentionThreads, 0, stream, p);
}

template <class Cache>
cudaError_t enqueue(const AttentionParams& p, int num_tokens, cudaStream_t stream) {
  constexpr int kVector = 4;
  const bool has_vectors =
      p.head_dim % kVector == 0 && p.latent % kVector == 0 && p.block_stride % kVector == 0;
  if (!has_vectors) return enqueue<Cache, 1, 1>(p, num_tokens, stream);
  const bool is_shared = p.num_heads / p.num_kv_heads % kSharing == 0;
  return is_shared ? enqueue<Cache, kSharing, kVector>(p, num_tokens, stream)
                   : enqueue<Cache, 1, kVector>(p, num_tokens, stream);
}

}  // namespace

void divide_plain_heads(int64_t num_tokens, int64_t most_keys, const Scratch& scratch,
                        AttentionParams& p) {
  constexpr int64_t kHeads = 32;  // heads of all tokens per SM that keep it busy
  const int64_t heads = num_tokens * p.num_heads;
  const int64_t chunks = (most_keys + kPlainChunkKeys - 1) / kPlainChunkKeys;
  const int64_t width = p.latent > 0 ? p.latent : p.head_dim;
  const int64_t part_bytes = width * int64_t{sizeof(float)} + int64_t{sizeof(float2)};
  if (chunks <= 1 || heads > kHeads * scratch.num_units || heads > scratch.num_counters ||
      heads * chunks * part_bytes > static_cast<int64_t>(scratch.workspace_bytes))
    return;
  p.plain_chunks = static_cast<int>(chunks);
  p.part_sums = static_cast<float2*>(scratch.workspace);
  p.part_values = reinterpret_cast<float*>(p.part_sums + heads * chunks);
  p.counters = scratch.counters;
}

cudaError_t launch_plain_heads(const AttentionParams& p, DType cache, int num_tokens,
                               cudaStream_t stream) {
  return with_cache(cache, [&]<class Cache>() { return enqueue<Cache>(p, num_tokens, stream); });
}

}  // namespace nereid::kernels::cuda
