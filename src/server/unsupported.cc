// Functions of the C API that this server does not offer yet: each answers UNSUPPORTED with its
// name.
#include "server/error.h"
#include "triton/core/tritonbackend.h"
#include "triton/core/tritoncache.h"
#include "triton/core/tritonrepoagent.h"

#define NEREID_UNSUPPORTED(function, parameters)                                         \
  TRITONSERVER_Error* function parameters {                                              \
    return nereid::server::to_error(nereid::unsupported(#function " is not supported")); \
  }

NEREID_UNSUPPORTED(TRITONSERVER_InferenceTraceNew,
                   (TRITONSERVER_InferenceTrace**, TRITONSERVER_InferenceTraceLevel, uint64_t,
                    TRITONSERVER_InferenceTraceActivityFn_t, TRITONSERVER_InferenceTraceReleaseFn_t,
                    void*))
NEREID_UNSUPPORTED(TRITONSERVER_InferenceTraceTensorNew,
                   (TRITONSERVER_InferenceTrace**, TRITONSERVER_InferenceTraceLevel, uint64_t,
                    TRITONSERVER_InferenceTraceActivityFn_t,
                    TRITONSERVER_InferenceTraceTensorActivityFn_t,
                    TRITONSERVER_InferenceTraceReleaseFn_t, void*))
NEREID_UNSUPPORTED(TRITONSERVER_InferenceTraceDelete, (TRITONSERVER_InferenceTrace*))
NEREID_UNSUPPORTED(TRITONSERVER_InferenceTraceId, (TRITONSERVER_InferenceTrace*, uint64_t*))
NEREID_UNSUPPORTED(TRITONSERVER_InferenceTraceParentId, (TRITONSERVER_InferenceTrace*, uint64_t*))
NEREID_UNSUPPORTED(TRITONSERVER_InferenceTraceModelName,
                   (TRITONSERVER_InferenceTrace*, const char**))
NEREID_UNSUPPORTED(TRITONSERVER_InferenceTraceModelVersion,
                   (TRITONSERVER_InferenceTrace*, int64_t*))
NEREID_UNSUPPORTED(TRITONSERVER_InferenceTraceRequestId,
                   (TRITONSERVER_InferenceTrace*, const char**))
NEREID_UNSUPPORTED(TRITONSERVER_InferenceTraceSpawnChildTrace,
                   (TRITONSERVER_InferenceTrace*, TRITONSERVER_InferenceTrace**))
NEREID_UNSUPPORTED(TRITONSERVER_InferenceTraceSetContext,
                   (TRITONSERVER_InferenceTrace*, const char*))
NEREID_UNSUPPORTED(TRITONSERVER_InferenceTraceContext, (TRITONSERVER_InferenceTrace*, const char**))
NEREID_UNSUPPORTED(TRITONSERVER_InferenceTraceReportActivity,
                   (TRITONSERVER_InferenceTrace*, uint64_t, const char*))
NEREID_UNSUPPORTED(TRITONSERVER_ServerOptionsAddRateLimiterResource,
                   (TRITONSERVER_ServerOptions*, const char*, size_t, int))
NEREID_UNSUPPORTED(TRITONSERVER_ServerOptionsSetMetricsConfig,
                   (TRITONSERVER_ServerOptions*, const char*, const char*, const char*))
NEREID_UNSUPPORTED(TRITONBACKEND_StateNew,
                   (TRITONBACKEND_State**, TRITONBACKEND_Request*, const char*,
                    TRITONSERVER_DataType, const int64_t*, uint32_t))
NEREID_UNSUPPORTED(TRITONBACKEND_StateUpdate, (TRITONBACKEND_State*))
NEREID_UNSUPPORTED(TRITONBACKEND_StateBuffer,
                   (TRITONBACKEND_State*, void**, uint64_t, TRITONSERVER_MemoryType*, int64_t*))
NEREID_UNSUPPORTED(TRITONBACKEND_StateBufferAttributes,
                   (TRITONBACKEND_State*, TRITONSERVER_BufferAttributes**))

// Repository agents: config.pbtxt may not name any, so none ever runs.
NEREID_UNSUPPORTED(TRITONREPOAGENT_ModelRepositoryLocation,
                   (TRITONREPOAGENT_Agent*, TRITONREPOAGENT_AgentModel*,
                    TRITONREPOAGENT_ArtifactType*, const char**))
NEREID_UNSUPPORTED(TRITONREPOAGENT_ModelRepositoryLocationAcquire,
                   (TRITONREPOAGENT_Agent*, TRITONREPOAGENT_AgentModel*,
                    const TRITONREPOAGENT_ArtifactType, const char**))
NEREID_UNSUPPORTED(TRITONREPOAGENT_ModelRepositoryLocationRelease,
                   (TRITONREPOAGENT_Agent*, TRITONREPOAGENT_AgentModel*, const char*))
NEREID_UNSUPPORTED(TRITONREPOAGENT_ModelRepositoryUpdate,
                   (TRITONREPOAGENT_Agent*, TRITONREPOAGENT_AgentModel*,
                    const TRITONREPOAGENT_ArtifactType, const char*))
NEREID_UNSUPPORTED(TRITONREPOAGENT_ModelParameterCount,
                   (TRITONREPOAGENT_Agent*, TRITONREPOAGENT_AgentModel*, uint32_t*))
NEREID_UNSUPPORTED(TRITONREPOAGENT_ModelParameter,
                   (TRITONREPOAGENT_Agent*, TRITONREPOAGENT_AgentModel*, const uint32_t,
                    const char**, const char**))
NEREID_UNSUPPORTED(TRITONREPOAGENT_ModelConfig,
                   (TRITONREPOAGENT_Agent*, TRITONREPOAGENT_AgentModel*, const uint32_t,
                    TRITONSERVER_Message**))
NEREID_UNSUPPORTED(TRITONREPOAGENT_ModelState, (TRITONREPOAGENT_AgentModel*, void**))
NEREID_UNSUPPORTED(TRITONREPOAGENT_ModelSetState, (TRITONREPOAGENT_AgentModel*, void*))
NEREID_UNSUPPORTED(TRITONREPOAGENT_State, (TRITONREPOAGENT_Agent*, void**))
NEREID_UNSUPPORTED(TRITONREPOAGENT_SetState, (TRITONREPOAGENT_Agent*, void*))
NEREID_UNSUPPORTED(TRITONCACHE_Copy, (TRITONCACHE_Allocator*, TRITONCACHE_CacheEntry*))

#undef NEREID_UNSUPPORTED

TRITONSERVER_Error* TRITONREPOAGENT_ApiVersion(uint32_t* major, uint32_t* minor) {
  *major = TRITONREPOAGENT_API_VERSION_MAJOR;
  *minor = TRITONREPOAGENT_API_VERSION_MINOR;
  return nullptr;
}

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
  constexpr const char* kNames[] = {
      "REQUEST_START",        "QUEUE_START",           "COMPUTE_START",  "COMPUTE_INPUT_END",
      "COMPUTE_OUTPUT_START", "COMPUTE_END",           "REQUEST_END",    "TENSOR_QUEUE_INPUT",
      "TENSOR_BACKEND_INPUT", "TENSOR_BACKEND_OUTPUT", "CUSTOM_ACTIVITY"};
  const auto index = static_cast<size_t>(activity);
  return index < sizeof(kNames) / sizeof(kNames[0]) ? kNames[index] : "<unknown>";
}
