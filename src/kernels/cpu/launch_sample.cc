// Sampling without sorting: one pass finds the largest logit of each piece; only pieces that may
// contain candidates are visited again.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "kernels/api/validate.h"
#include "kernels/cpu/edit_logits.h"
#include "kernels/cpu/launch.h"

namespace nereid::kernels::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr float kTop = std::numeric_limits<float>::infinity();

// Descending logits, ties by id.
struct Order {
  const float* x;
  bool operator()(int32_t a, int32_t b) const { return x[a] != x[b] ? x[a] > x[b] : a < b; }
};

// Scratch of one thread; processes one row of logits at a time.
class Drawer {
 public:
  // Samples row i, which follows none, and the following rows of its slot.
  void run(const Raw& raw, const Sample& args, int64_t i);

 private:
  void run_row(const Raw& raw, const Sample& args, int64_t i);
  void peek(const Raw& raw, const Sample& args, int64_t i);
  void edit(const Sample& a, const SampleRow& row, float* logits);
  bool scan(const float* logits, float temperature);
  int32_t argmax() const;
  void collect(float from, float below);
  void take_top(int64_t count);
  void sort_ids() { std::sort(ids_.begin(), ids_.end(), Order{logits_}); }
  void keep(const SampleParams& p);
  int32_t draw(const SampleParams& p, const SampleRow& row, const int32_t* history);
  void find_probabilities(const SampleParams& p, double top_p, std::vector<double>& out);
  int32_t weigh(const Sample& a, int64_t i, const int32_t* history);
  int32_t typical_draft(const Sample& a, int64_t i) const;
  int32_t by_ratio(const Sample& a, const SampleRow& row, const SampleRow& draft, double top_p);
  int32_t draw_from_all(double fraction, float floor);
  int32_t draw_from_tail(double target, float below, float floor);
  void report(const SampleParams& p, SampleResult& result, TopToken* top, int64_t top_stride);

  double weight(int32_t id) const {
    return std::exp((double{logits_[id]} - largest_) / temperature_);
  }
  double mass(float from, int64_t* num) const {
    return raw_->sum_weights(logits_, vocab_, largest_, temperature_, from, num);
  }

  const Raw* raw_ = nullptr;
  const float* logits_ = nullptr;
  int64_t vocab_ = 0;
  float largest_ = 0, temperature_ = 1;
  std::vector<float> piece_largest_, sorted_pieces_;
  std::vector<int32_t> ids_;
  std::vector<double> p_, q_;  // by id, for draft tests by probability
  WeightBins bins_;
  LogitsEditor editor_;
};

// top_p at the slot's position, by the last reset token.
double top_p_of(const SampleParams& p, const SampleRow& row, const int32_t* history) {
  int32_t k = row.position - p.num_prompt;
  if (p.top_p_reset_id >= 0 && p.top_p_decay != 1 && history)
    for (int32_t i = 0; i < k; ++i)
      if (history[row.position - 1 - i] == p.top_p_reset_id) k = i;
  return top_p_after(p, k);
}

int32_t* history_of(const Sample& a, const SampleRow& row) {
  return a.params[row.slot].keeps_history ? a.history + row.slot * a.history_stride : nullptr;
}

// Sets the current row; false: a logit is NaN or +inf.
bool Drawer::scan(const float* logits, float temperature) {
  logits_ = logits, temperature_ = temperature;
  piece_largest_.resize(static_cast<size_t>((vocab_ + kLogitsPiece - 1) / kLogitsPiece));
  const LogitsScan scan = raw_->scan_logits(logits, vocab_, piece_largest_.data());
  largest_ = scan.largest;
  return scan.sound;
}

int32_t Drawer::argmax() const {
  const auto piece = std::find(piece_largest_.begin(), piece_largest_.end(), largest_);
  const float* x = logits_ + (piece - piece_largest_.begin()) * kLogitsPiece;
  while (*x != largest_) ++x;
  return static_cast<int32_t>(x - logits_);
}

// ids_ = ids with from <= logit < below, unordered.
void Drawer::collect(float from, float below) {
  ids_.clear();
  for (size_t piece = 0; piece < piece_largest_.size(); ++piece) {
    if (piece_largest_[piece] < from) continue;
    const int64_t begin = static_cast<int64_t>(piece) * kLogitsPiece;
    const int64_t end = std::min(vocab_, begin + kLogitsPiece);
    for (int64_t i = begin; i < end; ++i)
      if (logits_[i] >= from && logits_[i] < below) ids_.push_back(static_cast<int32_t>(i));
  }
}

// ids_ = the `count` largest ids that are not banned, in order. The count-th largest piece maximum
// is a lower bound of the count-th largest logit.
void Drawer::take_top(int64_t count) {
  float from = std::numeric_limits<float>::lowest();
  if (count <= static_cast<int64_t>(piece_largest_.size())) {
    sorted_pieces_ = piece_largest_;
    const auto nth = sorted_pieces_.begin() + (count - 1);
    std::nth_element(sorted_pieces_.begin(), nth, sorted_pieces_.end(), std::greater<>());
    from = std::max(from, *nth);
  }
  collect(from, kTop);
  if (count < static_cast<int64_t>(ids_.size())) {
    std::nth_element(ids_.begin(), ids_.begin() + count, ids_.end(), Order{logits_});
    ids_.resize(static_cast<size_t>(count));
  }
  sort_ids();
}

// ids_ = ids kept by min_p and top_k > 0, in order.
void Drawer::keep(const SampleParams& p) {
  take_top(std::min<int64_t>(p.top_k, vocab_));
  const float floor = largest_ + p.min_p_gap;
  while (logits_[ids_.back()] < floor) ids_.pop_back();
}

int32_t Drawer::draw(const SampleParams& p, const SampleRow& row, const int32_t* history) {
  if (is_greedy(p)) return argmax();
  const double fraction =
      double{uniform(p.seed, static_cast<uint64_t>(row.position))} * top_p_of(p, row, history);
  if (p.top_k <= 0 || p.top_k >= vocab_) return draw_from_all(fraction, largest_ + p.min_p_gap);
  keep(p);
  double sum = 0;
  for (int32_t id : ids_) sum += weight(id);
  double upto = 0;
  for (int32_t id : ids_)
    if ((upto += weight(id)) >= fraction * sum) return id;
  return ids_.back();
}

// Only logits >= `floor` count.
int32_t Drawer::draw_from_all(double fraction, float floor) {
  constexpr int64_t kFirstTry = 256;
  int64_t num = 0;
  const double target = fraction * mass(floor, &num);
  take_top(std::min({kFirstTry, vocab_, num}));
  double upto = 0;
  for (int32_t id : ids_)
    if ((upto += weight(id)) >= target) return id;
  if (num <= kFirstTry) return ids_.back();
  return draw_from_tail(target, logits_[ids_.back()], floor);
}

// The token at `target` if the logits above `below` do not reach it: narrows the range of logits
// until few are left, then sorts these.
int32_t Drawer::draw_from_tail(double target, float below, float floor) {
  constexpr int64_t kFew = 2048;
  constexpr double kNegligible = 87;  // exp(-kNegligible) is below the resolution of sum_weights()
  int64_t num = 0;
  double mass_above = mass(below, &num);
  if (mass_above >= target) {  // ties at `below` reach it
    collect(below, std::nextafter(below, kTop));
    mass_above = mass(std::nextafter(below, kTop), &num);
  } else {
    float from = static_cast<float>(std::max(largest_ - kNegligible * temperature_,
                                             -double{std::numeric_limits<float>::max()}));
    from = std::max(from, floor);
    float to = std::nextafter(below, kMinusInfinity);
    for (num = vocab_; num > kFew && from < to;) {
      raw_->bin_weights(logits_, vocab_, largest_, temperature_, from, to, bins_);
      int bin = WeightBins::kCount - 1, last = -1;  // last: smallest bin with logits so far, from
                                                    // the largest down
      for (; bin >= 0; --bin) {
        if (bins_.counts[bin] == 0) continue;
        last = bin;
        if (mass_above + bins_.sums[bin] >= target) break;
        mass_above += bins_.sums[bin];
      }
      if (last < 0) break;                          // no logits left
      if (bin < 0) mass_above -= bins_.sums[last];  // rounding: the target is in the lowest bin
      const bool is_same = bins_.least[last] == from && bins_.most[last] == to;
      from = bins_.least[last], to = bins_.most[last], num = bins_.counts[last];
      if (is_same) break;
    }
    collect(from, std::nextafter(to, kTop));
    if (ids_.empty()) collect(floor, below);
  }
  sort_ids();
  for (int32_t id : ids_)
    if ((mass_above += weight(id)) >= target) return id;
  return ids_.empty() ? argmax() : ids_.back();
}

// The current row's probabilities of draw().
void Drawer::find_probabilities(const SampleParams& p, double top_p, std::vector<double>& out) {
  constexpr int64_t kFirstTry = 256, kGrowth = 16;
  out.assign(static_cast<size_t>(vocab_), 0);
  double sum = 0;
  if (p.top_k > 0 && p.top_k < vocab_) {
    keep(p);
    for (const int32_t id : ids_) sum += weight(id);
  } else if (const float floor = largest_ + p.min_p_gap; top_p >= 1) {
    collect(std::max(floor, std::numeric_limits<float>::lowest()), kTop);
    for (const int32_t id : ids_) sum += weight(id);
  } else {  // as many of the largest as needed
    int64_t num = 0;
    sum = mass(floor, &num);
    double upto = 0;
    for (int64_t count = kFirstTry; upto < top_p * sum; count *= kGrowth) {
      take_top(std::min({count, vocab_, num}));
      upto = 0;
      for (const int32_t id : ids_) upto += weight(id);
      if (count >= num) sum = upto;
    }
  }
  const double end = top_p * sum;
  double before = 0;
  for (const int32_t id : ids_) {
    const double upto = std::min(before + weight(id), end);
    out[static_cast<size_t>(id)] = (upto - before) / end;
    before = upto;
  }
}

// Step 6 for the current row i. -1: step 5 decides.
int32_t Drawer::weigh(const Sample& a, int64_t i, const int32_t* history) {
  const SampleRow& row = a.rows[i];
  const SampleParams& p = a.params[row.slot];
  const double top_p = top_p_of(p, row, history);
  const bool typical = p.draft_test == DraftTest::kTypical;
  for (int64_t j = i + 1; j < a.problem.rows && a.rows[j].after > 0; ++j) {
    if (j - a.rows[j].after != i || (!typical && a.rows[j].draft_logits < 0)) continue;
    find_probabilities(p, top_p, p_);
    return typical ? typical_draft(a, i) : by_ratio(a, row, a.rows[j], top_p);
  }
  return -1;
}

int32_t Drawer::typical_draft(const Sample& a, int64_t i) const {
  double entropy = 0;
  for (const double x : p_)
    if (x > 0) entropy -= x * std::log(x);
  const double t = a.params[a.rows[i].slot].draft_threshold;
  const double least = std::min(t, std::sqrt(t) * std::exp(-entropy));
  for (int64_t j = i + 1; j < a.problem.rows && a.rows[j].after > 0; ++j) {
    const int32_t draft = a.rows[j].draft;
    if (j - a.rows[j].after == i && draft >= 0 && draft < vocab_ &&
        p_[static_cast<size_t>(draft)] > least)
      return draft;
  }
  return -1;
}

// The row is current again afterwards.
int32_t Drawer::by_ratio(const Sample& a, const SampleRow& row, const SampleRow& draft,
                         double top_p) {
  const SampleParams& p = a.params[row.slot];
  const float* const own = logits_;
  float* const logits = a.draft_logits.row<float>(draft.draft_logits);
  bool sound = scan(logits, temperature_);
  if (sound && edits_logits(p, row)) {
    edit(a, row, logits);
    scan(logits, temperature_);
  }
  sound &= largest_ > kMinusInfinity;
  if (sound)
    find_probabilities(p, top_p, q_);
  else
    q_.assign(p_.size(), 0);
  scan(own, temperature_);
  const auto position = static_cast<uint64_t>(row.position);
  const double least = p.draft_threshold > 0 ? p.draft_threshold : uniform(p.seed, position, 1);
  if (const auto id = static_cast<size_t>(draft.draft);
      id < p_.size() && p_[id] > 0 && p_[id] >= least * q_[id])
    return draft.draft;
  double sum = 0;
  for (size_t id = 0; id < p_.size(); ++id) sum += std::max(p_[id] - q_[id], 0.0);
  if (sum == 0) return -1;
  const double target = uniform(p.seed, position, 2) * sum;
  double upto = 0;
  for (size_t id = 0;; ++id) {
    if (p_[id] <= q_[id]) continue;
    if ((upto += p_[id] - q_[id]) >= target) return static_cast<int32_t>(id);
  }
}

// Log-probabilities of the current row; result.token is set.
void Drawer::report(const SampleParams& p, SampleResult& result, TopToken* top,
                    int64_t top_stride) {
  int64_t num = 0;
  const double log_sum = std::log(mass(kMinusInfinity, &num));
  const auto log_prob = [&](int32_t id) {
    return static_cast<float>((double{logits_[id]} - largest_) / temperature_ - log_sum);
  };
  result.log_prob = log_prob(result.token);
  if (p.log_probs == LogProbs::kProcessed && p.top_k > 0) {
    keep(p);
    double sum = 0;
    for (int32_t id : ids_) sum += weight(id);
    result.log_kept = static_cast<float>(std::log(sum) - log_sum);
  }
  const int64_t num_top = std::min({top_stride, int64_t{p.num_top}, vocab_});
  if (num_top <= 0) return;
  take_top(num_top);
  for (size_t t = 0; t < ids_.size() && logits_[ids_[t]] > kMinusInfinity; ++t)
    top[t] = {ids_[t], log_prob(ids_[t])};
}

void Drawer::run(const Raw& raw, const Sample& a, int64_t i) {
  do {
    const SampleRow& row = a.rows[i];
    if (row.after == 0 || a.results[i - row.after].token == row.draft) {
      run_row(raw, a, i);
    } else {
      std::fill_n(a.top + i * a.top_stride, a.top_stride, TopToken());
      a.results[i] = {.token = kNotDrawn};
      if (row.wants_argmax) peek(raw, a, i);
    }
  } while (++i < a.problem.rows && a.rows[i].after > 0);
}

void Drawer::peek(const Raw& raw, const Sample& a, int64_t i) {
  raw_ = &raw, vocab_ = a.problem.vocab;
  if (scan(a.logits.row<float>(a.rows[i].logits_row), 1)) a.results[i].likeliest = argmax();
}

// Steps 1 to 3.
void Drawer::edit(const Sample& a, const SampleRow& row, float* logits) {
  const SampleParams& p = a.params[row.slot];
  const int32_t* const history = history_of(a, row);
  const uintptr_t lists = reinterpret_cast<uintptr_t>(a.lists_base) + p.lists;
  editor_.edit(p,
               SampleLists(p, reinterpret_cast<const int32_t*>(lists),
                           reinterpret_cast<const float*>(lists)),
               row.mask >= 0 ? a.masks + row.mask * a.mask_stride : nullptr,
               {history, history ? static_cast<size_t>(row.position) : 0}, row.position,
               {logits, static_cast<size_t>(vocab_)});
}

void Drawer::run_row(const Raw& raw, const Sample& a, int64_t i) {
  raw_ = &raw, vocab_ = a.problem.vocab;
  const SampleRow& row = a.rows[i];
  const SampleParams& p = a.params[row.slot];
  float* const logits = a.logits.row<float>(row.logits_row);
  int32_t* const history = history_of(a, row);
  TopToken* const top = a.top + i * a.top_stride;
  std::fill_n(top, a.top_stride, TopToken());
  const bool edits = edits_logits(p, row);
  SampleResult result;
  bool sound = scan(logits, temperature_of(p));
  if (sound && edits) {
    edit(a, row, logits);
    scan(logits, temperature_of(p));
  }
  sound &= largest_ > kMinusInfinity;
  if (sound && weighs_drafts(p)) result.token = weigh(a, i, history);
  if (sound && result.token < 0) result.token = p.draws ? draw(p, row, history) : argmax();
  if (sound && p.log_probs != LogProbs::kNone) {
    if (p.log_probs == LogProbs::kRaw)
      scan(edits ? a.raw_logits.row<float>(row.logits_row) : logits, 1);
    report(p, result, top, a.top_stride);
  }
  a.results[i] = result;
  if (!p.draws) return;
  if (history && row.position < a.history_stride) history[row.position] = result.token;
  if (a.slot_tokens) a.slot_tokens[row.slot] = result.token;
}

Status launch_sample(const Raw& raw, const Sample& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  const auto run_rows = [&](int64_t begin, int64_t end, int) {
    thread_local Drawer drawer;
    for (int64_t i = begin; i < end; ++i)
      if (a.rows[i].after == 0) drawer.run(raw, a, i);
  };
  if (a.problem.rows == 1)
    run_rows(0, 1, 0);
  else
    pool.parallel_for(a.problem.rows, 1, run_rows);
  return ok();
}

}  // namespace

template <>
Table<Sample> table<Sample>() {
  return vectors<Sample, launch_sample>();
}

}  // namespace nereid::kernels::cpu
