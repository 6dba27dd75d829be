// Life cycle, queries, validation and the rule of exactly one final response.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "server/testing/client.h"
#include "server/testing/gate.h"

namespace nereid::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Server, AnswersQuestions) {
  TestServer server({{"echo", test_model("identity")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  bool yes = false;
  TRITONSERVER_ServerIsLive(server.get(), &yes);
  EXPECT_TRUE(yes);
  TRITONSERVER_ServerIsReady(server.get(), &yes);
  EXPECT_TRUE(yes);
  TRITONSERVER_ServerModelIsReady(server.get(), "echo", -1, &yes);
  EXPECT_TRUE(yes);
  TRITONSERVER_Message* message = nullptr;
  TRITONSERVER_ServerModelMetadata(server.get(), "echo", -1, &message);
  EXPECT_EQ(take_text(message),
            R"({"name":"echo","versions":["1"],"platform":"nereid_test","inputs":[{"name":"IN",)"
            R"("datatype":"INT32","shape":[-1]}],"outputs":[{"name":"OUT","datatype":"INT32",)"
            R"("shape":[-1]}]})");
  TRITONSERVER_ServerModelConfig(server.get(), "echo", 1, 1, &message);
  const std::string config = take_text(message);
  EXPECT_THAT(config, HasSubstr(R"("dims":[-1])"));
  EXPECT_THAT(config, HasSubstr(R"("version_policy":{"latest":{"num_versions":1}})"));
  EXPECT_THAT(config, HasSubstr(R"("kind":"KIND_CPU")"));
  TRITONSERVER_ServerModelIndex(server.get(), 0, &message);
  EXPECT_EQ(take_text(message), R"([{"name":"echo","version":"1","state":"READY"}])");
  TRITONSERVER_ServerMetadata(server.get(), &message);
  EXPECT_THAT(take_text(message), HasSubstr(R"("name":"triton")"));
}

TEST(Server, RunsARequest) {
  TestServer server({{"echo", test_model("identity", "instance_group [ { count: 3 } ]")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  TestCall call(server.get(), "echo", {1, 2, 3}, "my-id");
  ASSERT_TRUE(call.send().ok());
  ASSERT_TRUE(call.wait());
  EXPECT_THAT(call.joined(), ElementsAre(1, 2, 3));
  EXPECT_EQ(call.num_finals(), 1);
  EXPECT_EQ(call.num_releases(), 1);
  EXPECT_TRUE(call.replies()[0].is_final);
}

TEST(Server, NamesUnknownModels) {
  TestServer server({{"echo", test_model("identity")}});
  EXPECT_EQ(TestCall(server.get(), "nope", {1}).created.text,
            "Request for unknown model: 'nope' is not found");
  TRITONSERVER_InferenceRequest* request = nullptr;
  const Outcome wrong(TRITONSERVER_InferenceRequestNew(&request, server.get(), "echo", 7));
  EXPECT_EQ(wrong.text, "Request for unknown model: 'echo' version 7 is not found");
  EXPECT_EQ(wrong.code, TRITONSERVER_ERROR_NOT_FOUND);
}

// Backends multiply dimensions.
TEST(Server, NoDimensionsOverflowWhereAnotherIsZero) {
  const std::string config =
      "backend: \"nereid_test\"\n"
      "input { name: \"IN\" data_type: TYPE_INT32 dims: [ -1, -1, -1 ] }\n"
      "output { name: \"OUT\" data_type: TYPE_INT32 dims: [ -1 ] }\n";
  const TestServer server({{"m", config}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  TestCall call(server.get(), "m", {});
  const int64_t shape[] = {0, int64_t{1} << 31, int64_t{1} << 32};
  TRITONSERVER_ErrorDelete(TRITONSERVER_InferenceRequestRemoveInput(call.request(), "IN"));
  TRITONSERVER_InferenceRequestAddInput(call.request(), "IN", TRITONSERVER_TYPE_INT32, shape, 3);
  EXPECT_THAT(call.send().text, HasSubstr("too many elements: [0,2147483648,4294967296]"));
}

TEST(Server, ValidatesInputs) {
  const std::string config =
      "backend: \"nereid_test\" max_batch_size: 4\n"
      "input [ { name: \"IN\" data_type: TYPE_INT32 dims: [ 2 ] },\n"
      "        { name: \"S\" data_type: TYPE_STRING dims: [ 1 ] optional: true } ]\n"
      "output { name: \"OUT\" data_type: TYPE_INT32 dims: [ -1 ] }\n";
  TestServer server({{"m", config}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  TestCall call(server.get(), "m", {1, 2});
  auto* r = call.request();
  const auto replace = [&](const char* name, TRITONSERVER_DataType type, std::vector<int64_t> shape,
                           const std::string& bytes) {
    TRITONSERVER_ErrorDelete(TRITONSERVER_InferenceRequestRemoveInput(r, name));
    TRITONSERVER_InferenceRequestAddInput(r, name, type, shape.data(), shape.size());
    TRITONSERVER_InferenceRequestAppendInputData(r, name, bytes.data(), bytes.size(),
                                                 TRITONSERVER_MEMORY_CPU, 0);
    return call.send().text;
  };
  const std::string eight(8, '\0');
  EXPECT_THAT(replace("IN", TRITONSERVER_TYPE_INT32, {2}, eight),
              HasSubstr("unexpected shape for input 'IN' for model 'm'. Expected [-1,2], got [2]"));
  EXPECT_THAT(replace("IN", TRITONSERVER_TYPE_FP32, {1, 2}, eight),
              HasSubstr("inference input 'IN' data-type is 'FP32', but model 'm' expects 'INT32'"));
  EXPECT_THAT(replace("IN", TRITONSERVER_TYPE_INT32, {5, 2}, std::string(40, '\0')),
              HasSubstr("inference request batch-size must be <= 4 for 'm'"));
  EXPECT_THAT(
      replace("IN", TRITONSERVER_TYPE_INT32, {1, 2}, "abc"),
      HasSubstr("input byte size mismatch for input 'IN' for model 'm'. Expected 8, got 3"));
  EXPECT_THAT(replace("IN", TRITONSERVER_TYPE_INT32, {}, ""), HasSubstr("has no shape"));
  EXPECT_THAT(replace("IN", TRITONSERVER_TYPE_INT32, {1, -2}, eight), HasSubstr("negative"));
  EXPECT_THAT(replace("IN", TRITONSERVER_TYPE_INT32, {1, INT64_MAX}, eight),
              HasSubstr("unexpected shape"));
  replace("IN", TRITONSERVER_TYPE_INT32, {1, 2}, eight);
  ASSERT_TRUE(call.wait());
  TestCall strings(server.get(), "m", {});
  r = strings.request();
  const int64_t shape[] = {1, 2};
  TRITONSERVER_ErrorDelete(TRITONSERVER_InferenceRequestRemoveInput(r, "IN"));
  EXPECT_THAT(strings.send().text, HasSubstr("but got 0 inputs for model 'm'"));
  TRITONSERVER_InferenceRequestAddInput(r, "IN", TRITONSERVER_TYPE_INT32, shape, 2);
  TRITONSERVER_InferenceRequestAppendInputData(r, "IN", eight.data(), 8, TRITONSERVER_MEMORY_CPU,
                                               0);
  const int64_t one[] = {1, 1};
  TRITONSERVER_InferenceRequestAddInput(r, "S", TRITONSERVER_TYPE_BYTES, one, 2);
  const std::string broken("\xff\x00\x00\x00hi", 6);
  TRITONSERVER_InferenceRequestAppendInputData(r, "S", broken.data(), broken.size(),
                                               TRITONSERVER_MEMORY_CPU, 0);
  EXPECT_THAT(strings.send().text, HasSubstr("incomplete string data"));
}

TEST(Server, StreamsAndFinishesOnce) {
  TestServer server(
      {{"with_last", test_model("repeat")}, {"alone", test_model("repeat_final_alone")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  for (const char* model : {"with_last", "alone"}) {
    TestCall call(server.get(), model, {5, 6, 7});
    ASSERT_TRUE(call.send().ok());
    ASSERT_TRUE(call.wait());
    EXPECT_THAT(call.joined(), ElementsAre(5, 6, 7));
    EXPECT_EQ(call.num_finals(), 1);
  }
}

// Whatever a backend does wrong, the client gets exactly one final response.
TEST(Server, MisbehavingBackendsStillEndRequests) {
  TestServer server({{"fail", test_model("fail")},
                     {"no_final", test_model("no_final")},
                     {"final_twice", test_model("final_twice")},
                     {"fail_after", test_model("fail_after")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  const auto last = [&](const char* model) {
    TestCall call(server.get(), model, {1});
    EXPECT_TRUE(call.send().ok());
    EXPECT_TRUE(call.wait()) << model;
    EXPECT_EQ(call.num_finals(), 1) << model;
    EXPECT_EQ(call.num_releases(), 1) << model;
    return call.replies().back();
  };
  EXPECT_EQ(last("fail").text, "told to fail");
  EXPECT_THAT(last("no_final").text, HasSubstr("without a final response"));
  EXPECT_EQ(last("final_twice").out, std::vector<int32_t>{1});
  EXPECT_EQ(last("fail_after").text, "second response failed");
}

TEST(Server, CancelReachesBackendsAndQueues) {
  TestServer server({{"wait", test_model("wait_cancel")}, {"slow", test_model("slow")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  TestCall running(server.get(), "wait", {1});
  ASSERT_TRUE(running.send().ok());
  running.cancel();
  ASSERT_TRUE(running.wait());
  EXPECT_EQ(running.replies()[0].code, TRITONSERVER_ERROR_CANCELLED);
  TestCall first(server.get(), "slow", {kUntilOpen}), queued(server.get(), "slow", {1});
  ASSERT_TRUE(first.send().ok());
  ASSERT_TRUE(wait_until_held());
  ASSERT_TRUE(queued.send().ok());
  queued.cancel();
  ASSERT_TRUE(queued.wait());
  EXPECT_EQ(queued.replies()[0].code, TRITONSERVER_ERROR_CANCELLED);
  open_gate();
  ASSERT_TRUE(first.wait());
  EXPECT_THAT(first.joined(), ElementsAre(kUntilOpen));
}

TEST(Server, FullQueueIsUnavailable) {
  TestServer server(
      {{"slow", test_model("slow",
                           "max_batch_size: 0\n"
                           "dynamic_batching { default_queue_policy { max_queue_size: 1 } }")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  TestCall a(server.get(), "slow", {kUntilOpen}), b(server.get(), "slow", {1}),
      c(server.get(), "slow", {1}, "c");
  ASSERT_TRUE(a.send().ok());
  ASSERT_TRUE(wait_until_held());
  ASSERT_TRUE(b.send().ok());
  const Outcome refused = c.send();
  EXPECT_EQ(refused.code, TRITONSERVER_ERROR_UNAVAILABLE);
  EXPECT_EQ(refused.text, "[request id: c] Exceeds maximum queue size");
  open_gate();
  EXPECT_TRUE(a.wait());
  EXPECT_TRUE(b.wait());
  EXPECT_EQ(c.num_releases(), 0);
}

TEST(Server, StopDrainsAndRefuses) {
  TestServer server({{"slow", test_model("slow")}});
  TestCall call(server.get(), "slow", {200});
  ASSERT_TRUE(call.send().ok());
  EXPECT_TRUE(Outcome(TRITONSERVER_ServerStop(server.get())).ok());
  EXPECT_TRUE(call.wait());
  EXPECT_THAT(call.joined(), ElementsAre(200));
  TestCall late(server.get(), "slow", {1});
  EXPECT_THAT(late.send().text, HasSubstr("Server is stopping"));
}

TEST(Server, StopSaysWhatItWaitsFor) {
  std::string name = (std::filesystem::temp_directory_path() / "nereid-log-XXXXXX").string();
  const std::filesystem::path dir = mkdtemp(name.data());
  const auto log_says = [&](const std::string& what) {
    std::stringstream log;
    log << std::ifstream(dir / "log").rdbuf();
    return log.str().find(what) != std::string::npos;
  };
  TestServer server({{"slow", test_model("slow")}}, 60);
  set_log_file(dir / "log");
  TestCall call(server.get(), "slow", {kUntilOpen});
  ASSERT_TRUE(call.send().ok());
  ASSERT_TRUE(wait_until_held());
  std::thread stopper([&] { EXPECT_TRUE(Outcome(TRITONSERVER_ServerStop(server.get())).ok()); });
  EXPECT_TRUE(eventually([&] {
    return log_says("Timeout 60: Found 1 model versions that have in-flight inferences");
  }));
  EXPECT_TRUE(
      eventually([&] { return log_says("'slow' (version 1) has 1 in-flight inferences"); }));
  EXPECT_TRUE(eventually([&] { return log_says("Timeout 59: Found 1 model versions"); }));
  open_gate();
  stopper.join();
  EXPECT_TRUE(call.wait());
  set_log_file("");
  std::filesystem::remove_all(dir);
}

TEST(Server, ABackendsExceptionIsAnError) {
  TestServer server({{"early", test_model("throw")}, {"late", test_model("throw_late")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  for (int i = 0; i < 2; ++i) {  // the instance goes on
    TestCall early(server.get(), "early", {1}), late(server.get(), "late", {2});
    ASSERT_TRUE(early.send().ok());
    ASSERT_TRUE(late.send().ok());
    ASSERT_TRUE(early.wait());
    ASSERT_TRUE(late.wait());
    EXPECT_EQ(early.replies().at(0).code, TRITONSERVER_ERROR_INTERNAL);
    EXPECT_EQ(early.replies()[0].text, "the backend threw an exception: told to throw");
    EXPECT_THAT(late.joined(), ElementsAre(2));
    EXPECT_EQ(late.num_releases(), 1);
  }
  EXPECT_THAT(TestServer({{"m", test_model("init_throw")}}).started().text,
              HasSubstr("the backend threw an exception: told to throw"));
}

// Many names are looked up by hash.
TEST(Server, ManyInputsOfARequest) {
  TestServer server({{"echo", test_model("identity")}});
  TestCall call(server.get(), "echo", {1});
  const int64_t shape[] = {1};
  const auto add = [&](const std::string& name) {
    return Outcome(TRITONSERVER_InferenceRequestAddInput(call.request(), name.c_str(),
                                                         TRITONSERVER_TYPE_INT32, shape, 1));
  };
  for (int i = 0; i < 40; ++i) {
    EXPECT_TRUE(add("i" + std::to_string(i)).ok());
    EXPECT_THAT(add("i" + std::to_string(i / 2)).text, HasSubstr("already exists"));
  }
  EXPECT_TRUE(Outcome(TRITONSERVER_InferenceRequestRemoveInput(call.request(), "i7")).ok());
  EXPECT_THAT(add("i8").text, HasSubstr("already exists"));
  EXPECT_TRUE(add("i7").ok());
  EXPECT_THAT(add("i7").text, HasSubstr("already exists"));
  for (int i = 0; i < 40; ++i) {
    const std::string name = "i" + std::to_string(i);
    EXPECT_TRUE(
        Outcome(TRITONSERVER_InferenceRequestRemoveInput(call.request(), name.c_str())).ok());
  }
  ASSERT_TRUE(call.send().ok());
  EXPECT_TRUE(call.wait());
  EXPECT_THAT(call.joined(), ElementsAre(1));
}

TEST(Server, ModelsUnloadSideBySide) {
  constexpr int kModels = 20;
  std::vector<std::pair<std::string, std::string>> models;
  for (int i = 0; i < kModels; ++i) {
    models.emplace_back("m" + std::to_string(i), test_model("finalize_slowly"));
  }
  TestServer server(models, 120);
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  std::thread stopper([&] { EXPECT_TRUE(Outcome(TRITONSERVER_ServerStop(server.get())).ok()); });
  EXPECT_TRUE(wait_until_held(kModels));
  open_gate();
  stopper.join();
}

TEST(Server, ABackendThatKeepsItsModelHitsTheExitTimeout) {
  // Leaked on purpose, as in the next test.
  static TestServer* volatile server;
  server = new TestServer({{"slow", test_model("finalize_slowly")}}, 1);
  const Outcome stop(TRITONSERVER_ServerStop(server->get()));
  EXPECT_EQ(stop.text, "Exit timeout expired. Exiting immediately.");
  EXPECT_TRUE(wait_until_held());
  open_gate();
}

// The test is about the leaked request's memory.
TEST(Server, LeakedRequestHitsTheExitTimeout) {
  auto* server = new TestServer({{"leak", test_model("leak")}}, 1);
  auto* call = new TestCall(server->get(), "leak", {1});
  ASSERT_TRUE(call->send().ok());
  const Outcome stop(TRITONSERVER_ServerStop(server->get()));
  EXPECT_EQ(stop.text, "Exit timeout expired. Exiting immediately.");
  // Reachable for the leak checker; volatile, since nothing reads it.
  static void* volatile kept[2];
  kept[0] = server;
  kept[1] = call;
  EXPECT_NE(kept[0], kept[1]);
}

// The stock Python backend may leak one when execute() raises.
TEST(Server, LeakedResponseFactoriesDoNotHoldUpTheStop) {
  static TestServer* volatile server;  // the leaked factory refers to it
  server = new TestServer({{"leak", test_model("leak_factory")}}, 120);
  TestCall call(server->get(), "leak", {1});
  ASSERT_TRUE(call.send().ok());
  ASSERT_TRUE(call.wait());
  EXPECT_THAT(call.joined(), ElementsAre(1));
  const Outcome stop(TRITONSERVER_ServerStop(server->get()));
  EXPECT_TRUE(stop.ok()) << stop.text;
}

TEST(Server, BadModelsAreNamed) {
  const auto error = [](const std::string& name, const std::string& config) {
    return TestServer({{name, config}}).started().text;
  };
  EXPECT_THAT(error("m", "backend: \"nereid_test\"\nmax_batch_size: x\n"),
              HasSubstr("config.pbtxt:2:17:"));
  EXPECT_THAT(error("m", "backend: \"nope\""),
              HasSubstr("unable to find backend library for backend 'nope'"));
  for (const char* platform : {"tensorflow_graphdef", "tensorflow_savedmodel"}) {
    EXPECT_THAT(error("m", std::string("platform: \"") + platform + "\""),
                HasSubstr("unable to find backend library for backend 'tensorflow'"));
  }
  EXPECT_THAT(error("m", "backend: \"nereid_test\" runtime: \"other\""),
              HasSubstr("unable to find backend library 'other' for model 'm', searched: '"));
  EXPECT_THAT(error("m", test_model("init_fail")), HasSubstr("told not to initialize"));
  for (const char* file : {"/etc/passwd", "../labels", "a/../../labels"}) {
    const std::string config = std::string("backend: \"nereid_test\" ") +
                               "input [ { name: \"IN\" data_type: TYPE_INT32 dims: [ -1 ] } ] " +
                               "output [ { name: \"OUT\" data_type: TYPE_INT32 dims: [ -1 ] " +
                               "label_filename: \"" + file + "\" } ]";
    EXPECT_THAT(error("m", config), HasSubstr("must be below the model's folder")) << file;
  }
  TestServer lenient({{"good", test_model("identity")}, {"bad", std::string("name: \"other\"")}},
                     10, false);
  ASSERT_TRUE(lenient.started().ok());
  bool ready = true;
  TRITONSERVER_ServerIsReady(lenient.get(), &ready);
  EXPECT_TRUE(ready);  // an unreadable model is ignored, as in the stock server
  TRITONSERVER_ServerModelIsReady(lenient.get(), "good", -1, &ready);
  EXPECT_TRUE(ready);
}

}  // namespace
}  // namespace nereid::server
