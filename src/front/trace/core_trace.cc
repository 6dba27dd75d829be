#include "front/trace/core_trace.h"

#include <utility>

#include "base/json.h"
#include "base/log.h"
#include "front/bridge/tensor.h"

namespace nereid::front {
namespace {

// The core stores names of custom activities in the context, by time.
std::string custom_name(TRITONSERVER_InferenceTrace* trace, uint64_t ns) {
  const char* text = nullptr;
  if (!take_error(TRITONSERVER_InferenceTraceContext(trace, &text)).ok() || text == nullptr) {
    return "CUSTOM_ACTIVITY";
  }
  const auto context = parse_json(text);
  if (context.ok() && context->is_object()) {
    const json::value* name = context->get_object().if_contains(std::to_string(ns));
    if (name != nullptr && name->is_string()) return std::string(name->get_string());
  }
  return "CUSTOM_ACTIVITY";
}

CoreActivity describe(TRITONSERVER_InferenceTrace* trace,
                      TRITONSERVER_InferenceTraceActivity activity, uint64_t ns) {
  CoreActivity out;
  out.trace = trace;
  out.activity = activity;
  out.ns = ns;
  take_error(TRITONSERVER_InferenceTraceId(trace, &out.id)).IgnoreError();
  out.name = activity == TRITONSERVER_TRACE_CUSTOM_ACTIVITY
                 ? custom_name(trace, ns)
                 : TRITONSERVER_InferenceTraceActivityString(activity);
  return out;
}

}  // namespace

TracedRequest traced_request(TRITONSERVER_InferenceTrace* trace) {
  TracedRequest out;
  const char* text = nullptr;
  if (take_error(TRITONSERVER_InferenceTraceModelName(trace, &text)).ok()) out.model = text;
  if (take_error(TRITONSERVER_InferenceTraceRequestId(trace, &text)).ok()) out.request_id = text;
  take_error(TRITONSERVER_InferenceTraceModelVersion(trace, &out.version)).IgnoreError();
  take_error(TRITONSERVER_InferenceTraceParentId(trace, &out.parent_id)).IgnoreError();
  return out;
}

CoreTrace::CoreTrace(uint32_t level) {
  const Status made = take_error(TRITONSERVER_InferenceTraceTensorNew(
      &root_, static_cast<TRITONSERVER_InferenceTraceLevel>(level), 0, activity_fn, tensor_fn,
      release_fn, this));
  if (!made.ok()) {
    root_ = nullptr;
    log_error("request trace: {}", message(made));
    return;
  }
  take_error(TRITONSERVER_InferenceTraceId(root_, &root_id_)).IgnoreError();
}

CoreTrace::~CoreTrace() {
  if (root_ != nullptr) take_error(TRITONSERVER_InferenceTraceDelete(root_)).IgnoreError();
}

TRITONSERVER_InferenceTrace* CoreTrace::begin() {
  if (root_ != nullptr) self_ = shared_from_this();
  return std::exchange(root_, nullptr);
}

void CoreTrace::drop(TRITONSERVER_InferenceTrace* trace) {
  dropped_ = true;
  take_error(TRITONSERVER_InferenceTraceDelete(trace)).IgnoreError();
  self_.reset();  // the caller has a reference
}

void CoreTrace::activity_fn(TRITONSERVER_InferenceTrace* trace,
                            TRITONSERVER_InferenceTraceActivity activity, uint64_t ns, void* self) {
  static_cast<CoreTrace*>(self)->on_activity(describe(trace, activity, ns));
}

void CoreTrace::tensor_fn(TRITONSERVER_InferenceTrace* trace,
                          TRITONSERVER_InferenceTraceActivity activity, const char* name,
                          TRITONSERVER_DataType datatype, const void* base, size_t byte_size,
                          const int64_t* shape, uint64_t dim_count,
                          TRITONSERVER_MemoryType memory_type, int64_t, void* self) {
  const bool readable = memory_type != TRITONSERVER_MEMORY_GPU;
  const TensorView tensor{name, datatype, readable ? base : nullptr, byte_size, shape, dim_count};
  static_cast<CoreTrace*>(self)->on_tensor(describe(trace, activity, 0), tensor);
}

void CoreTrace::release_fn(TRITONSERVER_InferenceTrace* trace, void* self) {
  uint64_t parent_id = 0;
  take_error(TRITONSERVER_InferenceTraceParentId(trace, &parent_id)).IgnoreError();
  take_error(TRITONSERVER_InferenceTraceDelete(trace)).IgnoreError();
  // The root is released last.
  if (parent_id != 0) return;
  const std::shared_ptr<CoreTrace> last = std::move(static_cast<CoreTrace*>(self)->self_);
}

}  // namespace nereid::front
