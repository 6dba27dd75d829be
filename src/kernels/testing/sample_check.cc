// Checks a kernel's samples, in f64.
#include "kernels/testing/sample_check.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "base/rng.h"

namespace nereid::kernels::testing {
namespace {

// One row, as left by ref.
struct RowView {
  SampleRow row;
  SampleParams params;
  std::span<const float> logits, raw;  // after steps 1 to 3, before
  const int32_t* history = nullptr;

  RowView(const Image& image, const SampleLayout& l, int64_t i)
      : row(image.at<SampleRow>(l.sample_rows)[i]),
        params(image.at<SampleParams>(l.params)[row.slot]),
        logits(image.at<float>(l.logits) + row.logits_row * l.vocab, static_cast<size_t>(l.vocab)),
        raw(image.at<float>(l.raw_logits) + row.logits_row * l.vocab, static_cast<size_t>(l.vocab)),
        history(image.at<int32_t>(l.history) + row.slot * l.history_stride) {}
};

double top_p_of(const RowView& r) {
  int32_t since = 0;  // tokens generated since the last reset
  for (int32_t p = r.params.num_prompt; p < r.row.position; ++p)
    since = r.params.keeps_history && r.params.top_p_reset_id >= 0 &&
                    r.history[p] == r.params.top_p_reset_id
                ? 0
                : since + 1;
  const double start = r.params.top_p > 0 ? std::min(r.params.top_p, 1.0f) : 1;
  if (since == 0 || r.params.top_p <= 0 || r.params.top_p_decay == 1) return start;
  return std::max<double>(start * std::pow(double{r.params.top_p_decay}, since),
                          r.params.top_p_min);
}

// Compares the cumulative weight of the ids up to `token`, in sampling order, with its target.
Status check_draw(const RowView& r, int32_t token, double tolerance) {
  std::vector<int32_t> order(r.logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return r.logits[a] > r.logits[b]; });
  const float largest = r.logits[order[0]];
  if (r.params.top_k > 0 && static_cast<size_t>(r.params.top_k) < order.size())
    order.resize(static_cast<size_t>(r.params.top_k));
  std::erase_if(order, [&](int32_t id) { return r.logits[id] < largest + r.params.min_p_gap; });
  double sum = 0, before = -1, upto = -1;
  for (int32_t id : order) {
    const double weight = std::exp((double{r.logits[id]} - largest) / temperature_of(r.params));
    if (id == token) before = sum, upto = sum + weight;
    sum += weight;
  }
  const double u = uniform(r.params.seed, static_cast<uint64_t>(r.row.position));
  const double target = u * top_p_of(r) * sum;
  if (upto >= 0 && before <= target + tolerance * sum && upto >= target - tolerance * sum)
    return ok();
  return internal_error("drew token {}, which covers [{}, {}] of {}; the target is {}", token,
                        before, upto, sum, target);
}

bool close(double got, double want) {
  return std::abs(got - want) <= 2e-5 + 2e-6 * std::abs(want) || got == want;
}

// Expected log-probability of an id in the row.
class Expected {
 public:
  explicit Expected(const RowView& r)
      : x_(r.params.log_probs == LogProbs::kRaw ? r.raw : r.logits),
        temperature_(r.params.log_probs == LogProbs::kRaw ? 1 : temperature_of(r.params)),
        largest_(std::ranges::max(x_)) {
    double sum = 0;
    for (float v : x_) sum += std::exp((double{v} - largest_) / temperature_);
    log_sum_ = std::log(sum);
  }
  double log_prob(int32_t id) const {
    return (double{x_[id]} - largest_) / temperature_ - log_sum_;
  }

 private:
  std::span<const float> x_;
  double temperature_, largest_, log_sum_ = 0;
};

Status check_report(const RowView& r, const SampleResult& got, const SampleResult& want,
                    std::span<const TopToken> got_top, std::span<const TopToken> want_top) {
  const bool reports = r.params.log_probs != LogProbs::kNone && want.token >= 0;
  const double log_prob = reports ? Expected(r).log_prob(got.token) : 0;
  if (!close(got.log_prob, log_prob))
    return internal_error("log-prob {} of token {}, want {}", got.log_prob, got.token, log_prob);
  if (!close(got.log_kept, want.log_kept))
    return internal_error("log_kept {}, want {}", got.log_kept, want.log_kept);
  for (size_t t = 0; t < want_top.size(); ++t)
    if (got_top[t].token != want_top[t].token || !close(got_top[t].log_prob, want_top[t].log_prob))
      return internal_error("top[{}] is {} ({}), want {} ({})", t, got_top[t].token,
                            got_top[t].log_prob, want_top[t].token, want_top[t].log_prob);
  return ok();
}

Status check_row(const Image& want, const SampleLayout& l, const Image& got, int64_t i,
                 double epsilon) {
  const RowView r(want, l, i);
  const SampleResult result = got.at<SampleResult>(l.results)[i];
  const SampleResult expected = want.at<SampleResult>(l.results)[i];
  if (result.likeliest != expected.likeliest)
    return internal_error("likeliest {}, want {}", result.likeliest, expected.likeliest);
  if (expected.token == kNotDrawn && result.token == kNotDrawn) return ok();
  if (result.token != expected.token && l.weighs_drafts && weighs_drafts(r.params))
    return internal_error("token {}, want {}, by drafts", result.token, expected.token);
  if (result.token != expected.token) {
    if (is_greedy(r.params) || !r.params.draws || expected.token < 0 || result.token < 0 ||
        result.token >= l.vocab)
      return internal_error("token {}, want {}", result.token, expected.token);
    RETURN_IF_ERROR(annotate(check_draw(r, result.token, 1e-5 + epsilon * 1e-2),
                             fmt::format("want {}", expected.token)));
  }
  bool is_last = true;  // last sample of the slot
  for (int64_t j = i + 1; j < l.rows && want.at<SampleRow>(l.sample_rows)[j].after > 0; ++j)
    is_last &= got.at<SampleResult>(l.results)[j].token == kNotDrawn;
  const int32_t kept = r.params.draws ? result.token : want.at<int32_t>(l.slot_tokens)[r.row.slot];
  if (is_last && got.at<int32_t>(l.slot_tokens)[r.row.slot] != kept)
    return internal_error("slot_tokens holds {}, want {}",
                          got.at<int32_t>(l.slot_tokens)[r.row.slot], kept);
  const int64_t cell = r.row.slot * l.history_stride + r.row.position;
  if (r.row.position < l.history_stride && r.params.keeps_history && r.params.draws &&
      got.at<int32_t>(l.history)[cell] != result.token)
    return internal_error("history holds {}, drawn {}", got.at<int32_t>(l.history)[cell],
                          result.token);
  const auto top_of = [&](const Image& image) {
    return std::span<const TopToken>(image.at<TopToken>(l.top) + i * l.top_stride,
                                     static_cast<size_t>(l.top_stride));
  };
  return check_report(r, result, expected, top_of(got), top_of(want));
}

}  // namespace

Status check_sample(const Image& want, const SampleLayout& l, const Image& got, double epsilon) {
  for (int64_t i = 0; i < l.rows; ++i)
    RETURN_IF_ERROR(annotate(check_row(want, l, got, i, epsilon), fmt::format("row {}", i)));
  return ok();
}

}  // namespace nereid::kernels::testing
