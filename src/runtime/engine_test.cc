// Engine loop, outbox and executor on a fake model: exactness in all settings, failures, limits.
#include <gmock/gmock.h>

#include <new>
#include <random>
#include <stdexcept>
#include <thread>

#include "kernels/ref/ref.h"
#include "runtime/testing/engine_fixture.h"

namespace nereid::runtime {

void add_test_kernels(kernels::Registry& registry) { kernels::ref::add_kernels(registry); }

namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Random requests; a third with a common prefix.
std::vector<Request> random_requests(int count, uint64_t seed) {
  std::mt19937_64 rng(seed);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(rng);
  };
  const auto token = [&] { return pick(8, kVocab - 1); };
  std::vector<Request> all;
  for (int i = 0; i < count; ++i) {
    Request r = request({}, pick(1, 40));
    if (i % 3 == 0)
      for (int k = 0; k < 35; ++k) r.input_token_ids.push_back(8 + k);
    for (int k = pick(1, 40); k > 0; --k) r.input_token_ids.push_back(token());
    r.streaming = pick(0, 1);
    if (pick(0, 1)) r.sampling.top_k = pick(1, 20);
    if (pick(0, 1)) r.sampling.top_p = 0.1f * static_cast<float>(pick(1, 10));
    if (pick(0, 1)) r.sampling.temperature = 0.5f * static_cast<float>(pick(0, 4));
    if (pick(0, 1)) r.sampling.seed = pick(0, 3);
    if (pick(0, 2) == 0) r.end_ids = {token(), token()};
    if (pick(0, 2) == 0) r.stop_words = {{token()}, {token(), token()}};
    if (pick(0, 2) == 0) r.sampling.min_tokens = pick(0, 10);
    all.push_back(std::move(r));
  }
  return all;
}

std::vector<Received> one_at_a_time(const std::vector<Request>& requests) {
  ExecutorConfig config;
  config.enable_overlap = false;
  config.kv_cache.enable_block_reuse = false;
  Fixture f(roomy(), config);
  std::vector<Received> out;
  for (const Request& r : requests) out.push_back(f.client.run(*f.executor, r));
  return out;
}

struct Setting {
  const char* name;
  int max_rows, max_tokens, num_blocks;
  int depth;
  bool reuse;
};

class EveryWay : public testing::TestWithParam<Setting> {};

TEST_P(EveryWay, TokensEqualThoseOfOneAtATime) {
  const Setting& s = GetParam();
  const auto requests = random_requests(80, 42);
  const auto expected = one_at_a_time(requests);
  ExecutorConfig config;
  config.enable_overlap = s.depth > 1;
  config.kv_cache.enable_block_reuse = s.reuse;
  exec::RunnerLimits limits = roomy();
  limits.max_rows = s.max_rows;
  limits.max_tokens = s.max_tokens;
  limits.num_blocks = s.num_blocks;
  limits.depth = s.depth;
  Fixture f(limits, config);
  const bool preempts = s.num_blocks < 16;
  f.runner->hold(preempts);  // until all requests have arrived, so that they compete for memory
  std::vector<RequestId> ids;
  for (const Request& r : requests) ids.push_back(f.client.send(*f.executor, r));
  f.runner->hold(false);
  for (size_t i = 0; i < ids.size(); ++i) {
    const Received got = f.client.wait(ids[i]);
    EXPECT_TRUE(got.last.status.ok()) << got.last.status;
    EXPECT_EQ(got.tokens, expected[i].tokens) << "request " << i;
    EXPECT_EQ(got.reason(), expected[i].reason()) << "request " << i;
    EXPECT_EQ(got.last.outputs[0].num_output_tokens, static_cast<int>(got.tokens.size()));
    if (!requests[i].streaming) {
      EXPECT_EQ(got.num_responses, 1);
    }
  }
  f.expect_counts_add_up();
  const ExecutorStats stats = f.executor->stats();
  EXPECT_EQ(stats.num_finished, 80);
  EXPECT_EQ(stats.kv_blocks_reused > 0, s.reuse);
  if (preempts) {
    EXPECT_GT(stats.num_preemptions, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, EveryWay,
                         testing::Values(Setting{"roomy", 8, 64, 128, 2, true},
                                         Setting{"no_overlap", 8, 64, 128, 1, true},
                                         Setting{"deep", 8, 64, 128, 5, true},
                                         Setting{"no_reuse", 8, 64, 128, 2, false},
                                         Setting{"small_chunks", 8, 5, 128, 2, true},
                                         Setting{"preempted", 8, 64, 10, 2, true},
                                         Setting{"preempted_no_overlap", 8, 64, 10, 1, false},
                                         Setting{"preempted_deep", 8, 64, 10, 4, true},
                                         Setting{"one_row", 1, 64, 128, 2, true}),
                         [](const auto& info) { return info.param.name; });

TEST(Engine, RandomCancelsLeaveTheOthersAlone) {
  const auto requests = random_requests(64, 7);
  const auto expected = one_at_a_time(requests);
  exec::RunnerLimits limits = roomy();
  limits.num_blocks = 24;
  Fixture f(limits);
  std::vector<RequestId> ids;
  for (const Request& r : requests) ids.push_back(f.client.send(*f.executor, r));
  std::thread canceller([&] {
    std::mt19937 rng(3);
    for (int i = 0; i < 24; ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(rng() % 500));
      f.executor->cancel(ids[rng() % ids.size()]);
    }
  });
  canceller.join();
  for (size_t i = 0; i < ids.size(); ++i) {
    const Received got = f.client.wait(ids[i]);
    ASSERT_TRUE(got.last.status.ok());
    if (got.reason() == FinishReason::kCancelled) {
      ASSERT_LE(got.tokens.size(), expected[i].tokens.size());
      EXPECT_TRUE(std::equal(got.tokens.begin(), got.tokens.end(), expected[i].tokens.begin()));
    } else {
      EXPECT_EQ(got.tokens, expected[i].tokens) << "request " << i;
    }
  }
  f.expect_counts_add_up();
}

TEST(Engine, NanLogitsFailOnlyTheirRequest) {
  Fixture f;
  const Received expected = f.client.run(*f.executor, request({9, 10, 11}, 20));
  const RequestId good = f.client.send(*f.executor, request({9, 10, 11}, 20));
  const RequestId bad = f.client.send(*f.executor, request({9, FakeRunner::kNanToken}, 20));
  EXPECT_TRUE(absl::IsInternal(f.client.wait(bad).last.status));
  EXPECT_THAT(std::string(message(f.client.wait(bad).last.status)), HasSubstr("not finite"));
  EXPECT_EQ(f.client.wait(good).tokens, expected.tokens);
  f.expect_counts_add_up();
  EXPECT_EQ(f.executor->stats().num_failed, 1);
}

// A running, a waiting and a later request get the first error.
TEST(Engine, AFailedDeviceEndsAllRequests) {
  for (const bool overlap : {true, false}) {
    ExecutorConfig config;
    config.enable_overlap = overlap;
    config.max_queue_size = 16;
    auto limits = roomy();
    limits.max_rows = 1;
    Fixture f(limits, config);
    f.client.run(*f.executor, request({9, 10}, 5));
    EXPECT_TRUE(f.executor->health().ok());
    f.runner->hold(true);
    const int before = f.runner->num_steps();
    const RequestId runs = f.client.send(*f.executor, request({9, 10, 11}, 20));
    while (f.runner->num_steps() == before) std::this_thread::yield();
    Request group = request({9, 12}, 20);
    group.sampling.num_return_sequences = 2;
    const RequestId waits = f.client.send(*f.executor, group);
    f.device->health().fail(internal_error("kernel 'x': an illegal address"));
    f.device->health().fail(internal_error("something else"));
    const Status expected = unavailable("device cpu has failed: kernel 'x': an illegal address");
    EXPECT_EQ(f.executor->health(), expected);
    EXPECT_FALSE(f.executor->can_enqueue());
    EXPECT_EQ(f.executor->enqueue(request({9}, 2), [](const Response&) {}).status(), expected);
    f.runner->fail_step(before);  // the device's own error, under another name
    f.runner->hold(false);
    EXPECT_EQ(f.client.wait(runs).last.status, expected);
    EXPECT_EQ(f.client.wait(waits).last.status, expected);
    EXPECT_TRUE(f.client.wait(runs).tokens.empty());
    f.expect_counts_add_up();
  }
}

TEST(EngineDeathTest, ByOptionAFailedDeviceEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ExecutorConfig config;
        config.exit_on_device_failure = true;
        Fixture f(roomy(), config);
        f.runner->hold(true);
        const RequestId id = f.client.send(*f.executor, request({9, 10, 11}, 20));
        f.device->health().fail(internal_error("an illegal address"));
        f.runner->hold(false);
        const Received got = f.client.wait(id);
        std::fprintf(stderr, "answer: %s\n", got.last.status.ToString().c_str());
        std::this_thread::sleep_for(std::chrono::seconds(60));
      },
      ::testing::ExitedWithCode(1),
      "answer: UNAVAILABLE: device cpu has failed: an illegal address");
}

// Sampler memory on demand: only the row without memory fails, with the size in the message.
TEST(Engine, MemoryForOneRowFailsThatRowAlone) {
  for (const bool overlap : {true, false}) {
    ExecutorConfig config;
    config.enable_overlap = overlap;
    Fixture f(roomy(), config);
    std::vector<TokenId> prompt;
    for (int i = 0; i < 100; ++i) prompt.push_back(8 + i % 50);
    const Received expected = f.client.run(*f.executor, request(prompt, 20));
    const int64_t reused = f.executor->stats().kv_blocks_reused;
    const struct {
      const char* what;
      std::function<void(Request&)> set;
    } cases[] = {
        {"bytes of biases, bad words and end ids",
         [](Request& r) { r.embedding_bias.assign(kVocab, 0.5f); }},
        {"400 bytes of tokens to upload", [](Request& r) { r.sampling.repetition_penalty = 2; }},
        {"log_probs_mode raw",
         [](Request& r) {
           r.output.return_log_probs = true;
           r.output.log_probs_mode = LogProbsMode::kRaw;
           r.sampling.presence_penalty = 1;
         }},
        {"bytes of logits", [](Request& r) { r.output.return_context_logits = true; }},
        {"bytes of logits", [](Request& r) { r.output.return_generation_logits = true; }},
    };
    f.device->set_budget(0);
    f.runner->hold(true);  // until all requests have arrived
    const RequestId plain = f.client.send(*f.executor, request(prompt, 20));
    std::vector<RequestId> ids;
    for (const auto& c : cases) {
      ids.push_back(f.client.send(*f.executor, [&] {
        Request r = request(prompt, 20);
        c.set(r);
        return r;
      }()));
    }
    f.runner->hold(false);
    for (size_t i = 0; i < ids.size(); ++i) {
      const Status status = f.client.wait(ids[i]).last.status;
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
      EXPECT_THAT(status.ToString(), HasSubstr(cases[i].what));
    }
    EXPECT_EQ(f.client.wait(plain).tokens, expected.tokens);
    EXPECT_EQ(f.client.run(*f.executor, request(prompt, 20)).tokens, expected.tokens);
    EXPECT_GT(f.executor->stats().kv_blocks_reused, reused) << "the prefix cache is still there";
    EXPECT_EQ(f.executor->stats().num_preemptions, 0);
    EXPECT_EQ(f.executor->stats().num_failed, 5);
    f.expect_counts_add_up();
  }
}

TEST(Engine, FailedStepFailsItsRequestsAndTheNextOnesRun) {
  for (const bool at_launch : {false, true}) {
    Fixture f;
    const Received expected = f.client.run(*f.executor, request({9, 10, 11}, 5));
    const int step = f.runner->num_steps() + 3;
    at_launch ? f.runner->fail_launch(step) : f.runner->fail_step(step);
    const Received failed = f.client.run(*f.executor, request({9, 10, 11}, 20));
    EXPECT_FALSE(failed.last.status.ok());
    EXPECT_THAT(std::string(message(failed.last.status)), HasSubstr("fails"));
    EXPECT_EQ(f.client.run(*f.executor, request({9, 10, 11}, 5)).tokens, expected.tokens);
    f.expect_counts_add_up();
  }
}

TEST(Engine, QueueIsBoundedAndSaysSo) {
  ExecutorConfig config;
  config.max_queue_size = 3;
  exec::RunnerLimits limits = roomy();
  limits.max_rows = 1;
  Fixture f(limits, config);
  f.runner->hold(true);
  std::vector<RequestId> ids = {f.client.send(*f.executor, request({9}, 10))};
  while (f.runner->num_steps() == 0) std::this_thread::yield();
  while (f.executor->stats().num_waiting > 0) std::this_thread::yield();
  for (int i = 0; i < 3; ++i) ids.push_back(f.client.send(*f.executor, request({9}, 10)));
  const auto refused = f.executor->enqueue(request({9}, 10), [](Response) { FAIL(); });
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status()));
  EXPECT_THAT(std::string(message(refused.status())), HasSubstr("3 requests wait"));
  EXPECT_EQ(f.executor->stats().num_waiting, 3);
  f.runner->hold(false);
  for (RequestId id : ids) EXPECT_EQ(f.client.wait(id).reason(), FinishReason::kLength);
  f.expect_counts_add_up();
}

TEST(Engine, DrainRefusesNewWorkAndCancelsAfterTheTimeout) {
  exec::RunnerLimits limits = roomy();
  limits.max_sequence_length = 1 << 20;  // the request would take hours
  limits.num_blocks = limits.max_sequence_length / limits.block_tokens;
  Fixture f(limits);
  f.runner->hold(true);
  const RequestId id = f.client.send(*f.executor, request({9}, limits.max_sequence_length - 1));
  std::thread release([&] {
    while (f.executor->can_enqueue()) std::this_thread::yield();
    f.runner->hold(false);
  });
  f.executor->drain(milliseconds(1));
  release.join();
  EXPECT_EQ(f.client.wait(id).reason(), FinishReason::kCancelled);
  const auto refused = f.executor->enqueue(request({9}, 1), [](Response) { FAIL(); });
  EXPECT_TRUE(absl::IsUnavailable(refused.status()));
  f.expect_counts_add_up();
}

TEST(Engine, DestructionCancelsWhatRuns) {
  Fixture f;
  std::vector<RequestId> ids;
  for (int i = 0; i < 20; ++i) ids.push_back(f.client.send(*f.executor, request({9, 10}, 100)));
  f.executor.reset();
  for (RequestId id : ids) EXPECT_TRUE(f.client.wait(id).last.is_final);
}

TEST(Engine, CallbacksMayThrowCancelAndEnqueue) {
  Fixture f;
  std::atomic<RequestId> second = 0;
  Request r = request({9, 10}, 50);
  r.streaming = true;
  auto first = f.executor->enqueue(r, [&](Response response) {
    if (!second) second = f.client.send(*f.executor, request({9}, 3));
    f.executor->cancel(response.request_id);
    throw std::runtime_error("as ordered by the test");
  });
  ASSERT_TRUE(first.ok());
  while (!second) std::this_thread::yield();
  EXPECT_EQ(f.client.wait(second).tokens.size(), 3u);
  f.expect_counts_add_up();
}

// An exception from the callback, in the first or the final response, becomes one error response.
TEST(Engine, WhatACallbackThrowsEndsItsRequestWithOneError) {
  for (const bool streaming : {true, false}) {
    for (const bool memory : {true, false}) {
      Fixture f;
      Request r = request({9, 10}, 50);
      r.streaming = streaming;
      std::atomic<int> num_calls = 0, num_errors = 0;
      Status status;
      ASSERT_TRUE(f.executor
                      ->enqueue(r,
                                [&](Response response) {
                                  if (num_calls++ == 0 && memory) throw std::bad_alloc();
                                  if (num_calls == 1)
                                    throw std::runtime_error("as ordered by the test");
                                  num_errors += response.is_final && !response.status.ok();
                                  status = response.status;
                                })
                      .ok());
      f.expect_counts_add_up();
      EXPECT_EQ(num_calls, 2);
      EXPECT_EQ(num_errors, 1);
      EXPECT_EQ(status.code(),
                memory ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kInternal);
      EXPECT_THAT(status.ToString(), HasSubstr(memory ? "no memory" : "as ordered by the test"));
    }
  }
}

TEST(Engine, MaxSequenceLengthEndsWithLength) {
  Fixture f;
  const Received got = f.client.run(*f.executor, request(std::vector<TokenId>(120, 9), 100));
  EXPECT_EQ(got.reason(), FinishReason::kLength);
  EXPECT_EQ(got.tokens.size(), 8u);
}

TEST(Engine, EchoesThePromptWhenAsked) {
  for (const bool streaming : {false, true}) {
    Fixture f;
    Request r = request({9, 10, 11}, 4);
    const Received plain = f.client.run(*f.executor, r);
    r.streaming = streaming;
    r.output.exclude_input_from_output = false;
    const Received echoed = f.client.run(*f.executor, r);
    std::vector<TokenId> expected = {9, 10, 11};
    expected.insert(expected.end(), plain.tokens.begin(), plain.tokens.end());
    EXPECT_EQ(echoed.tokens, expected);
    EXPECT_EQ(echoed.last.outputs[0].num_output_tokens, 4);
    EXPECT_EQ(echoed.last.num_input_tokens, 3);
  }
}

TEST(Engine, SeedsRepeatAndDiffer) {
  Fixture f;
  Request r = request({9, 10, 11}, 30);
  r.sampling.top_p = 1.0f;
  r.sampling.temperature = 3.0f;
  const Received unset = f.client.run(*f.executor, r);
  r.sampling.seed = 0;
  EXPECT_EQ(f.client.run(*f.executor, r).tokens, unset.tokens);
  r.sampling.seed = 1;
  const Received one = f.client.run(*f.executor, r);
  EXPECT_NE(one.tokens, unset.tokens);
  EXPECT_EQ(f.client.run(*f.executor, r).tokens, one.tokens);
  r.sampling.temperature = 0;
  const Received greedy = f.client.run(*f.executor, request({9, 10, 11}, 30));
  EXPECT_EQ(f.client.run(*f.executor, r).tokens, greedy.tokens);
  r.sampling.temperature = 3.0f;
  r.sampling.top_k = 1;
  EXPECT_EQ(f.client.run(*f.executor, r).tokens, greedy.tokens);
}

TEST(Engine, MinTokensHoldsOffTheEnd) {
  Fixture f;
  Request r = request({9, 10, 11}, 30);
  const Received free = f.client.run(*f.executor, r);
  r.end_ids = {free.tokens[2]};
  EXPECT_EQ(f.client.run(*f.executor, r).tokens.size(), 2u);
  r.sampling.min_tokens = 10;
  const Received held = f.client.run(*f.executor, r);
  EXPECT_GE(held.tokens.size(), 10u);
  for (size_t i = 0; i < 10; ++i) EXPECT_NE(held.tokens[i], r.end_ids[0]);
}

TEST(Engine, MetricsTellTheStory) {
  Fixture f;
  f.client.run(*f.executor, request(std::vector<TokenId>(40, 9), 4));
  const Response last = f.client.run(*f.executor, request(std::vector<TokenId>(40, 9), 4)).last;
  EXPECT_EQ(last.metrics.reused_blocks, 3);
  EXPECT_EQ(last.metrics.cached_tokens, 39);
  EXPECT_EQ(last.metrics.allocated_blocks, 1);
  EXPECT_LE(last.metrics.arrival, last.metrics.first_scheduled);
  EXPECT_LE(last.metrics.first_scheduled, last.metrics.first_token);
  EXPECT_LT(last.metrics.first_token, last.metrics.last_token);
  f.expect_counts_add_up();
  const ExecutorStats s = f.executor->stats();
  EXPECT_EQ(s.generated_tokens, 8);
  EXPECT_EQ(s.prompt_tokens, 40 + 1);
  EXPECT_GT(s.num_steps, 7);
  EXPECT_GT(s.last_step_seconds, 0);
}

TEST(Engine, RefusalsNameFieldValueAndLimits) {
  Fixture f;
  const auto refusal = [&](Request r) {
    const auto id = f.executor->enqueue(std::move(r), [](Response) { FAIL(); });
    EXPECT_TRUE(absl::IsInvalidArgument(id.status())) << id.status();
    return std::string(message(id.status()));
  };
  Request r = request(std::vector<TokenId>(128, 9), 1);
  EXPECT_THAT(refusal(r), testing::AllOf(HasSubstr("128 tokens"), HasSubstr("is 128")));
  EXPECT_THAT(refusal(request({}, 1)), StartsWith("prompt: no tokens"));
  EXPECT_THAT(refusal(request({1}, 0)), StartsWith("max_tokens: 0"));
  EXPECT_THAT(refusal(request({1, 64}, 1)), StartsWith("input_token_ids[1]: 64 is not in [0, 64)"));
  EXPECT_THAT(refusal(request({-1}, 1)), StartsWith("input_token_ids[0]: -1"));
  const auto sampling = [&](auto set) {
    Request bad = request({1}, 1);
    set(bad.sampling);
    return refusal(bad);
  };
  EXPECT_THAT(sampling([](auto& s) { s.top_k = -1; }), StartsWith("top_k: -1"));
  EXPECT_THAT(sampling([](auto& s) { s.top_p = 0.f; }), StartsWith("top_p: 0"));
  EXPECT_THAT(sampling([](auto& s) { s.top_p = NAN; }), StartsWith("top_p: nan"));
  EXPECT_THAT(sampling([](auto& s) { s.temperature = INFINITY; }), StartsWith("temperature: inf"));
  EXPECT_THAT(sampling([](auto& s) { s.min_tokens = -2; }), StartsWith("min_tokens: -2"));
  r = request({1}, 1);
  r.stop_words = {{1}, {}};
  EXPECT_THAT(refusal(r), StartsWith("stop_words[1]: 0 tokens"));
  r = request({1}, 1);
  r.stop_strings = {"x"};
  EXPECT_THAT(refusal(r), StartsWith("stop_strings: the model directory has no usable tokenizer"));
}

}  // namespace
}  // namespace nereid::runtime
