// Functions of the C API that this server does not offer yet: each answers UNSUPPORTED with its
// name.
#include "server/error.h"
#include "triton/core/tritonbackend.h"

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
NEREID_UNSUPPORTED(TRITONSERVER_InferenceRequestAddRawInput,
                   (TRITONSERVER_InferenceRequest*, const char*))
NEREID_UNSUPPORTED(TRITONSERVER_InferenceRequestAppendInputDataWithHostPolicy,
                   (TRITONSERVER_InferenceRequest*, const char*, const void*, size_t,
                    TRITONSERVER_MemoryType, int64_t, const char*))
NEREID_UNSUPPORTED(TRITONSERVER_InferenceResponseOutputClassificationLabel,
                   (TRITONSERVER_InferenceResponse*, const uint32_t, const size_t, const char**))
NEREID_UNSUPPORTED(TRITONSERVER_ServerOptionsSetStartupModel,
                   (TRITONSERVER_ServerOptions*, const char*))
NEREID_UNSUPPORTED(TRITONSERVER_ServerOptionsSetModelConfigName,
                   (TRITONSERVER_ServerOptions*, const char*))
NEREID_UNSUPPORTED(TRITONSERVER_ServerOptionsAddRateLimiterResource,
                   (TRITONSERVER_ServerOptions*, const char*, size_t, int))
NEREID_UNSUPPORTED(TRITONSERVER_ServerOptionsSetCudaMemoryPoolByteSize,
                   (TRITONSERVER_ServerOptions*, int, uint64_t))
NEREID_UNSUPPORTED(TRITONSERVER_ServerOptionsSetCudaVirtualAddressSize,
                   (TRITONSERVER_ServerOptions*, int, size_t))
NEREID_UNSUPPORTED(TRITONSERVER_ServerOptionsSetCacheConfig,
                   (TRITONSERVER_ServerOptions*, const char*, const char*))
NEREID_UNSUPPORTED(TRITONSERVER_ServerOptionsSetCacheDirectory,
                   (TRITONSERVER_ServerOptions*, const char*))
NEREID_UNSUPPORTED(TRITONSERVER_ServerOptionsSetMinSupportedComputeCapability,
                   (TRITONSERVER_ServerOptions*, double))
NEREID_UNSUPPORTED(TRITONSERVER_ServerOptionsSetLogFile, (TRITONSERVER_ServerOptions*, const char*))
NEREID_UNSUPPORTED(TRITONSERVER_ServerOptionsSetMetricsInterval,
                   (TRITONSERVER_ServerOptions*, uint64_t))
NEREID_UNSUPPORTED(TRITONSERVER_ServerOptionsSetRepoAgentDirectory,
                   (TRITONSERVER_ServerOptions*, const char*))
NEREID_UNSUPPORTED(TRITONSERVER_ServerOptionsSetModelLoadDeviceLimit,
                   (TRITONSERVER_ServerOptions*, TRITONSERVER_InstanceGroupKind, int, double))
NEREID_UNSUPPORTED(TRITONSERVER_ServerOptionsSetMetricsConfig,
                   (TRITONSERVER_ServerOptions*, const char*, const char*, const char*))
NEREID_UNSUPPORTED(TRITONSERVER_ServerModelStatistics,
                   (TRITONSERVER_Server*, const char*, int64_t, TRITONSERVER_Message**))
NEREID_UNSUPPORTED(TRITONSERVER_ServerLoadModelWithParameters,
                   (TRITONSERVER_Server*, const char*, const TRITONSERVER_Parameter**, uint64_t))
NEREID_UNSUPPORTED(TRITONSERVER_ServerLoadModel, (TRITONSERVER_Server*, const char*))
NEREID_UNSUPPORTED(TRITONSERVER_ServerUnloadModel, (TRITONSERVER_Server*, const char*))
NEREID_UNSUPPORTED(TRITONSERVER_ServerUnloadModelAndDependents, (TRITONSERVER_Server*, const char*))
NEREID_UNSUPPORTED(TRITONSERVER_ServerRegisterModelRepository,
                   (TRITONSERVER_Server*, const char*, const TRITONSERVER_Parameter**, uint32_t))
NEREID_UNSUPPORTED(TRITONSERVER_ServerUnregisterModelRepository,
                   (TRITONSERVER_Server*, const char*))
NEREID_UNSUPPORTED(TRITONSERVER_ServerPollModelRepository, (TRITONSERVER_Server*))
NEREID_UNSUPPORTED(TRITONBACKEND_ModelSetConfig,
                   (TRITONBACKEND_Model*, uint32_t, TRITONSERVER_Message*))
NEREID_UNSUPPORTED(TRITONBACKEND_ModelReportMemoryUsage,
                   (TRITONBACKEND_Model*, TRITONSERVER_BufferAttributes**, uint32_t))
NEREID_UNSUPPORTED(TRITONBACKEND_ModelInstanceProfileName,
                   (TRITONBACKEND_ModelInstance*, uint32_t, const char**))
NEREID_UNSUPPORTED(TRITONBACKEND_ModelInstanceSecondaryDeviceProperties,
                   (TRITONBACKEND_ModelInstance*, uint32_t, const char**, int64_t*))
NEREID_UNSUPPORTED(TRITONBACKEND_ModelInstanceReportMemoryUsage,
                   (TRITONBACKEND_ModelInstance*, TRITONSERVER_BufferAttributes**, uint32_t))
NEREID_UNSUPPORTED(TRITONBACKEND_ModelInstanceResponseStatisticsNew,
                   (TRITONBACKEND_ModelInstanceResponseStatistics**))
NEREID_UNSUPPORTED(TRITONBACKEND_ModelInstanceResponseStatisticsDelete,
                   (TRITONBACKEND_ModelInstanceResponseStatistics*))
NEREID_UNSUPPORTED(TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance,
                   (TRITONBACKEND_ModelInstanceResponseStatistics*, TRITONBACKEND_ModelInstance*))
NEREID_UNSUPPORTED(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory,
                   (TRITONBACKEND_ModelInstanceResponseStatistics*, TRITONBACKEND_ResponseFactory*))
NEREID_UNSUPPORTED(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart,
                   (TRITONBACKEND_ModelInstanceResponseStatistics*, uint64_t))
NEREID_UNSUPPORTED(TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart,
                   (TRITONBACKEND_ModelInstanceResponseStatistics*, uint64_t))
NEREID_UNSUPPORTED(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd,
                   (TRITONBACKEND_ModelInstanceResponseStatistics*, uint64_t))
NEREID_UNSUPPORTED(TRITONBACKEND_ModelInstanceResponseStatisticsSetError,
                   (TRITONBACKEND_ModelInstanceResponseStatistics*, TRITONSERVER_Error*))
NEREID_UNSUPPORTED(TRITONBACKEND_ModelInstanceReportResponseStatistics,
                   (TRITONBACKEND_ModelInstanceResponseStatistics*))
NEREID_UNSUPPORTED(TRITONBACKEND_StateNew,
                   (TRITONBACKEND_State**, TRITONBACKEND_Request*, const char*,
                    TRITONSERVER_DataType, const int64_t*, uint32_t))
NEREID_UNSUPPORTED(TRITONBACKEND_StateUpdate, (TRITONBACKEND_State*))
NEREID_UNSUPPORTED(TRITONBACKEND_StateBuffer,
                   (TRITONBACKEND_State*, void**, uint64_t, TRITONSERVER_MemoryType*, int64_t*))
NEREID_UNSUPPORTED(TRITONBACKEND_StateBufferAttributes,
                   (TRITONBACKEND_State*, TRITONSERVER_BufferAttributes**))

#undef NEREID_UNSUPPORTED

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
