// Selection in a row of logits without a sort. Element = (key of logit, ~id) as one number: larger
// for larger logits, then for lower ids; descending elements are the sampling order. The position
// of a sum of weights in that order is found by exact fixed-point sums of weights above a few
// pivots: each pass over the logits narrows the range to that between two pivots. Integer sums do
// not depend on the order of addition.
#pragma once

#include "kernels/cuda/sample_team.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kPivots = kMaxNumbers - 1;
constexpr int kWeightBits = 40;  // fixed-point bits; 2^23 weights of 1 fit in 63 bits
constexpr float kWeightOne = 0x1p40f;

// Order-preserving key of a float; -0 equals +0.
__device__ uint32_t key_of(float x) {
  if (x == 0) x = 0;
  const uint32_t bits = __float_as_uint(x);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ float float_of(uint32_t key) {
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

__device__ uint64_t element_of(float logit, int id) {
  return uint64_t{key_of(logit)} << 32 | ~static_cast<uint32_t>(id);
}
// Lower bound of elements with logits >= `logit`.
__device__ uint64_t least_element(float logit) { return uint64_t{key_of(logit)} << 32; }
__device__ int id_of(uint64_t element) { return static_cast<int>(~static_cast<uint32_t>(element)); }
__device__ float logit_of(uint64_t element) {
  return float_of(static_cast<uint32_t>(element >> 32));
}
// Above all elements: a logit is NaN or +inf.
constexpr uint64_t kUnsound = ~uint64_t{0};

// A block's part of a row: the logits of `count` ids from `first`.
struct Row {
  float* logits = nullptr;
  int first = 0, count = 0;
  int vocab = 0;  // of all parts
  float largest = 0;
  float temperature = 1, inverse = 1;

  __device__ void set_temperature(float t) {
    constexpr float kMost = 3.402823466e38f;
    temperature = t;
    inverse = fminf(1 / t, kMost);  // avoids 0 times infinity
  }
  __device__ uint64_t weight(float logit) const {
    return __float2ull_rn(expf((logit - largest) * inverse) * kWeightOne);
  }
  __device__ uint64_t element(int i) const { return element_of(logits[i], first + i); }

  // Calls f(logit, element) for this thread's share of the block's part. Loads are issued together.
  template <class F>
  __device__ void for_each(F f) const {
    constexpr int kBatch = 4;
#pragma unroll 1  // as in other loops here: all instructions of a row fit in the instruction cache
    for (int begin = threadIdx.x; begin < count; begin += kBatch * kThreads) {
      float x[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) x[b] = logits[min(begin + b * kThreads, count - 1)];
#pragma unroll
      for (int b = 0; b < kBatch; ++b)
        if (const int i = begin + b * kThreads; i < count) f(x[b], element_of(x[b], first + i));
    }
  }
};

// Largest element of the row, or kUnsound. `held`: optional copy of the block's logits.
__device__ uint64_t best_of(const Row& row, float* held, Team& team) {
  uint64_t best = 0;
  row.for_each([&](float logit, uint64_t element) {
    if (held) held[id_of(element) - row.first] = logit;
    best = max(best, logit < INFINITY ? element : kUnsound);
  });
  return team.largest(best);
}

// Sum of weights of elements >= `least`.
__device__ uint64_t weight_from(const Row& row, uint64_t least, Team& team) {
  uint64_t sum = 0;
  row.for_each([&](float logit, uint64_t element) {
    if (element >= least) sum += row.weight(logit);
  });
  return team.sum(sum);
}

// team.s->few[0 .. returned) = the elements in [low, high); precondition: at most kFew.
__device__ int gather(const Row& row, uint64_t low, uint64_t high, Team& team) {
  Scratch& s = *team.s;
  if (threadIdx.x == 0) s.num_own = 0;
  __syncthreads();
  row.for_each([&](float /*logit*/, uint64_t element) {
    if (element >= low && element < high) s.own[atomicAdd(&s.num_own, 1)] = element;
  });
  return team.gather();
}

// Search range [low, high) of elements; `above`: sum of elements >= high.
struct Range {
  uint64_t low, high, above;

  // Ascending pivots: first low and increasingly fine steps up to the largest logit; then by
  // logits; by elements if that has not converged (nearly all logits of the range equal). Lane l
  // has pivot l; lanes >= kPivots have `high`.
  __device__ uint64_t choose(int pass, float largest, float unit) const {
    constexpr int kPassesByLogit = 6;
    const int j = threadIdx.x % kWarp;
    if (j >= kPivots) return high;
    const float least = logit_of(low), most = logit_of(high - 1);
    const float step = (most - least) / (kPivots + 1);
    uint64_t pivot = low + (high - low) / (kPivots + 1) * (j + 1);
    if (pass == 0)
      pivot = j == 0 ? low : least_element(largest - unit * static_cast<float>(64 >> j));
    else if (pass < kPassesByLogit && step > 0 && step < INFINITY)
      pivot = least_element(least + step * static_cast<float>(j + 1));
    return min(max(pivot, low), high);
  }

  // Narrows to the part in which the sum reaches `target`. Lane l has pivot l and the sum of
  // elements from it to `high`.
  __device__ void narrow(uint64_t target, uint64_t pivot, uint64_t sum) {
    const bool is_pivot = threadIdx.x % kWarp < kPivots;
    const unsigned reached = __ballot_sync(kAllLanes, is_pivot && above + sum >= target);
    const int num_reached = __popc(reached);  // the lower ones
    if (num_reached < kPivots) above += from_lane(sum, num_reached);
    if (num_reached > 0) low = from_lane(pivot, num_reached - 1);
    high = from_lane(pivot, num_reached);
  }
};

// An element, the sum of those above it, the total.
struct SearchResult {
  uint64_t element, before, total;
};

// team.s->weights = weights of team.s->few[0 .. count), or 1 each; returns the sum.
template <bool kByWeight>
__device__ uint64_t weigh_few(const Row& row, int count, Team& team) {
  Scratch& s = *team.s;
  if (static_cast<int>(threadIdx.x) < count)
    s.weights[threadIdx.x] = kByWeight ? row.weight(logit_of(s.few[threadIdx.x])) : 1;
  __syncthreads();
  uint64_t sum = 0;
#pragma unroll 4
  for (int i = 0; i < count; ++i) sum += s.weights[i];
  return sum;
}

// Element of the weighed team.s->few[0 .. count) at which the sum, starting from `above`, reaches
// `target`. The caller sets the total.
__device__ SearchResult place_of_few(int count, uint64_t above, uint64_t target, Team& team) {
  constexpr int kShare = kThreads / kFew;  // threads per element
  Scratch& s = *team.s;
  const int mine = threadIdx.x / kShare;
  const uint64_t element = mine < count ? s.few[mine] : 0;
  uint64_t before = 0;
#pragma unroll 2
  for (int i = threadIdx.x % kShare; i < count; i += kShare)
    if (s.few[i] > element) before += s.weights[i];
#pragma unroll
  for (int step = 1; step < kShare; step *= 2)
    before += __shfl_xor_sync(kAllLanes, static_cast<unsigned long long>(before), step);
  before += above;
  if (mine < count && before < target && target <= before + s.weights[mine])
    s.element = element, s.before = before;
  __syncthreads();
  return {s.element, s.before, 0};
}

// Integer in [1, total].
__device__ uint64_t share_of(uint64_t total, double share) {
  const auto target = static_cast<uint64_t>(ceil(share * static_cast<double>(total)));
  return min(max(target, uint64_t{1}), total);
}

// In descending order of elements >= `least`: the element at which the sum of weights reaches a
// share of the total; without kByWeight, at which the number of elements reaches `count`.
template <bool kByWeight>
__device__ SearchResult search(const Row& row, uint64_t least, double share, int count,
                               Team& team) {
  const float unit = kByWeight ? row.temperature : 1;
  const float weightless = row.largest - 29 * unit;  // exp(-29) < 2^-kWeightBits / 2
  if (kByWeight) least = max(least, least_element(weightless));
  Range range = {least, (uint64_t{key_of(row.largest)} + 1) << 32, 0};
  uint64_t target = static_cast<uint64_t>(count), total = 0;
#pragma unroll 1
  for (int pass = 0;; ++pass) {
    const uint64_t pivot = range.choose(pass, row.largest, unit);
    uint64_t pivots[kPivots], sums[kMaxNumbers] = {};
#pragma unroll
    for (int j = 0; j < kPivots; ++j) pivots[j] = from_lane(pivot, j);
    row.for_each([&](float logit, uint64_t element) {
      if (element < range.low || element >= range.high) return;
      const uint64_t value = kByWeight ? row.weight(logit) : 1;
#pragma unroll
      for (int j = 0; j < kPivots; ++j)
        if (element >= pivots[j]) sums[j] += value;
      ++sums[kPivots];
    });
    const uint64_t sum = team.add(sums);
    if (pass == 0) total = from_lane(sum, 0);
    if (pass == 0 && kByWeight) target = share_of(total, share);
    range.narrow(target, pivot, sum);
    if (from_lane(sum, kPivots) <= kFew) break;
  }
  const int num_few = gather(row, range.low, range.high, team);
  weigh_few<kByWeight>(row, num_few, team);
  SearchResult place = place_of_few(num_few, range.above, target, team);
  place.total = total;
  return place;
}

// The count-th element, from 1.
__device__ uint64_t nth_element(const Row& row, int count, Team& team) {
  return search<false>(row, 0, 0, count, team).element;
}

// Last element kept by min_p and top_k.
__device__ uint64_t last_kept(const Row& row, const SampleParams& p, Team& team) {
  const uint64_t last = least_element(__fadd_rn(row.largest, p.min_p_gap));
  if (p.top_k <= 0 || p.top_k >= row.vocab) return last;
  return max(last, nth_element(row, p.top_k, team));
}

// Number of generated tokens since the last one that resets top_p.
__device__ int since_reset(const SampleParams& p, const int32_t* history, int position,
                           Team& team) {
  const int generated = position - p.num_prompt;
  if (p.top_p_decay == 1 || p.top_p_reset_id < 0 || !history || generated <= 0) return generated;
  uint64_t last = 0;  // index of the last reset in the generated tokens, from 1
  for (int i = threadIdx.x; i < generated; i += kThreads)
    if (history[p.num_prompt + i] == p.top_p_reset_id) last = static_cast<uint64_t>(i) + 1;
  return generated - static_cast<int>(team.largest(last));
}

}  // namespace
}  // namespace nereid::kernels::cuda
