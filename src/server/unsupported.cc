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
