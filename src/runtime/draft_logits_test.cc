// Drafts that are taken for other reasons than that they are drawn: with the logits that they come
// from, and typical ones.
#include <gmock/gmock.h>

#include <algorithm>

#include "runtime/engine_fixture.h"

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

// What such a request generates, and the logits that it was drawn from.
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

TEST(DraftLogits, SeveralSequencesAndSmallSteps) {
  exec::RunnerLimits limits = wide();
  limits.max_tokens = 6;  // so that not all drafts have room
  Fixture f(limits);
  const Generated draft(f, sampled(1));
  Request r = sampled(2);
  r.sampling.num_return_sequences = 2;
  r.draft_token_ids = draft.tokens;
  r.draft_logits = draft.logits;
  for (const Response& response : all_responses(*f.executor, f.executor->enqueue(r).value()))
    EXPECT_TRUE(response.status.ok()) << response.status;
  EXPECT_GT(f.executor->stats().num_accepted_drafts, 0);
  f.expect_books_balance();
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
