// A repository agent for tests: appends a line per call to the file in its parameter "log".
// Parameter "move" = yes: copies the model's files to an acquired folder, adds a version label to
// its configuration there, or replaces it by the parameter "config", and moves the model; "fail"
// = yes: LOAD fails.
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "triton/core/tritonrepoagent.h"

namespace {

using Agent = TRITONREPOAGENT_Agent;
using AgentModel = TRITONREPOAGENT_AgentModel;

std::map<std::string, std::string> parameters(Agent* agent, AgentModel* model) {
  uint32_t count = 0;
  TRITONREPOAGENT_ModelParameterCount(agent, model, &count);
  std::map<std::string, std::string> out;
  for (uint32_t i = 0; i < count; ++i) {
    const char *name = nullptr, *value = nullptr;
    TRITONREPOAGENT_ModelParameter(agent, model, i, &name, &value);
    out[name] = value;
  }
  return out;
}

void note(Agent* agent, AgentModel* model, const std::string& line) {
  std::ofstream(parameters(agent, model)["log"], std::ios::app) << line << "\n";
}

TRITONSERVER_Error* move(Agent* agent, AgentModel* model) {
  TRITONREPOAGENT_ArtifactType type;
  const char *from = nullptr, *to = nullptr;
  TRITONREPOAGENT_ModelRepositoryLocation(agent, model, &type, &from);
  if (auto* error = TRITONREPOAGENT_ModelRepositoryLocationAcquire(
          agent, model, TRITONREPOAGENT_ARTIFACT_FILESYSTEM, &to)) {
    return error;
  }
  std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
  std::filesystem::create_directory(std::filesystem::path(to) / "7");
  const auto given = parameters(agent, model);
  if (const auto config = given.find("config"); config != given.end()) {
    std::ofstream(std::filesystem::path(to) / "config.pbtxt") << config->second;
  }
  std::ofstream(std::filesystem::path(to) / "config.pbtxt", std::ios::app)
      << "parameters { key: \"moved\" value { string_value: \"yes\" } }\n";
  return TRITONREPOAGENT_ModelRepositoryUpdate(agent, model, TRITONREPOAGENT_ARTIFACT_FILESYSTEM,
                                               to);
}

}  // namespace

extern "C" {

TRITONSERVER_Error* TRITONREPOAGENT_Initialize(Agent* agent) {
  return TRITONREPOAGENT_SetState(agent, new int(42));
}

TRITONSERVER_Error* TRITONREPOAGENT_Finalize(Agent* agent) {
  void* state = nullptr;
  TRITONREPOAGENT_State(agent, &state);
  delete static_cast<int*>(state);
  return nullptr;
}

TRITONSERVER_Error* TRITONREPOAGENT_ModelInitialize(Agent* agent, AgentModel* model) {
  note(agent, model, "initialize");
  return TRITONREPOAGENT_ModelSetState(model, new int(7));
}

TRITONSERVER_Error* TRITONREPOAGENT_ModelFinalize(Agent* agent, AgentModel* model) {
  void* state = nullptr;
  TRITONREPOAGENT_ModelState(model, &state);
  note(agent, model, "finalize " + std::to_string(*static_cast<int*>(state)));
  delete static_cast<int*>(state);
  return nullptr;
}

TRITONSERVER_Error* TRITONREPOAGENT_ModelAction(Agent* agent, AgentModel* model,
                                                const TRITONREPOAGENT_ActionType action) {
  constexpr const char* kNames[] = {"load", "load_complete", "load_fail", "unload",
                                    "unload_complete"};
  note(agent, model, kNames[action]);
  if (action != TRITONREPOAGENT_ACTION_LOAD) {
    // Called too late on purpose.
    TRITONSERVER_Error* error = TRITONREPOAGENT_ModelRepositoryUpdate(
        agent, model, TRITONREPOAGENT_ARTIFACT_FILESYSTEM, "/nowhere");
    if (error == nullptr) note(agent, model, "moved after the load");
    TRITONSERVER_ErrorDelete(error);
    return nullptr;
  }
  auto given = parameters(agent, model);
  TRITONSERVER_Message* config = nullptr;
  if (auto* error = TRITONREPOAGENT_ModelConfig(agent, model, 1, &config)) return error;
  TRITONSERVER_MessageDelete(config);
  if (given["fail"] == "yes") {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, "told to fail");
  }
  return given["move"] == "yes" ? move(agent, model) : nullptr;
}

}  // extern "C"
