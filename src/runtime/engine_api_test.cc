// The executor API on a fake model: sequences, deadlines, awaiting, concurrency, statistics.
#include <gmock/gmock.h>

#include <thread>

#include "base/json.h"
#include "runtime/testing/engine_fixture.h"

namespace nereid::runtime {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Sampled, so that seeds matter.
Request sampled(std::vector<TokenId> prompt, int32_t max_tokens, uint64_t seed) {
  Request r = request(std::move(prompt), max_tokens);
  r.sampling.top_p = 1.0f;
  r.sampling.temperature = 3.0f;
  r.sampling.seed = seed;
  return r;
}

// Tokens by sequence; checks that each sequence and the request end once.
std::vector<std::vector<TokenId>> by_sequence(const std::vector<Response>& all, size_t count) {
  std::vector<std::vector<TokenId>> tokens(count);
  std::vector<int> finals(count);
  for (const Response& r : all) {
    EXPECT_TRUE(r.status.ok()) << r.status;
    EXPECT_EQ(r.request_id, all[0].request_id);
    const auto i = static_cast<size_t>(r.sequence_index);
    EXPECT_EQ(finals.at(i), 0);
    finals.at(i) += r.is_sequence_final;
    tokens.at(i).insert(tokens.at(i).end(), r.outputs.at(0).token_ids.begin(),
                        r.outputs.at(0).token_ids.end());
    EXPECT_EQ(r.is_final, &r == &all.back());
  }
  EXPECT_THAT(finals, testing::Each(1));
  return tokens;
}

TEST(EngineApi, SeveralSequencesAreThoseOfSeedsInARow) {
  for (const bool streaming : {false, true}) {
    Fixture f;
    Request r = sampled({9, 10, 11}, 12, 5);
    r.streaming = streaming;
    r.client_id = 77;
    r.sampling.num_return_sequences = 3;
    const RequestId id = f.executor->enqueue(r).value();
    const auto all = all_responses(*f.executor, id);
    const auto tokens = by_sequence(all, 3);
    for (const Response& response : all) EXPECT_EQ(response.client_id, 77u);
    for (uint64_t i = 0; i < 3; ++i)
      EXPECT_EQ(tokens[i], f.client.run(*f.executor, sampled({9, 10, 11}, 12, 5 + i)).tokens);
    EXPECT_NE(tokens[0], tokens[1]);
    // Their ids are used up.
    EXPECT_EQ(f.executor->enqueue(request({9}, 1)).value(), id + 6);
    f.expect_counts_add_up();
  }
}

TEST(EngineApi, CancelEndsAllSequencesOfARequestWithoutTokens) {
  Fixture f;
  f.runner->hold(true);
  Request r = sampled({9, 10}, 100, 1);
  r.sampling.num_return_sequences = 4;
  const RequestId id = f.executor->enqueue(r).value();
  const RequestId other = f.executor->enqueue(request({9, 10}, 5)).value();
  f.executor->cancel(id);
  f.executor->cancel(12345);
  f.runner->hold(false);
  const auto all = all_responses(*f.executor, id);
  EXPECT_EQ(by_sequence(all, 4), std::vector<std::vector<TokenId>>(4));
  for (const Response& response : all)
    EXPECT_EQ(response.outputs[0].finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(all_responses(*f.executor, other).back().outputs[0].token_ids.size(), 5u);
  f.expect_counts_add_up();
  EXPECT_EQ(f.executor->stats().num_cancelled, 4);
}

TEST(EngineApi, AFailingRequestOfSeveralSequencesEndsOnce) {
  Fixture f;
  Request r = sampled({9, FakeRunner::kNanToken}, 20, 1);
  r.sampling.num_return_sequences = 3;
  const auto all = all_responses(*f.executor, f.executor->enqueue(r).value());
  ASSERT_EQ(all.size(), 1u);
  EXPECT_TRUE(absl::IsInternal(all[0].status));
  EXPECT_THAT(std::string(message(all[0].status)), HasSubstr("position 2 were not finite"));
  EXPECT_TRUE(all[0].outputs.empty());
  f.expect_counts_add_up();
  const ExecutorStats s = f.executor->stats();
  EXPECT_EQ(s.num_failed + s.num_cancelled, 3);
  EXPECT_GE(s.num_numeric_failures, 1);
  EXPECT_EQ(s.num_numeric_failures, s.num_failed);
}

TEST(EngineApi, DeadlinesEndRunningAndWaitingRequests) {
  exec::RunnerLimits limits = roomy();
  limits.max_rows = 1;
  Fixture f(limits);
  f.runner->hold(true);
  Request r = request({9, 10}, 100);
  r.allotted_time = milliseconds(30);
  const RequestId running = f.executor->enqueue(r).value();
  const RequestId waiting = f.executor->enqueue(r).value();
  r.allotted_time = milliseconds::max();
  r.max_tokens = 3;
  const RequestId patient = f.executor->enqueue(r).value();
  while (f.runner->num_steps() == 0) std::this_thread::yield();
  std::this_thread::sleep_for(milliseconds(30));  // the deadline of both
  f.runner->hold(false);
  for (const RequestId id : {running, waiting}) {
    const auto all = all_responses(*f.executor, id);
    ASSERT_EQ(all.size(), 1u);
    EXPECT_TRUE(all[0].status.ok());
    EXPECT_EQ(all[0].outputs[0].finish_reason, FinishReason::kTimedOut);
    EXPECT_TRUE(all[0].outputs[0].token_ids.empty());
  }
  EXPECT_EQ(all_responses(*f.executor, patient).back().outputs[0].token_ids.size(), 3u);
  f.expect_counts_add_up();
  EXPECT_EQ(f.executor->stats().num_timed_out, 2);
}

TEST(EngineApi, RequestsEndWhenTheExecutorsTimeIsOver) {
  ExecutorConfig config;
  config.max_request_secs = 1;
  Fixture f(roomy(), config);
  f.runner->hold(true);
  Request r = request({9, 10}, 100);
  const RequestId unbounded = f.executor->enqueue(r).value();
  r.allotted_time = std::chrono::minutes(30);
  const RequestId patient = f.executor->enqueue(r).value();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  f.runner->hold(false);
  for (const RequestId id : {unbounded, patient})
    EXPECT_EQ(all_responses(*f.executor, id).back().outputs[0].finish_reason,
              FinishReason::kTimedOut);
  f.expect_counts_add_up();
  EXPECT_EQ(f.executor->stats().num_timed_out, 2);
}

TEST(EngineApi, AllGeneratedTokensEachTime) {
  Fixture f;
  Request r = request({9, 10}, 6);
  const std::vector<TokenId> tokens = f.client.run(*f.executor, r).tokens;
  r.streaming = r.return_all_generated_tokens = true;
  r.output.exclude_input_from_output = false;
  const auto all = all_responses(*f.executor, f.executor->enqueue(r).value());
  ASSERT_EQ(all.size(), 6u);
  for (size_t i = 0; i < all.size(); ++i) {
    std::vector<TokenId> expected = {9, 10};
    expected.insert(expected.end(), tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(i + 1));
    EXPECT_EQ(all[i].outputs[0].token_ids, expected);
  }
}

TEST(EngineApi, BeamsComeTogetherBestFirst) {
  ExecutorConfig config;
  config.max_beam_width = 4;
  Fixture f(roomy(), config);
  Request r = request({9, 10, 11}, 6);
  r.sampling.beam_width = 4;
  r.output.return_log_probs = true;
  const auto whole = all_responses(*f.executor, f.executor->enqueue(r).value());
  ASSERT_EQ(whole.size(), 1u);
  ASSERT_EQ(whole[0].outputs.size(), 4u);
  EXPECT_EQ(whole[0].sequence_index, 0);
  for (const SequenceOutput& out : whole[0].outputs) {
    EXPECT_EQ(out.token_ids.size(), 6u);
    EXPECT_EQ(out.finish_reason, FinishReason::kLength);
    float sum = 0;
    for (float p : out.log_probs) sum += p;
    EXPECT_EQ(out.log_probs.size(), 6u);
    EXPECT_NEAR(*out.cum_log_prob, sum, 1e-4);
    EXPECT_LE(*out.cum_log_prob, *whole[0].outputs[0].cum_log_prob);
  }
  r.streaming = true;
  r.sampling.num_return_sequences = 2;
  const auto streamed = all_responses(*f.executor, f.executor->enqueue(r).value());
  EXPECT_GE(streamed.size(), 6u);
  for (size_t i = 0; i < streamed.size(); ++i) {
    ASSERT_EQ(streamed[i].outputs.size(), 2u);
    if (i < 5) {
      EXPECT_EQ(streamed[i].outputs[0].token_ids.size(), i + 1);
    }
  }
  for (size_t b = 0; b < 2; ++b)
    EXPECT_EQ(streamed.back().outputs[b].token_ids, whole[0].outputs[b].token_ids);
  Request nan = request({9, FakeRunner::kNanToken}, 6);
  nan.sampling.beam_width = 4;
  const auto failed = all_responses(*f.executor, f.executor->enqueue(nan).value());
  EXPECT_TRUE(absl::IsInternal(failed.at(0).status));
  r.allotted_time = milliseconds(1);
  r.max_tokens = 100;
  const auto late = all_responses(*f.executor, f.executor->enqueue(r).value());
  EXPECT_TRUE(late.back().status.ok());
  EXPECT_EQ(late.back().outputs.size(), 2u);
  f.expect_counts_add_up();
  EXPECT_EQ(f.executor->stats().num_numeric_failures, 1);
}

TEST(EngineApi, CacheEventsTellOfStoredBlocks) {
  ExecutorConfig config;
  config.kv_cache.event_buffer_size = 100;
  Fixture f(roomy(), config);
  f.client.run(*f.executor, request(std::vector<TokenId>(40, 9), 1));
  f.expect_counts_add_up();
  const auto events = f.executor->kv_cache_events();
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events[0].kind, KvCacheEvent::Kind::kCreated);
  int stored = 0;
  for (size_t i = 0; i < events.size(); ++i) {
    if (i > 0) {
      EXPECT_EQ(events[i].event_id, events[i - 1].event_id + 1);
    }
    if (events[i].kind != KvCacheEvent::Kind::kStored) continue;
    EXPECT_EQ(events[i].parent_hash.has_value(), stored > 0);
    ++stored;
  }
  EXPECT_GE(stored, 2);
  EXPECT_TRUE(f.executor->kv_cache_events().empty());
}

TEST(EngineApi, SaltsKeepPrefixesApart) {
  Fixture f;
  const auto reused = [&](const char* salt) {
    Request r = request(std::vector<TokenId>(40, 9), 2);
    r.cache_salt = salt;
    return f.client.run(*f.executor, r).last.metrics.reused_blocks;
  };
  EXPECT_EQ(reused("a"), 0);
  EXPECT_GE(reused("a"), 2);
  EXPECT_EQ(reused("b"), 0);
  EXPECT_EQ(reused(""), 0);
}

TEST(EngineApi, BestOfReturnsTheLikeliest) {
  Fixture f;
  std::vector<std::pair<float, std::vector<TokenId>>> ranked;
  for (uint64_t seed = 2; seed < 7; ++seed) {
    Request r = sampled({9, 10}, 8, seed);
    r.output.return_log_probs = true;
    const Received got = f.client.run(*f.executor, r);
    ranked.emplace_back(*got.last.outputs[0].cum_log_prob, got.tokens);
  }
  std::ranges::stable_sort(ranked, std::ranges::greater(), &decltype(ranked)::value_type::first);
  Request r = sampled({9, 10}, 8, 2);
  r.sampling.num_return_sequences = 2;
  r.sampling.best_of = 5;
  const auto all = all_responses(*f.executor, f.executor->enqueue(r).value());
  ASSERT_EQ(all.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(all[i].outputs[0].token_ids, ranked[i].second);
    EXPECT_EQ(all[i].sequence_index, static_cast<int32_t>(i));
    EXPECT_TRUE(all[i].outputs[0].log_probs.empty()) << "not asked for";
    EXPECT_FALSE(all[i].outputs[0].cum_log_prob);
  }
  f.expect_counts_add_up();
}

TEST(EngineApi, AwaitTellsWhatIsReadyAndWhatIsOver) {
  Fixture f;
  f.runner->hold(true);
  const RequestId id = f.executor->enqueue(request({9}, 2)).value();
  const RequestId with_callback = f.client.send(*f.executor, request({9}, 2));
  EXPECT_TRUE(f.executor->await_responses(milliseconds(5)).empty());
  EXPECT_TRUE(f.executor->await_responses(id, milliseconds(5)).empty());
  EXPECT_EQ(f.executor->num_responses_ready(), 0);
  f.runner->hold(false);
  f.executor->shutdown();
  f.executor->shutdown();
  EXPECT_FALSE(f.executor->can_enqueue());
  EXPECT_TRUE(absl::IsUnavailable(f.executor->enqueue(request({9}, 2)).status()));
  EXPECT_EQ(f.executor->num_responses_ready(), 1);
  EXPECT_EQ(f.executor->num_responses_ready(id), 1);
  EXPECT_EQ(f.executor->await_responses().size(), 1u);
  EXPECT_TRUE(f.executor->await_responses().empty()) << "nothing can come any more";
  for (const RequestId over : {id, with_callback, RequestId{999}}) {
    const auto lists = f.executor->await_responses(std::vector<RequestId>{over});
    ASSERT_EQ(lists.at(0).size(), 1u);
    EXPECT_TRUE(absl::IsInvalidArgument(lists[0][0].status));
  }
}

TEST(EngineApi, ManyAreTakenTogetherOrNotAtAll) {
  ExecutorConfig config;
  config.max_queue_size = 4;
  exec::RunnerLimits limits = roomy();
  limits.max_rows = 1;
  Fixture f(limits, config);
  f.runner->hold(true);
  const RequestId first = f.executor->enqueue(request({9}, 1)).value();
  while (f.executor->stats().num_waiting > 0) std::this_thread::yield();
  std::vector<Request> three(3, request({9}, 2));
  const auto ids = f.executor->enqueue_requests(three);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_THAT(*ids, testing::ElementsAre(first + 1, first + 2, first + 3));
  EXPECT_TRUE(f.executor->can_enqueue());
  const auto refused = f.executor->enqueue_requests(three);
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status()));
  Request pair = request({9}, 2);
  pair.sampling.num_return_sequences = 2;
  EXPECT_TRUE(absl::IsResourceExhausted(f.executor->enqueue(pair).status()));
  pair.sampling.num_return_sequences = 5;
  EXPECT_THAT(std::string(message(f.executor->enqueue(pair).status())),
              HasSubstr("num_return_sequences: 5"));
  const auto last = f.executor->enqueue_requests({request({9}, 2)});
  ASSERT_TRUE(last.ok());
  EXPECT_EQ(last->at(0), first + 4) << "refused ones take no ids";
  EXPECT_FALSE(f.executor->can_enqueue());
  three[1].max_tokens = 0;
  EXPECT_THAT(std::string(message(f.executor->enqueue_requests(three).status())),
              HasSubstr("requests[1]: max_tokens: 0"));
  f.runner->hold(false);
  for (const auto& responses : f.executor->await_responses(*ids)) EXPECT_EQ(responses.size(), 1u);
  f.expect_counts_add_up();
}

TEST(EngineApi, IterationStatisticsAddUp) {
  ExecutorConfig config;
  config.request_stats_max_iterations = 100;
  Fixture f(roomy(), config);
  const RequestId id = f.client.send(*f.executor, request(std::vector<TokenId>(40, 9), 4));
  f.client.wait(id);
  f.client.run(*f.executor, request({9, 10}, 3));
  f.expect_counts_add_up();
  const auto steps = f.executor->latest_iteration_stats();
  EXPECT_TRUE(f.executor->latest_iteration_stats().empty());
  ASSERT_EQ(static_cast<int64_t>(steps.size()), f.executor->stats().num_steps);
  int64_t context = 0, started = 0, completed = 0, generating = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const IterationStats& s = steps[i];
    EXPECT_EQ(s.iter, static_cast<int64_t>(i) + 1);
    EXPECT_GE(s.iter_latency_ms, 0);
    EXPECT_EQ(s.num_scheduled_requests, s.num_context_requests + s.num_gen_requests);
    EXPECT_EQ(s.kv_max_blocks, s.kv_free_blocks + s.kv_used_blocks);
    EXPECT_EQ(s.max_num_tokens, 64);
    context += s.num_ctx_tokens;
    started += s.num_new_active_requests;
    completed += s.num_completed_requests;
    generating += s.num_gen_requests;
  }
  EXPECT_EQ(context, 40 + 1) << "the second prompt begins like the first";
  EXPECT_EQ(started, 2);
  EXPECT_GT(steps[0].new_active_requests_queue_latency_ms, 0);
  EXPECT_EQ(completed, 2);
  EXPECT_GE(generating, 3 + 2);
  const auto requests = f.executor->latest_request_stats();
  ASSERT_EQ(requests.size(), steps.size());
  ASSERT_EQ(requests[0].requests.size(), 1u);
  const RequestStats& first = requests[0].requests[0];
  EXPECT_EQ(first.id, id);
  EXPECT_TRUE(first.scheduled);
  EXPECT_EQ(first.context_prefill_position, 40);
  EXPECT_EQ(first.num_generated_tokens, 1);
  EXPECT_TRUE(f.executor->latest_request_stats().empty());
}

TEST(EngineApi, RingsKeepTheNewestAndMayBeOff) {
  ExecutorConfig config;
  config.iter_stats_max_iterations = 3;
  Fixture f(roomy(), config);
  f.client.run(*f.executor, request({9}, 20));
  f.expect_counts_add_up();
  const auto steps = f.executor->latest_iteration_stats();
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps.back().iter, f.executor->stats().num_steps);
  EXPECT_TRUE(f.executor->latest_request_stats().empty());
}

TEST(StatsJson, HasTheNamesOfTensorRtLlm) {
  IterationStats s;
  s.timestamp = std::chrono::system_clock::time_point(std::chrono::microseconds(1700000000123456));
  s.iter = 7;
  s.num_ctx_tokens = 12;
  s.kv_max_blocks = 99;
  const json::value v = parse_json(to_json(s)).value();
  EXPECT_EQ(v.at("timestamp").as_string(), "11-14-2023 22:13:20.123456");
  EXPECT_EQ(v.at("iter").as_int64(), 7);
  EXPECT_EQ(v.at("kvCacheStats").at("maxNumBlocks").as_int64(), 99);
  EXPECT_EQ(v.at("inflightBatchingStats").at("numCtxTokens").as_int64(), 12);
  EXPECT_TRUE(v.at("staticBatchingStats").is_null());
  EXPECT_TRUE(v.at("specDecodingStats").is_null());
  RequestStatsPerIteration r{.iter = 3, .requests = {{.id = 5}}};
  r.requests[0].stage = RequestStage::kGenerationInProgress;
  const json::value w = parse_json(to_json(r)).value();
  EXPECT_EQ(w.at("requestStats").at(0).at("stage").as_string(), "GENERATION_IN_PROGRESS");
  EXPECT_EQ(w.at("requestStats").at(0).at("id").to_number<uint64_t>(), 5u);
  EXPECT_TRUE(w.at("requestStats").at(0).at("disServingStats").is_null());
}

}  // namespace
}  // namespace nereid::runtime
