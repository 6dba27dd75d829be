// Loading of agents, and their actions on a model; see repo_agent.h.
#include "server/repository/repo_agent.h"

#include <dlfcn.h>

#include "base/log.h"
#include "server/api/error.h"
#include "server/repository/repository.h"
#include "server/symbols.h"

namespace nereid::server {
namespace {

StatusOr<AgentFunctions> open_agent(const std::string& name, const std::filesystem::path& dir,
                                    std::string& where) {
  if (name.empty() || name.find('/') != std::string::npos || name.find("..") != std::string::npos) {
    return invalid_argument("repo agent '{}': not a name", name);
  }
  const auto path = dir / name / ("libtritonrepoagent_" + name + ".so");
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    where = "built in";
    if (name == "checksum") return checksum_agent_functions();
    return invalid_argument("unable to find '{}' for repo agent '{}', searched: {}",
                            path.filename().string(), name, dir.string());
  }
  where = path.string();
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return not_found("unable to load shared library: {}", dlerror());
  AgentFunctions out;
  find_symbol(handle, "TRITONREPOAGENT_Initialize", out.initialize);
  find_symbol(handle, "TRITONREPOAGENT_Finalize", out.finalize);
  find_symbol(handle, "TRITONREPOAGENT_ModelInitialize", out.model_initialize);
  find_symbol(handle, "TRITONREPOAGENT_ModelFinalize", out.model_finalize);
  find_symbol(handle, "TRITONREPOAGENT_ModelAction", out.action);
  if (out.action != nullptr) return out;
  return not_found("unable to find required entrypoint 'TRITONREPOAGENT_ModelAction' in {}",
                   path.string());
}

TRITONREPOAGENT_Agent* handle(RepoAgent* agent) {
  return reinterpret_cast<TRITONREPOAGENT_Agent*>(agent);
}
TRITONREPOAGENT_AgentModel* handle(AgentModel* model) {
  return reinterpret_cast<TRITONREPOAGENT_AgentModel*>(model);
}

}  // namespace

RepoAgent::~RepoAgent() {
  if (!initialised || functions.finalize == nullptr) return;
  if (Status s = take(functions.finalize(handle(this))); !s.ok()) {
    log_error("repo agent '{}': finalize: {}", name, message(s));
  }
}

StatusOr<std::shared_ptr<RepoAgent>> RepoAgents::get(const std::string& name) {
  std::lock_guard lock(mutex_);
  if (auto alive = agents_[name].lock()) return alive;
  auto agent = std::make_shared<RepoAgent>();
  agent->name = name;
  ASSIGN_OR_RETURN(agent->functions, open_agent(name, dir_, agent->path));
  if (agent->functions.initialize != nullptr) {
    RETURN_IF_ERROR(take(agent->functions.initialize(handle(agent.get()))));
  }
  agent->initialised = true;
  agents_[name] = agent;
  return agent;
}

std::vector<AgentRow> RepoAgents::in_use() {
  std::vector<AgentRow> out;
  std::lock_guard lock(mutex_);
  for (const auto& [name, weak] : agents_) {
    if (const auto agent = weak.lock()) out.push_back({name, agent->path});
  }
  return out;
}

AgentModel::AgentModel(std::shared_ptr<RepoAgent> agent, const AgentSpec& spec,
                       std::filesystem::path dir, std::string config_json)
    : agent_(std::move(agent)),
      parameters_(spec.parameters.begin(), spec.parameters.end()),
      config_json_(std::move(config_json)),
      location_(std::move(dir)) {}

AgentModel::~AgentModel() {
  const auto last = [this](TRITONREPOAGENT_ActionType action) {
    if (Status s = act(action); !s.ok()) {
      log_error("repo agent '{}': {}", agent_->name, message(s));
    }
  };
  last(TRITONREPOAGENT_ACTION_LOAD_FAIL);
  last(TRITONREPOAGENT_ACTION_UNLOAD);
  last(TRITONREPOAGENT_ACTION_UNLOAD_COMPLETE);
  if (!initialised_ || agent_->functions.model_finalize == nullptr) return;
  if (Status s = take(agent_->functions.model_finalize(handle(agent_.get()), handle(this)));
      !s.ok()) {
    log_error("repo agent '{}': model finalize: {}", agent_->name, message(s));
  }
}

Status AgentModel::initialise() {
  if (agent_->functions.model_initialize != nullptr) {
    RETURN_IF_ERROR(take(agent_->functions.model_initialize(handle(agent_.get()), handle(this))));
  }
  initialised_ = true;
  return ok();
}

Status AgentModel::act(TRITONREPOAGENT_ActionType action) {
  struct Row {
    Stage from, to;
  };
  static constexpr Row kRows[] = {{Stage::kNew, Stage::kLoading},
                                  {Stage::kLoading, Stage::kLoaded},
                                  {Stage::kLoading, Stage::kOver},
                                  {Stage::kLoaded, Stage::kUnloading},
                                  {Stage::kUnloading, Stage::kOver}};
  const Row& row = kRows[action];
  if (stage_ != row.from) return ok();
  stage_ = row.to;
  in_load_ = action == TRITONREPOAGENT_ACTION_LOAD;
  Status status = take(agent_->functions.action(handle(agent_.get()), handle(this), action));
  in_load_ = false;
  return status;
}

StatusOr<const char*> AgentModel::acquire(TRITONREPOAGENT_ArtifactType type) {
  if (type != TRITONREPOAGENT_ARTIFACT_FILESYSTEM) {
    return invalid_argument(
        "Unexpected artifact type, expects 'TRITONREPOAGENT_ARTIFACT_FILESYSTEM'");
  }
  if (!acquired_) {
    ASSIGN_OR_RETURN(ScratchDir made, ScratchDir::create());
    acquired_.emplace(std::move(made));
    acquired_path_ = acquired_->path().string();
  }
  return acquired_path_.c_str();
}

Status AgentModel::release(const char* path) {
  if (!acquired_) return unavailable("No mutable location to be deleted");
  if (path == nullptr || acquired_path_ != path) {
    return invalid_argument("'{}' is not the acquired location '{}'", path == nullptr ? "" : path,
                            acquired_path_);
  }
  acquired_.reset();
  return ok();
}

Status AgentModel::relocate(TRITONREPOAGENT_ArtifactType type, const char* path) {
  if (!in_load_) {
    return invalid_argument("location can only be updated during TRITONREPOAGENT_ACTION_LOAD");
  }
  if (type != TRITONREPOAGENT_ARTIFACT_FILESYSTEM) {
    return unsupported(
        "artifact type TRITONREPOAGENT_ARTIFACT_REMOTE_FILESYSTEM: models are read from local "
        "folders, TRITONREPOAGENT_ARTIFACT_FILESYSTEM");
  }
  if (path == nullptr || *path == 0) return invalid_argument("the new location is empty");
  location_ = path;
  return ok();
}

Status AgentChain::load(RepoAgents& agents, const RawConfig& config,
                        const std::filesystem::path& dir, const ConfigIn& config_in) {
  std::filesystem::path location = dir;
  std::string json = config.json;
  for (const AgentSpec& spec : config.agents) {
    ASSIGN_OR_RETURN(auto agent, agents.get(spec.name));
    auto model = std::make_unique<AgentModel>(std::move(agent), spec, location, json);
    RETURN_IF_ERROR(model->initialise());
    models_.push_back(std::move(model));
    RETURN_IF_ERROR(models_.back()->act(TRITONREPOAGENT_ACTION_LOAD));
    location = models_.back()->location();
    const auto next = config_in(location);
    json = next.ok() ? next->json : "{}";
  }
  return ok();
}

void AgentChain::act(TRITONREPOAGENT_ActionType action) {
  std::lock_guard lock(mutex_);
  for (const auto& model : models_) {
    if (Status s = model->act(action); !s.ok()) {
      log_error("repo agent '{}': {}", model->agent_name(), message(s));
    }
  }
}

}  // namespace nereid::server
