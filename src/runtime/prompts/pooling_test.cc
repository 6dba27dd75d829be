// Embeddings: requests whose prompt is computed and pooled, without output tokens.
#include <gmock/gmock.h>

#include <functional>

#include "runtime/testing/engine_fixture.h"

namespace nereid::runtime {
namespace {

using ::testing::HasSubstr;

std::vector<TokenId> long_prompt(int32_t length) {
  std::vector<TokenId> prompt;
  for (int32_t i = 0; i < length; ++i) prompt.push_back(8 + i * 7 % 50);
  return prompt;
}

Request pooled(std::vector<TokenId> prompt, Pooling pooling) {
  Request r = request(std::move(prompt), 0);
  r.output.pooling = pooling;
  return r;
}

// States of each position of a prompt, from one request per prefix.
std::vector<std::vector<float>> states_of(const std::vector<TokenId>& prompt) {
  Fixture f;
  std::vector<std::vector<float>> all;
  for (size_t n = 1; n <= prompt.size(); ++n) {
    const std::vector<TokenId> part(prompt.begin(), prompt.begin() + static_cast<ptrdiff_t>(n));
    all.push_back(f.client.run(*f.executor, pooled(part, Pooling::kLast)).last.embedding);
  }
  return all;
}

TEST(Embeddings, AreTheLastStateOrTheMeanOfAll) {
  const std::vector<TokenId> prompt = long_prompt(40);
  const auto states = states_of(prompt);
  std::vector<float> mean;
  for (size_t c = 0; c < FakeRunner::kHiddenSize; ++c) {
    double sum = 0;
    for (const std::vector<float>& state : states) sum += state.at(c);
    mean.push_back(static_cast<float>(sum / 40));
  }
  EXPECT_NE(states[38], states[39]);
  for (const int32_t max_tokens : {64, 40, 5}) {
    exec::RunnerLimits limits = roomy();
    limits.max_tokens = max_tokens;
    limits.max_logits = 3 * max_tokens / 4;
    Fixture f(limits);
    ASSERT_EQ(f.executor->hidden_size(), FakeRunner::kHiddenSize);
    f.client.run(*f.executor, request(prompt, 3));  // caches a prefix
    std::vector<RequestId> last, means;
    for (int i = 0; i < 10; ++i) {
      last.push_back(f.client.send(*f.executor, pooled(prompt, Pooling::kLast)));
      means.push_back(f.client.send(*f.executor, pooled(prompt, Pooling::kMean)));
      f.client.send(*f.executor, request(long_prompt(20 + i), 5));
    }
    for (const RequestId id : last) EXPECT_EQ(f.client.wait(id).last.embedding, states[39]);
    for (const RequestId id : means) {
      const Received got = f.client.wait(id);
      EXPECT_EQ(got.last.embedding, mean);
      EXPECT_EQ(got.num_responses, 1);
      EXPECT_TRUE(got.tokens.empty());
      EXPECT_EQ(got.last.num_input_tokens, 40);
      EXPECT_EQ(got.reason(), FinishReason::kLength);
    }
    f.expect_counts_add_up();
  }
}

TEST(Embeddings, AreNoGeneratedTokens) {
  Fixture f;
  f.client.run(*f.executor, pooled({9, 10, 11}, Pooling::kLast));
  const ExecutorStats s = f.executor->stats();
  EXPECT_EQ(s.generated_tokens, 0);
  EXPECT_EQ(s.prompt_tokens, 3);
  EXPECT_EQ(s.num_finished, 1);
}

// The prompt may take all positions, because no output follows.
TEST(Embeddings, OfPromptsAsLongAsASequence) {
  Fixture f;
  const std::vector<TokenId> prompt = long_prompt(128);
  EXPECT_EQ(f.client.run(*f.executor, pooled(prompt, Pooling::kMean)).last.embedding.size(), 3u);
  EXPECT_THAT(f.executor->enqueue(pooled(long_prompt(129), Pooling::kLast)).status().ToString(),
              HasSubstr("prompt: 129 tokens are more than max_sequence_length 128"));
  f.expect_counts_add_up();
}

TEST(Embeddings, WhatIsNoNumberFailsItsRequestAlone) {
  Fixture f;
  const auto good = f.client.send(*f.executor, pooled({9, 10}, Pooling::kMean));
  for (const Pooling pooling : {Pooling::kLast, Pooling::kMean}) {
    const Received got = f.client.run(*f.executor, pooled({9, FakeRunner::kNanToken, 10}, pooling));
    EXPECT_THAT(got.last.status.ToString(), HasSubstr("hidden states of the prompt"));
    EXPECT_TRUE(got.last.embedding.empty());
  }
  EXPECT_TRUE(f.client.wait(good).last.status.ok());
  f.expect_counts_add_up();
}

// Rows in flight of ended sequences are ignored.
TEST(Embeddings, CancelledOnTheWay) {
  exec::RunnerLimits limits = roomy();
  limits.max_tokens = 8;
  Fixture f(limits);
  std::vector<RequestId> ids;
  for (int i = 0; i < 30; ++i)
    ids.push_back(f.client.send(
        *f.executor, pooled(long_prompt(60 + i), i % 2 ? Pooling::kLast : Pooling::kMean)));
  for (size_t i = 0; i < ids.size(); i += 2) f.executor->cancel(ids[i]);
  for (const RequestId id : ids) {
    const Received got = f.client.wait(id);
    EXPECT_TRUE(got.last.status.ok());
    EXPECT_EQ(got.last.embedding.empty(), got.reason() == FinishReason::kCancelled);
  }
  f.expect_counts_add_up();
}

// Sequences next to a failed step restart.
TEST(Embeddings, AfterAFailedStepOfOthers) {
  const std::vector<TokenId> prompt = long_prompt(60);
  exec::RunnerLimits limits = roomy();
  limits.max_tokens = 16;
  Fixture alone(limits);
  const auto expected = alone.client.run(*alone.executor, pooled(prompt, Pooling::kMean));
  for (int step = 0; step < 6; ++step) {
    Fixture f(limits);
    f.runner->fail_step(step);
    const auto one = f.client.send(*f.executor, pooled(prompt, Pooling::kMean));
    const auto two = f.client.send(*f.executor, pooled(prompt, Pooling::kMean));
    for (const RequestId id : {one, two}) {
      const Received got = f.client.wait(id);
      if (!got.last.status.ok()) continue;
      EXPECT_EQ(got.last.embedding, expected.last.embedding) << step;
    }
    f.expect_counts_add_up();
  }
}

TEST(Embeddings, OtherWishesAreRefused) {
  Fixture f;
  const auto refusal = [&](const std::function<void(Request&)>& change) {
    Request r = pooled({9, 10}, Pooling::kLast);
    change(r);
    return f.executor->enqueue(r).status().ToString();
  };
  EXPECT_THAT(refusal([](Request& r) { r.max_tokens = 1; }),
              HasSubstr("max_tokens (with pooling): 1 is not in [0, 0]"));
  EXPECT_THAT(refusal([](Request& r) { r.output.pooling = static_cast<Pooling>(3); }),
              HasSubstr("pooling: 3 is not in [0, 2]"));
  EXPECT_THAT(refusal([](Request& r) { r.sampling.num_return_sequences = 2; }),
              HasSubstr("num_return_sequences: not with pooling"));
  EXPECT_THAT(refusal([](Request& r) { r.output.return_log_probs = true; }),
              HasSubstr("return_log_probs: not with pooling"));
  EXPECT_THAT(refusal([](Request& r) { r.output.return_context_logits = true; }),
              HasSubstr("return_context_logits: not with pooling"));
  EXPECT_THAT(refusal([](Request& r) { r.draft_token_ids = {9}; }),
              HasSubstr("draft_token_ids: not with pooling"));
  EXPECT_THAT(refusal([](Request& r) { r.guided_decoding.emplace(); }),
              HasSubstr("guided_decoding: not with pooling"));
  EXPECT_THAT(refusal([](Request& r) { r.output.pooling.reset(); }), HasSubstr("max_tokens: 0"));
}

}  // namespace
}  // namespace nereid::runtime
