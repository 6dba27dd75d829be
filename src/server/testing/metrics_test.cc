// Metrics of models, and custom ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "server/testing/client.h"

namespace nereid::server {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Metrics, CountRequests) {
  TestServer server(
      {{"counted", test_model("identity", "metric_tags { key: \"team\" value: \"x\" }")},
       {"broken", test_model("fail")}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  for (const char* model : {"counted", "counted", "broken"}) {
    TestCall call(server.get(), model, {1});
    ASSERT_TRUE(call.send().ok());
    ASSERT_TRUE(call.wait());
  }
  const std::string text = server.metrics();
  EXPECT_THAT(text, HasSubstr("# TYPE nv_inference_request_success counter"));
  EXPECT_THAT(
      text,
      HasSubstr("nv_inference_request_success{_team=\"x\",model=\"counted\",version=\"1\"} 2"));
  EXPECT_THAT(text,
              HasSubstr("nv_inference_exec_count{_team=\"x\",model=\"counted\",version=\"1\"} 2"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "nv_inference_request_failure{model=\"broken\",reason=\"BACKEND\",version=\"1\"} 1"));
  EXPECT_THAT(text,
              HasSubstr("nv_inference_pending_request_count{model=\"broken\",version=\"1\"} 0"));
}

TEST(Metrics, CustomFamilies) {
  TestServer server({{"m", test_model("identity")}});
  TRITONSERVER_MetricFamily *family = nullptr, *again = nullptr, *other = nullptr;
  ASSERT_TRUE(Outcome(TRITONSERVER_MetricFamilyNew(&family, TRITONSERVER_METRIC_KIND_COUNTER,
                                                   "custom_total", "help"))
                  .ok());
  ASSERT_TRUE(Outcome(TRITONSERVER_MetricFamilyNew(&again, TRITONSERVER_METRIC_KIND_COUNTER,
                                                   "custom_total", "help"))
                  .ok());
  EXPECT_FALSE(Outcome(TRITONSERVER_MetricFamilyNew(&other, TRITONSERVER_METRIC_KIND_GAUGE,
                                                    "custom_total", "help"))
                   .ok());
  EXPECT_FALSE(Outcome(TRITONSERVER_MetricFamilyNew(&other, TRITONSERVER_METRIC_KIND_GAUGE,
                                                    "not a name", "help"))
                   .ok());
  auto* label = TRITONSERVER_ParameterNew("who", TRITONSERVER_PARAMETER_STRING, "me");
  const TRITONSERVER_Parameter* labels[] = {label};
  TRITONSERVER_Metric *metric = nullptr, *same = nullptr;
  ASSERT_TRUE(Outcome(TRITONSERVER_MetricNew(&metric, family, labels, 1)).ok());
  ASSERT_TRUE(Outcome(TRITONSERVER_MetricNew(&same, again, labels, 1)).ok());
  TRITONSERVER_ParameterDelete(label);
  EXPECT_TRUE(Outcome(TRITONSERVER_MetricIncrement(metric, 2)).ok());
  EXPECT_TRUE(Outcome(TRITONSERVER_MetricIncrement(same, 3)).ok());
  EXPECT_EQ(Outcome(TRITONSERVER_MetricIncrement(metric, -1)).code, TRITONSERVER_ERROR_INVALID_ARG);
  EXPECT_EQ(Outcome(TRITONSERVER_MetricSet(metric, 1)).code, TRITONSERVER_ERROR_UNSUPPORTED);
  double value = 0;
  TRITONSERVER_MetricValue(same, &value);
  EXPECT_EQ(value, 5);
  EXPECT_THAT(server.metrics(), HasSubstr("custom_total{who=\"me\"} 5"));
  TRITONSERVER_MetricDelete(metric);
  EXPECT_THAT(server.metrics(), HasSubstr("custom_total{who=\"me\"} 5"));
  TRITONSERVER_MetricFamilyDelete(family);
  TRITONSERVER_MetricFamilyDelete(again);
  EXPECT_FALSE(Outcome(TRITONSERVER_MetricIncrement(same, 1)).ok());  // the family is deleted
  TRITONSERVER_MetricDelete(same);
  EXPECT_THAT(server.metrics(), Not(HasSubstr("custom_total")));
}

TEST(Metrics, Histograms) {
  TestServer server({{"m", test_model("identity")}});
  TRITONSERVER_MetricFamily* family = nullptr;
  TRITONSERVER_MetricFamilyNew(&family, TRITONSERVER_METRIC_KIND_HISTOGRAM, "custom_histogram",
                               "h");
  TRITONSERVER_Metric* metric = nullptr;
  EXPECT_FALSE(Outcome(TRITONSERVER_MetricNew(&metric, family, nullptr, 0)).ok());
  TRITONSERVER_MetricArgs* args = nullptr;
  TRITONSERVER_MetricArgsNew(&args);
  const double falling[] = {2, 1}, rising[] = {1, 10};
  TRITONSERVER_MetricArgsSetHistogram(args, falling, 2);
  EXPECT_FALSE(Outcome(TRITONSERVER_MetricNewWithArgs(&metric, family, nullptr, 0, args)).ok());
  TRITONSERVER_MetricArgsSetHistogram(args, rising, 2);
  ASSERT_TRUE(Outcome(TRITONSERVER_MetricNewWithArgs(&metric, family, nullptr, 0, args)).ok());
  EXPECT_TRUE(Outcome(TRITONSERVER_MetricObserve(metric, 5)).ok());
  EXPECT_THAT(server.metrics(), HasSubstr("custom_histogram_bucket{le=\"10\"} 1"));
  TRITONSERVER_MetricDelete(metric);
  TRITONSERVER_MetricArgsSetHistogram(args, rising, 0);
  ASSERT_TRUE(Outcome(TRITONSERVER_MetricNewWithArgs(&metric, family, nullptr, 0, args)).ok());
  TRITONSERVER_MetricArgsDelete(args);
  EXPECT_TRUE(Outcome(TRITONSERVER_MetricObserve(metric, 5)).ok());
  EXPECT_THAT(server.metrics(), HasSubstr("custom_histogram_bucket{le=\"+Inf\"} 1"));
  TRITONSERVER_MetricDelete(metric);
  TRITONSERVER_MetricFamilyDelete(family);
}

TEST(Metrics, TheFirstDescriptionOfAFamilyStays) {
  TestServer server({{"m", test_model("identity")}});
  TRITONSERVER_MetricFamily *first = nullptr, *second = nullptr, *other = nullptr;
  const auto kind = TRITONSERVER_METRIC_KIND_COUNTER;
  EXPECT_TRUE(Outcome(TRITONSERVER_MetricFamilyNew(&first, kind, "custom_twice", "one")).ok());
  EXPECT_TRUE(Outcome(TRITONSERVER_MetricFamilyNew(&second, kind, "custom_twice", "two")).ok());
  EXPECT_FALSE(Outcome(TRITONSERVER_MetricFamilyNew(&other, TRITONSERVER_METRIC_KIND_GAUGE,
                                                    "custom_twice", "one"))
                   .ok());
  TRITONSERVER_Metric* metric = nullptr;
  EXPECT_TRUE(Outcome(TRITONSERVER_MetricNew(&metric, second, nullptr, 0)).ok());
  TRITONSERVER_MetricFamilyDelete(first);
  EXPECT_THAT(server.metrics(), HasSubstr("# HELP custom_twice one"));
  TRITONSERVER_MetricDelete(metric);
  TRITONSERVER_MetricFamilyDelete(second);
}

TEST(Metrics, OptionsOfTheServer) {
  std::string name = (std::filesystem::temp_directory_path() / "nereid-metrics-XXXXXX").string();
  const std::filesystem::path dir = mkdtemp(name.data());
  std::filesystem::create_directories(dir / "streams" / "1");
  std::ofstream(dir / "streams" / "config.pbtxt")
      << test_model("stream",
                    "model_metrics { metric_control { metric_identifier { family: "
                    "\"nv_inference_first_response_histogram_ms\" } histogram_options { buckets: [ "
                    "60000 ] } } }");
  std::string refused;
  TestServer server(dir, [&](TRITONSERVER_ServerOptions* options) {
    const auto set = [&](const char* setting, const char* value) {
      return Outcome(TRITONSERVER_ServerOptionsSetMetricsConfig(options, "", setting, value));
    };
    EXPECT_TRUE(set("histogram_latencies", "true").ok());
    EXPECT_TRUE(set("summary_latencies", "true").ok());
    refused = set("summary_latency", "true").text;
    TRITONSERVER_ServerOptionsSetCpuMetrics(options, false);
    TRITONSERVER_ServerOptionsSetPinnedMemoryPoolByteSize(options, 12345);
    EXPECT_FALSE(Outcome(TRITONSERVER_ServerOptionsSetMetricsInterval(options, 0)).ok());
  });
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  EXPECT_THAT(refused, HasSubstr("summary_latency"));
  TestCall call(server.get(), "streams", {1, 2});
  ASSERT_TRUE(call.send().ok());
  ASSERT_TRUE(call.wait());
  const std::string text = server.metrics();
  EXPECT_THAT(text, HasSubstr("nv_inference_first_response_histogram_ms_bucket{model=\"streams\","
                              "version=\"1\",le=\"60000\"} 1"));
  EXPECT_THAT(text, HasSubstr("nv_inference_queue_summary_us{model=\"streams\""));
  EXPECT_THAT(text, HasSubstr("nv_pinned_memory_pool_total_bytes 12345"));
  EXPECT_THAT(text, Not(HasSubstr("nv_cpu_utilization")));
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace nereid::server
