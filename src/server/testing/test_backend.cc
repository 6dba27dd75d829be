// A backend for tests, controlled by the model parameter "behavior". Input IN INT32 [-1],
// output OUT INT32 [-1].
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/copy_bytes.h"
#include "nereid/backend.h"
#include "nereid/server.h"
#include "server/testing/gate.h"
#include "server/testing/test_sequences.h"
#include "triton/core/tritonbackend.h"

#pragma weak NEREID_ServerTenant  // not there in other servers

namespace {

struct ModelState {
  std::string behavior;
};

// The text between "behavior":{"string_value":" and the next quote; configurations of tests
// have no spaces there.
std::string behavior_of(TRITONBACKEND_Model* model) {
  TRITONSERVER_Message* config = nullptr;
  TRITONBACKEND_ModelConfig(model, 1, &config);
  const char* base = nullptr;
  size_t size = 0;
  TRITONSERVER_MessageSerializeToJson(config, &base, &size);
  const std::string text(base, size);
  TRITONSERVER_MessageDelete(config);
  const std::string key = "\"behavior\":{\"string_value\":\"";
  const size_t at = text.find(key);
  if (at == std::string::npos) return "identity";
  const size_t begin = at + key.size();
  return text.substr(begin, text.find('"', begin) - begin);
}

std::vector<int32_t> read_input(TRITONBACKEND_Request* request) {
  return read_tensor(request, "IN");
}

void send(TRITONBACKEND_ResponseFactory* factory, const std::vector<int32_t>& values,
          uint32_t flags) {
  send_values(factory, values, flags, false);
}

void send_error(TRITONBACKEND_ResponseFactory* factory, TRITONSERVER_Error_Code code,
                const char* text) {
  TRITONBACKEND_Response* response = nullptr;
  TRITONBACKEND_ResponseNewFromFactory(&response, factory);
  TRITONSERVER_Error* error = TRITONSERVER_ErrorNew(code, text);
  TRITONSERVER_ErrorDelete(
      TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
  TRITONSERVER_ErrorDelete(error);
}

void wait_for_cancel(TRITONBACKEND_ResponseFactory* factory) {
  bool cancelled = false;
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!cancelled && std::chrono::steady_clock::now() < end) {
    TRITONBACKEND_ResponseFactoryIsCancelled(factory, &cancelled);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  send_error(factory, cancelled ? TRITONSERVER_ERROR_CANCELLED : TRITONSERVER_ERROR_INTERNAL,
             cancelled ? "was cancelled" : "was never cancelled");
}

TRITONBACKEND_ResponseFactory* volatile leaked_factory = nullptr;  // reachable for the leak checker

// The part after the request's release, on a thread of its own.
void respond(const std::string& behavior, TRITONBACKEND_ResponseFactory* factory,
             const std::vector<int32_t>& values) {
  if (behavior == "wait_cancel") {
    wait_for_cancel(factory);
  } else if (behavior == "repeat" || behavior == "repeat_final_alone") {
    const bool alone = behavior == "repeat_final_alone";
    for (size_t i = 0; i < values.size(); ++i) {
      send(factory, {values[i]},
           !alone && i + 1 == values.size() ? TRITONSERVER_RESPONSE_COMPLETE_FINAL : 0);
    }
    if (alone || values.empty()) {
      TRITONSERVER_ErrorDelete(
          TRITONBACKEND_ResponseFactorySendFlags(factory, TRITONSERVER_RESPONSE_COMPLETE_FINAL));
    }
  } else if (behavior == "fail_after") {
    send(factory, {values.at(0)}, 0);
    send_error(factory, TRITONSERVER_ERROR_UNAVAILABLE, "second response failed");
  } else if (behavior == "final_twice") {
    send(factory, values, TRITONSERVER_RESPONSE_COMPLETE_FINAL);
    send(factory, values, TRITONSERVER_RESPONSE_COMPLETE_FINAL);
  } else if (behavior != "no_final") {
    if (behavior == "slow") nereid::server::take_time(values.at(0));
    send(factory, values, TRITONSERVER_RESPONSE_COMPLETE_FINAL);
  }
  if (behavior == "leak_factory") {
    leaked_factory = factory;
  } else {
    TRITONBACKEND_ResponseFactoryDelete(factory);
  }
}

void execute_one(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request,
                 const std::string& behavior) {
  const std::vector<int32_t> values = read_input(request);
  TRITONBACKEND_ResponseFactory* factory = nullptr;
  TRITONBACKEND_ResponseFactoryNew(&factory, request);
  TRITONSERVER_InferenceTrace* trace = nullptr;
  TRITONBACKEND_RequestTrace(request, &trace);
  if (trace != nullptr) TRITONSERVER_InferenceTraceReportActivity(trace, 1500, "own_event");
  TRITONBACKEND_ModelInstanceReportStatistics(instance, request, true, 1000, 2000, 3000, 4000);
  TRITONBACKEND_ModelInstanceReportBatchStatistics(instance, 1, 1000, 2000, 3000, 4000);
  if (behavior == "read_late") {
    respond("identity", factory, values);
    // The request, and with it its input, is still the backend's.
    if (read_input(request) != values) std::abort();
  }
  const auto tenant =
      NEREID_ServerTenant == nullptr ? 0 : static_cast<int32_t>(NEREID_ServerTenant(request));
  TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL);
  if (behavior == "read_late") return;
  if (behavior == "identity" || behavior == "slow") {
    respond(behavior, factory, values);
  } else if (behavior == "thread") {
    respond("identity", factory, {static_cast<int32_t>(gettid())});
  } else if (behavior == "tenant") {
    respond("identity", factory, {tenant});
  } else {
    std::thread(respond, behavior, factory, values).detach();
  }
}

// Answers {requests of this execution, number of this execution} after the time in the first
// request's last value.
void count_requests(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests,
                    uint32_t count) {
  static std::atomic<int32_t> executions{0};
  const int32_t number = ++executions;
  const auto first = read_input(requests[0]);
  if (!first.empty()) nereid::server::take_time(first.back());
  TRITONBACKEND_ModelInstanceReportBatchStatistics(instance, count, 1000, 2000, 3000, 4000);
  for (uint32_t i = 0; i < count; ++i) {
    TRITONBACKEND_ResponseFactory* factory = nullptr;
    TRITONBACKEND_ResponseFactoryNew(&factory, requests[i]);
    send(factory, {static_cast<int32_t>(count), number}, TRITONSERVER_RESPONSE_COMPLETE_FINAL);
    TRITONBACKEND_ResponseFactoryDelete(factory);
    TRITONBACKEND_ModelInstanceReportStatistics(instance, requests[i], true, 1000, 2000, 3000,
                                                4000);
    TRITONBACKEND_RequestRelease(requests[i], TRITONSERVER_REQUEST_RELEASE_ALL);
  }
}

}  // namespace

std::vector<int32_t> read_tensor(TRITONBACKEND_Request* request, const char* name) {
  TRITONBACKEND_Input* input = nullptr;
  if (auto* error = TRITONBACKEND_RequestInput(request, name, &input)) {
    TRITONSERVER_ErrorDelete(error);
    return {};
  }
  uint32_t buffers = 0;
  TRITONBACKEND_InputProperties(input, nullptr, nullptr, nullptr, nullptr, nullptr, &buffers);
  std::string bytes;
  for (uint32_t i = 0; i < buffers; ++i) {
    const void* base = nullptr;
    uint64_t size = 0;
    TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
    int64_t id = 0;
    TRITONBACKEND_InputBuffer(input, i, &base, &size, &type, &id);
    bytes.append(static_cast<const char*>(base), size);
  }
  // A BOOL is read as a number, too.
  std::vector<int32_t> out((bytes.size() + sizeof(int32_t) - 1) / sizeof(int32_t));
  nereid::copy_bytes(out.data(), bytes.data(), bytes.size());
  return out;
}

void send_values(TRITONBACKEND_ResponseFactory* factory, const std::vector<int32_t>& values,
                 uint32_t flags, bool batched) {
  TRITONBACKEND_Response* response = nullptr;
  TRITONBACKEND_ResponseNewFromFactory(&response, factory);
  TRITONBACKEND_Output* output = nullptr;
  const int64_t shape[] = {1, static_cast<int64_t>(values.size())};
  TRITONBACKEND_ResponseOutput(response, &output, "OUT", TRITONSERVER_TYPE_INT32,
                               batched ? shape : shape + 1, batched ? 2 : 1);
  void* buffer = nullptr;
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  TRITONSERVER_Error* error =
      TRITONBACKEND_OutputBuffer(output, &buffer, values.size() * sizeof(int32_t), &type, &id);
  if (error == nullptr && !values.empty()) {
    std::memcpy(buffer, values.data(), values.size() * sizeof(int32_t));
  }
  TRITONSERVER_ErrorDelete(TRITONBACKEND_ResponseSend(response, flags, error));
  TRITONSERVER_ErrorDelete(error);
}

TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model) {
  auto* state = new ModelState{behavior_of(model)};
  TRITONBACKEND_ModelSetState(model, state);
  if (state->behavior == "init_throw") throw std::runtime_error("told to throw");
  if (state->behavior == "init_fail") {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, "told not to initialize");
  }
  if (state->behavior == "finalize_slowly") {
    // The call of backends whose models send requests to others.
    TRITONSERVER_Server* server = nullptr;
    TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelServer(model, &server));
  }
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model) {
  void* state = nullptr;
  TRITONBACKEND_ModelState(model, &state);
  if (static_cast<ModelState*>(state)->behavior == "finalize_slowly") {
    nereid::server::take_time(nereid::server::kUntilOpen);
  }
  delete static_cast<ModelState*>(state);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance* instance,
                                                       TRITONBACKEND_Request** requests,
                                                       uint32_t request_count) {
  TRITONBACKEND_Model* model = nullptr;
  void* state = nullptr;
  TRITONBACKEND_ModelInstanceModel(instance, &model);
  TRITONBACKEND_ModelState(model, &state);
  const std::string& behavior = static_cast<ModelState*>(state)->behavior;
  if (behavior == "throw") throw std::runtime_error("told to throw");
  if (behavior == "throw_late") {
    execute_one(instance, requests[0], "identity");
    throw 7;
  }
  if (behavior == "fail") {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, "told to fail");
  }
  if (behavior == "count") {
    count_requests(instance, requests, request_count);
    return nullptr;
  }
  if (execute_sequences(instance, behavior, requests, request_count)) return nullptr;
  if (behavior == "leak") return nullptr;  // keeps the requests for ever
  for (uint32_t i = 0; i < request_count; ++i) execute_one(instance, requests[i], behavior);
  return nullptr;
}

bool NEREID_LendsThread(TRITONBACKEND_Model* model) {
  const char* name = "";
  TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelName(model, &name));
  return std::string_view(name).starts_with("lender");
}

bool NEREID_RequestIsQuick(TRITONBACKEND_Request* request) {
  const char* id = "";
  TRITONSERVER_ErrorDelete(TRITONBACKEND_RequestId(request, &id));
  return std::string_view(id).starts_with("quick");
}
