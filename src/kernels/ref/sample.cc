// Reference sampling: every step over the whole sorted vocabulary.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <vector>

#include "base/rng.h"
#include "kernels/ref/ref.h"

namespace nereid::kernels {
namespace {

constexpr float kMost = std::numeric_limits<float>::max();

// All inputs of one row's token.
struct Draw {
  const SampleParams& params;
  SampleLists lists;
  std::span<const int32_t> history;
  std::span<float> logits;
  int32_t position = 0;
  const uint32_t* mask = nullptr;  // null: none

  bool knows(int32_t id) const { return id >= 0 && static_cast<size_t>(id) < logits.size(); }
  void set(int32_t id, float value) {
    if (!knows(id) || logits[id] == -INFINITY) return;
    logits[id] = value < INFINITY ? value : kMost;
  }
  void ban(int32_t id) { set(id, -INFINITY); }
};

void add_biases(Draw& d) {
  if (d.params.has_dense_bias)
    for (size_t id = 0; id < d.logits.size(); ++id)
      d.set(static_cast<int32_t>(id), d.logits[id] + d.lists.dense_bias[id]);
  for (int32_t i = 0; i < d.params.num_biases; ++i)
    if (const int32_t id = d.lists.bias_ids[i]; d.knows(id))
      d.set(id, d.logits[id] + d.lists.biases[i]);
}

void penalise(Draw& d) {
  const SampleParams& p = d.params;
  std::map<int32_t, int32_t> counts;  // per distinct id, from penalty_begin
  for (size_t i = 0; i < d.history.size(); ++i)
    counts[d.history[i]] += static_cast<int32_t>(i) >= p.penalty_begin;
  for (const auto& [id, count] : counts) {
    if (!d.knows(id)) continue;
    float& l = d.logits[id];
    d.set(id, l < 0 ? l * p.repetition : l / p.repetition);
    if (count == 0) continue;
    d.set(id, l - p.presence);
    d.set(id, l - p.frequency * static_cast<float>(count));
  }
}

void ban_end_ids(Draw& d) {
  if (d.position >= d.params.min_length) return;
  for (int32_t i = 0; i < d.params.num_end_ids; ++i) d.ban(d.lists.end_ids[i]);
}

void apply_mask(Draw& d) {
  if (!d.mask) return;
  for (size_t id = 0; id < d.logits.size(); ++id)
    if ((d.mask[id / 32] >> (id % 32) & 1) == 0) d.ban(static_cast<int32_t>(id));
}

void ban_repeated_ngrams(Draw& d) {
  const auto n = static_cast<size_t>(std::max(d.params.ngram, 0));
  if (n == 0 || d.history.size() < n) return;
  const auto context = d.history.last(n - 1);
  for (size_t i = 0; i + n <= d.history.size(); ++i)
    if (std::ranges::equal(d.history.subspan(i, n - 1), context)) d.ban(d.history[i + n - 1]);
}

void ban_bad_words(Draw& d) {
  int32_t begin = 0;
  for (int32_t w = 0; w < d.params.num_bad_words; ++w) {
    const int32_t end = d.lists.bad_ends[w];
    const std::span<const int32_t> word(d.lists.bad_tokens + begin, d.lists.bad_tokens + end);
    begin = end;
    if (word.empty() || word.size() - 1 > d.history.size()) continue;
    if (std::ranges::equal(word.first(word.size() - 1), d.history.last(word.size() - 1)))
      d.ban(word.back());
  }
}

void apply_timestamp_rules(Draw& d) {
  const SampleParams& p = d.params;
  const int32_t first = p.first_timestamp, vocab = static_cast<int32_t>(d.logits.size());
  if (first < 0 || first >= vocab) return;
  std::vector<int32_t> generated;
  for (size_t i = 0; i < d.history.size(); ++i)
    if (static_cast<int64_t>(i) >= p.num_prompt) generated.push_back(d.history[i]);
  const auto size = generated.size();
  const auto is_time = [&](size_t from_end) {
    return size >= from_end && generated[size - from_end] >= first;
  };
  const bool begins_segment = is_time(1) && (size == 1 || is_time(2));
  int64_t latest = -1;
  for (const int32_t id : generated)
    if (id >= first) latest = id;
  for (int32_t id = 0; id < vocab; ++id) {
    const bool is_timestamp = id >= first;
    const bool bans =
        id == p.no_timestamps || (size == 0 && !is_timestamp) ||
        (size == 0 && is_timestamp && p.max_initial_timestamp >= 0 &&
         id - first > p.max_initial_timestamp) ||
        (begins_segment && is_timestamp) || (is_time(1) && !begins_segment && id < p.end_of_text) ||
        (is_timestamp && id < latest) || (id == latest && !(is_time(1) && !begins_segment));
    if (bans) d.ban(id);
  }
  const auto times = d.logits.subspan(static_cast<size_t>(first));
  const double most = std::ranges::max(times);
  double sum = 0, other = -INFINITY;
  for (const float l : times) sum += most > -INFINITY ? std::exp(l - most) : 0;
  for (int32_t id = 0; id < first; ++id) other = std::max<double>(other, d.logits[id]);
  if (sum > 0 && most + std::log(sum) > other)
    for (int32_t id = 0; id < first; ++id) d.ban(id);
}

// Ids by descending logit, then ascending id.
std::vector<int32_t> sorted(std::span<const float> logits) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const float* const l = logits.data();
  std::stable_sort(order.data(), order.data() + order.size(),
                   [l](int32_t a, int32_t b) { return l[a] > l[b]; });
  return order;
}

float top_p_of(const Draw& d) {
  int32_t k = d.position - d.params.num_prompt;
  if (d.params.top_p_reset_id >= 0 && !d.history.empty())
    for (int32_t i = 0; i < k; ++i)
      if (d.history[d.position - 1 - i] == d.params.top_p_reset_id) k = i;
  return top_p_after(d.params, k);
}

// The ids kept by min_p and top_k.
std::vector<int32_t> kept(const Draw& d, std::vector<int32_t> order) {
  if (d.params.top_k > 0 && static_cast<size_t>(d.params.top_k) < order.size())
    order.resize(static_cast<size_t>(d.params.top_k));
  const float floor = d.logits[order[0]] + d.params.min_p_gap;
  while (d.logits[order.back()] < floor) order.pop_back();
  return order;
}

double weight(const Draw& d, int32_t id, float largest) {
  return std::exp((double{d.logits[id]} - largest) / temperature_of(d.params));
}

// Probabilities used by draw().
std::vector<double> probabilities(const Draw& d) {
  const std::vector<int32_t> ids = kept(d, sorted(d.logits));
  double sum = 0, before = 0;
  for (const int32_t id : ids) sum += weight(d, id, d.logits[ids[0]]);
  const double end = top_p_of(d) * sum;
  std::vector<double> result(d.logits.size());
  for (const int32_t id : ids) {
    const double upto = std::min(before + weight(d, id, d.logits[ids[0]]), end);
    result[id] = (upto - before) / end;
    before = upto;
  }
  return result;
}

int32_t draw(const Draw& d, const std::vector<int32_t>& order) {
  if (is_greedy(d.params)) return order[0];
  const std::vector<int32_t> ids = kept(d, order);
  std::vector<double> sums;
  double sum = 0;
  for (int32_t id : ids) sums.push_back(sum += weight(d, id, d.logits[ids[0]]));
  const double u = uniform(d.params.seed, static_cast<uint64_t>(d.position));
  return ids[std::lower_bound(sums.begin(), sums.end() - 1, u * top_p_of(d) * sum) - sums.begin()];
}

// Log-softmax of x / temperature at any id.
struct LogSoftmax {
  std::span<const float> x;
  double temperature, largest, log_sum = 0;
  LogSoftmax(std::span<const float> values, double t)
      : x(values), temperature(t), largest(std::ranges::max(values)) {
    double sum = 0;
    for (float v : x) sum += std::exp((v - largest) / temperature);
    log_sum = std::log(sum);
  }
  double at(int32_t id) const { return (x[id] - largest) / temperature - log_sum; }
};

void report(const Draw& d, std::span<const float> raw, const std::vector<int32_t>& processed_order,
            SampleResult& result, std::span<TopToken> top) {
  if (d.params.log_probs == LogProbs::kNone) return;
  const bool is_raw = d.params.log_probs == LogProbs::kRaw;
  const LogSoftmax log_softmax(is_raw ? raw : d.logits, is_raw ? 1 : temperature_of(d.params));
  result.log_prob = static_cast<float>(log_softmax.at(result.token));
  if (!is_raw && d.params.top_k > 0) {
    double sum = 0;
    for (int32_t id : kept(d, processed_order)) sum += std::exp(log_softmax.at(id));
    result.log_kept = static_cast<float>(std::log(sum));
  }
  const std::vector<int32_t> order = is_raw ? sorted(raw) : processed_order;
  const size_t wanted = std::min<size_t>(top.size(), std::max(d.params.num_top, 0));
  for (size_t i = 0; i < std::min(wanted, order.size()); ++i)
    if (log_softmax.x[order[i]] > -INFINITY)
      top[i] = {order[i], static_cast<float>(log_softmax.at(order[i]))};
}

void edit(Draw& d) {
  add_biases(d);
  if (has_penalties(d.params)) penalise(d);
  apply_mask(d);
  ban_end_ids(d);
  ban_repeated_ngrams(d);
  ban_bad_words(d);
  apply_timestamp_rules(d);
}

bool is_sound(std::span<const float> logits) {
  return std::ranges::all_of(logits, [](float l) { return l < INFINITY; });
}

int32_t typical_draft(const Draw& d, std::span<const SampleRow> drafts) {
  const std::vector<double> p = probabilities(d);
  double entropy = 0;
  for (const double x : p)
    if (x > 0) entropy -= x * std::log(x);
  const double t = d.params.draft_threshold;
  const double least = std::min(t, std::sqrt(t) * std::exp(-entropy));
  for (const SampleRow& row : drafts)
    if (d.knows(row.draft) && p[row.draft] > least) return row.draft;
  return -1;
}

// Rejection sampling of one draft by its proposal distribution q.
int32_t by_ratio(const Draw& d, const Draw& of_draft, int32_t draft) {
  const std::vector<double> p = probabilities(d);
  std::vector<double> q(p.size());
  if (is_sound(of_draft.logits) && std::ranges::max(of_draft.logits) > -INFINITY)
    q = probabilities(of_draft);
  const auto position = static_cast<uint64_t>(d.position);
  const double t = d.params.draft_threshold;
  const double least = t > 0 ? t : uniform(d.params.seed, position, 1);
  if (d.knows(draft) && p[draft] > 0 && p[draft] >= least * q[draft]) return draft;
  double sum = 0;
  std::vector<double> sums;
  for (size_t id = 0; id < p.size(); ++id) sums.push_back(sum += std::max(p[id] - q[id], 0.0));
  if (sum == 0) return -1;
  const double target = uniform(d.params.seed, position, 2) * sum;
  size_t id = 0;
  while (p[id] <= q[id] || sums[id] < target) ++id;
  return static_cast<int32_t>(id);
}

// Step 6. `drafts`: the rows that come after this one. -1: step 5 applies.
int32_t weigh(const Sample& a, const Draw& d, std::span<const SampleRow> drafts) {
  if (d.params.draft_test == DraftTest::kTypical) return typical_draft(d, drafts);
  const auto found = std::ranges::find_if(drafts, [](auto& row) { return row.draft_logits >= 0; });
  if (found == drafts.end()) return -1;
  Draw of_draft = d;
  of_draft.logits = {a.draft_logits.row<float>(found->draft_logits), d.logits.size()};
  if (is_sound(of_draft.logits)) edit(of_draft);
  return by_ratio(d, of_draft, found->draft);
}

SampleResult run_row(const Sample& a, Draw& d, std::span<const SampleRow> drafts,
                     std::span<TopToken> top) {
  SampleResult result;
  if (!is_sound(d.logits)) return result;
  const std::vector<float> raw(d.logits.begin(), d.logits.end());
  edit(d);
  const std::vector<int32_t> order = sorted(d.logits);
  if (d.logits[order[0]] == -INFINITY) return result;
  if (weighs_drafts(d.params) && !drafts.empty()) result.token = weigh(a, d, drafts);
  if (result.token < 0) result.token = d.params.draws ? draw(d, order) : order[0];
  report(d, raw, order, result, top);
  return result;
}

std::vector<SampleRow> drafts_after(const Sample& a, int64_t i) {
  std::vector<SampleRow> drafts;
  for (int64_t j = i + 1; j < a.problem.rows && a.rows[j].after > 0; ++j)
    if (j - a.rows[j].after == i) drafts.push_back(a.rows[j]);
  return drafts;
}

}  // namespace

void reference(const Sample& a) {
  for (int64_t i = 0; i < a.problem.rows; ++i) {
    const SampleRow& row = a.rows[i];
    const std::span<TopToken> top(a.top + i * a.top_stride, static_cast<size_t>(a.top_stride));
    std::ranges::fill(top, TopToken());
    const std::span<float> logits(a.logits.row<float>(row.logits_row),
                                  static_cast<size_t>(a.problem.vocab));
    if (row.after > 0 && a.results[i - row.after].token != row.draft) {
      a.results[i] = {.token = kNotDrawn};
      if (row.wants_argmax && is_sound(logits)) a.results[i].likeliest = sorted(logits)[0];
      continue;
    }
    const SampleParams& params = a.params[row.slot];
    const uintptr_t lists = reinterpret_cast<uintptr_t>(a.lists_base) + params.lists;
    int32_t* history = params.keeps_history ? a.history + row.slot * a.history_stride : nullptr;
    Draw d{.params = params,
           .lists = SampleLists(params, reinterpret_cast<const int32_t*>(lists),
                                reinterpret_cast<const float*>(lists)),
           .history = {history, history ? static_cast<size_t>(row.position) : 0},
           .logits = logits,
           .position = row.position,
           .mask = row.mask >= 0 ? a.masks + row.mask * a.mask_stride : nullptr};
    a.results[i] = run_row(a, d, drafts_after(a, i), top);
    if (!params.draws) continue;
    if (history && row.position < a.history_stride) history[row.position] = a.results[i].token;
    if (a.slot_tokens) a.slot_tokens[row.slot] = a.results[i].token;
  }
}

}  // namespace nereid::kernels
