// Test client of the C API.
#include "server/testing/client.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/request_flags.h"
#include "base/testing/source_dir.h"

namespace nereid::server {
namespace {

TRITONSERVER_Error* allocate(TRITONSERVER_ResponseAllocator*, const char*, size_t size,
                             TRITONSERVER_MemoryType, int64_t, void*, void** buffer, void** userp,
                             TRITONSERVER_MemoryType* type, int64_t* id) {
  *buffer = size == 0 ? nullptr : std::malloc(size);
  *userp = nullptr;
  *type = TRITONSERVER_MEMORY_CPU;
  *id = 0;
  return nullptr;
}

TRITONSERVER_Error* deallocate(TRITONSERVER_ResponseAllocator*, void* buffer, void*, size_t,
                               TRITONSERVER_MemoryType, int64_t) {
  std::free(buffer);
  return nullptr;
}

TRITONSERVER_ResponseAllocator* allocator() {
  static TRITONSERVER_ResponseAllocator* shared = [] {
    TRITONSERVER_ResponseAllocator* a = nullptr;
    TRITONSERVER_ResponseAllocatorNew(&a, allocate, deallocate, nullptr);
    return a;
  }();
  return shared;
}

}  // namespace

Outcome::Outcome(TRITONSERVER_Error* error) {
  if (error == nullptr) return;
  code = TRITONSERVER_ErrorCode(error);
  text = TRITONSERVER_ErrorMessage(error);
  TRITONSERVER_ErrorDelete(error);
}

TestServer::TestServer(const std::vector<std::pair<std::string, std::string>>& models,
                       unsigned exit_timeout_s, bool exit_on_error) {
  std::string name = (std::filesystem::temp_directory_path() / "nereid-server-XXXXXX").string();
  dir_ = mkdtemp(name.data());
  for (const auto& [model, config] : models) {
    std::filesystem::create_directories(dir_ / model / "1");
    std::ofstream(dir_ / model / "config.pbtxt") << config;
  }
  start(dir_, [&](TRITONSERVER_ServerOptions* options) {
    TRITONSERVER_ServerOptionsSetExitTimeout(options, exit_timeout_s);
    TRITONSERVER_ServerOptionsSetExitOnError(options, exit_on_error);
  });
}

TestServer::TestServer(const std::filesystem::path& repository,
                       const std::function<void(TRITONSERVER_ServerOptions*)>& set) {
  start(repository, set);
}

void TestServer::start(const std::filesystem::path& repository,
                       const std::function<void(TRITONSERVER_ServerOptions*)>& set) {
  // Without GPUs: tests expect one instance for each group.
  setenv("CUDA_VISIBLE_DEVICES", "", /*overwrite=*/0);
  TRITONSERVER_ServerOptions* options = nullptr;
  TRITONSERVER_ServerOptionsNew(&options);
  TRITONSERVER_ServerOptionsSetModelRepositoryPath(options, repository.c_str());
  TRITONSERVER_ServerOptionsSetBackendDirectory(options, (build_dir() + "/test_backends").c_str());
  set(options);
  started_ = Outcome(TRITONSERVER_ServerNew(&server_, options));
  TRITONSERVER_ServerOptionsDelete(options);
}

TestServer::~TestServer() {
  if (server_ != nullptr) TRITONSERVER_ServerDelete(server_);
  if (!dir_.empty()) std::filesystem::remove_all(dir_);
}

void set_log_file(const std::string& path) {
  TRITONSERVER_ServerOptions* options = nullptr;
  TRITONSERVER_ServerOptionsNew(&options);
  EXPECT_TRUE(Outcome(TRITONSERVER_ServerOptionsSetLogFile(options, path.c_str())).ok());
  TRITONSERVER_ServerOptionsDelete(options);
}

std::string take_text(TRITONSERVER_Message* message) {
  const char* base = nullptr;
  size_t size = 0;
  TRITONSERVER_MessageSerializeToJson(message, &base, &size);
  std::string text(base, size);
  TRITONSERVER_MessageDelete(message);
  return text;
}

std::string TestServer::metrics() const {
  TRITONSERVER_Metrics* metrics = nullptr;
  TRITONSERVER_ServerMetrics(server_, &metrics);
  const char* base = nullptr;
  size_t size = 0;
  TRITONSERVER_MetricsFormatted(metrics, TRITONSERVER_METRIC_PROMETHEUS, &base, &size);
  std::string text(base, size);
  TRITONSERVER_MetricsDelete(metrics);
  return text;
}

TestCall::TestCall(TRITONSERVER_Server* server, const std::string& model,
                   std::vector<int32_t> values, const std::string& id, bool batched)
    : server_(server), values_(std::move(values)) {
  created = Outcome(TRITONSERVER_InferenceRequestNew(&request_, server, model.c_str(), -1));
  if (!created.ok()) return;
  TRITONSERVER_InferenceRequestSetId(request_, id.c_str());
  const int64_t shape[] = {1, static_cast<int64_t>(values_.size())};
  TRITONSERVER_InferenceRequestAddInput(request_, "IN", TRITONSERVER_TYPE_INT32,
                                        batched ? shape : shape + 1, batched ? 2 : 1);
  TRITONSERVER_InferenceRequestAppendInputData(
      request_, "IN", values_.data(), values_.size() * sizeof(int32_t), TRITONSERVER_MEMORY_CPU, 0);
  TRITONSERVER_InferenceRequestSetReleaseCallback(request_, on_release, this);
  TRITONSERVER_InferenceRequestSetResponseCallback(request_, allocator(), nullptr, on_response,
                                                   this);
}

TestCall::~TestCall() {
  if (request_ != nullptr) TRITONSERVER_InferenceRequestDelete(request_);
}

Outcome TestCall::send(TRITONSERVER_InferenceTrace* trace) {
  return Outcome(TRITONSERVER_ServerInferAsync(server_, request_, trace));
}

Outcome TestCall::send_to_run_here() {
  TRITONSERVER_InferenceRequestSetFlags(request_, kMayRunHere);
  return send();
}

void TestCall::cancel() { TRITONSERVER_InferenceRequestCancel(request_); }

void TestCall::use_allocator(TRITONSERVER_ResponseAllocator* allocator, void* userp) {
  TRITONSERVER_InferenceRequestSetResponseCallback(request_, allocator, userp, on_response, this);
}

bool TestCall::wait() {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::minutes(1),
                           [&] { return num_finals_ > 0 && num_releases_ > 0; });
}

std::vector<TestReply> TestCall::replies() const {
  std::lock_guard lock(mutex_);
  return replies_;
}

std::vector<int32_t> TestCall::joined() const {
  std::vector<int32_t> all;
  for (const auto& reply : replies()) all.insert(all.end(), reply.out.begin(), reply.out.end());
  return all;
}

void TestCall::on_release(TRITONSERVER_InferenceRequest*, const uint32_t, void* userp) {
  auto* self = static_cast<TestCall*>(userp);
  std::lock_guard lock(self->mutex_);
  ++self->num_releases_;
  self->changed_.notify_all();
}

void TestCall::on_response(TRITONSERVER_InferenceResponse* response, const uint32_t flags,
                           void* userp) {
  auto* self = static_cast<TestCall*>(userp);
  TestReply reply;
  reply.thread = std::this_thread::get_id();
  reply.is_final = (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0;
  if (response != nullptr) {
    if (auto* error = TRITONSERVER_InferenceResponseError(response)) {
      reply.code = TRITONSERVER_ErrorCode(error);
      reply.text = TRITONSERVER_ErrorMessage(error);
      TRITONSERVER_ErrorDelete(error);
    }
    uint32_t count = 0;
    TRITONSERVER_InferenceResponseOutputCount(response, &count);
    for (uint32_t i = 0; i < count; ++i) {
      const char* name = nullptr;
      TRITONSERVER_DataType type;
      const int64_t* shape = nullptr;
      uint64_t rank = 0;
      const void* base = nullptr;
      size_t size = 0;
      TRITONSERVER_MemoryType memory;
      int64_t id = 0;
      void* buffer_userp = nullptr;
      TRITONSERVER_InferenceResponseOutput(response, i, &name, &type, &shape, &rank, &base, &size,
                                           &memory, &id, &buffer_userp);
      const char* first_class = nullptr;
      TRITONSERVER_InferenceResponseOutputClassificationLabel(response, i, 0, &first_class);
      if (first_class != nullptr) reply.first_class = first_class;
      const auto* values = static_cast<const int32_t*>(base);
      if (base == nullptr) continue;
      reply.out.insert(reply.out.end(), values, values + size / sizeof(int32_t));
    }
    TRITONSERVER_InferenceResponseDelete(response);
  }
  std::lock_guard lock(self->mutex_);
  if (response != nullptr) self->replies_.push_back(std::move(reply));
  self->num_finals_ += (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0;
  self->changed_.notify_all();
}

std::string test_model(const std::string& behavior, const std::string& more) {
  const bool decoupled = behavior != "count" && behavior != "identity" && behavior != "slow" &&
                         behavior != "fail" && behavior != "sequence" && behavior != "iterate" &&
                         behavior != "lag_sink" && behavior != "read_late";
  return "backend: \"nereid_test\"\n"
         "input { name: \"IN\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
         "output { name: \"OUT\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
         "parameters { key: \"behavior\" value { string_value: \"" +
         behavior + "\" } }\n" +
         (decoupled ? "model_transaction_policy { decoupled: true }\n" : "") + more;
}

}  // namespace nereid::server
