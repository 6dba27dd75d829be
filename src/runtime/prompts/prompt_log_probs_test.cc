// Log-probabilities of prompts, from the logits of steps.
#include <gmock/gmock.h>

#include <cmath>

#include "runtime/prompts/prompt_scorer.h"
#include "runtime/testing/engine_fixture.h"

namespace nereid::runtime {
namespace {

using ::testing::HasSubstr;

std::vector<TokenId> mixed_prompt(int32_t length) {
  std::vector<TokenId> prompt;
  for (int32_t i = 0; i < length; ++i) prompt.push_back(8 + i * 7 % 50);
  return prompt;
}

Request scored(std::vector<TokenId> prompt, int32_t num_top, int32_t max_tokens = 2) {
  Request r = request(std::move(prompt), max_tokens);
  r.output.num_prompt_log_probs = num_top;
  return r;
}

std::shared_ptr<const PromptLogProbs> scores_of(Fixture& f, const Request& r) {
  std::shared_ptr<const PromptLogProbs> scores;
  int count = 0;
  for (const Response& response : all_responses(*f.executor, f.executor->enqueue(r).value())) {
    EXPECT_TRUE(response.status.ok()) << response.status;
    if (!response.prompt_log_probs) continue;
    scores = response.prompt_log_probs;
    ++count;
    EXPECT_EQ(response.sequence_index, 0);
  }
  EXPECT_EQ(count, 1) << "once";
  return scores;
}

TEST(PromptLogProbs, AreThoseOfTheContextLogits) {
  const std::vector<TokenId> prompt = mixed_prompt(40);
  for (const int32_t max_tokens : {64, 40, 5}) {
    exec::RunnerLimits limits = roomy();
    limits.max_tokens = max_tokens;
    limits.max_logits = 3 * max_tokens / 4;
    Fixture f(limits);
    f.client.run(*f.executor, request(prompt, 3));  // caches a prefix, which must not be used
    Request r = scored(prompt, 4);
    r.output.return_context_logits = true;
    r.streaming = true;
    std::vector<float> logits;
    const auto scores = scores_of(f, r);
    for (const Response& response : all_responses(*f.executor, f.executor->enqueue(r).value()))
      if (response.context_logits) logits = *response.context_logits;
    ASSERT_EQ(logits.size(), 40u * kVocab);
    ASSERT_EQ(scores->log_probs.size(), 39u);
    ASSERT_EQ(scores->ranks.size(), 39u);
    ASSERT_EQ(scores->top.size(), 39u * 4);
    for (size_t i = 0; i < 39; ++i) {
      const std::span row(logits.data() + i * kVocab, kVocab);
      double total = 0;
      for (const float x : row) total += std::exp(double{x});
      const float own = row[static_cast<size_t>(prompt[i + 1])];
      EXPECT_NEAR(scores->log_probs[i], own - std::log(total), 1e-5);
      EXPECT_EQ(scores->ranks[i], 1 + std::ranges::count_if(row, [&](float x) { return x > own; }));
      std::vector<TokenLogProb> top;
      for (int32_t id = 0; id < kVocab; ++id) top.push_back({id, row[static_cast<size_t>(id)]});
      std::ranges::stable_sort(top, std::ranges::greater(), &TokenLogProb::log_prob);
      for (size_t k = 0; k < 4; ++k) {
        EXPECT_EQ(scores->top[i * 4 + k].token, top[k].token);
        EXPECT_NEAR(scores->top[i * 4 + k].log_prob, top[k].log_prob - std::log(total), 1e-5);
      }
    }
    f.expect_counts_add_up();
  }
}

// Generated tokens have the same log-probabilities as part of a prompt.
TEST(PromptLogProbs, OfAnAnswerAreThoseItWasGeneratedWith) {
  Fixture f;
  Request first = request({9, 10, 11}, 20);
  first.sampling = {.top_p = 1.0f, .temperature = 2.0f, .seed = 3};
  first.output.return_log_probs = true;
  first.output.log_probs_mode = LogProbsMode::kRaw;
  const auto answer = all_responses(*f.executor, f.executor->enqueue(first).value()).at(0);
  const std::vector<TokenId>& said = answer.outputs.at(0).token_ids;
  std::vector<TokenId> text = {9, 10, 11};
  text.insert(text.end(), said.end() - 20, said.end());
  const auto scores = scores_of(f, scored(text, 0));
  ASSERT_EQ(scores->log_probs.size(), 22u);
  for (size_t i = 0; i < 20; ++i)
    EXPECT_NEAR(scores->log_probs[2 + i], answer.outputs[0].log_probs.at(i), 1e-5) << i;
}

TEST(PromptLogProbs, OfSeveralSequencesComeWithTheFirst) {
  Fixture f;
  Request r = scored(mixed_prompt(20), 2);
  r.sampling.num_return_sequences = 3;
  EXPECT_EQ(scores_of(f, r)->log_probs.size(), 19u);
  r.sampling = {.best_of = 4};
  EXPECT_EQ(scores_of(f, r)->log_probs.size(), 19u);
  f.expect_counts_add_up();
}

TEST(PromptLogProbs, OfOneTokenAreNone) {
  Fixture f;
  const auto scores = scores_of(f, scored({9}, 2));
  EXPECT_TRUE(scores->log_probs.empty());
  EXPECT_TRUE(scores->top.empty());
}

TEST(PromptLogProbs, WhatIsNoNumberFailsItsRequestAlone) {
  Fixture f;
  const auto good = f.client.send(*f.executor, scored({9, 10}, 1));
  std::vector<TokenId> prompt = mixed_prompt(20);
  prompt[2] = FakeRunner::kNanToken;
  const Received got = f.client.run(*f.executor, scored(prompt, 1));
  EXPECT_THAT(got.last.status.ToString(), HasSubstr("not finite"));
  EXPECT_TRUE(f.client.wait(good).last.status.ok());
  f.expect_counts_add_up();
}

// Rows in flight of ended sequences are ignored.
TEST(PromptLogProbs, CancelledOnTheWay) {
  exec::RunnerLimits limits = roomy();
  limits.max_tokens = 8;
  Fixture f(limits);
  std::vector<RequestId> ids;
  for (int i = 0; i < 30; ++i)
    ids.push_back(f.client.send(*f.executor, scored(mixed_prompt(60 + i), i % 3)));
  for (size_t i = 0; i < ids.size(); i += 2) f.executor->cancel(ids[i]);
  for (const RequestId id : ids) EXPECT_TRUE(f.client.wait(id).last.status.ok());
  f.expect_counts_add_up();
}

TEST(PromptLogProbs, Bounds) {
  Fixture f;
  const auto error = [&](const Request& r) { return f.executor->enqueue(r).status().ToString(); };
  EXPECT_THAT(error(scored({9, 10}, 33)), HasSubstr("num_prompt_log_probs: 33 is not in [0, 32]"));
  EXPECT_THAT(error(scored({9, 10}, -1)), HasSubstr("num_prompt_log_probs: -1 is not in [0, 32]"));
  EXPECT_EQ(prompt_log_prob_bytes(11, 2), 10 * (8 + 2 * 8));
  EXPECT_EQ(prompt_log_prob_bytes(1, 20), 0);
}

}  // namespace
}  // namespace nereid::runtime
