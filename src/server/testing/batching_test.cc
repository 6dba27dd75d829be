// The dynamic batcher, queue policies, the response cache, warm-up, and their statistics.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <thread>

#include "base/testing/source_dir.h"
#include "server/testing/client.h"
#include "server/testing/gate.h"

namespace nereid::server {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

std::string batching(const std::string& more, const std::string& behavior = "count") {
  return test_model(behavior, "max_batch_size: 4\ndynamic_batching { " + more + " }\n");
}

// A request of batch size 1 whose execution takes `delay_ms` (gate.h) if it is the
// first of its batch.
std::unique_ptr<TestCall> ask(TestServer& server, int32_t delay_ms, size_t width = 1,
                              uint64_t priority = 0, uint64_t timeout_us = 0) {
  auto call = std::make_unique<TestCall>(server.get(), "m", std::vector<int32_t>(width, delay_ms),
                                         "", true);
  TRITONSERVER_InferenceRequestSetPriorityUInt64(call->request(), priority);
  TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(call->request(), timeout_us);
  return call;
}

// Keeps the only instance busy, until the gate opens, while the test fills the queue.
std::unique_ptr<TestCall> block(TestServer& server) {
  auto call = ask(server, kUntilOpen);
  EXPECT_TRUE(call->send().ok());
  EXPECT_TRUE(wait_until_held());
  return call;
}

std::string statistics(TestServer& server) {
  TRITONSERVER_Message* message = nullptr;
  EXPECT_TRUE(Outcome(TRITONSERVER_ServerModelStatistics(server.get(), "m", -1, &message)).ok());
  return take_text(message);
}

TEST(Batching, TakesWhatIsQueued) {
  TestServer server({{"m", batching("")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  const auto busy = block(server);
  std::vector<std::unique_ptr<TestCall>> calls;
  for (int i = 0; i < 6; ++i) {
    calls.push_back(ask(server, 0));
    ASSERT_TRUE(calls.back()->send().ok());
  }
  open_gate();
  std::vector<int32_t> sizes;
  for (auto& call : calls) {
    ASSERT_TRUE(call->wait());
    sizes.push_back(call->joined()[0]);
  }
  EXPECT_THAT(sizes, ElementsAre(4, 4, 4, 4, 2, 2));
  ASSERT_TRUE(busy->wait());
  EXPECT_EQ(busy->joined()[0], 1);
  const std::string stats = statistics(server);
  EXPECT_THAT(stats, HasSubstr(R"("inference_count":7,"execution_count":3)"));
  EXPECT_THAT(stats, HasSubstr(R"({"batch_size":4,"compute_input":{"count":1,"ns":1000})"));
}

TEST(Batching, DifferentShapesDoNotMix) {
  TestServer server({{"m", batching("")}});
  const auto busy = block(server);
  const auto a = ask(server, 0, 1), b = ask(server, 0, 1), c = ask(server, 0, 2);
  for (auto* call : {a.get(), b.get(), c.get()}) ASSERT_TRUE(call->send().ok());
  open_gate();
  for (auto* call : {a.get(), b.get(), c.get(), busy.get()}) ASSERT_TRUE(call->wait());
  EXPECT_EQ(a->joined()[0], 2);
  EXPECT_EQ(b->joined()[0], 2);
  EXPECT_EQ(c->joined()[0], 1);
}

// A batching model with `in` added to its input IN, and another input.
std::string with_inputs(const std::string& in, const std::string& other = "") {
  std::string text = batching("");
  const std::string dims = "dims: [ -1 ] }";
  return text.replace(text.find(dims), dims.size(), "dims: [ -1 ] " + in + " }\n" + other);
}

// Batch sizes of the calls, which queue while the instance is busy.
std::vector<int32_t> sizes_of(TestServer& server, TestCall& busy,
                              const std::vector<TestCall*>& calls) {
  EXPECT_TRUE(server.started().ok()) << server.started().text;
  for (TestCall* call : calls) {
    const Outcome sent = call->send();
    EXPECT_TRUE(sent.ok()) << sent.text;
  }
  open_gate();
  std::vector<int32_t> sizes;
  for (TestCall* call : calls) {
    EXPECT_TRUE(call->wait());
    sizes.push_back(call->joined().empty() ? 0 : call->joined()[0]);
  }
  EXPECT_TRUE(busy.wait());
  return sizes;
}

void add_input(TestCall& call, const char* name, const std::vector<int64_t>& shape,
               const int32_t* value) {
  const Outcome added(TRITONSERVER_InferenceRequestAddInput(
      call.request(), name, TRITONSERVER_TYPE_INT32, shape.data(), shape.size()));
  EXPECT_TRUE(added.ok()) << added.text;
  TRITONSERVER_InferenceRequestAppendInputData(call.request(), name, value, sizeof(int32_t),
                                               TRITONSERVER_MEMORY_CPU, 0);
}

TEST(Batching, RaggedShapesMix) {
  TestServer server({{"m", with_inputs("allow_ragged_batch: true")}});
  const auto busy = block(server);
  const auto a = ask(server, 0, 1), b = ask(server, 0, 3), c = ask(server, 0, 2);
  EXPECT_THAT(sizes_of(server, *busy, {a.get(), b.get(), c.get()}), ElementsAre(3, 3, 3));
}

TEST(Batching, ValuesOfShapeTensorsDoNotMix) {
  TestServer server({{"m", with_inputs("",
                                       "input { name: \"S\" data_type: TYPE_INT32 dims: [ 1 ] "
                                       "is_shape_tensor: true }\n")}});
  const int32_t small = 3, same = 3, large = 4;
  const auto busy = ask(server, kUntilOpen);
  add_input(*busy, "S", {1}, &small);
  ASSERT_TRUE(busy->send().ok());
  ASSERT_TRUE(wait_until_held());
  const auto a = ask(server, 0), b = ask(server, 0), c = ask(server, 0);
  add_input(*a, "S", {1}, &small);
  add_input(*b, "S", {1}, &same);
  add_input(*c, "S", {1}, &large);
  EXPECT_THAT(sizes_of(server, *busy, {a.get(), b.get(), c.get()}), ElementsAre(2, 2, 1));
}

TEST(Batching, DifferentSetsOfInputsDoNotMix) {
  const auto optional = [](const char* name) {
    return std::string("input { name: \"") + name +
           "\" data_type: TYPE_INT32 dims: [ 1 ] optional: true }\n";
  };
  TestServer server({{"m", with_inputs("", optional("P") + optional("Q"))}});
  const auto busy = block(server);
  const int32_t value = 0;
  const auto without = ask(server, 0), p = ask(server, 0), also_p = ask(server, 0),
             q = ask(server, 0);
  add_input(*p, "P", {1, 1}, &value);
  add_input(*also_p, "P", {1, 1}, &value);
  add_input(*q, "Q", {1, 1}, &value);
  EXPECT_THAT(sizes_of(server, *busy, {without.get(), p.get(), also_p.get(), q.get()}),
              ElementsAre(1, 2, 2, 1));
}

TEST(Batching, ALibrarySaysWhatGoesTogether) {
  namespace fs = std::filesystem;
  std::string name = (fs::temp_directory_path() / "nereid-strategy-XXXXXX").string();
  const fs::path root = mkdtemp(name.data());
  fs::create_directories(root / "m" / "1");
  const auto configure = [&](const std::string& path) {
    std::ofstream(root / "m" / "config.pbtxt")
        << batching("")
        << "parameters { key: \"TRITON_BATCH_STRATEGY_PATH\" value { string_value: \"" << path
        << "\" } }";
  };
  fs::copy_file(build_dir() + "/test_plugins/nereid_strategy/batchstrategy.so",
                root / "m" / "batchstrategy.so");
  fs::copy_file(build_dir() + "/test_plugins/nereid_strategy/batchstrategy.so",
                root / "m" / "1" / "mine.so");
  for (const std::string& path : {std::string(), std::string("1/mine.so"),
                                  // Relative to the server's working directory.
                                  fs::relative(root / "m" / "1" / "mine.so").string()}) {
    configure(path);
    TestServer server(root, [](auto*) {});
    ASSERT_TRUE(server.started().ok()) << server.started().text;
    const auto busy = block(server);
    const auto a = ask(server, 0), b = ask(server, 0), c = ask(server, 0), d = ask(server, 0);
    TRITONSERVER_InferenceRequestSetId(d->request(), "alone");
    EXPECT_THAT(sizes_of(server, *busy, {a.get(), b.get(), c.get(), d.get()}),
                ElementsAre(2, 2, 1, 1));
  }
  for (const auto& [path, error] : {std::pair("/etc/passwd", "must be below the model's folder"),
                                    {"../other.so", "must be below the model's folder"},
                                    {"none.so", "does not exist"}}) {
    configure(path);
    EXPECT_THAT(TestServer(root, [](auto*) {}).started().text, HasSubstr(error));
  }
  fs::remove_all(root);
}

// The variable as the stock server's own tests set it. Model n proves that there was time to run.
TEST(Batching, StartsWithAsManyAsTheEnvironmentSays) {
  ::setenv("TRITONSERVER_DELAY_SCHEDULER", "3", 1);
  TestServer server({{"m", batching("")}, {"n", test_model("count", "max_batch_size: 4\n")}});
  ::unsetenv("TRITONSERVER_DELAY_SCHEDULER");
  const auto a = ask(server, 0), b = ask(server, 0), c = ask(server, 0), later = ask(server, 0);
  for (auto* call : {a.get(), b.get()}) ASSERT_TRUE(call->send().ok());
  for (int i = 0; i < 100; ++i) {
    TestCall other(server.get(), "n", {0}, "", true);
    ASSERT_TRUE(other.send().ok());
    ASSERT_TRUE(other.wait());
  }
  EXPECT_EQ(a->num_finals() + b->num_finals(), 0);
  ASSERT_TRUE(c->send().ok());
  ASSERT_TRUE(a->wait());
  EXPECT_EQ(a->joined()[0], 3);
  for (auto* call : {b.get(), c.get()}) ASSERT_TRUE(call->wait());
  ASSERT_TRUE(later->send().ok());
  ASSERT_TRUE(later->wait());
  EXPECT_EQ(later->joined()[0], 1);
}

TEST(Batching, WaitsForMore) {
  TestServer server(
      {{"m", batching("preferred_batch_size: [ 2 ] max_queue_delay_microseconds: " + kAnHour)}});
  const auto a = ask(server, 0), b = ask(server, 0);
  ASSERT_TRUE(a->send().ok());
  ASSERT_TRUE(b->send().ok());
  ASSERT_TRUE(a->wait());
  EXPECT_EQ(a->joined()[0], 2);
  ASSERT_TRUE(b->wait());
}

TEST(Batching, PreferredSizesGoFirstUntilTheDelayIsOver) {
  const auto sizes = [](const std::string& more) {
    TestServer server({{"m", batching("preferred_batch_size: [ 2 ] " + more)}});
    const auto busy = block(server);
    const auto a = ask(server, 0), b = ask(server, 0), c = ask(server, 0);
    return sizes_of(server, *busy, {a.get(), b.get(), c.get()});
  };
  EXPECT_THAT(sizes(""), ElementsAre(2, 2, 1));
  EXPECT_THAT(sizes("max_queue_delay_microseconds: 1"), ElementsAre(3, 3, 3));
}

TEST(Batching, DoesNotWaitForEver) {
  TestServer server(
      {{"m", batching("preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 100000")}});
  const auto start = std::chrono::steady_clock::now();
  const auto a = ask(server, 0);
  ASSERT_TRUE(a->send().ok());
  ASSERT_TRUE(a->wait());
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(90));
  EXPECT_EQ(a->joined()[0], 1);
}

TEST(Batching, PrioritiesGoFirstAndHaveTheirOwnQueues) {
  TestServer server({{"m", test_model("count",
                                      "max_batch_size: 1\n"
                                      "dynamic_batching { priority_levels: 3 "
                                      "default_priority_level: 2 priority_queue_policy { key: 3 "
                                      "value { max_queue_size: 1 } } }")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  const auto busy = block(server);
  const auto low = ask(server, 0, 1, 3), middle = ask(server, 0), high = ask(server, 0, 1, 1);
  for (auto* call : {low.get(), middle.get(), high.get()}) ASSERT_TRUE(call->send().ok());
  const auto refused = ask(server, 0, 1, 3);
  EXPECT_EQ(refused->send().text, "[request id: <id_unknown>] Exceeds maximum queue size");
  open_gate();
  for (auto* call : {low.get(), middle.get(), high.get(), busy.get()}) ASSERT_TRUE(call->wait());
  EXPECT_LT(high->joined()[1], middle->joined()[1]);
  EXPECT_LT(middle->joined()[1], low->joined()[1]);
}

TEST(Batching, LateRequestsAreRejectedWhileTheInstanceIsBusy) {
  const auto policy = [](const std::string& timeout_us, const std::string& may_override) {
    return batching("default_queue_policy { default_timeout_microseconds: " + timeout_us +
                    " allow_timeout_override: " + may_override + " }");
  };
  // The first model's default timeout applies, for the second the request's own.
  TestServer of_model({{"m", policy("1000000", "false")}});
  TestServer of_request({{"m", policy(kAnHour, "true")}});
  for (TestServer* server : {&of_model, &of_request}) {
    const auto busy = block(*server);
    const bool is_own = server == &of_request;
    const auto late = ask(*server, 0, 1, 0, is_own ? 100000 : 0), other = ask(*server, 0);
    ASSERT_TRUE(late->send().ok());
    if (is_own) {
      EXPECT_TRUE(other->send().ok());
    }
    ASSERT_TRUE(late->wait());
    EXPECT_EQ(late->replies()[0].text, "Request timeout expired");
    EXPECT_EQ(late->replies()[0].code, TRITONSERVER_ERROR_UNAVAILABLE);
    EXPECT_EQ(busy->num_finals(), 0);
    EXPECT_EQ(other->num_finals(), 0);
    open_gate();
    ASSERT_TRUE(busy->wait());
    if (is_own) {
      EXPECT_TRUE(other->wait());
    }
  }
}

TEST(Batching, LateRequestsMayOnlyBeDelayed) {
  TestServer server(
      {{"m", test_model("count",
                        "max_batch_size: 1\ndynamic_batching { default_queue_policy { "
                        "timeout_action: DELAY default_timeout_microseconds: " +
                            kAnHour + " allow_timeout_override: true } }")}});
  const auto busy = block(server);
  const auto late = ask(server, 0, 1, 0, 1000), fresh = ask(server, 0);
  ASSERT_TRUE(late->send().ok());
  ASSERT_TRUE(fresh->send().ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the timeout of `late`
  open_gate();
  for (auto* call : {late.get(), fresh.get(), busy.get()}) ASSERT_TRUE(call->wait());
  EXPECT_LT(fresh->joined()[1], late->joined()[1]);
}

TEST(Batching, ACancelledRequestIsAnsweredWhileTheInstanceIsBusy) {
  TestServer server({{"m", batching("")}});
  const auto busy = block(server);
  const auto queued = ask(server, 0), other = ask(server, 0);
  ASSERT_TRUE(queued->send().ok());
  ASSERT_TRUE(other->send().ok());
  queued->cancel();
  ASSERT_TRUE(queued->wait());
  EXPECT_EQ(queued->replies()[0].code, TRITONSERVER_ERROR_CANCELLED);
  EXPECT_EQ(busy->num_finals(), 0);
  EXPECT_EQ(other->num_finals(), 0);
  open_gate();
  ASSERT_TRUE(other->wait());
  EXPECT_EQ(other->replies()[0].code, -1);
  ASSERT_TRUE(busy->wait());
}

TEST(Batching, ARequestInFlightIsNotSentAgainAndGoesWhenItIsReleased) {
  TestServer server({{"m", batching("")}});
  const auto busy = block(server);
  const auto queued = ask(server, 0);
  ASSERT_TRUE(queued->send().ok());
  EXPECT_EQ(queued->send().code, TRITONSERVER_ERROR_INVALID_ARG);
  TRITONSERVER_InferenceRequest* const request = queued->give_up_request();
  EXPECT_TRUE(Outcome(TRITONSERVER_InferenceRequestDelete(request)).ok());
  EXPECT_TRUE(Outcome(TRITONSERVER_InferenceRequestDelete(request)).ok()) << "once more";
  TRITONSERVER_InferenceRequestCancel(request);  // the sweep visits all waiting requests
  ASSERT_TRUE(queued->wait());
  EXPECT_EQ(queued->num_releases(), 1);
  open_gate();
  ASSERT_TRUE(busy->wait());
}

// With two instances the quick second request finishes first, but is answered second.
TEST(Batching, OrderIsPreserved) {
  TestServer server({{"m", test_model("count",
                                      "max_batch_size: 1\ninstance_group [ { count: 2 } ]\n"
                                      "dynamic_batching { preserve_ordering: true }")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  const auto slow = block(server), quick = ask(server, 0);
  ASSERT_TRUE(quick->send().ok());
  const auto is_done = [&] {
    return statistics(server).find(R"("inference_count":1)") != std::string::npos;
  };
  EXPECT_TRUE(eventually(is_done));
  EXPECT_EQ(quick->num_finals(), 0);
  open_gate();
  ASSERT_TRUE(quick->wait());
  EXPECT_EQ(slow->num_finals(), 1);
  ASSERT_TRUE(slow->wait());
}

TEST(Cache, AnswersTheSameQuestionOnce) {
  std::string name = (std::filesystem::temp_directory_path() / "nereid-cache-XXXXXX").string();
  const std::filesystem::path root = mkdtemp(name.data());
  std::filesystem::create_directories(root / "m" / "1");
  std::ofstream(root / "m" / "config.pbtxt")
      << test_model("count", "max_batch_size: 4 response_cache { enable: true }");
  {
    TestServer server(root, [](TRITONSERVER_ServerOptions* options) {
      TRITONSERVER_ServerOptionsSetCacheConfig(options, "local", "{\"size\":\"4096\"}");
    });
    ASSERT_TRUE(server.started().ok()) << server.started().text;
    const auto number = [&](int32_t value, const char* key = nullptr) {
      const auto call = ask(server, value);
      if (key != nullptr) {
        TRITONSERVER_InferenceRequestSetIntParameter(call->request(), key, 1);
      }
      EXPECT_TRUE(call->send().ok() && call->wait());
      return call->joined()[1];
    };
    const int32_t first = number(0);
    EXPECT_EQ(number(0), first);
    EXPECT_NE(number(1), first);
    EXPECT_NE(number(0, "seed"), first) << "parameters belong to the question";
    EXPECT_EQ(number(0), first);
    const std::string stats = statistics(server);
    EXPECT_THAT(stats, HasSubstr(R"("inference_count":3,"execution_count":3)"));
    EXPECT_THAT(stats, HasSubstr(R"("success":{"count":5)"));
    EXPECT_THAT(stats, HasSubstr(R"("cache_hit":{"count":2)"));
    EXPECT_THAT(stats, HasSubstr(R"("cache_miss":{"count":3)"));
    for (int32_t i = 2; i < 32; ++i) number(i);  // evicts the first one
    EXPECT_NE(number(0), first);
  }
  std::filesystem::remove_all(root);
}

TEST(Warmup, RunsBeforeTheModelIsReady) {
  const std::string warmup =
      "model_warmup { name: \"w\" batch_size: 2 count: 3 inputs { key: \"IN\" "
      "value { data_type: TYPE_INT32 dims: [ 1 ] zero_data: true } } }";
  TestServer server({{"m", test_model("count", "max_batch_size: 4 " + warmup)}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  const std::string stats = statistics(server);
  EXPECT_THAT(stats, HasSubstr(R"("inference_count":6,"execution_count":3)"));
  EXPECT_THAT(stats, HasSubstr(R"({"batch_size":2,"compute_input":{"count":3)"));
}

TEST(Warmup, FailuresNameTheSample) {
  const auto error = [](const std::string& behavior, const std::string& input) {
    return TestServer({{"m", test_model(behavior,
                                        "max_batch_size: 4 model_warmup { name: \"w\" "
                                        "batch_size: 1 " +
                                            input + " }")}})
        .started()
        .text;
  };
  const std::string zero = "inputs { key: \"IN\" value { data_type: TYPE_INT32 dims: 1 ";
  EXPECT_THAT(error("fail", zero + "zero_data: true } }"),
              HasSubstr("failed to run warmup sample 'w': told to fail; "));
  EXPECT_THAT(error("count", zero + "input_data_file: \"none\" } }"),
              HasSubstr("failed to open text file for read"));
  EXPECT_THAT(error("count", zero + "input_data_file: \"../x\" } }"),
              HasSubstr("is not a file below warmup"));
  EXPECT_THAT(error("count", ""), HasSubstr("missing required input(s) ['IN']"));
}

}  // namespace
}  // namespace nereid::server
