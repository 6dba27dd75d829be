// What kernels find in a row of logits without a sort: the place of a sum of weights in descending
// order, by descending through the bits of an order-preserving integer form of the logits and
// comparing exact fixed-point sums of the weights above each candidate; equal logits are told apart
// by id. Integer sums do not depend on the order of addition.
#pragma once

#include "kernels/api/sample.h"
#include "kernels/cuda/device.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / kWarp;
constexpr int kPivots = 3;       // two bits of the key are decided in a pass
constexpr int kWeightBits = 40;  // fixed-point; 2^23 weights of 1 fit in 63 bits
constexpr float kWeightOne = 0x1p40f;
constexpr int kCountedIds = 8192;     // ids whose tokens are counted in one pass of the history
constexpr uint32_t kSeen = 1u << 31;  // beside the count in the lower bits

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
  double sums[kWarps];
  uint64_t top[kMaxTopTokens];  // key, ~id
  uint32_t counts[kCountedIds];
  int warp_count[kWarps];
  int found, num_top;
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

// The largest `x` of the block, in every thread.
__device__ uint64_t block_max(uint64_t x, Scratch& s) {
  x = warp_max(x);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) s.partial[0][threadIdx.x / kWarp] = x;
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) x = s.partial[0][w] > x ? s.partial[0][w] : x;
  return x;
}

__device__ uint64_t packed(uint32_t key, int id) {
  return uint64_t{key} << 32 | ~static_cast<uint32_t>(id);
}
__device__ int id_of(uint64_t pack) { return static_cast<int>(~static_cast<uint32_t>(pack)); }
__device__ float logit_of(uint64_t pack) { return float_of(static_cast<uint32_t>(pack >> 32)); }

// The largest logit and the lowest id that has it. The same value in every thread.
__device__ uint64_t best_of(const float* logits, int vocab, Scratch& s) {
  uint64_t best = 0;
  for (int i = threadIdx.x; i < vocab; i += kThreads) {
    const uint64_t candidate = packed(key_of(logits[i]), i);
    best = candidate > best ? candidate : best;
  }
  return block_max(best, s);
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

// What min_p and top_k leave: elements above `floor` in full, of those equal to it all, or only the
// first ones when limited.
struct Kept {
  uint32_t floor = 0;
  bool limited = false;
  uint64_t above = 0;  // weight above floor, when limited
  uint64_t total = 0;
};

__device__ Kept keep(const Row& row, const SampleParams& p, Scratch& s) {
  Kept kept;
  kept.floor = key_of(__fadd_rn(row.largest, p.min_p_gap));
  if (p.top_k > 0 && p.top_k < row.vocab) {
    const uint64_t count = static_cast<uint64_t>(p.top_k);
    const uint32_t key = search<false>(row, count, s);
    if (key >= kept.floor) {
      const uint64_t ties = count - sum_from<false>(row, key + 1, s);
      kept.floor = key, kept.limited = true;
      kept.above = sum_from<true>(row, key + 1, s);
      kept.total = kept.above + ties * row.weight(float_of(key));
      return kept;
    }
  }
  kept.total = sum_from<true>(row, kept.floor, s);
  return kept;
}

// Tokens generated since the last one that resets top_p.
__device__ int since_reset(const SampleParams& p, const int32_t* history, int position,
                           Scratch& s) {
  const int generated = position - p.num_prompt;
  if (p.top_p_decay == 1 || p.top_p_reset_id < 0 || !history || generated <= 0) return generated;
  uint64_t last = 0;  // index of the last reset in the generated tokens, from 1
  for (int i = threadIdx.x; i < generated; i += kThreads)
    if (history[p.num_prompt + i] == p.top_p_reset_id) last = static_cast<uint64_t>(i) + 1;
  return generated - static_cast<int>(block_max(last, s));
}

}  // namespace
}  // namespace nereid::kernels::cuda
