// The objects behind tritonserver.h's opaque types in the fake; see fake_triton.h.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "triton/core/tritonserver.h"

struct TRITONSERVER_Error {
  TRITONSERVER_Error_Code code;
  std::string message;
};
struct TRITONSERVER_Message {
  std::string text;
};
struct TRITONSERVER_Metrics {
  std::string text;
};
struct TRITONSERVER_ResponseAllocator {
  TRITONSERVER_ResponseAllocatorAllocFn_t alloc;
  TRITONSERVER_ResponseAllocatorReleaseFn_t release;
  TRITONSERVER_ResponseAllocatorQueryFn_t query = nullptr;
};

struct FakeTensor {
  std::string name;
  TRITONSERVER_DataType type = TRITONSERVER_TYPE_INVALID;
  std::vector<int64_t> shape;
  std::string bytes;
  void* buffer = nullptr;
  void* userp = nullptr;
};
using Value = std::variant<std::string, int64_t, bool, double>;

inline TRITONSERVER_Error* fail(TRITONSERVER_Error_Code code, std::string text) {
  return new TRITONSERVER_Error{code, std::move(text)};
}

struct TRITONSERVER_InferenceRequest {
  std::string model;
  std::string id;
  std::vector<FakeTensor> inputs;
  std::map<std::string, Value> parameters;
  TRITONSERVER_InferenceRequestReleaseFn_t release = nullptr;
  void* release_userp = nullptr;
  TRITONSERVER_ResponseAllocator* allocator = nullptr;
  void* allocator_userp = nullptr;
  TRITONSERVER_InferenceResponseCompleteFn_t respond = nullptr;
  void* respond_userp = nullptr;
  std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
};

struct TRITONSERVER_InferenceResponse {
  std::string model;
  std::string id;
  TRITONSERVER_Error* error = nullptr;
  std::vector<std::pair<std::string, Value>> parameters;
  std::vector<FakeTensor> outputs;
  TRITONSERVER_ResponseAllocator* allocator = nullptr;
};
