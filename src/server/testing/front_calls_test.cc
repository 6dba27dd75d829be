// Front ends' less common calls: requests, metrics, repositories and options.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

#include "server/testing/client.h"
#include "server/testing/probe.h"

namespace nereid::server {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kProbe =
    "backend: \"nereid_probe\"\n"
    "input { name: \"IN\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
    "output { name: \"OUT\" data_type: TYPE_INT32 dims: [ -1 ] }\n";

const std::string kNineLevels =
    "dynamic_batching { priority_levels: 9 default_priority_level: 2 }\n";

TEST(FrontCalls, APriorityIsOneOfTheModelsLevels) {
  constexpr uint64_t kUnset = 99, kWide = uint64_t{1} << 40;
  const auto said = [](TestServer& server, const char* model, uint64_t wanted) {
    TRITONSERVER_InferenceRequest* r = nullptr;
    TRITONSERVER_InferenceRequestNew(&r, server.get(), model, -1);
    uint64_t wide = 77;
    if (wanted != kUnset) {
      EXPECT_TRUE(Outcome(TRITONSERVER_InferenceRequestSetPriorityUInt64(r, wanted)).ok());
    }
    EXPECT_TRUE(Outcome(TRITONSERVER_InferenceRequestPriorityUInt64(r, &wide)).ok());
    uint32_t narrow = 0;
    const Outcome out(TRITONSERVER_InferenceRequestPriority(r, &narrow));
    if (wide > UINT32_MAX) {
      EXPECT_EQ(out.code, TRITONSERVER_ERROR_INVALID_ARG);
      EXPECT_THAT(out.text, HasSubstr("request priority overflows uint32_t, use "
                                      "TRITONSERVER_InferenceRequestPriorityUInt64, priority=" +
                                      std::to_string(wide)));
    } else {
      EXPECT_EQ(narrow, wide);
    }
    TRITONSERVER_ErrorDelete(TRITONSERVER_InferenceRequestDelete(r));
    return wide;
  };
  TestServer server({{"levels", kProbe + "max_batch_size: 1\n" + kNineLevels},
                     {"plain", kProbe},
                     {"all",
                      "platform: \"ensemble\"\n"
                      "input { name: \"IN\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
                      "output { name: \"OUT\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
                      "ensemble_scheduling { step { model_name: \"plain\" model_version: -1\n"
                      "input_map { key: \"IN\" value: \"IN\" }\n"
                      "output_map { key: \"OUT\" value: \"OUT\" } } }\n"}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  EXPECT_EQ(said(server, "levels", kUnset), 2u);
  EXPECT_EQ(said(server, "levels", 0), 2u);
  EXPECT_EQ(said(server, "levels", 9), 9u);
  EXPECT_EQ(said(server, "levels", 10), 2u);
  EXPECT_EQ(said(server, "levels", kWide), 2u);
  EXPECT_EQ(said(server, "plain", kUnset), 0u);
  EXPECT_EQ(said(server, "plain", 7), 0u);
  EXPECT_EQ(said(server, "all", kUnset), 0u);
  EXPECT_EQ(said(server, "all", kWide), kWide);
}

TEST(FrontCalls, RequestsTellWhatWasSet) {
  probe() = {};
  TestServer server({{"m", kProbe + "max_batch_size: 1\n" + kNineLevels}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  TestCall call(server.get(), "m", {1}, "mine", true);
  TRITONSERVER_InferenceRequest* r = call.request();
  const char* id = "";
  EXPECT_TRUE(Outcome(TRITONSERVER_InferenceRequestId(r, &id)).ok());
  EXPECT_STREQ(id, "mine");
  uint32_t priority = 0, flags = 0;
  uint64_t wide = 0, timeout = 0;
  TRITONSERVER_ErrorDelete(TRITONSERVER_InferenceRequestSetPriority(r, 7));
  EXPECT_TRUE(Outcome(TRITONSERVER_InferenceRequestPriority(r, &priority)).ok());
  EXPECT_TRUE(Outcome(TRITONSERVER_InferenceRequestPriorityUInt64(r, &wide)).ok());
  EXPECT_EQ(priority, 7u);
  EXPECT_EQ(wide, 7u);
  TRITONSERVER_ErrorDelete(TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(r, 12345));
  EXPECT_TRUE(Outcome(TRITONSERVER_InferenceRequestTimeoutMicroseconds(r, &timeout)).ok());
  EXPECT_EQ(timeout, 12345u);
  TRITONSERVER_ErrorDelete(
      TRITONSERVER_InferenceRequestSetFlags(r, TRITONSERVER_REQUEST_FLAG_SEQUENCE_START));
  EXPECT_TRUE(Outcome(TRITONSERVER_InferenceRequestFlags(r, &flags)).ok());
  EXPECT_EQ(flags, static_cast<uint32_t>(TRITONSERVER_REQUEST_FLAG_SEQUENCE_START));
  TRITONSERVER_ErrorDelete(TRITONSERVER_InferenceRequestSetFlags(r, 0));
  uint64_t number = 0;
  const char* text = "";
  TRITONSERVER_ErrorDelete(TRITONSERVER_InferenceRequestSetCorrelationId(r, 9));
  EXPECT_TRUE(Outcome(TRITONSERVER_InferenceRequestCorrelationId(r, &number)).ok());
  EXPECT_EQ(number, 9u);
  EXPECT_FALSE(Outcome(TRITONSERVER_InferenceRequestCorrelationIdString(r, &text)).ok());
  TRITONSERVER_ErrorDelete(TRITONSERVER_InferenceRequestSetCorrelationIdString(r, "nine"));
  EXPECT_TRUE(Outcome(TRITONSERVER_InferenceRequestCorrelationIdString(r, &text)).ok());
  EXPECT_STREQ(text, "nine");
  EXPECT_FALSE(Outcome(TRITONSERVER_InferenceRequestCorrelationId(r, &number)).ok());
  uint64_t seen = 0;
  probe().request = [&](auto*, TRITONBACKEND_Request* request) {
    TRITONSERVER_ErrorDelete(TRITONBACKEND_InferenceRequestTimeoutMicroseconds(request, &seen));
  };
  ASSERT_TRUE(call.send().ok() && call.wait());
  EXPECT_EQ(seen, 12345u);
  probe() = {};
}

TEST(FrontCalls, InputsAndOutputsMayBeTakenBack) {
  probe() = {};
  TestServer server({{"m", kProbe}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  TestCall call(server.get(), "m", {1});
  TRITONSERVER_InferenceRequest* r = call.request();
  EXPECT_THAT(Outcome(TRITONSERVER_InferenceRequestRemoveInput(r, "NO")).text,
              HasSubstr("input 'NO' does not exist in request"));
  EXPECT_TRUE(Outcome(TRITONSERVER_InferenceRequestRemoveInput(r, "IN")).ok());
  EXPECT_THAT(call.send().text, HasSubstr("missing required input(s) ['IN']"));
  const int64_t shape[] = {1};
  const int32_t value = 4;
  for (const char* name : {"IN", "STRANGE"}) {
    EXPECT_TRUE(
        Outcome(TRITONSERVER_InferenceRequestAddInput(r, name, TRITONSERVER_TYPE_INT32, shape, 1))
            .ok());
  }
  EXPECT_FALSE(call.send().ok());
  EXPECT_TRUE(Outcome(TRITONSERVER_InferenceRequestRemoveAllInputs(r)).ok());
  EXPECT_TRUE(
      Outcome(TRITONSERVER_InferenceRequestAddInput(r, "IN", TRITONSERVER_TYPE_INT32, shape, 1))
          .ok());
  TRITONSERVER_ErrorDelete(TRITONSERVER_InferenceRequestAppendInputData(
      r, "IN", &value, sizeof value, TRITONSERVER_MEMORY_CPU, 0));
  for (const char* name : {"OUT", "NO"}) {
    TRITONSERVER_ErrorDelete(TRITONSERVER_InferenceRequestAddRequestedOutput(r, name));
  }
  EXPECT_THAT(call.send().text, HasSubstr("unexpected inference output 'NO'"));
  EXPECT_TRUE(Outcome(TRITONSERVER_InferenceRequestRemoveRequestedOutput(r, "NO")).ok());
  TRITONSERVER_ErrorDelete(TRITONSERVER_InferenceRequestAddRequestedOutput(r, "ALSO_NO"));
  EXPECT_TRUE(Outcome(TRITONSERVER_InferenceRequestRemoveAllRequestedOutputs(r)).ok());
  ASSERT_TRUE(call.send().ok() && call.wait());
}

TEST(FrontCalls, MetricsKnowTheirKinds) {
  TestServer server({{"m", kProbe}});
  TRITONSERVER_MetricFamily* family = nullptr;
  ASSERT_TRUE(Outcome(TRITONSERVER_MetricFamilyNew(&family, TRITONSERVER_METRIC_KIND_GAUGE,
                                                   "kind_of_gauge", "help"))
                  .ok());
  TRITONSERVER_Metric* metric = nullptr;
  ASSERT_TRUE(Outcome(TRITONSERVER_MetricNew(&metric, family, nullptr, 0)).ok());
  auto of_family = TRITONSERVER_METRIC_KIND_COUNTER, of_metric = TRITONSERVER_METRIC_KIND_COUNTER;
  EXPECT_TRUE(Outcome(TRITONSERVER_GetMetricFamilyKind(family, &of_family)).ok());
  EXPECT_TRUE(Outcome(TRITONSERVER_GetMetricKind(metric, &of_metric)).ok());
  EXPECT_EQ(of_family, TRITONSERVER_METRIC_KIND_GAUGE);
  EXPECT_EQ(of_metric, TRITONSERVER_METRIC_KIND_GAUGE);
  EXPECT_TRUE(Outcome(TRITONSERVER_MetricDelete(metric)).ok());
  EXPECT_TRUE(Outcome(TRITONSERVER_MetricFamilyDelete(family)).ok());
}

TEST(FrontCalls, RepositoriesComeAndGo) {
  probe() = {};
  std::string name = (fs::temp_directory_path() / "nereid-repos-XXXXXX").string();
  const fs::path root = mkdtemp(name.data());
  fs::create_directories(root / "first");
  fs::create_directories(root / "second" / "m" / "1");
  std::ofstream(root / "second" / "m" / "config.pbtxt") << kProbe;
  {
    const auto explicit_mode = [](TRITONSERVER_ServerOptions* options) {
      TRITONSERVER_ServerOptionsSetModelControlMode(options, TRITONSERVER_MODEL_CONTROL_EXPLICIT);
    };
    TestServer server(root / "first", explicit_mode);
    ASSERT_TRUE(server.started().ok()) << server.started().text;
    const auto add = [&](const fs::path& path, const TRITONSERVER_Parameter** mapping,
                         uint32_t count) {
      return Outcome(
          TRITONSERVER_ServerRegisterModelRepository(server.get(), path.c_str(), mapping, count));
    };
    const bool yes = true;
    auto* flag = TRITONSERVER_ParameterNew("m", TRITONSERVER_PARAMETER_BOOL, &yes);
    const TRITONSERVER_Parameter* mapping[] = {flag};
    EXPECT_EQ(add(root / "second", mapping, 1).code, TRITONSERVER_ERROR_INVALID_ARG);
    EXPECT_EQ(add(root / "second", nullptr, 1).code, TRITONSERVER_ERROR_INVALID_ARG);
    TRITONSERVER_ParameterDelete(flag);
    EXPECT_EQ(add(root / "none", nullptr, 0).code, TRITONSERVER_ERROR_INVALID_ARG);
    EXPECT_FALSE(Outcome(TRITONSERVER_ServerLoadModel(server.get(), "m")).ok());
    EXPECT_TRUE(add(root / "second", nullptr, 0).ok());
    EXPECT_EQ(add(root / "second", nullptr, 0).code, TRITONSERVER_ERROR_ALREADY_EXISTS);
    EXPECT_TRUE(Outcome(TRITONSERVER_ServerLoadModel(server.get(), "m")).ok());
    // A name in two repositories is no model.
    fs::create_directories(root / "first" / "m" / "1");
    TRITONSERVER_Message* message = nullptr;
    ASSERT_TRUE(Outcome(TRITONSERVER_ServerModelIndex(server.get(), 0, &message)).ok());
    EXPECT_THAT(take_text(message),
                HasSubstr(R"({"name":"m","state":"UNAVAILABLE","reason":"model appears in )"
                          R"(two or more repositories"})"));
    fs::remove_all(root / "first" / "m");
    const auto remove = [&] {
      return Outcome(
          TRITONSERVER_ServerUnregisterModelRepository(server.get(), (root / "second").c_str()));
    };
    EXPECT_TRUE(remove().ok());
    EXPECT_EQ(remove().code, TRITONSERVER_ERROR_INVALID_ARG);
  }
  {
    TestServer server(root / "first", [](auto*) {});
    EXPECT_EQ(Outcome(TRITONSERVER_ServerRegisterModelRepository(
                          server.get(), (root / "second").c_str(), nullptr, 0))
                  .code,
              TRITONSERVER_ERROR_UNSUPPORTED)
        << "in mode explicit only";
  }
  fs::remove_all(root);
}

TEST(FrontCalls, OptionsThatCannotBeFollowedAreRefused) {
  TRITONSERVER_ServerOptions* o = nullptr;
  TRITONSERVER_ServerOptionsNew(&o);
  const auto refused = [](TRITONSERVER_Error* error, int code, const char* text) {
    const Outcome out(error);
    EXPECT_EQ(out.code, code) << out.text;
    EXPECT_THAT(out.text, HasSubstr(text));
  };
  constexpr int kUnsupported = TRITONSERVER_ERROR_UNSUPPORTED;
  constexpr int kInvalid = TRITONSERVER_ERROR_INVALID_ARG;
  refused(TRITONSERVER_ServerOptionsSetCudaMemoryPoolByteSize(o, 1, 64), kUnsupported, "GPU 1");
  refused(TRITONSERVER_ServerOptionsSetCudaVirtualAddressSize(o, 0, 64), kUnsupported, "GPU 0");
  refused(TRITONSERVER_ServerOptionsSetBufferManagerThreadCount(o, 2), kUnsupported, "count 2");
  const auto limit = [o](TRITONSERVER_InstanceGroupKind kind, int device, double fraction) {
    return TRITONSERVER_ServerOptionsSetModelLoadDeviceLimit(o, kind, device, fraction);
  };
  constexpr auto kGpu = TRITONSERVER_INSTANCEGROUPKIND_GPU;
  refused(limit(kGpu, -1, 0.5), kInvalid, "expects device ID >= 0, got -1");
  for (const double fraction : {1.5, -0.5})
    refused(limit(kGpu, 0, fraction), kInvalid,
            "expects limit fraction to be in range [0.0, 1.0], got ");
  refused(limit(TRITONSERVER_INSTANCEGROUPKIND_CPU, 0, 0.5), kInvalid,
          "given device kind is not supported, got: CPU");
  refused(
      TRITONSERVER_ServerOptionsSetRateLimiterMode(o, static_cast<TRITONSERVER_RateLimitMode>(9)),
      kInvalid, "mode 9");
  refused(TRITONSERVER_ServerOptionsAddRateLimiterResource(o, "R", 1, -3), kInvalid, "device -3");
  refused(TRITONSERVER_ServerOptionsSetMetricsInterval(o, 0), kInvalid, "at least 1 ms");
  refused(TRITONSERVER_ServerOptionsSetCacheConfig(o, "", "{}"), kInvalid, "no name");
  refused(TRITONSERVER_ServerOptionsSetCacheConfig(o, "local", "[]"), kInvalid, "no JSON object");
  for (TRITONSERVER_Error* none : {TRITONSERVER_ServerOptionsSetModelNamespacing(o, false),
                                   TRITONSERVER_ServerOptionsSetEnablePeerAccess(o, true),
                                   TRITONSERVER_ServerOptionsSetCudaMemoryPoolByteSize(o, 1, 0),
                                   TRITONSERVER_ServerOptionsSetCudaVirtualAddressSize(o, 0, 0),
                                   TRITONSERVER_ServerOptionsSetBufferManagerThreadCount(o, 0),
                                   limit(kGpu, 0, 1.0), limit(kGpu, 1, 0.5), limit(kGpu, 0, 0)}) {
    EXPECT_TRUE(Outcome(none).ok());
  }
  TRITONSERVER_ServerOptionsDelete(o);
}

TEST(FrontCalls, NamesOfEnumerations) {
  EXPECT_STREQ(TRITONSERVER_MemoryTypeString(TRITONSERVER_MEMORY_CPU_PINNED), "CPU_PINNED");
  EXPECT_STREQ(TRITONSERVER_ParameterTypeString(TRITONSERVER_PARAMETER_DOUBLE), "DOUBLE");
  EXPECT_STREQ(TRITONSERVER_InstanceGroupKindString(TRITONSERVER_INSTANCEGROUPKIND_MODEL), "MODEL");
  EXPECT_STREQ(TRITONSERVER_DataTypeString(TRITONSERVER_TYPE_BF16), "BF16");
  EXPECT_EQ(TRITONSERVER_StringToDataType("BF16"), TRITONSERVER_TYPE_BF16);
  EXPECT_EQ(TRITONSERVER_StringToDataType("BF17"), TRITONSERVER_TYPE_INVALID);
  EXPECT_EQ(TRITONSERVER_DataTypeByteSize(TRITONSERVER_TYPE_FP64), 8u);
  EXPECT_STREQ(TRITONSERVER_InferenceTraceLevelString(TRITONSERVER_TRACE_LEVEL_TENSORS), "TENSORS");
  EXPECT_STREQ(TRITONSERVER_InferenceTraceActivityString(TRITONSERVER_TRACE_QUEUE_START),
               "QUEUE_START");
}

}  // namespace
}  // namespace nereid::server
