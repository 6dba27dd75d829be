// Calls of the core by backends: memory, statistics, configurations, outputs; and the
// search for backends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

#include "base/testing/source_dir.h"
#include "server/testing/client.h"
#include "server/testing/probe.h"

namespace nereid::server {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kTensors =
    "input { name: \"IN\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
    "output { name: \"OUT\" data_type: TYPE_INT32 dims: [ -1 ] }\n";
const std::string kModel = "backend: \"nereid_probe\"\n" + kTensors;

class BackendCalls : public testing::Test {
 protected:
  BackendCalls() { probe() = {}; }
  ~BackendCalls() override { probe() = {}; }

  static std::string statistics(TestServer& server) {
    TRITONSERVER_Message* message = nullptr;
    EXPECT_TRUE(Outcome(TRITONSERVER_ServerModelStatistics(server.get(), "m", -1, &message)).ok());
    return take_text(message);
  }
  static void run_one(TestServer& server) {
    ASSERT_TRUE(server.started().ok()) << server.started().text;
    TestCall call(server.get(), "m", {1});
    ASSERT_TRUE(call.send().ok() && call.wait());
  }
};

TEST_F(BackendCalls, MemoryComesFromTheManager) {
  std::vector<int> codes;
  probe().initialize = [&](TRITONBACKEND_Backend* backend) {
    TRITONBACKEND_MemoryManager* manager = nullptr;
    TRITONSERVER_ErrorDelete(TRITONBACKEND_BackendMemoryManager(backend, &manager));
    for (const auto type :
         {TRITONSERVER_MEMORY_CPU, TRITONSERVER_MEMORY_CPU_PINNED, TRITONSERVER_MEMORY_GPU}) {
      void* buffer = nullptr;
      codes.push_back(
          Outcome(TRITONBACKEND_MemoryManagerAllocate(manager, &buffer, type, 0, 64)).code);
      if (buffer != nullptr) {
        std::fill_n(static_cast<char*>(buffer), 64, 'x');
        EXPECT_TRUE(Outcome(TRITONBACKEND_MemoryManagerFree(manager, buffer, type, 0)).ok());
      }
    }
    int stranger = 0;
    codes.push_back(Outcome(TRITONBACKEND_MemoryManagerFree(manager, &stranger,
                                                            TRITONSERVER_MEMORY_CPU_PINNED, 0))
                        .code);
    return nullptr;
  };
  const TestServer server({{"m", kModel}});
  EXPECT_THAT(codes, testing::ElementsAre(-1, -1, TRITONSERVER_ERROR_UNSUPPORTED,
                                          TRITONSERVER_ERROR_INVALID_ARG));
}

TRITONSERVER_Error* report_to(
    const std::function<TRITONSERVER_Error*(TRITONSERVER_BufferAttributes**, uint32_t)>& report,
    TRITONSERVER_MemoryType type, size_t bytes) {
  TRITONSERVER_BufferAttributes* usage = nullptr;
  TRITONSERVER_BufferAttributesNew(&usage);
  TRITONSERVER_BufferAttributesSetMemoryType(usage, type);
  TRITONSERVER_BufferAttributesSetMemoryTypeId(usage, 1);
  TRITONSERVER_BufferAttributesSetByteSize(usage, bytes);
  TRITONSERVER_Error* error = report(&usage, 1);
  TRITONSERVER_BufferAttributesDelete(usage);
  return error;
}

TEST_F(BackendCalls, MemoryUseIsInTheStatistics) {
  probe().model = [](TRITONBACKEND_Model* model) {
    return report_to(
        [&](auto** usage, uint32_t count) {
          return TRITONBACKEND_ModelReportMemoryUsage(model, usage, count);
        },
        TRITONSERVER_MEMORY_GPU, 1000);
  };
  probe().instance = [](TRITONBACKEND_ModelInstance* instance) {
    return report_to(
        [&](auto** usage, uint32_t count) {
          return TRITONBACKEND_ModelInstanceReportMemoryUsage(instance, usage, count);
        },
        TRITONSERVER_MEMORY_CPU, 30);
  };
  TestServer server({{"m", kModel}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  const std::string text = statistics(server);
  EXPECT_THAT(text, HasSubstr(R"({"type":"GPU","id":1,"byte_size":1000})"));
  EXPECT_THAT(text, HasSubstr(R"({"type":"CPU","id":1,"byte_size":30})"));
}

TEST_F(BackendCalls, ResponsesHaveStatistics) {
  std::string incomplete;
  probe().request = [&](TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request) {
    TRITONBACKEND_ResponseFactory* factory = nullptr;
    TRITONSERVER_ErrorDelete(TRITONBACKEND_ResponseFactoryNew(&factory, request));
    TRITONBACKEND_ModelInstanceResponseStatistics* s = nullptr;
    TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelInstanceResponseStatisticsNew(&s));
    incomplete = Outcome(TRITONBACKEND_ModelInstanceReportResponseStatistics(s)).text;
    TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance(s, instance);
    TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(s, factory);
    TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(s, 1000);
    TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart(s, 1700);
    TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd(s, 2000);
    TRITONBACKEND_ModelInstanceResponseStatisticsSetError(s, nullptr);
    EXPECT_TRUE(Outcome(TRITONBACKEND_ModelInstanceReportResponseStatistics(s)).ok());
    auto* error = TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "second failed");
    TRITONBACKEND_ModelInstanceResponseStatisticsSetError(s, error);
    TRITONSERVER_ErrorDelete(error);
    EXPECT_TRUE(Outcome(TRITONBACKEND_ModelInstanceReportResponseStatistics(s)).ok());
    TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart(s, 0);
    TRITONBACKEND_ModelInstanceResponseStatisticsSetError(s, nullptr);
    EXPECT_TRUE(Outcome(TRITONBACKEND_ModelInstanceReportResponseStatistics(s)).ok());
    TRITONBACKEND_ModelInstanceResponseStatisticsDelete(s);
    TRITONSERVER_ErrorDelete(TRITONBACKEND_ResponseFactoryDelete(factory));
  };
  TestServer server({{"m", kModel + "model_transaction_policy { decoupled: true }"}});
  run_one(server);
  EXPECT_THAT(incomplete, HasSubstr("without a model instance or without a response factory"));
  const std::string text = statistics(server);
  EXPECT_THAT(text, HasSubstr(R"("compute_infer":{"count":1,"ns":700})"));
  EXPECT_THAT(text, HasSubstr(R"("compute_output":{"count":1,"ns":300})"));
  EXPECT_THAT(text, HasSubstr(R"("fail":{"count":1,"ns":1000})"));
  EXPECT_THAT(
      text,
      HasSubstr(
          R"("2":{"compute_infer":{"count":1,"ns":1000},"compute_output":{"count":0,"ns":0})"));
  EXPECT_THAT(text, HasSubstr(R"("empty_response":{"count":1,"ns":1000})"));
}

TEST_F(BackendCalls, ModelsCompleteTheirConfiguration) {
  std::vector<std::string> refused;
  bool may = false;
  const auto set = [](TRITONBACKEND_Model* model, uint32_t version, const std::string& json) {
    TRITONSERVER_Message* message = nullptr;
    TRITONSERVER_ErrorDelete(
        TRITONSERVER_MessageNewFromSerializedJson(&message, json.data(), json.size()));
    Outcome out(TRITONBACKEND_ModelSetConfig(model, version, message));
    TRITONSERVER_ErrorDelete(TRITONSERVER_MessageDelete(message));
    return out;
  };
  const std::string json =
      R"({"name":"m","max_batch_size":4,"input":[{"name":"A","data_type":"TYPE_FP32","dims":[3]}],)"
      R"("output":[{"name":"B","data_type":"TYPE_FP32","dims":[3]}],"dynamic_batching":{}})";
  probe().model = [&](TRITONBACKEND_Model* model) -> TRITONSERVER_Error* {
    TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelAutoCompleteConfig(model, &may));
    refused.push_back(set(model, 2, json).text);
    refused.push_back(set(model, 1, json).text);
    return nullptr;
  };
  probe().instance = [&](TRITONBACKEND_ModelInstance* instance) -> TRITONSERVER_Error* {
    TRITONBACKEND_Model* model = nullptr;
    TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelInstanceModel(instance, &model));
    refused.push_back(set(model, 1, json).text);
    return nullptr;
  };
  std::string name = (fs::temp_directory_path() / "nereid-calls-XXXXXX").string();
  const fs::path root = mkdtemp(name.data());
  fs::create_directories(root / "m" / "1");
  std::ofstream(root / "m" / "config.pbtxt") << "backend: \"nereid_probe\"";
  {
    TestServer server(root, [](TRITONSERVER_ServerOptions* options) {
      TRITONSERVER_ServerOptionsSetStrictModelConfig(options, false);
    });
    ASSERT_TRUE(server.started().ok()) << server.started().text;
    EXPECT_TRUE(may);
    ASSERT_EQ(refused.size(), 3u);
    EXPECT_THAT(refused[0], HasSubstr("model config version 2 is not supported"));
    EXPECT_EQ(refused[1], "");
    EXPECT_THAT(refused[2], HasSubstr("can only be completed while it initialises"));
    TRITONSERVER_Message* message = nullptr;
    TRITONSERVER_ErrorDelete(TRITONSERVER_ServerModelConfig(server.get(), "m", -1, 1, &message));
    const std::string text = take_text(message);
    EXPECT_THAT(text, HasSubstr(R"("max_batch_size":4)"));
    EXPECT_THAT(text, HasSubstr(R"("name":"A")"));
    EXPECT_THAT(text, HasSubstr(R"("preferred_batch_size":[4])"));
  }
  fs::remove_all(root);
}

TEST_F(BackendCalls, ResponsesTellTheirOutputs) {
  std::string by_index, by_name, missing, outside;
  probe().response = [&](TRITONBACKEND_Response* response) {
    const int64_t shape[] = {2, 3};
    TRITONBACKEND_Output* output = nullptr;
    TRITONSERVER_ErrorDelete(
        TRITONBACKEND_ResponseOutput(response, &output, "OUT", TRITONSERVER_TYPE_INT32, shape, 2));
    const char* name = nullptr;
    TRITONSERVER_DataType type = TRITONSERVER_TYPE_INVALID;
    const int64_t* dims = nullptr;
    uint64_t rank = 0;
    const auto told = [&](const Outcome& asked) {
      return asked.ok() ? TRITONSERVER_DataTypeString(type) + std::to_string(rank) +
                              std::to_string(dims[1])
                        : asked.text;
    };
    by_index = told(
        Outcome(TRITONBACKEND_InferenceResponseOutput(response, 0, &name, &type, &dims, &rank)));
    EXPECT_STREQ(name, "OUT");
    by_name = told(
        Outcome(TRITONBACKEND_InferenceResponseOutputByName(response, "OUT", &type, &dims, &rank)));
    missing = told(
        Outcome(TRITONBACKEND_InferenceResponseOutputByName(response, "NO", &type, &dims, &rank)));
    outside = told(
        Outcome(TRITONBACKEND_InferenceResponseOutput(response, 1, &name, &type, &dims, &rank)));
  };
  TestServer server({{"m", kModel}});
  run_one(server);
  EXPECT_EQ(by_index, "INT3223");
  EXPECT_EQ(by_name, "INT3223");
  EXPECT_THAT(missing, HasSubstr("no output 'NO'"));
  EXPECT_THAT(outside, HasSubstr("out of bounds index 1"));
}

// "<backends>/mine/model.py" is a backend that the python backend's library runs under that name.
TEST_F(BackendCalls, PythonRunsBackendsThatAreScripts) {
  std::string name = (fs::temp_directory_path() / "nereid-python-XXXXXX").string();
  const fs::path root = mkdtemp(name.data());
  fs::create_directories(root / "backends" / "mine");
  std::ofstream(root / "backends" / "mine" / "model.py") << "class TritonPythonModel: pass\n";
  fs::create_directories(root / "models" / "m" / "1");
  std::ofstream(root / "models" / "m" / "config.pbtxt") << "backend: \"mine\"\n" << kTensors;
  std::string told;
  probe().initialize = [&](TRITONBACKEND_Backend* backend) {
    const char *own_name = "", *location = "";
    TRITONBACKEND_ArtifactType type;
    TRITONSERVER_ErrorDelete(TRITONBACKEND_BackendName(backend, &own_name));
    TRITONSERVER_ErrorDelete(TRITONBACKEND_BackendArtifacts(backend, &type, &location));
    told = std::string(own_name) + " " + location;
    return nullptr;
  };
  const auto set = [&](TRITONSERVER_ServerOptions* options) {
    TRITONSERVER_ServerOptionsSetBackendDirectory(options, (root / "backends").c_str());
  };
  EXPECT_THAT(TestServer(root / "models", set).started().text,
              HasSubstr("backend 'mine' is " + (root / "backends/mine/model.py").string() +
                        ", which needs the python backend: there is no " +
                        (root / "backends/python/libtriton_python.so").string()));
  fs::create_directories(root / "backends" / "python");
  fs::create_symlink(build_dir() + "/test_backends/nereid_probe/libtriton_nereid_probe.so",
                     root / "backends" / "python" / "libtriton_python.so");
  {
    TestServer server(root / "models", set);
    run_one(server);
    EXPECT_EQ(told, "mine " + (root / "backends" / "mine").string());
  }
  fs::remove_all(root);
}

}  // namespace
}  // namespace nereid::server
