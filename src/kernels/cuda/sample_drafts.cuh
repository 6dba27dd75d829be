// Drafts tested by what the model thinks of them: step 6 of Sample.
#pragma once

#include "base/rng.h"
#include "kernels/cuda/sample_search.cuh"

namespace nereid::kernels::cuda {
namespace {

__device__ double warp_sum(double x) {
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}

// The sum over the block's threads, in every one of them.
__device__ double block_sum(double x, Scratch& s) {
  x = warp_sum(x);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) s.sums[threadIdx.x / kWarp] = x;
  __syncthreads();
  double sum = 0;
  for (int w = 0; w < kWarps; ++w) sum += s.sums[w];
  return sum;
}

// The probabilities that a row is drawn with, of which those in front in descending order are
// whole, one may be cut by top_p and the others are 0.
class Probabilities {
 public:
  // None: all are 0.
  Probabilities() = default;

  // The same in every thread.
  __device__ Probabilities(const Row& row, const SampleParams& p, int since, Scratch& s)
      : row_(row) {
    const Kept kept = keep(row, p, s);
    const double share = double{top_p_after(p, since)};
    cut_ = kept.floor;
    last_ = row.vocab;
    if (share < 1) {
      find_cut(kept, share * static_cast<double>(kept.total), s);
    } else if (kept.limited) {
      const uint64_t ties = static_cast<uint64_t>(p.top_k) - sum_from<false>(row, cut_ + 1, s);
      if (const int id = nth_with_key(row, cut_, ties + 1, s); id >= 0) last_ = id;
    }
    double sum = 0;
    for (int id = threadIdx.x; id < row.vocab; id += kThreads) sum += weight(id);
    end_ = block_sum(sum, s);
  }

  __device__ double at(int id) const { return end_ > 0 ? weight(id) / end_ : 0; }

 private:
  // Weights of all kept, in fixed point, end at `end`.
  __device__ void find_cut(const Kept& kept, double end, Scratch& s) {
    const auto target = static_cast<uint64_t>(ceil(end));
    uint64_t above = kept.above;
    if (!kept.limited || above >= target) {
      cut_ = search<true>(row_, target < 1 ? 1 : target, s);
      above = sum_from<true>(row_, cut_ + 1, s);
    }
    const double each = static_cast<double>(row_.weight(float_of(cut_)));
    const double num = (end - static_cast<double>(above)) / each;  // of those equal to the cut
    const double whole = num > 0 ? floor(num) : 0;
    part_ = num > whole ? num - whole : 0;
    if (const int id = nth_with_key(row_, cut_, static_cast<uint64_t>(whole) + 1, s); id >= 0)
      last_ = id;
  }

  __device__ double weight(int id) const {
    const float logit = row_.logits[id];
    const uint32_t key = key_of(logit);
    if (key < cut_ || (key == cut_ && id > last_)) return 0;
    const double x = exp((double{logit} - row_.largest) / row_.temperature);
    return key == cut_ && id == last_ ? part_ * x : x;
  }

  Row row_ = {};
  uint32_t cut_ =
      0;  // keys from it on count; of equal ones ids before last_, and part_ of that one
  int last_ = 0;
  double part_ = 0, end_ = 0;
};

// The drafts that come after row i, one after the other: calls f(row) until it is true for one.
template <class F>
__device__ bool find_draft(const Sample& a, int64_t i, F f) {
  for (int64_t j = i + 1; j < a.problem.rows && a.rows[j].after > 0; ++j)
    if (j - a.rows[j].after == i && f(a.rows[j])) return true;
  return false;
}

// -1: none.
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

// The first id at which the sum of what p has more than q reaches `fraction` of it all; -1: it has
// nothing more.
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
    // The whole sum is made of the same additions, so that it is reached here or further on.
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
    if (threadIdx.x == 0) s.found = vocab, s.num_top = -1;
    __syncthreads();
    if (mine > 0) atomicMax(&s.num_top, id);  // should rounding leave nothing
    if (mine > 0 && before + prefix >= target) atomicMin(&s.found, id);
    __syncthreads();
    return s.found < vocab ? s.found : s.num_top;
  }
  return -1;
}

// Of one draft, drawn from q. -1: step 5 says.
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
