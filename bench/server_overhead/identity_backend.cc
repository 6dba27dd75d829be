// The smallest useful Triton backend: every output is the input of the same place, copied. It loads
// in this server and in a stock one, so that what is left of a request is the server's own work.
#include <chrono>
#include <cstdint>
#include <cstring>

#include "nereid/backend.h"
#include "triton/core/tritonbackend.h"

namespace {

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

#define RETURN_IF_FAILED(call)                                     \
  do {                                                             \
    if (TRITONSERVER_Error* e_ = (call); e_ != nullptr) return e_; \
  } while (false)

// INPUT0 of `request` as OUTPUT0 of `response`.
TRITONSERVER_Error* copy(TRITONBACKEND_Request* request, TRITONBACKEND_Response* response) {
  TRITONBACKEND_Input* input = nullptr;
  RETURN_IF_FAILED(TRITONBACKEND_RequestInput(request, "INPUT0", &input));
  const char* name = nullptr;
  TRITONSERVER_DataType type;
  const int64_t* shape = nullptr;
  uint32_t num_dims = 0, num_buffers = 0;
  uint64_t num_bytes = 0;
  RETURN_IF_FAILED(TRITONBACKEND_InputProperties(input, &name, &type, &shape, &num_dims, &num_bytes,
                                                 &num_buffers));
  TRITONBACKEND_Output* output = nullptr;
  RETURN_IF_FAILED(
      TRITONBACKEND_ResponseOutput(response, &output, "OUTPUT0", type, shape, num_dims));
  void* to = nullptr;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t memory_id = 0;
  RETURN_IF_FAILED(TRITONBACKEND_OutputBuffer(output, &to, num_bytes, &memory, &memory_id));
  size_t offset = 0;
  for (uint32_t i = 0; i < num_buffers; ++i) {
    const void* from = nullptr;
    uint64_t size = 0;
    RETURN_IF_FAILED(TRITONBACKEND_InputBuffer(input, i, &from, &size, &memory, &memory_id));
    std::memcpy(static_cast<char*>(to) + offset, from, size);
    offset += size;
  }
  return nullptr;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) TRITONSERVER_Error*
TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance* instance,
                                   TRITONBACKEND_Request** requests, const uint32_t request_count) {
  const uint64_t start = now_ns();
  for (uint32_t i = 0; i < request_count; ++i) {
    TRITONBACKEND_Response* response = nullptr;
    TRITONSERVER_Error* error = TRITONBACKEND_ResponseNew(&response, requests[i]);
    if (error == nullptr) error = copy(requests[i], response);
    const bool is_success = error == nullptr;
    TRITONSERVER_ErrorDelete(
        TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
    TRITONSERVER_ErrorDelete(error);
    const uint64_t end = now_ns();
    TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelInstanceReportStatistics(
        instance, requests[i], is_success, start, start, end, end));
    TRITONSERVER_ErrorDelete(
        TRITONBACKEND_RequestRelease(requests[i], TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  const uint64_t end = now_ns();
  TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelInstanceReportBatchStatistics(
      instance, request_count, start, start, end, end));
  return nullptr;
}

bool NEREID_RequestIsQuick(TRITONBACKEND_Request* request) {
  TRITONBACKEND_Input* input = nullptr;
  uint64_t num_bytes = 0;
  if (TRITONSERVER_Error* error = TRITONBACKEND_RequestInput(request, "INPUT0", &input)) {
    TRITONSERVER_ErrorDelete(error);
    return false;
  }
  TRITONSERVER_ErrorDelete(TRITONBACKEND_InputProperties(input, nullptr, nullptr, nullptr, nullptr,
                                                         &num_bytes, nullptr));
  return num_bytes <= (256 << 10);
}
