// Launchers of Route and WeightedSum.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/api/validate.h"
#include "kernels/cpu/launch.h"

namespace nereid::kernels::cpu {
namespace {

constexpr int64_t kRowsOfPiece = 8;  // rows per task

// Routes rows one by one.
class Router {
 public:
  explicit Router(const Route& a)
      : a_(a),
        num_(static_cast<int32_t>(a.x.cols)),
        by_score_(is_given(a.bias) || a.group_best > 1) {}

  void run(int64_t row) {
    const float* x = a_.x.row<float>(row);
    score(x);
    for (int32_t e = 0; e < num_; ++e) {
      const float bias = is_given(a_.bias) ? a_.bias.as_f32()[e] : 0;
      rank_[e] = by_score_ ? score_[e] + bias : x[e];
      open_[e] = true;
    }
    if (a_.groups_kept < a_.groups) close_groups();
    int32_t* experts = a_.experts.row<int32_t>(row);
    float* weights = a_.weights.row<float>(row);
    double sum = 1e-20;
    for (int64_t j = 0; j < a_.experts.cols; ++j) {
      experts[j] = take_best(rank_, open_, 0, num_);
      if (a_.scoring == Scoring::kSparseMixer) weights[j] = mixer_weight(x, experts[j]);
      sum += score_[experts[j]];
    }
    if (a_.scoring == Scoring::kSparseMixer) return;
    for (int64_t j = 0; j < a_.experts.cols; ++j)
      weights[j] =
          static_cast<float>(score_[experts[j]] / (a_.renormalise ? sum : 1) * double{a_.scale});
  }

 private:
  // exp in double: scores are rounded once.
  void score(const float* x) {
    if (a_.scoring == Scoring::kSigmoid) {
      for (int32_t e = 0; e < num_; ++e)
        score_[e] = static_cast<float>(1 / (1 + std::exp(-double{x[e]})));
      return;
    }
    const double largest = *std::max_element(x, x + num_);
    double sum = 0;
    for (int32_t e = 0; e < num_; ++e) sum += exp_[e] = std::exp(x[e] - largest);
    for (int32_t e = 0; e < num_; ++e) score_[e] = static_cast<float>(exp_[e] / sum);
  }

  // Weight of the expert just selected, among the remaining ones.
  float mixer_weight(const float* x, int32_t picked) const {
    const float own = x[picked];
    double sum = std::exp(double{own} - own);
    for (int32_t e = 0; e < num_; ++e)
      if (open_[e] && !((own - x[e]) / std::max(std::fabs(x[e]), own) > a_.jitter_eps))
        sum += std::exp(double{x[e]} - own);
    return static_cast<float>(a_.scale / sum);
  }

  // Removes and returns the first remaining index of the largest value in [begin, end).
  static int32_t take_best(const float* values, bool* open, int32_t begin, int32_t end) {
    int32_t best = -1;
    for (int32_t i = begin; i < end; ++i)
      if (open[i] && (best < 0 || values[i] > values[best] ||
                      (std::isnan(values[best]) && !std::isnan(values[i]))))
        best = i;
    open[best] = false;
    return best;
  }

  // Removes the experts of the groups that are not kept.
  void close_groups() {
    const int32_t size = num_ / a_.groups;
    float sums[kMaxExperts];
    bool group_open[kMaxExperts];
    for (int32_t g = 0; g < a_.groups; ++g) {
      sums[g] = 0;
      for (int32_t i = 0; i < a_.group_best; ++i)
        sums[g] += rank_[take_best(rank_, open_, g * size, (g + 1) * size)];
      group_open[g] = true;
    }
    std::fill(open_, open_ + num_, false);
    for (int32_t i = 0; i < a_.groups_kept; ++i) {
      const int32_t g = take_best(sums, group_open, 0, a_.groups);
      std::fill(open_ + g * size, open_ + (g + 1) * size, true);
    }
  }

  const Route& a_;
  const int32_t num_;
  const bool by_score_;
  double exp_[kMaxExperts];
  float score_[kMaxExperts], rank_[kMaxExperts];
  bool open_[kMaxExperts];
};

template <class F>
void for_rows_of(ThreadPool& pool, int64_t rows, F fn) {
  if (rows <= kRowsOfPiece)
    fn(0, rows);
  else
    pool.parallel_for(rows, kRowsOfPiece, [&](int64_t begin, int64_t end, int) { fn(begin, end); });
}

Status launch_route(const Route& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  for_rows_of(pool, a.experts.rows, [&](int64_t begin, int64_t end) {
    Router router(a);
    for (int64_t row = begin; row < end; ++row) router.run(row);
  });
  return ok();
}

Status launch_weighted_sum(const WeightedSum& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  const int64_t width = a.out.cols;
  for_rows_of(pool, a.out.rows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* out = a.out.row<float>(row);
      for (int64_t j = 0; j < a.weights.cols; ++j) {
        const float weight = a.weights.row<float>(row)[j];
        const float* x = a.x.row<float>(row) + j * width;
        if (j == 0)
          for (int64_t c = 0; c < width; ++c) out[c] = weight * x[c];
        else
          for (int64_t c = 0; c < width; ++c) out[c] += weight * x[c];
      }
    }
  });
  return ok();
}

}  // namespace

template <>
Table<Route> table<Route>() {
  return generic<Route, launch_route>();
}
template <>
Table<WeightedSum> table<WeightedSum>() {
  return generic<WeightedSum, launch_weighted_sum>();
}

template <>
Table<SelectExperts> table<SelectExperts>() {
  return {};  // a few numbers a row: `ref` is as fast
}

}  // namespace nereid::kernels::cpu
