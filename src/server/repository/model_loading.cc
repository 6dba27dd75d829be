// The part of ModelManager that loads: from a model's files to ready versions.
#include <algorithm>
#include <memory>

#include "base/error_codes.h"
#include "base/json.h"
#include "base/log.h"
#include "server/api/error.h"
#include "server/ensemble/ensemble.h"
#include "server/ensemble/ensemble_check.h"
#include "server/log_switches.h"
#include "server/repository/model_manager.h"

namespace nereid::server {
namespace {

std::string with_code(const Status& status) {
  return fmt::format("{}: {}", code_string(to_error_code(status.code())), message(status));
}

bool differ_in_instances_alone(const ModelConfig& a, const ModelConfig& b) {
  auto one = parse_json(a.json), other = parse_json(b.json);
  if (!one.ok() || !other.ok() || !one->is_object() || !other->is_object()) return false;
  one->get_object().erase("instance_group");
  other->get_object().erase("instance_group");
  return *one == *other;
}

}  // namespace

StatusOr<ModelFiles> ModelManager::read(const ModelId& id) {
  ASSIGN_OR_RETURN(ModelFiles files, repositories_.find_files(id, {}));
  RETURN_IF_ERROR(repositories_.resolve(id, {}, agents_, files));
  return files;
}

Status ModelManager::bring_up(const ModelId& id, const ModelOverride& changes, Ids& path,
                              bool is_explicit) {
  const std::string& name = id.name;
  auto files = repositories_.find_files(id, changes);
  if (files.ok() && unchanged(id, *files) && !has_moved_parts(id)) {
    std::unique_lock lock(table_->mutex);
    if (is_explicit) table_->entries[id].is_explicit = true;
    return ok();
  }
  Status status = files.status();
  if (status.ok()) status = repositories_.resolve(id, changes, agents_, *files);
  if (!status.ok()) {
    const bool is_missing = absl::IsNotFound(files.status());
    log_error("{} '{}': {}",
              is_missing ? "failed to poll model" : "Poll failed for model directory", id.text(),
              message(status));
    if (files.ok() && files->agents != nullptr) {
      return invalid_argument("load failed for model '{}': {}\n", name, message(status));
    }
    return internal_error("failed to load '{}', failed to poll from model repository", name);
  }
  if (Status s = load_files(*std::move(files), path, is_explicit); !s.ok()) {
    return invalid_argument("load failed for model '{}': {}\n", name, message(s));
  }
  return ok();
}

bool ModelManager::unchanged(const ModelId& id, const ModelFiles& files) const {
  std::shared_lock lock(table_->mutex);
  const auto it = table_->entries.find(id);
  if (it == table_->entries.end() || !it->second.files || files.overridden) return false;
  const Entry& entry = it->second;
  if (entry.files->overridden || entry.files->fingerprint != files.fingerprint) return false;
  if (entry.files->agents != nullptr) {  // the versions are those in the agents' folder
    return std::any_of(entry.versions.begin(), entry.versions.end(),
                       [](const auto& v) { return v.second.state == ModelState::kReady; });
  }
  const auto& versions = entry.files->versions;  // chosen by the same configuration
  return std::all_of(versions.begin(), versions.end(), [&](int64_t number) {
    const auto v = entry.versions.find(number);
    return v != entry.versions.end() && v->second.state == ModelState::kReady;
  });
}

bool ModelManager::has_moved_parts(const ModelId& id) const {
  std::vector<EnsembleStep> steps;
  {
    std::shared_lock lock(table_->mutex);
    const auto it = table_->entries.find(id);
    if (it != table_->entries.end() && it->second.files) steps = it->second.files->config.steps;
  }
  return std::any_of(steps.begin(), steps.end(), [&](const EnsembleStep& step) {
    return part_id(id.space, step.model).space != step.space;
  });
}

Status ModelManager::load_files(ModelFiles files, Ids& path, bool is_explicit) {
  {
    std::unique_lock lock(table_->mutex);
    Entry& entry = table_->entries[files.id()];
    entry.problem = ok();
    entry.wanted = true;
    entry.is_explicit = entry.is_explicit || is_explicit;
  }
  Status status = load_checked(files, path);
  if (files.agents != nullptr) {
    files.agents->act(status.ok() ? TRITONREPOAGENT_ACTION_LOAD_COMPLETE
                                  : TRITONREPOAGENT_ACTION_LOAD_FAIL);
  }
  return status;
}

Status ModelManager::load_checked(ModelFiles& files, Ids& path) {
  const ModelId id = files.id();
  if (files.versions.empty()) {
    return invalid_argument(
        "at least one version must be available under the version policy of model '{}'", id.name);
  }
  if (files.config.is_ensemble()) {
    path.push_back(id);
    const Status status = load_parts(files, path);
    path.pop_back();
    if (!status.ok()) {
      for (int64_t version : files.versions) note_failure(files, version, status);
      return status;
    }
  }
  if (auto updated = update_instances(files)) return *std::move(updated);
  RETURN_IF_ERROR(load_versions(files));
  // Ensembles refer to the versions that they were loaded with.
  for (const auto& user : users_to_load(id)) {
    if (std::find(path.begin(), path.end(), user) != path.end()) continue;
    std::optional<ModelFiles> again;
    {
      std::shared_lock lock(table_->mutex);
      again = table_->entries.at(user).files;
    }
    if (!again) continue;
    if (Status s = load_files(*again, path, false); !s.ok()) {
      log_error("ensemble '{}' after a load of '{}': {}", user.text(), id.text(), message(s));
    }
  }
  return ok();
}

Status ModelManager::load_parts(ModelFiles& files, Ids& path) {
  ModelConfig& config = files.config;
  for (auto& step : config.steps) {
    const ModelId id = part_id(config.space, step.model);
    step.space = id.space;
    if (std::find(path.begin(), path.end(), id) != path.end()) {
      return invalid_argument("circular dependency between ensembles: {} -> ... -> {} -> {}",
                              step.model, config.name, step.model);
    }
    if (has_ready_version(id)) continue;
    auto part = read(id);
    if (absl::IsNotFound(part.status())) {
      return invalid_argument("ensemble {} contains models that are not available or ambiguous: {}",
                              config.name, step.model);
    }
    Status status = part.status();
    if (!status.ok()) {
      return invalid_argument(
          "ensemble '{}' depends on '{}' which is not valid. Model '{}' failed with error: {}",
          config.name, step.model, step.model, message(status));
    }
    status = load_files(*std::move(part), path, false);
    if (!status.ok()) {
      return invalid_argument(
          "ensemble '{}' depends on '{}' which has no loaded version. Model '{}' loading failed "
          "with error: {}",
          config.name, step.model, step.model, message(status));
    }
  }
  ASSIGN_OR_RETURN(const auto parts, find_parts(config));
  std::vector<const ModelConfig*> configs;
  for (const auto& part : parts) configs.push_back(&part->config());
  return check_ensemble_tensors(config, configs);
}

StatusOr<std::vector<std::shared_ptr<Model>>> ModelManager::find_parts(
    const ModelConfig& config) const {
  std::vector<std::shared_ptr<Model>> parts;
  std::shared_lock lock(table_->mutex);
  for (const auto& step : config.steps) {
    auto model = find_version({step.space, step.model}, step.version);
    if (!model.ok() && step.version > 0) {
      return invalid_argument(
          "ensemble '{}' depends on '{}' whose required version {} is not loaded.", config.name,
          step.model, step.version);
    }
    RETURN_IF_ERROR(model.status());
    parts.push_back(*std::move(model));
  }
  return parts;
}

std::optional<Status> ModelManager::update_instances(const ModelFiles& files) {
  const ModelId id = files.id();
  std::vector<std::shared_ptr<BackendModel>> models;
  {
    std::shared_lock lock(table_->mutex);
    const auto it = table_->entries.find(id);
    if (it == table_->entries.end() || !it->second.files) return std::nullopt;
    const ModelFiles& loaded = *it->second.files;
    if (loaded.agents || files.agents || loaded.dir != files.dir ||
        loaded.contents != files.contents || loaded.versions != files.versions ||
        !differ_in_instances_alone(loaded.config, files.config))
      return std::nullopt;
    for (const int64_t number : files.versions) {
      const auto version = it->second.versions.find(number);
      if (version == it->second.versions.end()) return std::nullopt;
      auto model = std::dynamic_pointer_cast<BackendModel>(version->second.model);
      if (model == nullptr || model->has_fixed_instances()) return std::nullopt;
      models.push_back(std::move(model));
    }
  }
  for (const auto& model : models) {
    const Status status = model->update_instances(files.config, options_);
    if (status.ok()) continue;
    log_error("failed to update the instances of '{}' version {}: {}", id.text(), model->version(),
              with_code(status));
    return invalid_argument("version {} is at UNAVAILABLE state: {};", model->version(),
                            with_code(status));
  }
  std::unique_lock lock(table_->mutex);
  table_->entries[id].files = files;
  ++table_->num_changes;
  if (!is_log_terse()) log_info("successfully updated the instances of '{}'", id.text());
  return ok();
}

Status ModelManager::load_versions(const ModelFiles& files) {
  const ModelId id = files.id();
  std::map<int64_t, std::pair<uint64_t, StatusOr<std::shared_ptr<Model>>>> made;
  std::string errors;
  for (int64_t number : files.versions) {
    {
      std::unique_lock lock(table_->mutex);
      Version& version = table_->entries[id].versions[number];
      if (version.model == nullptr) version.state = ModelState::kLoading;
    }
    const uint64_t serial = next_serial_++;
    auto model = make_model(files, number, serial);
    if (!model.ok()) {
      note_failure(files, number, model.status());
      errors +=
          fmt::format("version {} is at UNAVAILABLE state: {};", number, with_code(model.status()));
    }
    made.emplace(number, std::pair(serial, std::move(model)));
  }
  std::unique_lock lock(table_->mutex);
  Entry& entry = table_->entries[id];
  if (!errors.empty()) {
    // All or nothing: versions that did load are unloaded, unless older ones serve.
    for (auto& [number, result] : made) {
      Version& version = entry.versions[number];
      if (!result.second.ok() || version.model != nullptr) continue;
      version.state = ModelState::kUnavailable;
      version.reason = "unloaded";
    }
    lock.unlock();
    made.clear();
    return Status(absl::StatusCode::kInvalidArgument, errors);
  }
  std::shared_ptr<AgentChain> old_agents = entry.files ? entry.files->agents : nullptr;
  if (old_agents == files.agents) old_agents.reset();  // the same files again
  entry.files = files;
  std::vector<std::shared_ptr<Model>> replaced;  // released outside of the lock
  for (auto& [number, result] : made) {
    Version& version = entry.versions[number];
    replaced.push_back(std::move(version.model));
    version = {ModelState::kReady, "", *std::move(result.second), result.first};
    ++table_->num_changes;
    if (!is_log_terse()) log_info("successfully loaded '{}'", id.text());
  }
  for (auto& [number, version] : entry.versions) {
    if (made.contains(number)) continue;
    if (version.model == nullptr && version.state != ModelState::kUnloading) {
      version.state = ModelState::kUnavailable;
      version.reason = "unloaded";
    }
    if (version.model == nullptr) continue;
    replaced.push_back(version.model);
    retire(entry, number);
  }
  lock.unlock();
  if (old_agents != nullptr) old_agents->act(TRITONREPOAGENT_ACTION_UNLOAD);
  return ok();
}

StatusOr<std::shared_ptr<Model>> ModelManager::make_model(const ModelFiles& files, int64_t version,
                                                          uint64_t serial) {
  if (!is_log_terse()) log_info("loading: {}:{}", files.id().text(), version);
  const Time start = now();
  StatusOr<std::shared_ptr<Model>> made = internal_error("not tried");
  load_slots_.acquire();
  const std::unique_ptr<std::counting_semaphore<>, void (*)(std::counting_semaphore<>*)> slot(
      &load_slots_, [](auto* slots) { slots->release(); });
  if (stopping_.load()) return unavailable("Server exiting");
  for (uint32_t attempt = 0; attempt <= options_.model_load_retries && !made.ok(); ++attempt) {
    try {
      made = load_model(files, version, serial);
    } catch (const std::exception& e) {
      made =
          resource_exhausted("{} (limits on memory and threads: ulimit -v, ulimit -u)", e.what());
    }
  }
  RETURN_IF_ERROR(made.status());
  (*made)->statistics().loaded(seconds(now() - start));
  std::lock_guard lock(live_mutex_);
  std::erase_if(live_, [](const auto& weak) { return weak.expired(); });
  live_.push_back(*made);
  return made;
}

StatusOr<std::shared_ptr<Model>> ModelManager::load_model(const ModelFiles& files, int64_t version,
                                                          uint64_t serial) {
  const ModelConfig& config = files.config;
  auto statistics = std::make_unique<ModelStatistics>(
      options_.metrics, config, version, config.response_cache && !options_.cache_name.empty());
  if (config.is_ensemble()) {
    RETURN_IF_ERROR(config.problem());
    ASSIGN_OR_RETURN(auto parts, find_parts(config));
    auto ensemble =
        std::make_unique<EnsembleModel>(server_, config, version, files.dir, std::move(statistics));
    RETURN_IF_ERROR(ensemble->read_class_names());
    RETURN_IF_ERROR(ensemble->load(std::move(parts)));
    return adopt(std::move(ensemble), files, serial);
  }
  ASSIGN_OR_RETURN(Backend * backend, backend_for(config, files.dir, version));
  ASSIGN_OR_RETURN(ModelConfig placed, adopt_preferred_groups(config, backend->preferred_groups));
  auto model = std::make_unique<BackendModel>(server_, std::move(placed), version, files.dir,
                                              std::move(statistics));
  BackendModel* raw = model.get();
  RETURN_IF_ERROR(raw->read_class_names());
  // Shared before it loads: warm-up requests refer to their model.
  auto shared = adopt(std::move(model), files, serial);
  if (Status status = raw->load(backend, options_); !status.ok()) {
    // Taken down here, not on the reaper's thread: the next attempt may follow at once.
    if (shared->drain(now())) shared->take_down();
    return status;
  }
  return shared;
}

std::shared_ptr<Model> ModelManager::adopt(std::unique_ptr<Model> model, const ModelFiles& files,
                                           uint64_t serial) {
  // The folder of an override and the agents live as long as the model; the table may
  // be destroyed before.
  auto gone = [table = std::weak_ptr<Table>(table_), id = files.id(), number = model->version(),
               serial, scratch = files.scratch, agents = files.agents] {
    const auto alive = table.lock();
    if (alive == nullptr) return;
    std::unique_lock lock(alive->mutex);
    const auto entry = alive->entries.find(id);
    if (entry == alive->entries.end()) return;
    const auto version = entry->second.versions.find(number);
    if (version == entry->second.versions.end() || version->second.serial != serial ||
        version->second.state != ModelState::kUnloading) {
      return;
    }
    version->second.state = ModelState::kUnavailable;
    version->second.reason = "unloaded";
  };
  return reaper_.adopt(std::move(model), std::move(gone));
}

void ModelManager::note_failure(const ModelFiles& files, int64_t number, const Status& status) {
  if (!is_log_terse())
    log_error("failed to load '{}' version {}: {}", files.id().text(), number, with_code(status));
  std::unique_lock lock(table_->mutex);
  Entry& entry = table_->entries[files.id()];
  Version& version = entry.versions[number];
  if (version.model != nullptr) return;  // the old version stays
  if (!entry.files) {
    entry.files = files;
    entry.files->agents.reset();
    entry.files->scratch.reset();
  }
  version.state = ModelState::kUnavailable;
  version.reason = with_code(status);
}

void ModelManager::retire(Entry& entry, int64_t number) {
  Version& version = entry.versions[number];
  if (version.model == nullptr) return;
  version.model.reset();
  version.state = ModelState::kUnloading;
  ++table_->num_changes;
}

void ModelManager::retire_all(const ModelId& id) {
  for (const auto& user : users_of(id)) retire_all(user);
  std::vector<std::shared_ptr<Model>> gone;  // released outside of the lock
  std::unique_lock lock(table_->mutex);
  const auto it = table_->entries.find(id);
  if (it == table_->entries.end()) return;
  for (auto& [number, version] : it->second.versions) {
    gone.push_back(version.model);
    retire(it->second, number);
  }
  std::shared_ptr<AgentChain> agents;
  if (it->second.files) {
    agents = std::move(it->second.files->agents);
    it->second.files->scratch.reset();  // versions that still run keep their folder
  }
  lock.unlock();
  if (agents != nullptr) agents->act(TRITONREPOAGENT_ACTION_UNLOAD);
}

template <class Uses>
ModelManager::Ids ModelManager::users_where(const Uses& uses) const {
  Ids out;
  std::shared_lock lock(table_->mutex);
  for (const auto& [user, entry] : table_->entries) {
    if (!entry.files || !entry.wanted) continue;
    const auto& steps = entry.files->config.steps;
    if (std::any_of(steps.begin(), steps.end(),
                    [&](const auto& step) { return uses(step, user.space); })) {
      out.push_back(user);
    }
  }
  return out;
}

ModelManager::Ids ModelManager::users_of(const ModelId& id) const {
  return users_where([&](const EnsembleStep& step, const std::string&) {
    return step.model == id.name && step.space == id.space;
  });
}

ModelManager::Ids ModelManager::users_to_load(const ModelId& id) const {
  return users_where([&](const EnsembleStep& step, const std::string& space) {
    return step.model == id.name && (step.space == id.space || space == id.space);
  });
}

}  // namespace nereid::server
