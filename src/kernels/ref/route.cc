// Reference routing to experts: full sorts.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/ref/ref.h"

namespace nereid::kernels {
namespace {

// Indices of [begin, end) by descending value, then ascending index.
std::vector<int32_t> in_order(const std::vector<float>& values, int32_t begin, int32_t end) {
  std::vector<int32_t> order(static_cast<size_t>(end - begin));
  std::iota(order.begin(), order.end(), begin);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return values[a] > values[b] || (std::isnan(values[b]) && !std::isnan(values[a]));
  });
  return order;
}

std::vector<float> scores(const Route& a, const float* x) {
  std::vector<float> s(x, x + a.x.cols);
  const double largest = *std::max_element(s.begin(), s.end());
  double sum = 0;
  for (const float v : s) sum += std::exp(v - largest);
  for (float& v : s)
    v = static_cast<float>(a.scoring == Scoring::kSigmoid ? 1 / (1 + std::exp(-double{v}))
                                                          : std::exp(v - largest) / sum);
  return s;
}

// Ranking values of the experts.
std::vector<float> ranks(const Route& a, const float* x, const std::vector<float>& s) {
  std::vector<float> c(x, x + a.x.cols);
  if (!is_given(a.bias) && a.group_best == 1) return c;
  for (size_t e = 0; e < c.size(); ++e) c[e] = s[e] + (is_given(a.bias) ? a.bias.as_f32()[e] : 0);
  return c;
}

// The experts of the kept groups, in order.
std::vector<int32_t> candidates(const Route& a, const std::vector<float>& c) {
  const auto size = static_cast<int32_t>(a.x.cols / a.groups);
  std::vector<float> group(static_cast<size_t>(a.groups));
  for (int32_t g = 0; g < a.groups; ++g) {
    const std::vector<int32_t> order = in_order(c, g * size, (g + 1) * size);
    for (int32_t i = 0; i < a.group_best; ++i) group[g] += c[order[i]];
  }
  std::vector<int32_t> kept = in_order(group, 0, a.groups);
  kept.resize(static_cast<size_t>(a.groups_kept));
  std::vector<int32_t> all = in_order(c, 0, static_cast<int32_t>(a.x.cols));
  std::erase_if(
      all, [&](int32_t e) { return std::find(kept.begin(), kept.end(), e / size) == kept.end(); });
  return all;
}

// Sparse mixer weight of the j-th selected expert.
double mixer_weight(const Route& a, const float* x, const std::vector<int32_t>& order, int64_t j) {
  const float own = x[order[j]];
  double sum = 0;
  for (size_t i = static_cast<size_t>(j); i < order.size(); ++i) {
    const float other = x[order[i]];
    if ((own - other) / std::max(std::fabs(other), own) > a.jitter_eps) continue;
    sum += std::exp(double{other} - own);
  }
  return a.scale / sum;
}

}  // namespace

void reference(const Route& a) {
  for (int64_t i = 0; i < a.experts.rows; ++i) {
    const std::vector<float> s = scores(a, a.x.row<float>(i));
    const std::vector<int32_t> order = candidates(a, ranks(a, a.x.row<float>(i), s));
    double sum = 1e-20;
    for (int64_t j = 0; j < a.experts.cols; ++j) sum += s[order[j]];
    for (int64_t j = 0; j < a.experts.cols; ++j) {
      a.experts.row<int32_t>(i)[j] = order[j];
      if (a.scoring == Scoring::kSparseMixer) {
        a.weights.row<float>(i)[j] =
            static_cast<float>(mixer_weight(a, a.x.row<float>(i), order, j));
        continue;
      }
      a.weights.row<float>(i)[j] =
          static_cast<float>(s[order[j]] / (a.renormalise ? sum : 1) * a.scale);
    }
  }
}

}  // namespace nereid::kernels
