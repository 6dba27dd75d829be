// C API of request tracing.
#include "server/api/accessors.h"
#include "server/api/error.h"
#include "server/request/trace.h"

using namespace nereid;          // NOLINT: this file is the C face of what is in there
using namespace nereid::server;  // NOLINT

namespace {

TRITONSERVER_Error* make(TRITONSERVER_InferenceTrace** trace,
                         TRITONSERVER_InferenceTraceLevel level, uint64_t parent_id,
                         const InferenceTrace::Callbacks& callbacks) {
  if (callbacks.release == nullptr) return to_error(invalid_argument("release_fn was nullptr"));
  // The deprecated levels MIN and MAX are accepted as TIMESTAMPS.
  uint32_t bits = static_cast<uint32_t>(level);
  if ((bits & (TRITONSERVER_TRACE_LEVEL_MIN | TRITONSERVER_TRACE_LEVEL_MAX)) != 0) {
    bits = (bits & ~3u) | TRITONSERVER_TRACE_LEVEL_TIMESTAMPS;
  }
  if ((bits & TRITONSERVER_TRACE_LEVEL_TIMESTAMPS) != 0 && callbacks.activity == nullptr) {
    return to_error(invalid_argument("activity_fn was nullptr at level TIMESTAMPS"));
  }
  *trace = reinterpret_cast<TRITONSERVER_InferenceTrace*>(
      new InferenceTrace(bits, parent_id, callbacks));
  return nullptr;
}

}  // namespace

TRITONSERVER_Error* TRITONSERVER_InferenceTraceNew(
    TRITONSERVER_InferenceTrace** trace, TRITONSERVER_InferenceTraceLevel level, uint64_t parent_id,
    TRITONSERVER_InferenceTraceActivityFn_t activity_fn,
    TRITONSERVER_InferenceTraceReleaseFn_t release_fn, void* trace_userp) try {
  if ((level & TRITONSERVER_TRACE_LEVEL_TENSORS) != 0) {
    return to_error(
        invalid_argument("level TENSORS needs TRITONSERVER_InferenceTraceTensorNew and its "
                         "tensor_activity_fn"));
  }
  return make(trace, level, parent_id, {activity_fn, nullptr, release_fn, trace_userp});
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_InferenceTraceTensorNew(
    TRITONSERVER_InferenceTrace** trace, TRITONSERVER_InferenceTraceLevel level, uint64_t parent_id,
    TRITONSERVER_InferenceTraceActivityFn_t activity_fn,
    TRITONSERVER_InferenceTraceTensorActivityFn_t tensor_activity_fn,
    TRITONSERVER_InferenceTraceReleaseFn_t release_fn, void* trace_userp) try {
  if ((level & TRITONSERVER_TRACE_LEVEL_TENSORS) != 0 && tensor_activity_fn == nullptr) {
    return to_error(invalid_argument("tensor_activity_fn was nullptr at level TENSORS"));
  }
  return make(trace, level, parent_id, {activity_fn, tensor_activity_fn, release_fn, trace_userp});
}
NEREID_CATCH

NEREID_DELETER(TRITONSERVER_InferenceTraceDelete, TRITONSERVER_InferenceTrace, of(x))
NEREID_GETTER(TRITONSERVER_InferenceTraceId, TRITONSERVER_InferenceTrace, uint64_t, of(x)->id())
NEREID_GETTER(TRITONSERVER_InferenceTraceParentId, TRITONSERVER_InferenceTrace, uint64_t,
              of(x)->parent_id())
NEREID_GETTER(TRITONSERVER_InferenceTraceModelName, TRITONSERVER_InferenceTrace, const char*,
              of(x)->model_name.c_str())
NEREID_GETTER(TRITONSERVER_InferenceTraceModelVersion, TRITONSERVER_InferenceTrace, int64_t,
              of(x)->model_version)
NEREID_GETTER(TRITONSERVER_InferenceTraceRequestId, TRITONSERVER_InferenceTrace, const char*,
              of(x)->request_id.c_str())

TRITONSERVER_Error* TRITONSERVER_InferenceTraceSpawnChildTrace(
    TRITONSERVER_InferenceTrace* trace, TRITONSERVER_InferenceTrace** child_trace) try {
  // `trace` is the result of TRITONBACKEND_RequestTrace, null for an untraced request.
  *child_trace = trace == nullptr
                     ? nullptr
                     : reinterpret_cast<TRITONSERVER_InferenceTrace*>(of(trace)->spawn_child());
  return nullptr;
}
NEREID_CATCH

NEREID_SETTER(TRITONSERVER_InferenceTraceSetContext, TRITONSERVER_InferenceTrace, const char*,
              of(x)->set_context(value))
NEREID_GETTER(TRITONSERVER_InferenceTraceContext, TRITONSERVER_InferenceTrace, const char*,
              of(x)->context())

TRITONSERVER_Error* TRITONSERVER_InferenceTraceReportActivity(TRITONSERVER_InferenceTrace* trace,
                                                              uint64_t timestamp,
                                                              const char* activity_name) try {
  if (activity_name == nullptr) return to_error(invalid_argument("activity_name was nullptr"));
  of(trace)->report_custom(timestamp, activity_name);
  return nullptr;
}
NEREID_CATCH

const char* TRITONSERVER_InferenceTraceLevelString(TRITONSERVER_InferenceTraceLevel level) {
  switch (level) {
    case TRITONSERVER_TRACE_LEVEL_DISABLED:
      return "DISABLED";
    case TRITONSERVER_TRACE_LEVEL_MIN:
      return "MIN";
    case TRITONSERVER_TRACE_LEVEL_MAX:
      return "MAX";
    case TRITONSERVER_TRACE_LEVEL_TIMESTAMPS:
      return "TIMESTAMPS";
    case TRITONSERVER_TRACE_LEVEL_TENSORS:
      return "TENSORS";
  }
  return "<unknown>";
}

const char* TRITONSERVER_InferenceTraceActivityString(
    TRITONSERVER_InferenceTraceActivity activity) {
  return enum_name({"REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END",
                    "COMPUTE_OUTPUT_START", "COMPUTE_END", "REQUEST_END", "TENSOR_QUEUE_INPUT",
                    "TENSOR_BACKEND_INPUT", "TENSOR_BACKEND_OUTPUT", "CUSTOM_ACTIVITY"},
                   activity, "<unknown>");
}
