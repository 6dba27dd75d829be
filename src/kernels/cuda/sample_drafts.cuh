// Draft verification by the target distribution: step 6 of Sample. f64 sums have the order of one
// block, so each row has a team of one block.
#pragma once

#include "base/rng.h"
#include "kernels/cuda/sample_search.cuh"

namespace nereid::kernels::cuda {
namespace {

__device__ double warp_sum(double x) {
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}

// Sum over the block's threads, returned to all.
__device__ double block_sum(double x, Scratch& s) {
  x = warp_sum(x);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) s.sums[threadIdx.x / kWarp] = x;
  __syncthreads();
  double sum = 0;
  for (int w = 0; w < kWarps; ++w) sum += s.sums[w];
  return sum;
}

// Sampling probabilities of a row: in descending order, a prefix has full weight, one element may
// be cut by top_p, the rest is 0.
class Probabilities {
 public:
  // All 0.
  Probabilities() = default;

  // Same in all threads.
  __device__ Probabilities(const Row& row, const SampleParams& p, int since, Team& team)
      : row_(row) {
    const double share = double{top_p_after(p, since)};
    last_ = last_kept(row, p, team);
    if (share < 1) {
      const SearchResult place = search<true>(row, last_, share, 0, team);
      last_ = place.element;
      part_ = (share * static_cast<double>(place.total) - static_cast<double>(place.before)) /
              static_cast<double>(row.weight(logit_of(last_)));
    }
    double sum = 0;
    for (int id = threadIdx.x; id < row.vocab; id += kThreads) sum += weight(id);
    end_ = block_sum(sum, *team.s);
  }

  __device__ double at(int id) const { return end_ > 0 ? weight(id) / end_ : 0; }

 private:
  __device__ double weight(int id) const {
    const uint64_t element = row_.element(id);
    if (element < last_) return 0;
    const double x = exp((double{row_.logits[id]} - row_.largest) / row_.temperature);
    return element == last_ ? part_ * x : x;
  }

  Row row_ = {};
  uint64_t last_ = 0;  // elements above it count fully, it counts by part_
  double part_ = 1, end_ = 0;
};

// Calls f(row) for the drafts that come after row i, in order, until it returns true.
template <class F>
__device__ bool find_draft(const Sample& a, int64_t i, F f) {
  for (int64_t j = i + 1; j < a.problem.rows && a.rows[j].after > 0; ++j)
    if (j - a.rows[j].after == i && f(a.rows[j])) return true;
  return false;
}

// -1: none accepted.
__device__ int typical_draft(const Sample& a, int64_t i, const Probabilities& p, float threshold,
                             Scratch& s) {
  const int vocab = static_cast<int>(a.problem.vocab);
  double sum = 0;
  for (int id = threadIdx.x; id < vocab; id += kThreads)
    if (const double x = p.at(id); x > 0) sum -= x * log(x);
  const double t = double{threshold}, typical = sqrt(t) * exp(-block_sum(sum, s));
  const double least = t < typical ? t : typical;
  int draft = -1;
  find_draft(a, i, [&](const SampleRow& row) {
    if (row.draft < 0 || row.draft >= vocab || !(p.at(row.draft) > least)) return false;
    draft = row.draft;
    return true;
  });
  return draft;
}

// First id at which the running sum of max(p - q, 0) reaches `fraction` of its total; -1: total 0.
__device__ int draw_excess(const Probabilities& p, const Probabilities& q, int vocab,
                           double fraction, Scratch& s) {
  const auto excess = [&](int id) {
    const double x = id < vocab ? p.at(id) - q.at(id) : 0;
    return x > 0 ? x : 0;
  };
  double sum = 0;
  for (int base = 0; base < vocab; base += kThreads)
    sum += block_sum(excess(base + static_cast<int>(threadIdx.x)), s);
  if (sum == 0) return -1;
  const double target = fraction * sum;
  double before = 0;
  for (int base = 0; base < vocab; base += kThreads) {
    const int id = base + static_cast<int>(threadIdx.x);
    const double mine = excess(id), upto = before + block_sum(mine, s);
    // The total is made of the same additions, so it is reached.
    if (upto < target || upto == before) {
      before = upto;
      continue;
    }
    double prefix = mine;
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    for (int step = 1; step < kWarp; step *= 2) {
      const double other = __shfl_up_sync(kAllLanes, prefix, step);
      if (lane >= step) prefix += other;
    }
    for (int w = 0; w < warp; ++w) prefix += s.sums[w];
    if (threadIdx.x == 0) s.found = vocab, s.last = -1;
    __syncthreads();
    if (mine > 0) atomicMax(&s.last, id);  // in case rounding selects none
    if (mine > 0 && before + prefix >= target) atomicMin(&s.found, id);
    __syncthreads();
    return s.found < vocab ? s.found : s.last;
  }
  return -1;
}

// Rejection sampling of one draft drawn from q. -1: step 5 applies.
__device__ int by_ratio(const Probabilities& p, const Probabilities& q, int draft, int vocab,
                        const SampleParams& params, int32_t position, Scratch& s) {
  const auto at = static_cast<uint64_t>(position);
  const float t = params.draft_threshold;
  const double least = double{t > 0 ? t : uniform(params.seed, at, 1)};
  if (draft >= 0 && draft < vocab)
    if (const double x = p.at(draft); x > 0 && x >= least * q.at(draft)) return draft;
  return draw_excess(p, q, vocab, double{uniform(params.seed, at, 2)}, s);
}

}  // namespace
}  // namespace nereid::kernels::cuda
