// The sequence batcher: slots, controls, backlog, idle sequences, state, iterations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <thread>

#include "server/testing/client.h"
#include "server/testing/gate.h"

namespace nereid::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint32_t kStart = TRITONSERVER_REQUEST_FLAG_SEQUENCE_START;
constexpr uint32_t kEnd = TRITONSERVER_REQUEST_FLAG_SEQUENCE_END;

// Positions in the model's answer.
enum Seen { kPlace, kBatch, kNotReady, kInstance, kIsStart, kIsEnd, kId, kState };

const char* const kControls =
    "control_input { name: \"START\" control { kind: CONTROL_SEQUENCE_START int32_false_true: "
    "[ 0, 1 ] } }\n"
    "control_input { name: \"END\" control { kind: CONTROL_SEQUENCE_END bool_false_true: "
    "[ false, true ] } }\n"
    "control_input { name: \"READY\" control { kind: CONTROL_SEQUENCE_READY int32_false_true: "
    "[ 0, 1 ] } }\n";
const char* const kNumericId =
    "control_input { name: \"CORRID\" control { kind: CONTROL_SEQUENCE_CORRID data_type: "
    "TYPE_INT32 } }\n";
const char* const kSum =
    "state { input_name: \"STATE_IN\" output_name: \"STATE_OUT\" data_type: TYPE_INT32 dims: 1 "
    "initial_state { name: \"s\" data_type: TYPE_INT32 dims: 1 zero_data: true } }\n";

// Each test ends its sequences: idle ones stay for an hour.
std::string sequences(const std::string& more, int max_batch = 2, int instances = 1,
                      const std::string& behavior = "sequence",
                      const std::string& idle_us = kAnHour) {
  return test_model(behavior, "max_batch_size: " + std::to_string(max_batch) +
                                  "\ninstance_group [ { count: " + std::to_string(instances) +
                                  " } ]\nsequence_batching {\nmax_sequence_idle_microseconds: " +
                                  idle_us + "\n" + kControls + kNumericId + more + "}\n");
}

using Call = std::unique_ptr<TestCall>;

Call make(TestServer& server, uint64_t id, uint32_t flags, int32_t value = 0, int32_t ms = 0) {
  auto call =
      std::make_unique<TestCall>(server.get(), "m", std::vector<int32_t>{value, ms}, "", true);
  TRITONSERVER_InferenceRequestSetCorrelationId(call->request(), id);
  TRITONSERVER_InferenceRequestSetFlags(call->request(), flags);
  return call;
}

Call send(TestServer& server, uint64_t id, uint32_t flags, int32_t value = 0, int32_t ms = 0) {
  auto call = make(server, id, flags, value, ms);
  const Outcome sent = call->send();
  EXPECT_TRUE(sent.ok()) << sent.text;
  return call;
}

std::vector<int32_t> result(const Call& call) {
  EXPECT_TRUE(call->wait());
  EXPECT_EQ(call->num_finals(), 1);
  EXPECT_EQ(call->num_releases(), 1);
  const auto replies = call->replies();
  if (replies.size() == 1 && replies[0].code >= 0) ADD_FAILURE() << replies[0].text;
  auto out = call->joined();
  out.resize(8, -1);
  return out;
}

std::vector<int32_t> send_step(TestServer& server, uint64_t id, uint32_t flags, int32_t value = 0,
                               int32_t ms = 0) {
  return result(send(server, id, flags, value, ms));
}

void end(TestServer& server, const std::vector<uint64_t>& ids) {
  for (const uint64_t id : ids) send_step(server, id, kEnd);
}

// Waits for a configuration's idle time: a sequence idle now has then lost its slot.
void pass_idle_time(std::chrono::microseconds idle) {
  std::this_thread::sleep_for(2 * idle);
  EXPECT_TRUE(wait_until_nothing_runs());
}

TEST(Sequence, ControlsTellWhatARequestIs) {
  TestServer server({{"m", sequences("")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  const auto first = send_step(server, 7, kStart), second = send_step(server, 7, 0),
             last = send_step(server, 7, kEnd);
  EXPECT_THAT(first, ElementsAre(0, 1, 0, 0, 1, 0, 7, 0));
  EXPECT_THAT(second, ElementsAre(0, 1, 0, 0, 0, 0, 7, 0));
  EXPECT_THAT(last, ElementsAre(0, 1, 0, 0, 0, 1, 7, 0));
  EXPECT_THAT(send_step(server, 8, kStart | kEnd), ElementsAre(0, 1, 0, 0, 1, 1, 8, 0));
}

// Both environment variables, as the stock server's own tests set them: with batches of two slots
// nothing runs before three requests have a slot and one more sequence waits for one.
TEST(Sequence, StartsWithAsManyAsTheEnvironmentSays) {
  ::setenv("TRITONSERVER_DELAY_SCHEDULER", "3", 1);
  ::setenv("TRITONSERVER_BACKLOG_DELAY_SCHEDULER", "1", 1);
  TestServer server({{"m", sequences("")}, {"n", test_model("count", "max_batch_size: 4\n")}});
  ::unsetenv("TRITONSERVER_DELAY_SCHEDULER");
  ::unsetenv("TRITONSERVER_BACKLOG_DELAY_SCHEDULER");
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  const auto first = send(server, 1, kStart), other = send(server, 2, kStart | kEnd),
             second = send(server, 1, kEnd);
  for (int i = 0; i < 100; ++i) {  // time to run
    TestCall n(server.get(), "n", {0}, "", true);
    ASSERT_TRUE(n.send().ok());
    ASSERT_TRUE(n.wait());
  }
  EXPECT_EQ(first->num_finals() + other->num_finals(), 0);
  const auto waiting = send(server, 3, kStart | kEnd);
  EXPECT_EQ(result(first)[kBatch], 2);
  EXPECT_EQ(result(other)[kPlace], 1);
  EXPECT_EQ(result(second)[kBatch], 2);  // beside the sequence in the slot that was freed
  EXPECT_EQ(result(waiting)[kPlace], 1);
}

TEST(Sequence, RefusesWhatBelongsToNoSequence) {
  TestServer server({{"m", sequences("")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  EXPECT_EQ(
      make(server, 5, 0)->send().text,
      "inference request for sequence 5 to model 'm' must specify the START flag on the first "
      "request of the sequence");
  EXPECT_EQ(make(server, 0, kStart)->send().text,
            "inference request to model 'm' must specify a non-zero or non-empty correlation ID");
  EXPECT_THAT(make(server, uint64_t{1} << 40, kStart)->send().text,
              HasSubstr("the correlation ID must be a number in range [1, 2147483647]"));
  send_step(server, 5, kStart | kEnd);
  EXPECT_THAT(make(server, 5, 0)->send().text, HasSubstr("must specify the START flag"));
}

TEST(Sequence, TextIdsHaveTheirOwnControl) {
  TestServer server({{"m", test_model("sequence",
                                      "max_batch_size: 2 sequence_batching { control_input { name: "
                                      "\"CORRID\" control { kind: CONTROL_SEQUENCE_CORRID "
                                      "data_type: TYPE_STRING } } }")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  auto call = make(server, 0, kStart);
  TRITONSERVER_InferenceRequestSetCorrelationIdString(call->request(), "seven");
  ASSERT_TRUE(call->send().ok());
  EXPECT_EQ(result(call)[kId], 5) << "the length of the text";
  auto other = make(server, 0, 0);
  TRITONSERVER_InferenceRequestSetCorrelationIdString(other->request(), "eight");
  EXPECT_THAT(other->send().text,
              HasSubstr("for sequence eight to model 'm' must specify the START"));
  auto last = make(server, 0, kEnd);
  TRITONSERVER_InferenceRequestSetCorrelationIdString(last->request(), "seven");
  ASSERT_TRUE(last->send().ok());
  result(last);
}

// Strategy direct: the second sequence stays in position 1, also alone.
TEST(Sequence, ASlotIsAPlaceInTheBatch) {
  TestServer server({{"m", sequences("direct { }", 4)}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  EXPECT_EQ(send_step(server, 1, kStart)[kPlace], 0);
  const auto alone = send_step(server, 2, kStart);
  EXPECT_EQ(alone[kPlace], 1);
  EXPECT_EQ(alone[kBatch], 2);
  EXPECT_EQ(alone[kNotReady], 1);
  const auto busy = send(server, 1, 0, 0, kUntilOpen);
  ASSERT_TRUE(wait_until_held());
  const auto a = send(server, 1, 0), b = send(server, 2, 0);
  open_gate();
  EXPECT_EQ(result(a)[kNotReady], 0);
  EXPECT_EQ(result(b)[kBatch], 2);
  result(busy);
  send_step(server, 1, kEnd);
  EXPECT_EQ(send_step(server, 3, kStart)[kPlace], 0) << "the place that became free";
  end(server, {2, 3});
}

TEST(Sequence, SlotsAreSpreadOverInstancesAndKept) {
  TestServer server({{"m", sequences("", 2, 2)}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  for (uint64_t id = 1; id <= 2; ++id) {
    EXPECT_EQ(send_step(server, id, kStart)[kInstance], static_cast<int32_t>(id - 1));
  }
  for (uint64_t id = 1; id <= 2; ++id) {
    EXPECT_EQ(send_step(server, id, 0)[kInstance], static_cast<int32_t>(id - 1));
  }
  end(server, {1, 2});
}

TEST(Sequence, WaitsForUtilization) {
  TestServer server({{"m", sequences("direct { max_queue_delay_microseconds: " + kAnHour +
                                     " minimum_slot_utilization: 1.0 }")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  const auto a = send(server, 1, kStart | kEnd), b = send(server, 2, kStart | kEnd);
  EXPECT_EQ(result(a)[kBatch], 2);
  EXPECT_EQ(result(b)[kBatch], 2);
}

TEST(Sequence, DoesNotWaitForUtilizationForEver) {
  TestServer server({{"m", sequences("direct { max_queue_delay_microseconds: 100000 "
                                     "minimum_slot_utilization: 1.0 }")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(send_step(server, 1, kStart | kEnd)[kBatch], 1);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(90));
}

TEST(Sequence, WithoutAFreeSlotItWaits) {
  TestServer server({{"m", sequences("", 1)}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  send_step(server, 1, kStart);
  const auto second = send(server, 2, kStart | kEnd);
  EXPECT_TRUE(wait_until_nothing_runs());
  EXPECT_EQ(second->num_finals(), 0);
  send_step(server, 1, kEnd);
  result(second);
}

// A sequence without a slot is not idle.
TEST(Sequence, WithoutAFreeSlotItIsNotIdle) {
  TestServer server({{"m", sequences("", 1, 1, "sequence", "5000")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  const auto busy = send(server, 1, kStart | kEnd, 0, kUntilOpen);
  ASSERT_TRUE(wait_until_held());
  const auto second = send(server, 2, kStart | kEnd);
  pass_idle_time(std::chrono::microseconds(5000));
  open_gate();
  result(busy);
  EXPECT_EQ(result(second)[kId], 2);
}

TEST(Sequence, WithoutAFreeSlotItWaitsAsLongAsItsRequestsAllow) {
  TestServer server({{"m", sequences("", 1)}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  const auto busy = send(server, 1, kStart, 0, kUntilOpen);
  ASSERT_TRUE(wait_until_held());
  const auto patient = send(server, 2, kStart | kEnd), first = send(server, 3, kStart);
  const auto hasty = make(server, 3, 0);
  TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(hasty->request(), 50000);
  ASSERT_TRUE(hasty->send().ok());
  for (auto* call : {first.get(), hasty.get()}) {
    ASSERT_TRUE(call->wait());
    EXPECT_EQ(call->replies()[0].code, TRITONSERVER_ERROR_UNAVAILABLE);
    EXPECT_EQ(call->replies()[0].text, "timeout of the corresponding sequence has been expired");
  }
  EXPECT_THAT(make(server, 3, kEnd)->send().text, HasSubstr("must specify the START flag"));
  open_gate();
  result(busy);
  end(server, {1});
  result(patient);
}

TEST(Sequence, AnIdleOneLosesItsSlot) {
  TestServer server({{"m", sequences("", 1, 1, "sequence", "20000")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  send_step(server, 1, kStart);
  EXPECT_EQ(send_step(server, 2, kStart | kEnd)[kId], 2) << "gets the slot when 1 is given up";
  EXPECT_THAT(make(server, 1, 0)->send().text, HasSubstr("must specify the START flag"));
}

TEST(Sequence, OldestBatchesTheCandidatesButOneRequestOfEach) {
  TestServer server({{"m", sequences("oldest { max_candidate_sequences: 4 }", 4)}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  const auto busy = send(server, 1, kStart, 0, kUntilOpen);
  ASSERT_TRUE(wait_until_held());
  std::vector<Call> calls;
  for (uint64_t id : {2, 3, 2, 3, 1}) {
    calls.push_back(send(server, id, calls.size() < 2 ? kStart : 0));
  }
  open_gate();
  result(busy);
  std::vector<int32_t> batches;
  for (const auto& call : calls) batches.push_back(result(call)[kBatch]);
  EXPECT_THAT(batches, ElementsAre(3, 3, 2, 2, 3));
  end(server, {1, 2, 3});
}

TEST(Sequence, StateGoesFromRequestToRequest) {
  for (const char* strategy : {"direct { }", "oldest { max_candidate_sequences: 2 }"}) {
    TestServer server({{"m", sequences(std::string(strategy) + kSum)}});
    ASSERT_TRUE(server.started().ok()) << server.started().text;
    EXPECT_EQ(send_step(server, 1, kStart, 10)[kState], 10);
    EXPECT_EQ(send_step(server, 2, kStart, 1)[kState], 1);
    EXPECT_EQ(send_step(server, 1, 0, 5)[kState], 15);
    EXPECT_EQ(send_step(server, 2, 0, 1)[kState], 2);
    std::vector<Call> queued;
    for (int i = 0; i < 4; ++i) queued.push_back(send(server, 1, 0, 1, 20));
    for (int i = 0; i < 4; ++i) EXPECT_EQ(result(queued[i])[kState], 16 + i);
    EXPECT_EQ(send_step(server, 1, kStart | kEnd, 3)[kState], 3) << "a new sequence of the same id";
    end(server, {2});
  }
}

// As in the stock server the model loads, and a sequence that begins has no state.
TEST(Sequence, StateThatGrowsNeedsAGpu) {
  for (const char* more : {"", " use_same_buffer_for_input_output: true"}) {
    TestServer server({{"m", sequences(std::string("state { input_name: \"STATE_IN\" output_name: "
                                                   "\"STATE_OUT\" data_type: TYPE_INT32 dims: 1 "
                                                   "use_growable_memory: true") +
                                       more + " }")}});
    ASSERT_TRUE(server.started().ok()) << server.started().text;
    EXPECT_EQ(send_step(server, 1, kStart, 10)[kState], 0);
    EXPECT_EQ(send_step(server, 1, kEnd, 10)[kState], 0);
  }
}

TEST(Sequence, StateMayStartFromAFile) {
  std::string name = (std::filesystem::temp_directory_path() / "nereid-state-XXXXXX").string();
  const std::filesystem::path root = mkdtemp(name.data());
  std::filesystem::create_directories(root / "m" / "1");
  std::filesystem::create_directories(root / "m" / "initial_state");
  const auto file = root / "m" / "initial_state" / "seven";
  const int32_t seven = 7;
  std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(&seven), sizeof seven);
  std::ofstream(root / "m" / "config.pbtxt") << sequences(
      "state { input_name: \"STATE_IN\" output_name: \"STATE_OUT\" data_type: "
      "TYPE_INT32 dims: 1 use_same_buffer_for_input_output: true initial_state { "
      "name: \"s\" data_type: TYPE_INT32 dims: 1 data_file: \"seven\" } }");
  {
    TestServer server(root, [](TRITONSERVER_ServerOptions*) {});
    ASSERT_TRUE(server.started().ok()) << server.started().text;
    EXPECT_EQ(send_step(server, 1, kStart, 1)[kState], 8);
    EXPECT_EQ(send_step(server, 1, kEnd, 1)[kState], 9);
    EXPECT_EQ(send_step(server, 2, kStart | kEnd, 0)[kState], 7)
        << "in place, but not in the first value";
  }
  std::ofstream(file, std::ios::app) << "x";
  TestServer broken(root, [](TRITONSERVER_ServerOptions*) {});
  EXPECT_THAT(broken.started().text, HasSubstr("initial_state setting expects '4' bytes"));
  std::filesystem::remove_all(root);
}

TEST(Sequence, IterationsRunUntilTheBackendIsDone) {
  TestServer server(
      {{"m", sequences(std::string("iterative_sequence: true\n") + kSum, 2, 1, "iterate")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  std::vector<Call> calls;
  for (int i = 1; i <= 5; ++i) calls.push_back(send(server, 0, 0, i));
  for (int i = 1; i <= 5; ++i) {
    const auto seen = result(calls[static_cast<size_t>(i - 1)]);
    EXPECT_EQ(seen[0], i);
    EXPECT_EQ(seen[1], 1) << "START comes once";
  }
  uint64_t id = 1;
  uint32_t flags = kStart;
  TRITONSERVER_InferenceRequestCorrelationId(calls[0]->request(), &id);
  TRITONSERVER_InferenceRequestFlags(calls[0]->request(), &flags);
  EXPECT_EQ(id, 0u) << "the client's request is as it was";
  EXPECT_EQ(flags, 0u);
}

TEST(Sequence, AnIterationThatTakesLongerThanTheIdleTimeIsTheLast) {
  TestServer server({{"m", sequences(std::string("iterative_sequence: true\n") + kSum, 1, 1,
                                     "iterate", "1000")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  const auto call = send(server, 0, 0, 3, kUntilOpen);
  ASSERT_TRUE(wait_until_held());
  pass_idle_time(std::chrono::microseconds(1000));
  open_gate();
  ASSERT_TRUE(call->wait());
  EXPECT_EQ(call->num_finals(), 1);
  EXPECT_EQ(call->num_releases(), 1);
  ASSERT_EQ(call->replies().size(), 1u);
  EXPECT_THAT(call->replies()[0].text, HasSubstr("must specify the START flag on the first"));
}

TEST(Sequence, ACancelledRequestEndsItsSequenceAtOnce) {
  TestServer server({{"m", sequences("", 1)}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  const auto busy = send(server, 1, kStart, 0, kUntilOpen);
  ASSERT_TRUE(wait_until_held());
  const auto queued = send(server, 1, 0), behind = send(server, 1, 0);
  const auto waiting = send(server, 2, kStart | kEnd);
  queued->cancel();
  for (const auto* call : {&queued, &behind}) {
    ASSERT_TRUE((*call)->wait());
    EXPECT_EQ((*call)->replies()[0].code, TRITONSERVER_ERROR_CANCELLED);
  }
  EXPECT_EQ(busy->num_finals(), 0);
  EXPECT_THAT(make(server, 1, 0)->send().text, HasSubstr("must specify the START flag"));
  open_gate();
  result(busy);
  result(waiting);
}

TEST(Sequence, AStoppingServerFinishesWhatRuns) {
  TestServer server({{"m", sequences("")}}, 60);
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  send_step(server, 1, kStart);
  std::thread stopper([&] { EXPECT_TRUE(Outcome(TRITONSERVER_ServerStop(server.get())).ok()); });
  const auto is_refused = [&] {
    const auto other = make(server, 2, kStart | kEnd);
    const Outcome sent = other->send();
    if (sent.ok()) result(other);
    return sent.text.find("Server is stopping") != std::string::npos;
  };
  EXPECT_TRUE(eventually(is_refused));
  EXPECT_EQ(send_step(server, 1, 0)[kId], 1);
  send_step(server, 1, kEnd);
  stopper.join();
}

TEST(Sequence, WarmupGetsControlsAndState) {
  TestServer server({{"m", sequences(kSum) + "model_warmup { name: \"w\" batch_size: 2 inputs { "
                                             "key: \"IN\" value { data_type: TYPE_INT32 dims: 2 "
                                             "zero_data: true } } }"}});
  EXPECT_TRUE(server.started().ok()) << server.started().text;
}

// A warm-up sample may have data for controls and states.
TEST(Sequence, WarmUpMayBringControlsAndStates) {
  const auto sample = [](const std::string& more) {
    const std::string zeros = " value { data_type: TYPE_INT32 dims: 1 zero_data: true } } ";
    return sequences(kSum) +
           "model_warmup { name: \"w\" batch_size: 2 count: 2 inputs { key: \"IN\" value { "
           "data_type: TYPE_INT32 dims: 2 zero_data: true } } inputs { key: \"START\"" +
           zeros + "inputs { key: \"READY\"" + zeros + "inputs { key: \"STATE_IN\"" + zeros + more +
           "}";
  };
  const std::string unknown =
      "inputs { key: \"OTHER\" value { data_type: TYPE_INT32 dims: 1 zero_data: true } } ";
  TestServer server({{"m", sample("")}});
  EXPECT_TRUE(server.started().ok()) << server.started().text;
  TestServer refused({{"m", sample(unknown)}});
  EXPECT_THAT(refused.started().text, HasSubstr("expected 1 inputs but got 2 inputs"));
}

// Two models share a resource: their executions take turns.
TEST(RateLimit, ModelsTakeTurns) {
  std::string name = (std::filesystem::temp_directory_path() / "nereid-rates-XXXXXX").string();
  const std::filesystem::path root = mkdtemp(name.data());
  const auto write = [&](const std::string& model, int count) {
    std::filesystem::create_directories(root / model / "1");
    std::ofstream(root / model / "config.pbtxt") << test_model(
        "count",
        "instance_group [ { rate_limiter { resources [ { name: \"R\" global: true count: " +
            std::to_string(count) + " } ] } } ]\n");
  };
  write("a", 2);
  write("b", 3);
  for (const bool is_limited : {false, true}) {
    TestServer server(root, [&](TRITONSERVER_ServerOptions* options) {
      if (!is_limited) return;
      TRITONSERVER_ServerOptionsSetRateLimiterMode(options, TRITONSERVER_RATE_LIMIT_EXEC_COUNT);
      TRITONSERVER_ServerOptionsAddRateLimiterResource(options, "R", 4, -2);
    });
    ASSERT_TRUE(server.started().ok()) << server.started().text;
    TestCall a(server.get(), "a", {kUntilOpen}), b(server.get(), "b", {0});
    ASSERT_TRUE(a.send().ok());
    ASSERT_TRUE(wait_until_held());
    ASSERT_TRUE(b.send().ok());
    if (is_limited) {
      EXPECT_TRUE(wait_until_nothing_runs());
      EXPECT_EQ(b.num_finals(), 0);
    } else {
      EXPECT_TRUE(b.wait());
    }
    EXPECT_EQ(a.num_finals(), 0);
    open_gate();
    EXPECT_TRUE(a.wait() && b.wait());
  }
  TestServer small(root, [](TRITONSERVER_ServerOptions* options) {
    TRITONSERVER_ServerOptionsSetRateLimiterMode(options, TRITONSERVER_RATE_LIMIT_EXEC_COUNT);
    TRITONSERVER_ServerOptionsAddRateLimiterResource(options, "R", 2, -2);
  });
  EXPECT_THAT(small.started().text,
              HasSubstr("Resource count for \"R\" is limited to 2 which will prevent scheduling of "
                        "one or more model instances, the minimum required count is 3"));
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace nereid::server
