// Traces through the C API: activities, tensors, children, ownership.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "server/testing/client.h"

namespace nereid::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::UnorderedElementsAre;

constexpr auto kTimestamps = TRITONSERVER_TRACE_LEVEL_TIMESTAMPS;
constexpr auto kAll = static_cast<TRITONSERVER_InferenceTraceLevel>(
    TRITONSERVER_TRACE_LEVEL_TIMESTAMPS | TRITONSERVER_TRACE_LEVEL_TENSORS);

// Records the reports of one root trace and its children.
class Recorder {
 public:
  struct Seen {
    std::string model, request_id;
    uint64_t parent = 0;
    std::vector<std::string> events;
    std::vector<uint64_t> times;
    std::vector<std::string> tensors;  // ACTIVITY name[shape] first value
    bool released = false;
  };

  TRITONSERVER_InferenceTrace* make(TRITONSERVER_InferenceTraceLevel level) {
    TRITONSERVER_InferenceTrace* trace = nullptr;
    const Outcome made(TRITONSERVER_InferenceTraceTensorNew(&trace, level, 0, on_activity,
                                                            on_tensor, on_release, this));
    EXPECT_TRUE(made.ok()) << made.text;
    return trace;
  }

  // Waits until the root is released; false after a minute.
  bool wait(uint64_t root) {
    return eventually([&] {
      std::lock_guard lock(mutex_);
      return seen_[root].released;
    });
  }
  std::map<uint64_t, Seen> seen() {
    std::lock_guard lock(mutex_);
    return seen_;
  }
  std::vector<uint64_t> released() {
    std::lock_guard lock(mutex_);
    return released_;
  }

 private:
  static uint64_t id_of(TRITONSERVER_InferenceTrace* trace) {
    uint64_t id = 0;
    TRITONSERVER_InferenceTraceId(trace, &id);
    return id;
  }

  static void on_activity(TRITONSERVER_InferenceTrace* trace,
                          TRITONSERVER_InferenceTraceActivity activity, uint64_t ns, void* self) {
    auto* recorder = static_cast<Recorder*>(self);
    std::lock_guard lock(recorder->mutex_);
    Seen& seen = recorder->seen_[id_of(trace)];
    const char* text = nullptr;
    TRITONSERVER_InferenceTraceModelName(trace, &text);
    seen.model = text;
    TRITONSERVER_InferenceTraceRequestId(trace, &text);
    seen.request_id = text;
    TRITONSERVER_InferenceTraceParentId(trace, &seen.parent);
    std::string name = TRITONSERVER_InferenceTraceActivityString(activity);
    if (activity == TRITONSERVER_TRACE_CUSTOM_ACTIVITY) {
      TRITONSERVER_InferenceTraceContext(trace, &text);
      name = text;
    }
    seen.events.push_back(name);
    seen.times.push_back(ns);
  }

  static void on_tensor(TRITONSERVER_InferenceTrace* trace,
                        TRITONSERVER_InferenceTraceActivity activity, const char* name,
                        TRITONSERVER_DataType, const void* base, size_t byte_size,
                        const int64_t* shape, uint64_t dim_count, TRITONSERVER_MemoryType, int64_t,
                        void* self) {
    auto* recorder = static_cast<Recorder*>(self);
    std::lock_guard lock(recorder->mutex_);
    std::string text = std::string(TRITONSERVER_InferenceTraceActivityString(activity)) + " " +
                       name + "[" + std::to_string(dim_count == 1 ? shape[0] : -1) + "]";
    if (byte_size >= 4) text += " " + std::to_string(*static_cast<const int32_t*>(base));
    recorder->seen_[id_of(trace)].tensors.push_back(text);
  }

  static void on_release(TRITONSERVER_InferenceTrace* trace, void* self) {
    auto* recorder = static_cast<Recorder*>(self);
    {
      std::lock_guard lock(recorder->mutex_);
      recorder->seen_[id_of(trace)].released = true;
      recorder->released_.push_back(id_of(trace));
    }
    TRITONSERVER_InferenceTraceDelete(trace);
  }

  std::mutex mutex_;
  std::map<uint64_t, Seen> seen_;
  std::vector<uint64_t> released_;
};

uint64_t id_of(TRITONSERVER_InferenceTrace* trace) {
  uint64_t id = 0;
  TRITONSERVER_InferenceTraceId(trace, &id);
  return id;
}

TEST(Trace, TimesOfARequestInOrder) {
  TestServer server({{"m", test_model("identity")}});
  Recorder recorder;
  auto* trace = recorder.make(kTimestamps);
  const uint64_t id = id_of(trace);
  EXPECT_GT(id, 0u);
  TestCall call(server.get(), "m", {7, 8}, "r1");
  ASSERT_TRUE(call.send(trace).ok());
  ASSERT_TRUE(call.wait());
  ASSERT_TRUE(recorder.wait(id));
  const auto seen = recorder.seen().at(id);
  EXPECT_EQ(seen.model, "m");
  EXPECT_EQ(seen.request_id, "r1");
  EXPECT_EQ(seen.parent, 0u);
  EXPECT_THAT(seen.events, ElementsAre("REQUEST_START", "QUEUE_START", "{\"1500\":\"own_event\"}",
                                       "COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START",
                                       "COMPUTE_END", "REQUEST_END"));
  // The backend's times are passed on unchanged.
  EXPECT_THAT(std::vector(seen.times.begin() + 2, seen.times.end() - 1),
              ElementsAre(1500, 1000, 2000, 3000, 4000));
  EXPECT_LE(seen.times[0], seen.times[1]);
  EXPECT_LE(seen.times[1], seen.times.back());
  EXPECT_THAT(seen.tensors, IsEmpty());
}

TEST(Trace, Tensors) {
  TestServer server({{"m", test_model("repeat")}});
  Recorder recorder;
  auto* trace = recorder.make(kAll);
  const uint64_t id = id_of(trace);
  TestCall call(server.get(), "m", {7, 8});
  ASSERT_TRUE(call.send(trace).ok());
  ASSERT_TRUE(call.wait());
  ASSERT_TRUE(recorder.wait(id));
  EXPECT_THAT(recorder.seen().at(id).tensors,
              ElementsAre("TENSOR_QUEUE_INPUT IN[2] 7", "TENSOR_BACKEND_OUTPUT OUT[1] 7",
                          "TENSOR_BACKEND_OUTPUT OUT[1] 8"));
  EXPECT_THAT(recorder.seen().at(id).events, SizeIs(8));
}

TEST(Trace, LevelOfTensorsAloneHasNoTimes) {
  TestServer server({{"m", test_model("identity")}});
  Recorder recorder;
  auto* trace = recorder.make(TRITONSERVER_TRACE_LEVEL_TENSORS);
  const uint64_t id = id_of(trace);
  TestCall call(server.get(), "m", {7});
  ASSERT_TRUE(call.send(trace).ok());
  ASSERT_TRUE(call.wait());
  ASSERT_TRUE(recorder.wait(id));
  EXPECT_THAT(recorder.seen().at(id).events, IsEmpty());
  EXPECT_THAT(recorder.seen().at(id).tensors, SizeIs(2));
}

TEST(Trace, StepsOfAnEnsembleAreChildren) {
  TestServer server(
      {{"a", test_model("identity")},
       {"b", test_model("repeat")},
       {"e",
        "platform: \"ensemble\"\n"
        "input { name: \"IN\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
        "output { name: \"OUT\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
        "ensemble_scheduling { step [ { model_name: \"a\" model_version: -1"
        " input_map { key: \"IN\" value: \"IN\" } output_map { key: \"OUT\" value: \"t\" } },"
        " { model_name: \"b\" model_version: -1"
        " input_map { key: \"IN\" value: \"t\" } output_map { key: \"OUT\" value: \"OUT\" } } ] "
        "}"}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  Recorder recorder;
  auto* trace = recorder.make(kTimestamps);
  const uint64_t root = id_of(trace);
  TestCall call(server.get(), "e", {1, 2, 3}, "q");
  ASSERT_TRUE(call.send(trace).ok());
  ASSERT_TRUE(call.wait());
  ASSERT_TRUE(recorder.wait(root));
  const auto seen = recorder.seen();
  ASSERT_THAT(seen, SizeIs(3));
  std::vector<std::string> children;
  for (const auto& [id, one] : seen) {
    EXPECT_TRUE(one.released);
    EXPECT_EQ(one.request_id, "q");
    if (id == root) continue;
    EXPECT_EQ(one.parent, root);
    children.push_back(one.model);
  }
  EXPECT_THAT(children, UnorderedElementsAre("a", "b"));
  EXPECT_THAT(seen.at(root).events, ElementsAre("REQUEST_START", "QUEUE_START", "REQUEST_END"));
  EXPECT_EQ(recorder.released().back(), root);
}

TEST(Trace, ParentIsReleasedAfterItsChild) {
  TestServer server({{"m", test_model("identity")}});
  Recorder recorder;
  auto* trace = recorder.make(kTimestamps);
  const uint64_t root = id_of(trace);
  TRITONSERVER_InferenceTrace *child = nullptr, *unused = nullptr;
  TRITONSERVER_InferenceTraceSpawnChildTrace(trace, &child);
  TRITONSERVER_InferenceTraceSpawnChildTrace(trace, &unused);
  const uint64_t child_id = id_of(child);
  TestCall parent(server.get(), "m", {1});
  ASSERT_TRUE(parent.send(trace).ok());
  ASSERT_TRUE(parent.wait());
  EXPECT_THAT(recorder.released(), IsEmpty());
  TestCall nested(server.get(), "m", {2});
  ASSERT_TRUE(nested.send(child).ok());
  ASSERT_TRUE(nested.wait());
  TRITONSERVER_InferenceTraceDelete(unused);
  ASSERT_TRUE(recorder.wait(root));
  EXPECT_THAT(recorder.released(), ElementsAre(child_id, root));
  EXPECT_EQ(recorder.seen().at(child_id).parent, root);
}

TEST(Trace, OfARefusedRequestStaysTheCallers) {
  TestServer server({{"m", test_model("identity")}});
  Recorder recorder;
  auto* trace = recorder.make(kTimestamps);
  TestCall call(server.get(), "m", {1}, "", /*batched=*/true);  // wrong shape
  EXPECT_FALSE(call.send(trace).ok());
  EXPECT_THAT(recorder.released(), IsEmpty());
  TestCall good(server.get(), "m", {1});
  const uint64_t id = id_of(trace);
  ASSERT_TRUE(good.send(trace).ok());
  ASSERT_TRUE(good.wait());
  EXPECT_TRUE(recorder.wait(id));
}

TEST(Trace, ContextAndBadArguments) {
  Recorder recorder;
  auto* trace = recorder.make(kTimestamps);
  TRITONSERVER_InferenceTraceSetContext(trace, "{\"traceparent\":\"00-1\"}");
  TRITONSERVER_InferenceTraceReportActivity(trace, 5, "X\"Y");
  const char* text = nullptr;
  TRITONSERVER_InferenceTraceContext(trace, &text);
  EXPECT_STREQ(text, "{\"traceparent\":\"00-1\",\"5\":\"X\\\"Y\"}");
  TRITONSERVER_InferenceTraceDelete(trace);
  const Outcome no_release(
      TRITONSERVER_InferenceTraceNew(&trace, kTimestamps, 0, nullptr, nullptr, nullptr));
  EXPECT_EQ(no_release.code, TRITONSERVER_ERROR_INVALID_ARG);
  EXPECT_THAT(no_release.text, HasSubstr("release_fn"));
}

}  // namespace
}  // namespace nereid::server
