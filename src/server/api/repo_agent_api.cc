// C API for repository agents.
#include "server/api/accessors.h"
#include "server/api/error.h"
#include "server/api/values.h"
#include "server/repository/repo_agent.h"

using namespace nereid;          // NOLINT: this file is the C face of what is in there
using namespace nereid::server;  // NOLINT

namespace {

AgentModel* of(TRITONREPOAGENT_AgentModel* m) { return reinterpret_cast<AgentModel*>(m); }
RepoAgent* of(TRITONREPOAGENT_Agent* a) { return reinterpret_cast<RepoAgent*>(a); }

}  // namespace

TRITONSERVER_Error* TRITONREPOAGENT_ApiVersion(uint32_t* major, uint32_t* minor) {
  *major = TRITONREPOAGENT_API_VERSION_MAJOR;
  *minor = TRITONREPOAGENT_API_VERSION_MINOR;
  return nullptr;
}

TRITONSERVER_Error* TRITONREPOAGENT_ModelRepositoryLocation(
    TRITONREPOAGENT_Agent*, TRITONREPOAGENT_AgentModel* model,
    TRITONREPOAGENT_ArtifactType* artifact_type, const char** location) try {
  *artifact_type = TRITONREPOAGENT_ARTIFACT_FILESYSTEM;
  *location = of(model)->location().c_str();
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONREPOAGENT_ModelRepositoryLocationAcquire(
    TRITONREPOAGENT_Agent*, TRITONREPOAGENT_AgentModel* model,
    const TRITONREPOAGENT_ArtifactType artifact_type, const char** location) try {
  auto acquired = of(model)->acquire(artifact_type);
  if (!acquired.ok()) return to_error(acquired.status());
  *location = *acquired;
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONREPOAGENT_ModelRepositoryLocationRelease(
    TRITONREPOAGENT_Agent*, TRITONREPOAGENT_AgentModel* model, const char* location) try {
  return to_error(of(model)->release(location));
}
NEREID_CATCH

TRITONSERVER_Error* TRITONREPOAGENT_ModelRepositoryUpdate(
    TRITONREPOAGENT_Agent*, TRITONREPOAGENT_AgentModel* model,
    const TRITONREPOAGENT_ArtifactType artifact_type, const char* location) try {
  return to_error(of(model)->relocate(artifact_type, location));
}
NEREID_CATCH

TRITONSERVER_Error* TRITONREPOAGENT_ModelParameterCount(TRITONREPOAGENT_Agent*,
                                                        TRITONREPOAGENT_AgentModel* model,
                                                        uint32_t* count) try {
  *count = static_cast<uint32_t>(of(model)->parameters().size());
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONREPOAGENT_ModelParameter(TRITONREPOAGENT_Agent*,
                                                   TRITONREPOAGENT_AgentModel* model,
                                                   const uint32_t index,
                                                   const char** parameter_name,
                                                   const char** parameter_value) try {
  const auto& parameters = of(model)->parameters();
  if (index >= parameters.size()) {
    return to_error(invalid_argument("index out of range for model parameters: {} of {}", index,
                                     parameters.size()));
  }
  *parameter_name = parameters[index].first.c_str();
  *parameter_value = parameters[index].second.c_str();
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONREPOAGENT_ModelConfig(TRITONREPOAGENT_Agent*,
                                                TRITONREPOAGENT_AgentModel* model,
                                                const uint32_t config_version,
                                                TRITONSERVER_Message** model_config) try {
  if (config_version != 1) return refuse_config_version(config_version);
  *model_config = new TRITONSERVER_Message{of(model)->config_json()};
  return nullptr;
}
NEREID_CATCH

NEREID_GETTER(TRITONREPOAGENT_ModelState, TRITONREPOAGENT_AgentModel, void*, of(x)->state)
NEREID_SETTER(TRITONREPOAGENT_ModelSetState, TRITONREPOAGENT_AgentModel, void*,
              of(x)->state = value)
NEREID_GETTER(TRITONREPOAGENT_State, TRITONREPOAGENT_Agent, void*, of(x)->state)
NEREID_SETTER(TRITONREPOAGENT_SetState, TRITONREPOAGENT_Agent, void*, of(x)->state = value)
