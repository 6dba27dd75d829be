// One response of a request: outputs in buffers of the client's allocator, parameters, or an error.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/api/error.h"
#include "server/request/request.h"

namespace nereid::server {

struct OutputTensor {
  InferenceResponse* response = nullptr;
  std::string name;
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
  Shape shape;
  bool allocated = false;
  void* buffer = nullptr;
  size_t byte_size = 0;
  TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
  int64_t memory_type_id = 0;
  void* buffer_userp = nullptr;
  TRITONSERVER_BufferAttributes attributes;  // completed by the allocator

  // Gets the buffer from the client's allocator; once per output. The allocator may return null,
  // which the writer must handle.
  StatusOr<void*> allocate(size_t byte_size, TRITONSERVER_MemoryType preferred,
                           int64_t preferred_id);
  // allocate() for copies by the core: an error when the buffer is null or in device memory.
  StatusOr<void*> allocate_here(size_t byte_size);
  // Asks the allocator for the buffer's CUDA IPC handle.
  Status ask_attributes();
};

class InferenceResponse {
 public:
  explicit InferenceResponse(std::shared_ptr<ResponseContext> context);
  ~InferenceResponse();  // returns the buffers
  InferenceResponse(const InferenceResponse&) = delete;
  InferenceResponse& operator=(const InferenceResponse&) = delete;

  // InvalidArgument: the model declares no such output. The pointer lives as long as the response.
  StatusOr<OutputTensor*> add_output(const std::string& name, TRITONSERVER_DataType datatype,
                                     Shape shape);
  // add_output() for an output that the model declares.
  OutputTensor& add_output(const TensorSpec& spec, TRITONSERVER_DataType datatype, Shape shape);
  void set_parameter(TRITONSERVER_Parameter parameter);  // replaces a parameter of the same name

  // Sends `response` through its context and always consumes it. A non-OK `error` makes it
  // an error response.
  static Status send(std::unique_ptr<InferenceResponse> response, uint32_t flags,
                     const Status& error);

  std::string model_name, id;
  int64_t model_version = 0;
  std::deque<OutputTensor> outputs;  // a deque: addresses are stable
  std::vector<TRITONSERVER_Parameter> parameters;
  std::unique_ptr<TRITONSERVER_Error> error;
  // Class names by output; may be null.
  std::shared_ptr<const std::map<std::string, std::vector<std::string>>> class_names;

 private:
  friend struct OutputTensor;
  Status start_allocator();
  std::shared_ptr<ResponseContext> context_;  // null once sent
  ResponseAllocator* allocator_;
  void* allocator_userp_;
  bool started_ = false;
};

inline InferenceResponse* of(TRITONSERVER_InferenceResponse* r) {
  return reinterpret_cast<InferenceResponse*>(r);
}
inline InferenceResponse* of(TRITONBACKEND_Response* r) {
  return reinterpret_cast<InferenceResponse*>(r);
}
inline OutputTensor* of(TRITONBACKEND_Output* o) { return reinterpret_cast<OutputTensor*>(o); }

// The object behind TRITONBACKEND_ResponseFactory.
using ResponseFactory = std::shared_ptr<ResponseContext>;
inline ResponseFactory* of(TRITONBACKEND_ResponseFactory* f) {
  return reinterpret_cast<ResponseFactory*>(f);
}

}  // namespace nereid::server
