// The trace calls of the fake (fake_triton.h): plain objects; the fake reports no activities.
#include "triton/core/tritonserver.h"

TRITONSERVER_Error* TRITONSERVER_InferenceTraceTensorNew(
    TRITONSERVER_InferenceTrace** trace, TRITONSERVER_InferenceTraceLevel, uint64_t,
    TRITONSERVER_InferenceTraceActivityFn_t, TRITONSERVER_InferenceTraceTensorActivityFn_t,
    TRITONSERVER_InferenceTraceReleaseFn_t, void*) {
  *trace = nullptr;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceTraceDelete(TRITONSERVER_InferenceTrace*) {
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceTraceId(TRITONSERVER_InferenceTrace*, uint64_t* id) {
  *id = 0;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceTraceParentId(TRITONSERVER_InferenceTrace*,
                                                        uint64_t* id) {
  *id = 0;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceTraceModelName(TRITONSERVER_InferenceTrace*,
                                                         const char** text) {
  *text = "";
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceTraceRequestId(TRITONSERVER_InferenceTrace*,
                                                         const char** text) {
  *text = "";
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceTraceModelVersion(TRITONSERVER_InferenceTrace*,
                                                            int64_t* version) {
  *version = -1;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceTraceContext(TRITONSERVER_InferenceTrace*,
                                                       const char** text) {
  *text = "";
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceTraceSetContext(TRITONSERVER_InferenceTrace*,
                                                          const char*) {
  return nullptr;
}
const char* TRITONSERVER_InferenceTraceActivityString(TRITONSERVER_InferenceTraceActivity) {
  return "";
}
