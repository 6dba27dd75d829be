// The base of both kinds of request traces: the core's trace object and its callbacks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "front/bridge/request_trace.h"

namespace nereid::front {

// An activity of the core, with its trace.
struct CoreActivity {
  TRITONSERVER_InferenceTrace* trace = nullptr;
  TRITONSERVER_InferenceTraceActivity activity = TRITONSERVER_TRACE_REQUEST_START;
  uint64_t id = 0;
  uint64_t ns = 0;
  std::string name;  // of the activity; a backend's own for custom ones
};

struct TensorView {
  const char* name = "";
  TRITONSERVER_DataType type = TRITONSERVER_TYPE_INVALID;
  const void* base = nullptr;
  size_t byte_size = 0;
  const int64_t* shape = nullptr;
  uint64_t num_dims = 0;
};

// Details set by the core from REQUEST_START on.
struct TracedRequest {
  std::string model, request_id;
  int64_t version = -1;
  uint64_t parent_id = 0;
};
TracedRequest traced_request(TRITONSERVER_InferenceTrace* trace);

class CoreTrace : public RequestTrace, public std::enable_shared_from_this<CoreTrace> {
 public:
  explicit CoreTrace(uint32_t level);
  ~CoreTrace() override;
  TRITONSERVER_InferenceTrace* begin() override;
  void drop(TRITONSERVER_InferenceTrace* trace) override;

 protected:
  // Any thread, concurrently.
  virtual void on_activity(const CoreActivity& activity) = 0;
  virtual void on_tensor(const CoreActivity& activity, const TensorView& tensor) = 0;

  uint64_t root_id() const { return root_id_; }
  bool dropped() const { return dropped_; }  // the core refused the request

 private:
  static void activity_fn(TRITONSERVER_InferenceTrace* trace,
                          TRITONSERVER_InferenceTraceActivity activity, uint64_t ns, void* self);
  static void tensor_fn(TRITONSERVER_InferenceTrace* trace,
                        TRITONSERVER_InferenceTraceActivity activity, const char* name,
                        TRITONSERVER_DataType datatype, const void* base, size_t byte_size,
                        const int64_t* shape, uint64_t dim_count,
                        TRITONSERVER_MemoryType memory_type, int64_t memory_type_id, void* self);
  static void release_fn(TRITONSERVER_InferenceTrace* trace, void* self);

  TRITONSERVER_InferenceTrace* root_ = nullptr;  // until begin()
  uint64_t root_id_ = 0;
  bool dropped_ = false;
  std::shared_ptr<CoreTrace> self_;  // set while the core may call back
};

}  // namespace nereid::front
