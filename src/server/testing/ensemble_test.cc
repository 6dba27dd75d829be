// Ensembles over test models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "nereid/server.h"
#include "server/testing/client.h"
#include "server/testing/gate.h"

namespace nereid::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// IN -> first -> _mid -> second -> OUT
std::string chain(const std::string& first, const std::string& second) {
  const auto step = [](const std::string& model, const std::string& in, const std::string& out) {
    return "{ model_name: \"" + model + "\" model_version: -1 input_map { key: \"IN\" value: \"" +
           in + "\" } output_map { key: \"OUT\" value: \"" + out + "\" } }";
  };
  return "platform: \"ensemble\"\n"
         "input { name: \"IN\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
         "output { name: \"OUT\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
         "ensemble_scheduling { step [ " +
         step(first, "IN", "_mid") + ", " + step(second, "_mid", "OUT") + " ] }\n";
}

// A model of the test backend with tensors [1, n].
std::string row_model() {
  std::string config = test_model("identity");
  for (size_t at = 0; (at = config.find("[ -1 ]", at)) != std::string::npos; at += 8) {
    config.insert(at + 2, "1, ");
  }
  return config;
}

struct Result {
  std::vector<TestReply> replies;
  std::vector<int32_t> joined;
};

Result run(TestServer& server, const std::string& model, const std::vector<int32_t>& values) {
  TestCall call(server.get(), model, values, "e1");
  const Outcome sent = call.send();
  EXPECT_TRUE(sent.ok()) << sent.text;
  EXPECT_TRUE(call.wait());
  EXPECT_EQ(call.num_finals(), 1);
  EXPECT_EQ(call.num_releases(), 1);
  return {call.replies(), call.joined()};
}

TEST(Ensemble, RunsStepsInOrder) {
  TestServer server(
      {{"a", test_model("identity")}, {"b", test_model("identity")}, {"e", chain("a", "b")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  const Result result = run(server, "e", {4, 5});
  EXPECT_THAT(result.joined, ElementsAre(4, 5));
  ASSERT_EQ(result.replies.size(), 1u);
  EXPECT_TRUE(result.replies[0].is_final);
}

TEST(Ensemble, StepsHaveTheTenantOfTheirRequest) {
  TestServer server(
      {{"a", test_model("identity")}, {"b", test_model("tenant")}, {"e", chain("a", "b")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  for (const int32_t tenant : {0, 7}) {
    TestCall call(server.get(), "e", {4, 5});
    NEREID_ServerSetTenant(call.request(), static_cast<uint64_t>(tenant));
    EXPECT_TRUE(call.send().ok());
    EXPECT_TRUE(call.wait());
    EXPECT_THAT(call.joined(), ElementsAre(tenant));
  }
}

std::string statistics_of(TestServer& server, const char* model) {
  TRITONSERVER_Message* message = nullptr;
  TRITONSERVER_ErrorDelete(TRITONSERVER_ServerModelStatistics(server.get(), model, -1, &message));
  return take_text(message);
}

// IN -> a -> OUT, and IN -> b -> _mid -> c -> MORE.
TEST(Ensemble, RunsOnlyTheStepsOfTheOutputsAskedFor) {
  std::string config = chain("b", "c");
  config.insert(config.rfind(" ] }"),
                ", { model_name: \"a\" model_version: -1 input_map { key: \"IN\" value: \"IN\" } "
                "output_map { key: \"OUT\" value: \"MORE\" } }");
  config += "output { name: \"MORE\" data_type: TYPE_INT32 dims: [ -1 ] }\n";
  TestServer server({{"a", test_model("identity")},
                     {"b", test_model("identity")},
                     {"c", test_model("identity")},
                     {"e", config}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  TestCall call(server.get(), "e", {4});
  TRITONSERVER_InferenceRequestAddRequestedOutput(call.request(), "MORE");
  ASSERT_TRUE(call.send().ok());
  ASSERT_TRUE(call.wait());
  ASSERT_EQ(call.replies().size(), 1u);
  EXPECT_EQ(call.replies()[0].code, -1) << call.replies()[0].text;
  EXPECT_THAT(statistics_of(server, "a"), HasSubstr("\"execution_count\":1"));
  EXPECT_THAT(statistics_of(server, "b"), HasSubstr("\"execution_count\":0"));
  EXPECT_THAT(statistics_of(server, "c"), HasSubstr("\"execution_count\":0"));
  run(server, "e", {4});
  EXPECT_THAT(statistics_of(server, "c"), HasSubstr("\"execution_count\":1"));
}

TEST(Ensemble, TakesClassNamesFromTheStepThatMakesAnOutput) {
  namespace fs = std::filesystem;
  std::string name = (fs::temp_directory_path() / "nereid-names-XXXXXX").string();
  const fs::path root = mkdtemp(name.data());
  const auto write = [&](const std::string& model, std::string config, const std::string& names) {
    fs::create_directories(root / model / "1");
    const std::string dims = "dims: [ -1 ]";
    if (!names.empty()) config.insert(config.rfind(dims), "label_filename: \"names.txt\" ");
    std::ofstream(root / model / "config.pbtxt") << config;
    std::ofstream(root / model / "names.txt") << names;
  };
  write("i", test_model("identity"), "a\nb\n");
  write("e", chain("i", "i"), "");
  write("outer", chain("i", "e"), "");
  write("own", chain("i", "i"), "c\n");
  TestServer server(root, [](auto*) {});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  const auto first_class = [&](const char* model) {
    return run(server, model, {4}).replies.at(0).first_class;
  };
  EXPECT_EQ(first_class("e"), "a");
  EXPECT_EQ(first_class("outer"), "a");
  EXPECT_EQ(first_class("own"), "c");
  fs::remove_all(root);
}

TEST(Ensemble, SpendsWhatItsStepsSpend) {
  TestServer server({{"a", test_model("identity")},
                     {"b", test_model("identity")},
                     {"inner", chain("a", "b")},
                     {"e", chain("inner", "b")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  for (int i = 0; i < 5; ++i) run(server, "e", {4, 5});
  const std::string text = statistics_of(server, "e");
  // The test backend reports 1000 ns for each stage of each of the three steps.
  for (const std::string stage : {"compute_input", "compute_infer", "compute_output"}) {
    EXPECT_THAT(text, HasSubstr("\"" + stage + "\":{\"count\":5,\"ns\":15000}"));
  }
}

TEST(Ensemble, StreamsThroughInOrder) {
  TestServer server({{"r", test_model("repeat")},
                     {"alone", test_model("repeat_final_alone")},
                     {"i", test_model("identity", "instance_group [ { count: 4 } ]")},
                     {"e", chain("r", "i")},
                     {"e2", chain("alone", "i")},
                     {"nested", chain("i", "e")},
                     {"twice", chain("r", "alone")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  std::vector<int32_t> values(300);
  std::iota(values.begin(), values.end(), 0);
  for (const char* model : {"e", "e2", "nested", "twice"}) {
    const Result result = run(server, model, values);
    EXPECT_EQ(result.joined, values) << model;
    EXPECT_EQ(result.replies.size(), values.size()) << model;
  }
  uint32_t flags = 0;
  TRITONSERVER_ServerModelTransactionProperties(server.get(), "nested", -1, &flags, nullptr);
  EXPECT_EQ(flags, TRITONSERVER_TXN_DECOUPLED);
  EXPECT_THAT(run(server, "e2", {}).joined, ElementsAre());  // FINAL alone
}

TEST(Ensemble, InputsLiveUntilTheirStepReleasesThem) {
  TestServer server(
      {{"i", test_model("identity")},
       {"r", test_model("repeat")},
       {"late", test_model("read_late")},
       {"fork", test_model("read_late", "model_transaction_policy { decoupled: true }")},
       {"e1", chain("i", "late")},
       {"e2", chain("i", "fork")},
       {"e3", chain("r", "fork")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  std::vector<int32_t> values(100);
  std::iota(values.begin(), values.end(), 0);
  for (const char* model : {"e1", "e2", "e3"}) {
    for (int i = 0; i < 20; ++i) EXPECT_EQ(run(server, model, values).joined, values) << model;
  }
}

TEST(Ensemble, StepErrorsEndTheRequest) {
  TestServer server({{"i", test_model("identity")},
                     {"fail", test_model("fail")},
                     {"fail_after", test_model("fail_after")},
                     {"no_final", test_model("no_final")},
                     {"e1", chain("i", "fail")},
                     {"e2", chain("fail_after", "i")},
                     {"e3", chain("no_final", "i")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  EXPECT_EQ(run(server, "e1", {1}).replies.back().text, "in ensemble 'e1', told to fail");
  const TestReply last = run(server, "e2", {1}).replies.back();
  EXPECT_EQ(last.text, "in ensemble 'e2', second response failed");
  EXPECT_EQ(last.code, TRITONSERVER_ERROR_UNAVAILABLE);
  EXPECT_THAT(run(server, "e3", {1}).replies.back().text, HasSubstr("without a final response"));
  EXPECT_TRUE(Outcome(TRITONSERVER_ServerStop(server.get())).ok());  // nothing is left behind
}

TEST(Ensemble, CancelReachesTheSteps) {
  TestServer server({{"wait", test_model("wait_cancel")},
                     {"i", test_model("identity")},
                     {"e", chain("wait", "i")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  TestCall call(server.get(), "e", {1});
  ASSERT_TRUE(call.send().ok());
  call.cancel();
  ASSERT_TRUE(call.wait());
  EXPECT_EQ(call.replies().back().code, TRITONSERVER_ERROR_CANCELLED);
  EXPECT_EQ(call.num_finals(), 1);
  EXPECT_THAT(
      server.metrics(),
      HasSubstr("nv_inference_request_failure{model=\"e\",reason=\"CANCELED\",version=\"1\"} 1"));
}

TEST(Ensemble, BadOnesAreNamed) {
  const auto error = [](const std::string& ensemble) {
    const std::string more = "input { name: \"P\" data_type: TYPE_INT32 dims: [ -1 ] }";
    return TestServer({{"i", test_model("identity")},
                       {"d", test_model("repeat")},
                       {"two", test_model("identity", more)},
                       {"flat", row_model()},
                       {"e", ensemble}})
        .started()
        .text;
  };
  EXPECT_THAT(error(chain("i", "missing")),
              HasSubstr("ensemble e contains models that are not available or ambiguous: missing"));
  std::string text = chain("i", "i");
  text.replace(text.find("key: \"IN\""), 9, "key: \"NO\"");
  EXPECT_THAT(error(text), HasSubstr("is mapping to non-existing input NO in model i"));
  text = chain("i", "i");
  text.replace(text.find("TYPE_INT32"), 10, "TYPE_FP32");
  EXPECT_THAT(error(text), HasSubstr("inconsistent data type: TYPE_FP32 is inferred from model e"));
  EXPECT_THAT(error(chain("i", "e")),
              HasSubstr("circular dependency between ensembles: e -> ... -> e -> e"));
  EXPECT_EQ(error(chain("i", "d")), "");
  text = chain("flat", "flat");
  EXPECT_THAT(error(text), HasSubstr("inconsistent shape: [-1] is inferred from model e"));
  for (size_t at = 0; (at = text.find("dims: [ -1 ]", at)) != std::string::npos; at += 12) {
    text.insert(at + 12, " reshape { shape: [ 1, -1 ] }");
  }
  EXPECT_EQ(error(text), "") << "what runs through it has the shape of the reshape";
  EXPECT_THAT(
      error(chain("i", "two")),
      HasSubstr("in ensemble e, input P in model two is not mapped to any ensemble tensors"));
  // First the outputs are of two streams, then a step's inputs.
  for (const std::string& taker : {std::string("e"), std::string("two")}) {
    text = chain("d", "i");
    text.insert(text.rfind(" ] }"),
                ", { model_name: \"i\" model_version: -1 input_map { key: \"IN\" value: \"IN\" } "
                "output_map { key: \"OUT\" value: \"MORE\" } }");
    if (taker == "two") {
      text.insert(text.rfind(" ] }"),
                  ", { model_name: \"two\" model_version: -1 "
                  "input_map { key: \"IN\" value: \"MORE\" } "
                  "input_map { key: \"P\" value: \"OUT\" } "
                  "output_map { key: \"OUT\" value: \"MOST\" } }");
      text += "output { name: \"MOST\" data_type: TYPE_INT32 dims: [ -1 ] }\n";
    } else {
      text += "output { name: \"MORE\" data_type: TYPE_INT32 dims: [ -1 ] }\n";
    }
    EXPECT_THAT(error(text), HasSubstr("in ensemble e, step of model '" + taker +
                                       "' receives inputs originated from different decoupled "
                                       "models"));
  }
  EXPECT_THAT(error(chain("i", "d") + "response_cache { enable: true }"),
              HasSubstr("Response Cache does not currently support ensemble e with a decoupled"));
}

// The source counts its lead over the sink when it sends.
TEST(Ensemble, AFastProducerWaitsForRoom) {
  std::string bounded = chain("source", "sink");
  bounded.insert(bounded.find("step ["), "max_inflight_requests: 3 ");
  TestServer server({{"source", test_model("lag_source")},
                     {"sink", test_model("lag_sink")},
                     {"free", chain("source", "sink")},
                     {"bounded", bounded}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  const auto most_ahead = [&](const char* model, const std::function<bool()>& is_far_enough) {
    TestCall call(server.get(), model, {40});
    EXPECT_TRUE(call.send().ok());
    EXPECT_TRUE(wait_until_held());
    EXPECT_TRUE(eventually(is_far_enough));
    open_gate();
    EXPECT_TRUE(call.wait());
    const std::vector<int32_t> joined = call.joined();
    EXPECT_EQ(joined.size(), 80u);
    int32_t most = 0;
    for (size_t i = 1; i < joined.size(); i += 2) most = std::max(most, joined[i]);
    return most;
  };
  EXPECT_EQ(most_ahead("free", [] { return num_sent() == 40; }), 40);
  EXPECT_LE(most_ahead("bounded", wait_until_nothing_runs), 4);
}

TEST(Ensemble, AProducerThatWaitsSeesTheCancel) {
  std::string bounded = chain("source", "stuck");
  bounded.insert(bounded.find("step ["), "max_inflight_requests: 2 ");
  TestServer server(
      {{"source", test_model("lag_source")}, {"stuck", test_model("wait_cancel")}, {"e", bounded}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  TestCall call(server.get(), "e", {1000});
  ASSERT_TRUE(call.send().ok());
  ASSERT_TRUE(eventually([] { return num_sent() > 0; }));
  ASSERT_TRUE(wait_until_nothing_runs());  // waits with the second response
  call.cancel();
  EXPECT_TRUE(call.wait());
  EXPECT_EQ(call.replies().back().code, TRITONSERVER_ERROR_CANCELLED);
}

}  // namespace
}  // namespace nereid::server
