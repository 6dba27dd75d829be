// Token selection, one block per row. No sort: the drawn token's logit is found by descending
// through the bits of an order-preserving integer form of the logits, comparing exact fixed-point
// sums of the weights above each candidate; equal logits are then told apart by id. Integer sums
// make the draw independent of the order of addition.
#include "base/rng.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"

namespace nereid::kernels::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / kWarp;
constexpr int kPivots = 3;             // two bits of the key are decided in a pass
constexpr float kWeightOne = 0x1p40f;  // fixed-point 1.0; 2^23 weights of 1 fit in 63 bits

// Larger floats have larger keys; -0 equals +0.
__device__ uint32_t key_of(float x) {
  if (x == 0) x = 0;
  const uint32_t bits = __float_as_uint(x);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ float float_of(uint32_t key) {
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

struct Row {
  const float* logits;
  int vocab;
  float largest;
  float temperature;
  __device__ uint64_t weight(float logit) const {
    return __float2ull_rn(expf((logit - largest) / temperature) * kWeightOne);
  }
};

struct Scratch {
  uint64_t partial[kPivots][kWarps];
  int warp_count[kWarps];
  int found;
};

__device__ uint64_t warp_sum(uint64_t x) {
  for (int step = kWarp / 2; step > 0; step /= 2)
    x += __shfl_xor_sync(kAllLanes, static_cast<unsigned long long>(x), step);
  return x;
}

__device__ uint64_t warp_max(uint64_t x) {
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const uint64_t other = __shfl_xor_sync(kAllLanes, static_cast<unsigned long long>(x), step);
    x = other > x ? other : x;
  }
  return x;
}

// The largest logit and the lowest id that has it. The same value in every thread.
__device__ uint64_t best_of(const Row& row, Scratch& s) {
  uint64_t best = 0;
  for (int i = threadIdx.x; i < row.vocab; i += kThreads) {
    const uint64_t candidate = uint64_t{key_of(row.logits[i])} << 32 | ~static_cast<uint32_t>(i);
    best = candidate > best ? candidate : best;
  }
  best = warp_max(best);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) s.partial[0][threadIdx.x / kWarp] = best;
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) best = s.partial[0][w] > best ? s.partial[0][w] : best;
  return best;
}

// For each pivot, the number (or the summed weight) of logits whose key reaches it. The same
// values in every thread.
template <bool kByWeight>
__device__ void sums_from(const Row& row, const uint32_t (&pivots)[kPivots], Scratch& s,
                          uint64_t (&sums)[kPivots]) {
#pragma unroll
  for (int p = 0; p < kPivots; ++p) sums[p] = 0;
  for (int i = threadIdx.x; i < row.vocab; i += kThreads) {
    const float logit = row.logits[i];
    const uint32_t key = key_of(logit);
    if (key < pivots[0]) continue;
    const uint64_t value = kByWeight ? row.weight(logit) : 1;
#pragma unroll
    for (int p = 0; p < kPivots; ++p)
      if (key >= pivots[p]) sums[p] += value;
  }
  __syncthreads();
#pragma unroll
  for (int p = 0; p < kPivots; ++p) {
    const uint64_t sum = warp_sum(sums[p]);
    if (threadIdx.x % kWarp == 0) s.partial[p][threadIdx.x / kWarp] = sum;
  }
  __syncthreads();
#pragma unroll
  for (int p = 0; p < kPivots; ++p) {
    sums[p] = 0;
    for (int w = 0; w < kWarps; ++w) sums[p] += s.partial[p][w];
  }
}

template <bool kByWeight>
__device__ uint64_t sum_from(const Row& row, uint32_t pivot, Scratch& s) {
  const uint32_t pivots[kPivots] = {pivot, pivot, pivot};
  uint64_t sums[kPivots];
  sums_from<kByWeight>(row, pivots, s, sums);
  return sums[0];
}

// The largest key whose sum reaches `target` >= 1: the key of the element at which the prefix sums
// in descending order get there.
template <bool kByWeight>
__device__ uint32_t search(const Row& row, uint64_t target, Scratch& s) {
  uint32_t key = 0;
  for (int shift = 30; shift >= 0; shift -= 2) {
    const uint32_t pivots[kPivots] = {key | 1u << shift, key | 2u << shift, key | 3u << shift};
    uint64_t sums[kPivots];
    sums_from<kByWeight>(row, pivots, s, sums);
#pragma unroll
    for (int p = 0; p < kPivots; ++p)
      if (sums[p] >= target) key = pivots[p];
  }
  return key;
}

// Id of the n-th (from 1) element with this key, in order of ids; it exists.
__device__ int nth_with_key(const Row& row, uint32_t key, uint64_t n, Scratch& s) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (int base = 0; base < row.vocab; base += kThreads) {
    const int id = base + static_cast<int>(threadIdx.x);
    const bool equal = id < row.vocab && key_of(row.logits[id]) == key;
    const unsigned in_warp = __ballot_sync(kAllLanes, equal);
    if (lane == 0) s.warp_count[warp] = __popc(in_warp);
    const uint64_t count = static_cast<uint64_t>(__syncthreads_count(equal));
    if (count < n) {
      n -= count;
      continue;
    }
    uint64_t rank = __popc(in_warp & ((1u << lane) - 1)) + 1;
    for (int w = 0; w < warp; ++w) rank += s.warp_count[w];
    if (equal && rank == n) s.found = id;
    __syncthreads();
    return s.found;
  }
  return -1;
}

__device__ int draw(const Row& row, const SampleRow& wish, Scratch& s) {
  // Elements above `floor` count in full, of those equal to it only the first `ties`.
  uint32_t floor = 0;
  uint64_t above = 0, total = 0;
  const bool limited = wish.top_k > 0 && wish.top_k < row.vocab;
  if (limited) {
    const uint64_t kept = static_cast<uint64_t>(wish.top_k);
    floor = search<false>(row, kept, s);
    const uint64_t ties = kept - sum_from<false>(row, floor + 1, s);
    above = sum_from<true>(row, floor + 1, s);
    total = above + ties * row.weight(float_of(floor));
  } else {
    total = sum_from<true>(row, 0, s);
  }
  const double share = wish.top_p > 0 && wish.top_p < 1 ? double{wish.top_p} : 1.0;
  const double u = double{uniform(wish.seed, static_cast<uint64_t>(wish.position))};
  uint64_t target = static_cast<uint64_t>(ceil(u * share * static_cast<double>(total)));
  target = target < 1 ? 1 : target > total ? total : target;

  uint32_t key = floor;
  if (!limited || above >= target) {
    key = search<true>(row, target, s);
    above = sum_from<true>(row, key + 1, s);
  }
  const uint64_t weight = row.weight(float_of(key));
  const uint64_t rank = (target - above + weight - 1) / weight;
  return nth_with_key(row, key, rank, s);
}

__global__ void __launch_bounds__(kThreads)
    sample_kernel(float* logits, int64_t stride, int vocab, const SampleRow* rows,
                  const int32_t* banned, int32_t* tokens, int32_t* slot_tokens) {
  __shared__ Scratch s;
  const SampleRow wish = rows[blockIdx.x];
  float* values = logits + blockIdx.x * stride;
  bool unsound = false;
  for (int i = threadIdx.x; i < vocab; i += kThreads)
    unsound |= !(values[i] < INFINITY);  // true for NaN too
  const bool failed = __syncthreads_or(unsound);
  for (int b = wish.banned_begin + static_cast<int>(threadIdx.x); b < wish.banned_end;
       b += kThreads)
    if (banned[b] >= 0 && banned[b] < vocab) values[banned[b]] = -INFINITY;
  __syncthreads();

  int token = -1;
  if (!failed) {
    Row row = {values, vocab, 0, wish.temperature};
    const uint64_t best = best_of(row, s);
    row.largest = float_of(static_cast<uint32_t>(best >> 32));
    const bool greedy =
        wish.temperature == 0 || wish.top_k == 1 || (wish.top_k == 0 && wish.top_p <= 0);
    if (row.largest > -INFINITY)
      token = greedy ? static_cast<int>(~static_cast<uint32_t>(best)) : draw(row, wish, s);
  }
  if (threadIdx.x == 0) {
    tokens[blockIdx.x] = token;
    if (slot_tokens && wish.slot >= 0) slot_tokens[wish.slot] = token;
  }
}

}  // namespace

cudaError_t launch(const Sample::Args& a, cudaStream_t stream) {
  sample_kernel<<<static_cast<unsigned>(a.problem.rows), kThreads, 0, stream>>>(
      static_cast<float*>(a.logits.data), a.logits.stride, static_cast<int>(a.problem.vocab),
      a.rows, a.banned, a.tokens, a.slot_tokens);
  return cudaGetLastError();
}

}  // namespace nereid::kernels::cuda
