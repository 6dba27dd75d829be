// Draft tests other than equality: by the ratio of probabilities, and typical acceptance.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "runtime/testing/engine_fixture.h"

namespace nereid::runtime {
namespace {

constexpr size_t kDrafts = 8;

exec::RunnerLimits wide() {
  exec::RunnerLimits limits = roomy();
  limits.max_logits = 32;
  return limits;
}

Request sampled(uint64_t seed) {
  Request r = request({8, 9, 10, 11, 12}, 12);
  r.sampling.seed = seed;
  r.sampling.top_k = 20;
  r.sampling.top_p = 0.95f;
  r.sampling.repetition_penalty = 1.1f;
  return r;
}

// Generated tokens of a request, and their logits.
struct Generated {
  std::vector<TokenId> tokens;
  std::vector<float> logits;

  Generated(Fixture& f, Request r) {
    r.output.return_generation_logits = true;
    const Received got = f.client.run(*f.executor, r);
    tokens = got.tokens;
    logits = got.last.outputs.at(0).generation_logits;
    EXPECT_EQ(tokens.size(), 12u);
    EXPECT_EQ(logits.size(), 12u * kVocab);
    tokens.resize(kDrafts);
    logits.resize(kDrafts * kVocab);
  }
};

std::vector<TokenId> first_tokens(Fixture& f, const Request& r) {
  std::vector<TokenId> tokens = f.client.run(*f.executor, r).tokens;
  EXPECT_EQ(tokens.size(), 12u);
  tokens.resize(kDrafts);
  return tokens;
}

TEST(DraftLogits, OnesThatAreTheModelsOwnTakeEveryDraft) {
  Fixture f(wide());
  const Generated draft(f, sampled(1));
  for (const float threshold : {0.0f, 1.0f}) {
    Request r = sampled(2);
    const std::vector<TokenId> plain = first_tokens(f, r);
    r.draft_token_ids = draft.tokens;
    EXPECT_EQ(first_tokens(f, r), plain) << "without logits a draft has to be drawn";
    r.draft_logits = draft.logits;
    if (threshold > 0) r.draft_acceptance_threshold = threshold;
    const int64_t before = f.executor->stats().num_accepted_drafts;
    EXPECT_EQ(first_tokens(f, r), draft.tokens);
    EXPECT_NE(draft.tokens, plain);
    EXPECT_EQ(f.executor->stats().num_accepted_drafts - before, static_cast<int64_t>(kDrafts));
  }
}

TEST(DraftLogits, ADraftThatIsTooCertainIsRefusedAndNotDrawn) {
  Fixture f(wide());
  const Generated draft(f, sampled(1));
  Request r = sampled(2);
  r.draft_token_ids = draft.tokens;
  r.draft_logits = draft.logits;
  r.draft_logits[static_cast<size_t>(draft.tokens[0])] = 100;
  r.draft_acceptance_threshold = 1;
  EXPECT_NE(first_tokens(f, r)[0], draft.tokens[0]);
}

TEST(DraftLogits, GreedyRequestsHaveNoUseForThem) {
  Fixture f(wide());
  const Generated draft(f, sampled(1));
  Request r = request({8, 9, 10, 11, 12}, 12);
  const std::vector<TokenId> plain = first_tokens(f, r);
  r.draft_token_ids = draft.tokens;
  r.draft_logits = draft.logits;
  EXPECT_EQ(first_tokens(f, r), plain);
}

using Shares = std::vector<double>;

// Probabilities of one position.
Shares softmax(std::span<const float> logits) {
  const double most = std::ranges::max(logits);
  Shares shares;
  double sum = 0;
  for (const float x : logits) sum += shares.emplace_back(std::exp(x - most));
  for (double& share : shares) share /= sum;
  return shares;
}

// First tokens of `num` sequences with this draft and, unless empty, these draft logits.
void draw(Fixture& f, TokenId draft, std::span<const float> logits, int64_t num,
          std::vector<int64_t>& counts) {
  constexpr int64_t kAtOnce = 512, kInRequest = 8;
  while (num > 0) {
    std::vector<RequestId> ids;
    for (int64_t i = 0; i < kAtOnce && num > 0; i += kInRequest, num -= kInRequest) {
      Request r = request({8, 9, 10, 11, 12}, 2);
      r.sampling.top_k = kVocab;
      r.sampling.seed = static_cast<uint64_t>(draft) << 32 | static_cast<uint64_t>(num);
      r.sampling.num_return_sequences = static_cast<int32_t>(std::min(num, kInRequest));
      r.draft_token_ids = {draft};
      r.draft_logits.assign(logits.begin(), logits.end());
      ids.push_back(f.executor->enqueue(r).value());
    }
    for (const RequestId id : ids)
      for (const Response& response : all_responses(*f.executor, id))
        for (const SequenceOutput& output : response.outputs)
          ++counts[static_cast<size_t>(output.token_ids.end()[-2])];
  }
}

// Chi-square's excess over its expectation in standard deviations (Wilson-Hilferty). Tokens with an
// expected count < 5 are pooled.
double misfit(const std::vector<int64_t>& counts, const Shares& shares, double num) {
  double chi = 0, rest = 0, rest_expected = 0;
  int degrees = -1;
  const auto add = [&](double seen, double expected) {
    chi += (seen - expected) * (seen - expected) / expected;
    ++degrees;
  };
  for (size_t i = 0; i < counts.size(); ++i) {
    const auto seen = static_cast<double>(counts[i]);
    if (num * shares[i] >= 5)
      add(seen, num * shares[i]);
    else
      rest += seen, rest_expected += num * shares[i];
  }
  if (rest_expected >= 5) add(rest, rest_expected);
  const double v = 2.0 / (9.0 * degrees);
  return (std::cbrt(chi / degrees) - (1 - v)) / std::sqrt(v);
}

// Drafts from a different distribution: outputs still follow the model's. Sequences per draft = its
// expected number among NEREID_DRAWS draws (default 10,000).
TEST(DraftLogits, KeepTheDistributionOfTheModel) {
  const char* const text = std::getenv("NEREID_DRAWS");
  const double num_draws = text ? std::atof(text) : 1e4;
  Fixture f(wide());
  const auto logits_of = [&](std::vector<TokenId> prompt) {
    Request r = request(std::move(prompt), 1);
    r.output.return_generation_logits = true;
    return f.client.run(*f.executor, r).last.outputs.at(0).generation_logits;
  };
  const std::vector<float> model = logits_of({8, 9, 10, 11, 12}), other = logits_of({20, 21});
  const Shares p = softmax(model), q = softmax(other);
  for (const bool by_ratio : {false, true}) {
    std::vector<int64_t> counts(kVocab);
    const int64_t before = f.executor->stats().num_accepted_drafts;
    for (size_t token = 0; token < q.size(); ++token)
      draw(f, static_cast<TokenId>(token), by_ratio ? other : std::vector<float>(),
           std::llround(num_draws * q[token]), counts);
    const double num = std::accumulate(counts.begin(), counts.end(), 0.0);
    const auto held = static_cast<double>(f.executor->stats().num_accepted_drafts - before);
    double expected = 0;  // share of accepted drafts
    for (size_t i = 0; i < p.size(); ++i) expected += by_ratio ? std::min(p[i], q[i]) : p[i] * q[i];
    EXPECT_NEAR(num, num_draws, kVocab);
    EXPECT_NEAR(held / num, expected, 0.03) << by_ratio;
    EXPECT_LT(misfit(counts, p, num), 4) << by_ratio;
    EXPECT_GT(misfit(counts, q, num), 10) << by_ratio << ": the two distributions are alike";
  }
}

TEST(DraftLogits, SeveralSequencesAndSmallSteps) {
  exec::RunnerLimits limits = wide();
  limits.max_tokens = 6;  // too small for all drafts
  Fixture f(limits);
  const Generated draft(f, sampled(1));
  Request r = sampled(2);
  r.sampling.num_return_sequences = 2;
  r.draft_token_ids = draft.tokens;
  r.draft_logits = draft.logits;
  for (const Response& response : all_responses(*f.executor, f.executor->enqueue(r).value()))
    EXPECT_TRUE(response.status.ok()) << response.status;
  EXPECT_GT(f.executor->stats().num_accepted_drafts, 0);
  f.expect_counts_add_up();
}

TEST(TypicalAcceptance, TakesDraftsThatAreLikelyEnough) {
  for (const auto& [threshold, all] : {std::pair(1e-12f, true), std::pair(1.0f, false)}) {
    ExecutorConfig config;
    config.typical_acceptance = threshold;
    Fixture f(wide(), config);
    const Generated draft(f, sampled(1));
    Request r = sampled(2);
    r.draft_token_ids = draft.tokens;
    const std::vector<TokenId> got = first_tokens(f, r);
    EXPECT_EQ(got == draft.tokens, all) << threshold;
    Request greedy = request({8, 9, 10, 11, 12}, 12);
    const std::vector<TokenId> plain = first_tokens(f, greedy);
    greedy.draft_token_ids = draft.tokens;
    EXPECT_EQ(first_tokens(f, greedy), plain) << "greedy ones have to be drawn";
  }
}

}  // namespace
}  // namespace nereid::runtime
