#include "server/testing/test_sequences.h"

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "server/testing/gate.h"

namespace {

bool has_input(TRITONBACKEND_Request* request, const char* name) {
  TRITONBACKEND_Input* input = nullptr;
  TRITONSERVER_Error* error = TRITONBACKEND_RequestInput(request, name, &input);
  TRITONSERVER_ErrorDelete(error);
  return error == nullptr;
}

int32_t first_of(TRITONBACKEND_Request* request, const char* name) {
  const auto values = read_tensor(request, name);
  return values.empty() ? 0 : values[0];
}

bool is_ready(TRITONBACKEND_Request* request) {
  return !has_input(request, "READY") || first_of(request, "READY") != 0;
}

// Adds `value` to the state, or starts with it, and returns the new state.
int32_t accumulate(TRITONBACKEND_Request* request, int32_t value) {
  if (!has_input(request, "STATE_IN")) return 0;
  const int32_t sum = first_of(request, "STATE_IN") + value;
  const int64_t shape[] = {1, 1};
  TRITONBACKEND_State* state = nullptr;
  TRITONSERVER_Error* error =
      TRITONBACKEND_StateNew(&state, request, "STATE_OUT", TRITONSERVER_TYPE_INT32, shape, 2);
  if (error != nullptr) {
    TRITONSERVER_ErrorDelete(error);
    return -1;
  }
  void* buffer = nullptr;
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  TRITONSERVER_ErrorDelete(TRITONBACKEND_StateBuffer(state, &buffer, sizeof sum, &type, &id));
  std::memcpy(buffer, &sum, sizeof sum);
  TRITONSERVER_ErrorDelete(TRITONBACKEND_StateUpdate(state));
  return sum;
}

int32_t number_of(TRITONBACKEND_ModelInstance* instance) {
  const char* name = nullptr;
  TRITONBACKEND_ModelInstanceName(instance, &name);
  return std::atoi(std::strrchr(name, '_') + 1);
}

void execute_sequence(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests,
                      uint32_t count) {
  int32_t not_ready = 0, delay_ms = 0;
  bool is_held = false;
  for (uint32_t i = 0; i < count; ++i) {
    const auto values = read_tensor(requests[i], "IN");
    if (!is_ready(requests[i])) {
      ++not_ready;
    } else if (!values.empty()) {
      delay_ms = std::max(delay_ms, values.back());
      is_held |= values.back() == nereid::server::kUntilOpen;
    }
  }
  nereid::server::take_time(is_held ? nereid::server::kUntilOpen : delay_ms);
  TRITONBACKEND_ModelInstanceReportBatchStatistics(instance, count, 1000, 2000, 3000, 4000);
  for (uint32_t i = 0; i < count; ++i) {
    TRITONBACKEND_Request* request = requests[i];
    const std::vector<int32_t> values = {static_cast<int32_t>(i),
                                         static_cast<int32_t>(count),
                                         not_ready,
                                         number_of(instance),
                                         first_of(request, "START"),
                                         first_of(request, "END"),
                                         first_of(request, "CORRID"),
                                         accumulate(request, first_of(request, "IN"))};
    TRITONBACKEND_ResponseFactory* factory = nullptr;
    TRITONBACKEND_ResponseFactoryNew(&factory, request);
    send_values(factory, values, TRITONSERVER_RESPONSE_COMPLETE_FINAL, true);
    TRITONBACKEND_ResponseFactoryDelete(factory);
    TRITONBACKEND_ModelInstanceReportStatistics(instance, request, true, 1000, 2000, 3000, 4000);
    TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL);
  }
}

// The state counts the executions, plus 1000 for each with START set.
void execute_iteration(TRITONBACKEND_Request* request) {
  nereid::server::take_time(read_tensor(request, "IN").back());
  const int32_t runs = accumulate(request, first_of(request, "START") != 0 ? 1001 : 1);
  if (runs % 1000 < first_of(request, "IN")) {
    TRITONSERVER_ErrorDelete(
        TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_RESCHEDULE));
    return;
  }
  TRITONBACKEND_ResponseFactory* factory = nullptr;
  TRITONBACKEND_ResponseFactoryNew(&factory, request);
  send_values(factory, {runs % 1000, runs / 1000}, TRITONSERVER_RESPONSE_COMPLETE_FINAL, true);
  TRITONBACKEND_ResponseFactoryDelete(factory);
  TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL);
}

std::atomic<int32_t> num_seen{0};

void execute_source(TRITONBACKEND_Request* request) {
  const int32_t count = first_of(request, "IN");
  TRITONBACKEND_ResponseFactory* factory = nullptr;
  TRITONBACKEND_ResponseFactoryNew(&factory, request);
  TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL);
  bool is_cancelled = false;
  nereid::server::num_sent() = num_seen = 0;  // resets the counts of an earlier, cancelled request
  for (int32_t i = 0; i < count && !is_cancelled; ++i) {
    const int32_t sent = i + 1;
    send_values(factory, {sent, sent - num_seen.load()}, 0, false);
    nereid::server::num_sent() = sent;
    TRITONBACKEND_ResponseFactoryIsCancelled(factory, &is_cancelled);
  }
  TRITONSERVER_ErrorDelete(
      TRITONBACKEND_ResponseFactorySendFlags(factory, TRITONSERVER_RESPONSE_COMPLETE_FINAL));
  TRITONBACKEND_ResponseFactoryDelete(factory);
}

void execute_sink(TRITONBACKEND_Request* request) {
  if (num_seen == 0) nereid::server::take_time(nereid::server::kUntilOpen);
  ++num_seen;
  TRITONBACKEND_ResponseFactory* factory = nullptr;
  TRITONBACKEND_ResponseFactoryNew(&factory, request);
  send_values(factory, read_tensor(request, "IN"), TRITONSERVER_RESPONSE_COMPLETE_FINAL, false);
  TRITONBACKEND_ResponseFactoryDelete(factory);
  TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL);
}

}  // namespace

bool execute_sequences(TRITONBACKEND_ModelInstance* instance, const std::string& behavior,
                       TRITONBACKEND_Request** requests, uint32_t count) {
  if (behavior == "sequence") {
    execute_sequence(instance, requests, count);
    return true;
  }
  void (*one)(TRITONBACKEND_Request*) = behavior == "iterate"      ? execute_iteration
                                        : behavior == "lag_source" ? execute_source
                                        : behavior == "lag_sink"   ? execute_sink
                                                                   : nullptr;
  if (one == nullptr) return false;
  for (uint32_t i = 0; i < count; ++i) one(requests[i]);
  return true;
}
