// Reference sampling: a full sort of the vocabulary.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/rng.h"
#include "kernels/ref/ref.h"

namespace nereid::kernels::ref {
namespace {

int32_t draw(const SampleRow& row, const float* logits, int64_t vocab) {
  std::vector<int32_t> order(static_cast<size_t>(vocab));
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t x, int32_t y) {
    return logits[x] != logits[y] ? logits[x] > logits[y] : x < y;
  });
  const float largest = logits[order[0]];
  if (largest == -INFINITY) return -1;
  const bool top_p_on = row.top_p > 0 && row.top_p < 1;
  if (row.temperature == 0 || row.top_k == 1 || (row.top_k == 0 && row.top_p <= 0)) return order[0];
  if (row.top_k > 0 && row.top_k < vocab) order.resize(static_cast<size_t>(row.top_k));

  std::vector<double> sums;
  double sum = 0;
  for (int32_t id : order)
    sums.push_back(sum += std::exp((double{logits[id]} - largest) / row.temperature));
  const double target = double{uniform(row.seed, static_cast<uint64_t>(row.position))} *
                        (top_p_on ? row.top_p : 1) * sum;
  return order[std::lower_bound(sums.begin(), sums.end() - 1, target) - sums.begin()];
}

}  // namespace

void run(const Sample::Args& a) {
  const int64_t vocab = a.problem.vocab;
  for (int64_t i = 0; i < a.problem.rows; ++i) {
    const SampleRow& row = a.rows[i];
    float* logits = a.logits.row<float>(i);
    bool sound = true;
    for (int64_t c = 0; c < vocab; ++c) sound &= logits[c] < INFINITY;  // false for NaN too
    for (int32_t b = row.banned_begin; b < row.banned_end; ++b)
      if (a.banned[b] >= 0 && a.banned[b] < vocab) logits[a.banned[b]] = -INFINITY;
    const int32_t token = sound ? draw(row, logits, vocab) : -1;
    a.tokens[i] = token;
    if (a.slot_tokens && row.slot >= 0) a.slot_tokens[row.slot] = token;
  }
}

}  // namespace nereid::kernels::ref
