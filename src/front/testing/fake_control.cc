// Calls of the C API that the front makes but no test needs: each fails.
#include <unistd.h>

#include <chrono>
#include <thread>

#include "front/testing/fake_triton.h"
#include "nereid/server.h"
#include "triton/core/tritonserver.h"

#define NEREID_FAKE(function, parameters)                               \
  TRITONSERVER_Error* function parameters {                             \
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED,        \
                                 #function " is not part of the fake"); \
  }

NEREID_FAKE(TRITONSERVER_ServerUnloadModel, (TRITONSERVER_Server*, const char*))
NEREID_FAKE(TRITONSERVER_ServerUnloadModelAndDependents, (TRITONSERVER_Server*, const char*))
NEREID_FAKE(TRITONSERVER_ServerModelStatistics,
            (TRITONSERVER_Server*, const char*, int64_t, TRITONSERVER_Message**))
NEREID_FAKE(NEREID_ServerModelView,
            (TRITONSERVER_Server*, const char*, int64_t, uint32_t, TRITONSERVER_Message**))
NEREID_FAKE(TRITONSERVER_InferenceRequestSetCorrelationId,
            (TRITONSERVER_InferenceRequest*, uint64_t))
NEREID_FAKE(TRITONSERVER_InferenceRequestSetCorrelationIdString,
            (TRITONSERVER_InferenceRequest*, const char*))
NEREID_FAKE(TRITONSERVER_InferenceRequestSetPriorityUInt64,
            (TRITONSERVER_InferenceRequest*, uint64_t))
NEREID_FAKE(TRITONSERVER_InferenceRequestSetTimeoutMicroseconds,
            (TRITONSERVER_InferenceRequest*, uint64_t))
NEREID_FAKE(TRITONSERVER_InferenceRequestAddRawInput, (TRITONSERVER_InferenceRequest*, const char*))
NEREID_FAKE(TRITONSERVER_InferenceResponseOutputClassificationLabel,
            (TRITONSERVER_InferenceResponse*, uint32_t, size_t, const char**))
NEREID_FAKE(TRITONSERVER_ServerOptionsSetLogInfo, (TRITONSERVER_ServerOptions*, bool))
NEREID_FAKE(TRITONSERVER_ServerOptionsSetLogWarn, (TRITONSERVER_ServerOptions*, bool))
NEREID_FAKE(TRITONSERVER_ServerOptionsSetLogError, (TRITONSERVER_ServerOptions*, bool))
NEREID_FAKE(TRITONSERVER_ServerOptionsSetLogVerbose, (TRITONSERVER_ServerOptions*, int))
NEREID_FAKE(TRITONSERVER_ServerOptionsSetLogFormat,
            (TRITONSERVER_ServerOptions*, TRITONSERVER_LogFormat))
#undef NEREID_FAKE

// Fails too, once released.
TRITONSERVER_Error* TRITONSERVER_ServerLoadModelWithParameters(TRITONSERVER_Server*, const char*,
                                                               const TRITONSERVER_Parameter**,
                                                               uint64_t) {
  auto& fake = nereid::front::FakeTriton::get();
  ++fake.num_loading;
  fake.load_thread = ::gettid();
  while (fake.hold_loads) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  --fake.num_loading;
  ++fake.num_loaded;
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, "the fake loads nothing");
}

bool TRITONSERVER_LogIsEnabled(TRITONSERVER_LogLevel level) {
  return level != TRITONSERVER_LOG_VERBOSE;
}

TRITONSERVER_Parameter* TRITONSERVER_ParameterNew(const char*, TRITONSERVER_ParameterType,
                                                  const void*) {
  return nullptr;
}
TRITONSERVER_Parameter* TRITONSERVER_ParameterBytesNew(const char*, const void*, uint64_t) {
  return nullptr;
}
void TRITONSERVER_ParameterDelete(TRITONSERVER_Parameter*) {}
