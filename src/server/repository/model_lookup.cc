// The part of ModelManager that answers queries: loaded models, and the model of a name.
#include <algorithm>

#include "server/repository/model_manager.h"

namespace nereid::server {

const char* state_name(ModelState state) {
  switch (state) {
    case ModelState::kReady:
      return "READY";
    case ModelState::kLoading:
      return "LOADING";
    case ModelState::kUnloading:
      return "UNLOADING";
    case ModelState::kUnavailable:
      break;
  }
  return "UNAVAILABLE";
}

StatusOr<std::shared_ptr<Model>> ModelManager::find(const std::string& name,
                                                    int64_t version) const {
  std::shared_lock lock(table_->mutex);
  ASSIGN_OR_RETURN(const ModelId id, loaded_id(name));
  return find_version(id, version);
}

StatusOr<ModelId> ModelManager::loaded_id(const std::string& name) const {
  if (!options_.has_namespaces) return ModelId{"", name};
  std::set<ModelId> found;
  for (const auto& [id, entry] : table_->entries) {
    if (id.name == name && entry.wanted) found.insert(id);
  }
  if (found.empty()) return invalid_argument("Request for unknown model: '{}' is not found", name);
  if (found.size() == 1) return *found.begin();
  return invalid_argument(
      "There are {} identifiers of model '{}' in global map, model namespace must be provided to "
      "resolve ambiguity.",
      found.size(), name);
}

ModelId ModelManager::part_id(const std::string& space, const std::string& name) const {
  if (!options_.has_namespaces) return {"", name};
  const auto there = repositories_.named(name);
  std::set<ModelId> found(there.begin(), there.end());
  found.erase({"", name});
  {
    std::shared_lock lock(table_->mutex);
    for (const auto& [id, entry] : table_->entries) {
      if (id.name == name && entry.wanted) found.insert(id);
    }
  }
  return found.size() == 1 ? *found.begin() : ModelId{space, name};
}

StatusOr<std::shared_ptr<Model>> ModelManager::find_version(const ModelId& id,
                                                            int64_t version) const {
  const std::string& name = id.name;
  const auto it = table_->entries.find(id);
  const bool is_known = it != table_->entries.end();
  if (!is_known || (!it->second.problem.ok() && it->second.versions.empty())) {
    return not_found("Request for unknown model: '{}' is not found", name);
  }
  const auto& versions = it->second.versions;
  if (version >= 0) {
    const auto v = versions.find(version);
    if (v == versions.end()) {
      return not_found("Request for unknown model: '{}' version {} is not found", name, version);
    }
    if (v->second.model == nullptr) {
      return unavailable("Request for unknown model: '{}' version {} is not at ready state", name,
                         version);
    }
    return v->second.model;
  }
  for (auto v = versions.rbegin(); v != versions.rend(); ++v) {
    if (v->second.model != nullptr) return v->second.model;
  }
  return not_found("Request for unknown model: '{}' has no available versions", name);
}

std::vector<std::shared_ptr<Model>> ModelManager::ready_versions(const std::string& name) const {
  std::vector<std::shared_ptr<Model>> out;
  std::shared_lock lock(table_->mutex);
  const auto id = loaded_id(name);
  const auto it = id.ok() ? table_->entries.find(*id) : table_->entries.end();
  if (it == table_->entries.end()) return out;
  for (const auto& [_, version] : it->second.versions) {
    if (version.model != nullptr) out.push_back(version.model);
  }
  return out;
}

bool ModelManager::has_ready_version(const ModelId& id) const {
  std::shared_lock lock(table_->mutex);
  return find_version(id, -1).ok();
}

std::vector<std::shared_ptr<Model>> ModelManager::ready_models() const {
  std::vector<std::shared_ptr<Model>> out;
  std::shared_lock lock(table_->mutex);
  for (const auto& [name, entry] : table_->entries) {
    for (const auto& [_, version] : entry.versions) {
      if (version.model != nullptr) out.push_back(version.model);
    }
  }
  return out;
}

std::vector<ModelRow> ModelManager::index(bool ready_only) const {
  std::set<ModelId> duplicates;
  auto ids = repositories_.ids(&duplicates);
  std::vector<ModelRow> out;
  std::shared_lock lock(table_->mutex);
  std::set<ModelId> listed;
  if (ids.ok()) listed = *ids;
  for (const auto& [id, entry] : table_->entries) {
    // A model of an override is in no repository; it is listed while it serves.
    const auto serves = [](const auto& v) { return v.second.model != nullptr; };
    if (std::any_of(entry.versions.begin(), entry.versions.end(), serves)) listed.insert(id);
  }
  for (const auto& id : listed) {
    const auto it = table_->entries.find(id);
    if (it == table_->entries.end() || !it->second.problem.ok()) {
      if (!ready_only) out.push_back({id.name});
      continue;
    }
    for (const auto& [number, version] : it->second.versions) {
      if (ready_only && version.state != ModelState::kReady) continue;
      out.push_back({id.name, number, version.state, version.reason});
    }
  }
  for (const auto& id : duplicates) {
    if (!ready_only) {
      out.push_back(
          {id.name, 0, ModelState::kUnavailable, "model appears in two or more repositories"});
    }
  }
  return out;
}

std::vector<BackendRow> ModelManager::backends() {
  std::vector<BackendRow> out;
  std::lock_guard lock(backends_mutex_);
  for (const auto& [path, backend] : backends_) {
    out.push_back({backend->name, path, backend->config.text});
  }
  return out;
}

std::vector<ModelRow> ModelManager::table() const {
  std::vector<ModelRow> out;
  std::shared_lock lock(table_->mutex);
  for (const auto& [id, entry] : table_->entries) {
    if (!entry.problem.ok()) {
      out.push_back({id.name, 0, ModelState::kUnavailable, std::string(message(entry.problem))});
    } else if (entry.versions.empty()) {
      out.push_back(
          {id.name, 0, ModelState::kUnavailable, "Not loaded: No model version was found"});
    }
    for (const auto& [number, version] : entry.versions) {
      out.push_back({id.name, number, version.state, version.reason});
    }
  }
  return out;
}

bool ModelManager::all_ready() const {
  std::shared_lock lock(table_->mutex);
  for (const auto& [name, entry] : table_->entries) {
    // An unreadable model is ignored, as in the stock server; with --exit-on-error
    // it fails the start.
    if (!entry.problem.ok() && !absl::IsResourceExhausted(entry.problem)) continue;
    if (entry.versions.empty()) return false;
    for (const auto& [_, version] : entry.versions) {
      if (version.state == ModelState::kUnavailable && version.reason == "unloaded") continue;
      if (version.state != ModelState::kReady) return false;
      const auto* backend_model = dynamic_cast<const BackendModel*>(version.model.get());
      if (backend_model != nullptr && !backend_model->ready()) return false;
    }
  }
  return true;
}

std::string ModelManager::failures() const {
  std::vector<ModelRow> failed = table();
  std::erase_if(failed, [](const auto& row) { return row.state == ModelState::kReady; });
  std::vector<ModelId> ids;
  {
    std::shared_lock lock(table_->mutex);
    for (const auto& [id, entry] : table_->entries) ids.push_back(id);
  }
  std::set<std::string> users;  // users of failed models, whose failure is the cause
  for (const auto& id : ids) {
    if (std::ranges::find(failed, id.name, &ModelRow::name) == failed.end()) continue;
    for (const auto& user : users_of(id)) users.insert(user.name);
  }
  std::string out;
  for (const bool all : {false, true}) {  // second round: ensembles that use each other
    if (!out.empty()) break;
    for (const auto& row : failed) {
      if (!all && users.contains(row.name)) continue;
      out += fmt::format("{}{}: {}", out.empty() ? "" : "; ", row.name, row.reason);
    }
  }
  return out;
}

}  // namespace nereid::server
