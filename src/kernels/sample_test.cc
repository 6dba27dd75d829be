// Sampling against probabilities computed in f64 from the formulas: a chi-square test per
// parameter, all in the same batches. Seeds are fixed, so results are reproducible.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>

#include "kernels/open.h"

namespace nereid::kernels {
namespace {

constexpr int32_t kVocab = 40;
constexpr int64_t kDraws = 100000;   // per parameter set
constexpr int64_t kBatch = 500;      // rows per parameter set and batch
constexpr double kDeviations = 3.9;  // of the normal distribution: one test in 20 000 fails

const std::vector<int32_t> kHistory = {3, 7, 3, 9, 3, 7, 12, 20, 5, 3, 7};
constexpr int32_t kNumPrompt = 4;

std::vector<float> logits() {
  std::vector<float> x;
  for (int32_t id = 0; id < kVocab; ++id)
    x.push_back(static_cast<float>((id * 7 + 3) % 17) * 0.35f - 2);
  return x;
}

// A parameter set, with its lists.
struct Way {
  const char* name;
  SampleParams params;
  std::vector<float> dense_bias = {};
  std::vector<std::pair<int32_t, float>> bias = {};
  std::vector<int32_t> end_ids = {};
  std::vector<std::vector<int32_t>> bad_words = {};
};

std::vector<Way> ways() {
  constexpr float kAll = 1;  // top_p without effect
  std::vector<float> ramp(kVocab);
  for (int32_t id = 0; id < kVocab; ++id) ramp[id] = static_cast<float>(id) * 0.05f;
  return {
      {"plain", {.top_p = kAll}},
      {"temperature", {.top_p = kAll, .temperature = 0.6f}},
      {"hot", {.top_p = kAll, .temperature = 3}},
      {"top_k", {.top_k = 7}},
      {"top_k_at_ties", {.top_k = 4, .temperature = 2}},
      {"top_p", {.top_p = 0.7f}},
      {"top_k_top_p", {.top_k = 12, .top_p = 0.8f, .temperature = 1.3f}},
      {"min_p", {.top_p = kAll, .min_p_gap = std::log(0.2f)}},
      {"min_p_top_k_top_p", {.top_k = 9, .top_p = 0.9f, .min_p_gap = std::log(0.3f)}},
      {"top_p_decay", {.top_p = 0.95f, .top_p_decay = 0.9f, .top_p_min = 0.1f}},
      {"top_p_min", {.top_p = 0.95f, .top_p_decay = 0.5f, .top_p_min = 0.4f}},
      {"top_p_reset",
       {.top_p = 0.95f, .top_p_decay = 0.8f, .top_p_min = 0.01f, .top_p_reset_id = 20}},
      {"repetition", {.top_p = kAll, .repetition = 1.7f}},
      {"presence", {.top_p = kAll, .presence = 0.9f}},
      {"frequency", {.top_p = kAll, .frequency = 0.6f, .penalty_begin = 3}},
      {"penalties",
       {.top_k = 20,
        .temperature = 0.8f,
        .repetition = 0.8f,
        .presence = -0.5f,
        .frequency = 0.3f}},
      {"logit_bias", {.top_p = kAll}, {}, {{4, 3.0f}, {9, -2.0f}, {11, -INFINITY}}},
      {"dense_bias", {.top_p = 0.9f}, ramp},
      {"bans",
       {.top_p = kAll, .min_length = 1000, .ngram = 3},
       {},
       {},
       {1, 2},
       {{5}, {3, 7, 8}, {7, 7, 9}}},
      {"everything",
       {.top_k = 25,
        .top_p = 0.98f,
        .top_p_decay = 0.97f,
        .top_p_min = 0.2f,
        .min_p_gap = 1.2f * std::log(0.01f),
        .temperature = 1.2f,
        .repetition = 1.1f,
        .presence = 0.2f,
        .frequency = 0.1f,
        .ngram = 2,
        .log_probs = LogProbs::kProcessed},
       ramp,
       {{4, 1.0f}},
       {1},
       {{7, 10}}},
  };
}

// Logits after biases, penalties and bans.
std::vector<double> processed(const Way& way) {
  std::vector<double> l;
  for (float x : logits()) l.push_back(x);
  for (size_t id = 0; id < way.dense_bias.size(); ++id) l[id] += way.dense_bias[id];
  for (const auto& [id, bias] : way.bias) l[id] += bias;
  const SampleParams& p = way.params;
  std::map<int32_t, int> seen, counted;
  for (size_t i = 0; i < kHistory.size(); ++i) {
    ++seen[kHistory[i]];
    counted[kHistory[i]] += static_cast<int32_t>(i) >= p.penalty_begin;
  }
  for (const auto& [id, times] : seen) {
    l[id] = l[id] < 0 ? l[id] * p.repetition : l[id] / p.repetition;
    if (counted[id] > 0) l[id] -= p.presence + p.frequency * counted[id];
  }
  const int32_t length = static_cast<int32_t>(kHistory.size());
  if (length < p.min_length)
    for (int32_t id : way.end_ids) l[id] = -INFINITY;
  if (p.ngram == 2) l[3] = l[12] = -INFINITY;  // the ids that followed 7
  if (p.ngram == 3) l[3] = l[12] = -INFINITY;  // the ids that followed 3 7
  for (const auto& word : way.bad_words) {
    const auto before = static_cast<int64_t>(word.size()) - 1;
    if (std::equal(word.begin(), word.end() - 1, kHistory.end() - before))
      l[word.back()] = -INFINITY;
  }
  return l;
}

double top_p_now(const SampleParams& p) {
  double value = p.top_p > 0 ? p.top_p : 1;
  const double start = value;
  for (size_t i = kNumPrompt; p.top_p > 0 && p.top_p_decay < 1 && i < kHistory.size(); ++i)
    value = kHistory[i] == p.top_p_reset_id ? start
                                            : std::max<double>(value * p.top_p_decay, p.top_p_min);
  return value;
}

// Probabilities of all ids.
std::vector<double> probabilities(const Way& way) {
  const SampleParams& p = way.params;
  const std::vector<double> l = processed(way);
  std::vector<int32_t> order(kVocab);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return l[a] > l[b]; });
  std::erase_if(order, [&](int32_t id) { return l[id] < l[order[0]] + p.min_p_gap - 1e-6; });
  if (p.top_k > 0 && static_cast<size_t>(p.top_k) < order.size())
    order.resize(static_cast<size_t>(p.top_k));
  double sum = 0;
  for (int32_t id : order) sum += std::exp(l[id] / p.temperature);
  std::vector<double> result(kVocab);
  double mass = 0;
  const double top_p = top_p_now(p);
  for (int32_t id : order) {  // the one in which the mass reaches top_p is cut
    const double next = mass + std::exp(l[id] / p.temperature) / sum;
    result[id] = (std::min(next, top_p) - std::min(mass, top_p)) / top_p;
    mass = next;
  }
  return result;
}

// Chi-square test of counts; ids expected less than 5 times are pooled. Empty: passed.
std::string misfit(const std::vector<int64_t>& counts, const std::vector<double>& expected) {
  double chi = 0, rest_expected = 0;
  int64_t rest = 0;
  int degrees = -1;
  const auto add = [&](double seen, double wanted) {
    chi += (seen - wanted) * (seen - wanted) / wanted;
    ++degrees;
  };
  for (size_t id = 0; id < counts.size(); ++id) {
    const double wanted = expected[id] * static_cast<double>(kDraws);
    if (wanted < 1e-6 && counts[id] > 0)
      return fmt::format("id {} cannot be drawn, yet was {} times", id, counts[id]);
    if (wanted >= 5)
      add(static_cast<double>(counts[id]), wanted);
    else
      rest += counts[id], rest_expected += wanted;
  }
  if (rest_expected >= 5) add(static_cast<double>(rest), rest_expected);
  if (degrees < 1) return degrees < 0 ? "nothing was expected" : "";
  const double v = 2.0 / (9.0 * degrees);  // Wilson-Hilferty approximation
  const double limit = degrees * std::pow(1 - v + kDeviations * std::sqrt(v), 3);
  if (chi <= limit) return "";
  return fmt::format("chi-square {:.1f} with {} degrees of freedom, at most {:.1f}", chi, degrees,
                     limit);
}

// Batches in which row i is sampled with parameter set i % ways, from the set's own logits if any.
class Batches {
 public:
  Batches(Device& device, const Kernel<Sample>& kernel, std::vector<Way> all,
          const std::vector<std::vector<float>>& of_ways = {})
      : kernel_(kernel), ways_(std::move(all)), stream_(device.create_stream().value()) {
    for (size_t i = 0; i < num_rows(); ++i) {
      add_slot(ways_[i % ways_.size()]);
      const std::vector<float> row = of_ways.empty() ? logits() : of_ways[i % ways_.size()];
      logits_.insert(logits_.end(), row.begin(), row.end());
      history_.insert(history_.end(), kHistory.begin(), kHistory.end());
      history_.push_back(-1);
      rows_.push_back({static_cast<int32_t>(i), static_cast<int32_t>(kHistory.size()),
                       static_cast<int32_t>(i)});
    }
  }

  // Row i uses seed `seed` + i / ways.
  const std::vector<SampleResult>& run(uint64_t seed) { return run(seed, rows_, {}); }

  // Same with drafts just sampled by `from`; result 2 * i is that of row i.
  const std::vector<SampleResult>& run(uint64_t seed, const Batches& from) {
    std::vector<SampleRow> rows;
    for (SampleRow row : rows_) {
      rows.push_back(row);
      row.draft = from.results_[static_cast<size_t>(row.slot)].token;
      row.draft_logits = row.slot;
      row.after = 1, row.position += 1;
      row.logits_row += static_cast<int32_t>(num_rows());
      rows.push_back(row);
    }
    return run(seed, rows, from.logits_);
  }

  const std::vector<SampleResult>& run(uint64_t seed, const std::vector<SampleRow>& rows,
                                       std::vector<float> draft_logits) {
    for (size_t i = 0; i < num_rows(); ++i) params_[i].seed = seed + i / ways_.size();
    results_.resize(rows.size());
    top_.resize(rows.size() * kMaxTopTokens);
    std::vector<float> scratch = logits_;
    if (!draft_logits.empty()) scratch.insert(scratch.end(), logits_.begin(), logits_.end());
    std::vector<float> raw = scratch;
    Sample a;
    a.problem = {.rows = static_cast<int64_t>(rows.size()),
                 .vocab = kVocab,
                 .weighs_drafts = !draft_logits.empty()};
    a.logits = View::matrix(scratch.data(), DType::kF32, a.problem.rows, kVocab);
    a.raw_logits = View::matrix(raw.data(), DType::kF32, a.problem.rows, kVocab);
    if (!draft_logits.empty())
      a.draft_logits =
          View::matrix(draft_logits.data(), DType::kF32, static_cast<int64_t>(num_rows()), kVocab);
    a.rows = rows.data();
    a.params = params_.data();
    a.lists_base = cells_.data();
    a.history = history_.data();
    a.history_stride = static_cast<int64_t>(kHistory.size()) + 1;
    a.results = results_.data();
    a.top = top_.data();
    a.top_stride = kMaxTopTokens;
    const auto event = stream_->submit([&](Stream& s) { return kernel_.run(a, s); });
    EXPECT_TRUE((*event)->wait().ok());
    return results_;
  }

  const TopToken* top(size_t i) const { return &top_[i * kMaxTopTokens]; }
  size_t num_rows() const { return ways_.size() * kBatch; }

 private:
  void add_slot(const Way& way) {
    SampleParams p = way.params;
    p.lists = cells_.size() * sizeof(int32_t);
    p.keeps_history = 1;
    p.num_prompt = kNumPrompt;
    p.num_end_ids = static_cast<int32_t>(way.end_ids.size());
    p.num_biases = static_cast<int32_t>(way.bias.size());
    p.num_bad_words = static_cast<int32_t>(way.bad_words.size());
    p.has_dense_bias = !way.dense_bias.empty();
    cells_.insert(cells_.end(), way.end_ids.begin(), way.end_ids.end());
    for (const auto& entry : way.bias) cells_.push_back(entry.first);
    for (const auto& entry : way.bias) push(entry.second);
    for (const auto& word : way.bad_words)
      cells_.push_back(p.num_bad_tokens += static_cast<int32_t>(word.size()));
    for (const auto& word : way.bad_words) cells_.insert(cells_.end(), word.begin(), word.end());
    for (float bias : way.dense_bias) push(bias);
    params_.push_back(p);
  }
  void push(float value) {
    int32_t cell;
    std::memcpy(&cell, &value, sizeof(cell));
    cells_.push_back(cell);
  }

  const Kernel<Sample>& kernel_;
  const std::vector<Way> ways_;
  const std::unique_ptr<Stream> stream_;
  std::vector<float> logits_;
  std::vector<SampleParams> params_;
  std::vector<SampleRow> rows_;
  std::vector<int32_t> cells_, history_;
  std::vector<SampleResult> results_;
  std::vector<TopToken> top_;
};

class Sampling : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    opened_ = open_device("cpu", {.num_threads = 2}).value();
    for (const Kernel<Sample>& kernel : opened_.registry.table<Sample>())
      if (kernel.name == GetParam() && kernel.can({}, opened_.device->info())) kernel_ = &kernel;
    if (!kernel_) GTEST_SKIP() << "this processor cannot run sample:" << GetParam();
  }

  OpenedDevice opened_;
  const Kernel<Sample>* kernel_ = nullptr;
};

TEST_P(Sampling, DrawsWithTheProbabilitiesOfItsParameters) {
  const std::vector<Way> all = ways();
  Batches batches(*opened_.device, *kernel_, all);
  std::vector<std::vector<int64_t>> counts(all.size(), std::vector<int64_t>(kVocab));
  for (int64_t batch = 0; batch < kDraws / kBatch; ++batch) {
    const auto& results = batches.run(1000000 + static_cast<uint64_t>(batch * kBatch));
    for (size_t i = 0; i < results.size(); ++i) {
      ASSERT_GE(results[i].token, 0);
      ++counts[i % all.size()][static_cast<size_t>(results[i].token)];
    }
  }
  for (size_t w = 0; w < all.size(); ++w)
    EXPECT_EQ(misfit(counts[w], probabilities(all[w])), "") << all[w].name;
}

// Draft models: name of a parameter set, logits.
std::vector<std::pair<std::string_view, std::vector<float>>> draft_models() {
  const std::vector<float> own = logits();
  std::vector<float> flat(own.size()), sharp = own, opposite = own, other = own;
  for (float& x : sharp) x *= 2;
  for (float& x : opposite) x = -x;
  for (size_t id = 0; id < other.size(); ++id) other[id] += static_cast<float>(id % 3) - 1;
  return {{"plain", flat},
          {"top_k_top_p", sharp},
          {"min_p_top_k_top_p", other},
          {"penalties", opposite},
          {"everything", other}};
}

// Same seeds for both, as a client may choose.
TEST_P(Sampling, DrawsAsWithoutDraftsThatComeWithLogits) {
  std::vector<Way> all;
  std::vector<std::vector<float>> draft_logits;
  const std::vector<Way> known = ways();
  for (const auto& [name, own] : draft_models()) {
    all.push_back(*std::ranges::find(known, name, &Way::name));
    all.back().params.draft_test = DraftTest::kRatio;
    draft_logits.push_back(own);
  }
  Batches drafts(*opened_.device, *kernel_, all, draft_logits);
  Batches batches(*opened_.device, *kernel_, all);
  std::vector<std::vector<int64_t>> counts(all.size(), std::vector<int64_t>(kVocab));
  std::vector<int64_t> held(all.size());
  for (int64_t batch = 0; batch < kDraws / kBatch; ++batch) {
    const uint64_t seed = 1000000 + static_cast<uint64_t>(batch * kBatch);
    drafts.run(seed);
    const auto& results = batches.run(seed, drafts);
    for (size_t i = 0; i < results.size(); i += 2) {
      const size_t way = i / 2 % all.size();
      ASSERT_GE(results[i].token, 0);
      ++counts[way][static_cast<size_t>(results[i].token)];
      held[way] += results[i + 1].token != kNotDrawn;
    }
  }
  for (size_t w = 0; w < all.size(); ++w) {
    EXPECT_EQ(misfit(counts[w], probabilities(all[w])), "") << all[w].name;
    EXPECT_GT(held[w], kDraws / 1000) << all[w].name;
    EXPECT_LT(held[w], kDraws - kDraws / 50) << all[w].name;
  }
}

// Parameter sets differ pairwise, so the test above is sensitive to each.
TEST(SamplingProbabilities, DifferBetweenAnyTwoWays) {
  const std::vector<Way> all = ways();
  for (size_t a = 0; a < all.size(); ++a)
    for (size_t b = 0; b < a; ++b) {
      const std::vector<double> p = probabilities(all[a]);
      std::vector<int64_t> counts;
      for (double x : p) counts.push_back(std::llround(x * kDraws));
      EXPECT_NE(misfit(counts, probabilities(all[b])), "") << all[a].name << " " << all[b].name;
    }
}

TEST_P(Sampling, ReportsTheLogSoftmaxOfTheProcessedAndOfTheRawLogits) {
  for (const LogProbs mode : {LogProbs::kProcessed, LogProbs::kRaw}) {
    std::vector<Way> all = ways();
    for (Way& way : all) way.params.log_probs = mode, way.params.num_top = kMaxTopTokens;
    Batches batches(*opened_.device, *kernel_, all);
    const auto& results = batches.run(5);
    for (size_t i = 0; i < all.size(); ++i) {
      Way source = all[i];
      if (mode == LogProbs::kRaw) source = Way{"raw", {}};
      std::vector<double> l = processed(source);
      for (double& x : l) x /= source.params.temperature;
      const double largest = *std::max_element(l.begin(), l.end());
      double sum = 0;
      for (double x : l) sum += std::exp(x - largest);
      const auto log_prob = [&](int32_t id) { return l[id] - largest - std::log(sum); };
      EXPECT_NEAR(results[i].log_prob, log_prob(results[i].token), 2e-6) << all[i].name;
      for (int t = 0; t < kMaxTopTokens; ++t) {
        const TopToken top = batches.top(i)[t];
        if (top.token < 0) break;
        EXPECT_NEAR(top.log_prob, log_prob(top.token), 5e-6) << all[i].name << " top " << t;
        const auto better =
            std::ranges::count_if(l, [&](double x) { return x > l[top.token] + 1e-5; });
        EXPECT_LE(better, t) << all[i].name;
      }
    }
  }
}

TEST_P(Sampling, NormalisesOverTheKeptTokens) {
  Way way{"top_k", {.top_k = 5, .log_probs = LogProbs::kProcessed}};
  Batches batches(*opened_.device, *kernel_, {way});
  const auto& results = batches.run(9);
  const std::vector<double> p = probabilities(way);
  for (const SampleResult& r : results)
    EXPECT_NEAR(std::exp(r.log_prob - r.log_kept), p[static_cast<size_t>(r.token)], 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Cpu, Sampling, ::testing::Values("avx512", "avx2", "ref"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace nereid::kernels
