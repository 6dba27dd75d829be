// Repository agents: shared objects that read, and may replace, a model's files
// before it is loaded.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/scratch_dir.h"
#include "base/status.h"
#include "server/config/model_config.h"
#include "triton/core/tritonrepoagent.h"

namespace nereid::server {

// The functions of an agent; all but `action` may be null.
struct AgentFunctions {
  decltype(&TRITONREPOAGENT_Initialize) initialize = nullptr;
  decltype(&TRITONREPOAGENT_Finalize) finalize = nullptr;
  decltype(&TRITONREPOAGENT_ModelInitialize) model_initialize = nullptr;
  decltype(&TRITONREPOAGENT_ModelFinalize) model_finalize = nullptr;
  decltype(&TRITONREPOAGENT_ModelAction) action = nullptr;
};

// The agent "checksum": compares files with the parameters "MD5:<path>" = digest when
// a model is loaded.
const AgentFunctions& checksum_agent_functions();

// The object behind TRITONREPOAGENT_Agent.
struct RepoAgent {
  ~RepoAgent();
  std::string name;
  std::string path;  // path of the shared object, or "built in"
  AgentFunctions functions;
  void* state = nullptr;
  bool initialised = false;
};

struct AgentRow {
  std::string name, path;
};

// The agents in use; one object for each name while a model holds it.
class RepoAgents {
 public:
  explicit RepoAgents(std::filesystem::path dir) : dir_(std::move(dir)) {}
  // Opens <dir>/<name>/libtritonrepoagent_<name>.so; "checksum" without that file
  // is the built-in one.
  StatusOr<std::shared_ptr<RepoAgent>> get(const std::string& name);
  std::vector<AgentRow> in_use();

 private:
  const std::filesystem::path dir_;
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<RepoAgent>> agents_;
};

// The object behind TRITONREPOAGENT_AgentModel: one agent's state for one model.
class AgentModel {
 public:
  AgentModel(std::shared_ptr<RepoAgent> agent, const AgentSpec& spec, std::filesystem::path dir,
             std::string config_json);
  ~AgentModel();  // runs the final actions that were not run yet
  AgentModel(const AgentModel&) = delete;
  AgentModel& operator=(const AgentModel&) = delete;

  Status initialise();
  // The life cycle: LOAD; LOAD_COMPLETE or LOAD_FAIL; UNLOAD; UNLOAD_COMPLETE. An action out of
  // this order has no effect.
  Status act(TRITONREPOAGENT_ActionType action);

  // For the C API.
  const std::filesystem::path& location() const { return location_; }
  StatusOr<const char*> acquire(TRITONREPOAGENT_ArtifactType type);
  Status release(const char* path);
  Status relocate(TRITONREPOAGENT_ArtifactType type, const char* path);
  const std::vector<std::pair<std::string, std::string>>& parameters() const { return parameters_; }
  const std::string& config_json() const { return config_json_; }
  const std::string& agent_name() const { return agent_->name; }
  void* state = nullptr;

 private:
  enum class Stage { kNew, kLoading, kLoaded, kUnloading, kOver };

  const std::shared_ptr<RepoAgent> agent_;
  const std::vector<std::pair<std::string, std::string>> parameters_;
  const std::string config_json_;
  std::filesystem::path location_;
  std::string acquired_path_;
  std::optional<ScratchDir> acquired_;
  Stage stage_ = Stage::kNew;
  bool in_load_ = false;
  bool initialised_ = false;
};

// The agents of one model, in the order of its configuration; each reads the files as the previous
// one left them. Lives until the model is unloaded.
class AgentChain {
 public:
  // Runs LOAD; `config_in` reads the configuration in a folder for the next agent. On failure the
  // agents that had loaded get LOAD_FAIL when the chain is destroyed.
  using ConfigIn = std::function<StatusOr<RawConfig>(const std::filesystem::path& dir)>;
  Status load(RepoAgents& agents, const RawConfig& config, const std::filesystem::path& dir,
              const ConfigIn& config_in);
  // Runs a later action; failures are logged.
  void act(TRITONREPOAGENT_ActionType action);
  const std::filesystem::path& location() const { return models_.back()->location(); }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<AgentModel>> models_;  // not empty
};

}  // namespace nereid::server
