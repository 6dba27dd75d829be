// Log-probabilities and logits in responses: alignment, completeness, bounds.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <thread>

#include "runtime/testing/engine_fixture.h"

namespace nereid::runtime {
namespace {

using ::testing::HasSubstr;

TEST(EngineLogits, LogProbsAndLogitsAreAlignedWithTheTokens) {
  for (const bool streaming : {false, true}) {
    Fixture f;
    Request r = sampled({9, 10}, 6, 3);
    const std::vector<TokenId> tokens = f.client.run(*f.executor, r).tokens;
    r.streaming = streaming;
    r.output.return_log_probs = r.output.return_generation_logits = true;
    r.output.num_top_log_probs = 4;
    r.output.exclude_input_from_output = false;
    r.output.log_probs_mode = LogProbsMode::kRaw;
    std::vector<TokenId> got;
    SequenceOutput joined;
    for (const Response& response : all_responses(*f.executor, f.executor->enqueue(r).value())) {
      const SequenceOutput& out = response.outputs.at(0);
      got.insert(got.end(), out.token_ids.begin(), out.token_ids.end());
      joined.log_probs.insert(joined.log_probs.end(), out.log_probs.begin(), out.log_probs.end());
      joined.top_log_probs.insert(joined.top_log_probs.end(), out.top_log_probs.begin(),
                                  out.top_log_probs.end());
      joined.generation_logits.insert(joined.generation_logits.end(), out.generation_logits.begin(),
                                      out.generation_logits.end());
      joined.cum_log_prob = out.cum_log_prob;
    }
    ASSERT_EQ(got.size(), 2 + tokens.size());
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), got.begin() + 2));
    ASSERT_EQ(joined.log_probs.size(), tokens.size());
    ASSERT_EQ(joined.top_log_probs.size(), tokens.size());
    ASSERT_EQ(joined.generation_logits.size(), tokens.size() * kVocab);
    float sum = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const float* logits = joined.generation_logits.data() + i * kVocab;
      double total = 0;
      for (int v = 0; v < kVocab; ++v) total += std::exp(static_cast<double>(logits[v]));
      EXPECT_NEAR(joined.log_probs[i], logits[tokens[i]] - std::log(total), 1e-4);
      ASSERT_EQ(joined.top_log_probs[i].size(), 4u);
      EXPECT_EQ(joined.top_log_probs[i][0].token,
                std::max_element(logits, logits + kVocab) - logits);
      EXPECT_GE(joined.top_log_probs[i][0].log_prob, joined.log_probs[i]);
      sum += joined.log_probs[i];
    }
    ASSERT_TRUE(joined.cum_log_prob);
    EXPECT_NEAR(*joined.cum_log_prob, sum, 1e-4);
  }
}

// Raw logits behind each prefix of the prompt, one request each.
std::vector<float> logits_of_prefixes(const std::vector<TokenId>& prompt) {
  Fixture f;
  std::vector<float> all;
  for (size_t n = 1; n <= prompt.size(); ++n) {
    Request r = request({prompt.begin(), prompt.begin() + static_cast<ptrdiff_t>(n)}, 1);
    r.output.return_generation_logits = true;
    const auto responses = all_responses(*f.executor, f.executor->enqueue(r).value());
    const auto& row = responses.at(0).outputs.at(0).generation_logits;
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

TEST(EngineLogits, ContextLogitsOfThePromptComeOnce) {
  std::vector<TokenId> prompt;
  for (int i = 0; i < 40; ++i) prompt.push_back(8 + i * 7 % 50);
  const std::vector<float> expected = logits_of_prefixes(prompt);
  for (const int max_tokens : {64, 5}) {
    exec::RunnerLimits limits = roomy();
    limits.max_tokens = max_tokens;
    limits.max_logits = 3 * max_tokens / 4;  // more than slots, or fewer
    Fixture f(limits);
    Request r = request(prompt, 3);
    f.client.run(*f.executor, r);  // caches a prefix, which must not be used
    r.streaming = true;
    r.output.return_context_logits = true;
    r.sampling.num_return_sequences = 2;
    const auto all = all_responses(*f.executor, f.executor->enqueue(r).value());
    int count = 0;
    std::set<int32_t> seen;
    for (const Response& response : all) {
      const bool first = seen.insert(response.sequence_index).second;
      if (!response.context_logits) continue;
      ++count;
      EXPECT_TRUE(first);
      EXPECT_EQ(response.sequence_index, 0);
      EXPECT_EQ(*response.context_logits, expected);
    }
    EXPECT_EQ(count, 1);
    // Cancelled during the prompt.
    std::vector<RequestId> ids;
    for (int i = 0; i < 20; ++i) ids.push_back(f.executor->enqueue(r).value());
    for (RequestId id : ids) f.executor->cancel(id);
    f.expect_counts_add_up();
  }
}

TEST(EngineLogits, LogitsAreBoundedByBytes) {
  ExecutorConfig config;
  config.max_logits_bytes = int64_t{50} * kVocab * 4;
  Fixture f(roomy(), config);
  f.runner->hold(true);
  Request r = request(std::vector<TokenId>(20, 9), 10);
  r.output.return_context_logits = r.output.return_generation_logits = true;
  const RequestId first = f.client.send(*f.executor, r);
  const auto refused = f.executor->enqueue(r);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(refused.status().ToString(),
              HasSubstr("7680 bytes of logits do not fit beside 7680 bytes for other requests; at "
                        "most 12800 together are allowed (max_logits_bytes)"));
  r.output.return_generation_logits = false;
  const RequestId second = f.client.send(*f.executor, r);
  f.runner->hold(false);
  for (const RequestId id : {first, second}) {
    const Response last = f.client.wait(id).last;
    ASSERT_TRUE(last.context_logits);
    EXPECT_EQ(last.context_logits->size(), 20u * kVocab);
  }
  // The final responses free the reserved bytes.
  for (int i = 0; i < 5; ++i)
    while (!f.executor->enqueue(r, [](Response) {}).ok()) std::this_thread::yield();
  r.input_token_ids.assign(51, 9);
  EXPECT_EQ(f.executor->enqueue(r).status().code(), absl::StatusCode::kInvalidArgument);
  f.expect_counts_add_up();
}

}  // namespace
}  // namespace nereid::runtime
