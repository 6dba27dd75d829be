// Requests to load, unload and poll, and questions about states; see model_manager.h.
#include "server/repository/model_manager.h"

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <thread>

#include "base/log.h"
#include "server/api/error.h"

namespace nereid::server {
namespace {

// A backend still holds requests of a model: the memory of both must outlive every use of it.
void keep_for_ever(std::shared_ptr<void> what) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::shared_ptr<void>>;
  std::lock_guard lock(mutex);
  kept->push_back(std::move(what));
}

// work(0) ... work(count - 1) on up to `max_threads` threads, this one included.
void in_parallel(size_t count, size_t max_threads, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next{0};
  const auto run = [&] {
    for (size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::thread> threads;
  try {
    for (size_t i = 1; i < std::min(count, max_threads); ++i) threads.emplace_back(run);
  } catch (const std::system_error&) {  // fewer of them do the same work
  }
  run();
  for (auto& thread : threads) thread.join();
}

// They know nothing of each other, so they go side by side. False when a backend had not let go of
// its model at `deadline`: such models are kept.
bool take_down(const std::vector<std::shared_ptr<Model>>& models, Time deadline) {
  constexpr size_t kMaxThreads = 256;
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::shared_ptr<Model>> waiting;
    size_t num_left = 0;
  };
  const auto state = std::make_shared<State>();
  state->waiting = models;
  state->num_left = models.size();
  const auto run = [state] {
    std::unique_lock lock(state->mutex);
    while (!state->waiting.empty()) {
      const auto model = std::move(state->waiting.back());
      state->waiting.pop_back();
      lock.unlock();
      model->take_down();
      lock.lock();
      if (--state->num_left == 0) state->changed.notify_all();
    }
  };
  std::vector<std::thread> threads;
  try {
    while (threads.size() < std::min(models.size(), kMaxThreads)) threads.emplace_back(run);
  } catch (const std::system_error&) {  // fewer of them do the same work
  }
  if (threads.empty()) run();
  std::unique_lock lock(state->mutex);
  const bool all = state->changed.wait_until(lock, deadline, [&] { return state->num_left == 0; });
  state->waiting.clear();
  const size_t num_left = state->num_left;
  lock.unlock();
  for (auto& thread : threads) all ? thread.join() : thread.detach();
  if (all) return true;
  log_error("{} models did not unload in time", num_left);
  for (const auto& model : models) keep_for_ever(model);
  return false;
}

constexpr char kNotExplicit[] = "explicit model load / unload is not allowed if polling is enabled";

}  // namespace

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

ModelManager::ModelManager(Server* server, const ServerOptions& options)
    : server_(server),
      options_(options),
      repositories_(options),
      agents_(options.agent_dir),
      load_slots_(std::max(1u, options.model_load_threads)) {}

ModelManager::~ModelManager() {
  std::map<std::string, Entry> gone;
  {
    std::unique_lock lock(table_->mutex);
    gone.swap(table_->entries);
  }
  gone.clear();
  reaper_.close();
  if (!are_backends_abandoned_) return;
  for (auto& [_, backend] : backends_) keep_for_ever(std::move(backend));
}

Status ModelManager::check_control(TRITONSERVER_ModelControlMode mode, const char* message) const {
  if (stopping_.load()) return unavailable("Server exiting");
  return options_.control_mode == mode ? ok() : unavailable("{}", message);
}

Status ModelManager::start() {
  RETURN_IF_ERROR(repositories_.check_roots());
  std::set<std::string> duplicates;
  ASSIGN_OR_RETURN(std::set<std::string> names, repositories_.names(&duplicates));
  if (options_.control_mode == TRITONSERVER_MODEL_CONTROL_EXPLICIT) {
    const auto& wanted = options_.startup_models;
    if (wanted.size() != 1 || !wanted.contains("*")) names = wanted;
  } else {
    names.merge(duplicates);
  }
  ASSIGN_OR_RETURN(const auto claim, claims_.take(names));
  load_all(names);
  return ok();
}

void ModelManager::load_all(const std::set<std::string>& names) {
  Names plain, ensembles;
  std::map<std::string, ModelFiles> found;
  for (const auto& name : names) {
    auto files = read(name);
    if (!files.ok()) {
      log_error("Poll failed for model directory '{}': {}", name, message(files.status()));
      std::unique_lock lock(table_->mutex);
      Entry& entry = table_->entries[name];
      entry.problem = files.status();
      entry.wanted = entry.is_explicit = true;
      continue;
    }
    (files->config.is_ensemble() ? ensembles : plain).push_back(name);
    found.emplace(name, *std::move(files));
  }
  // A thread that is short of memory has none for words either.
  std::vector<char> is_short(plain.size());
  in_parallel(plain.size(), std::max(1u, options_.model_load_threads), [&](size_t i) {
    try {
      Names path;
      // What went wrong is in the log and in the table.
      (void)load_files(plain[i], found.at(plain[i]), path, true);
    } catch (const std::exception&) {
      is_short[i] = 1;
    }
  });
  for (size_t i = 0; i < plain.size(); ++i) {
    if (is_short[i] == 0) continue;
    const Status status = resource_exhausted("out of memory (limits: ulimit -v, ulimit -u)");
    log_error("failed to load '{}': {}", plain[i], message(status));
    std::unique_lock lock(table_->mutex);
    table_->entries[plain[i]].problem = status;
  }
  for (const auto& name : ensembles) {
    Names path;
    (void)load_files(name, found.at(name), path, true);
  }
}

StatusOr<std::shared_ptr<Model>> ModelManager::find(const std::string& name,
                                                    int64_t version) const {
  std::shared_lock lock(table_->mutex);
  const auto it = table_->entries.find(name);
  if (it == table_->entries.end()) {
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
  const auto it = table_->entries.find(name);
  if (it == table_->entries.end()) return out;
  for (const auto& [_, version] : it->second.versions) {
    if (version.model != nullptr) out.push_back(version.model);
  }
  return out;
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

Status ModelManager::load(const std::string& name, const ModelOverride& changes) {
  RETURN_IF_ERROR(check_control(TRITONSERVER_MODEL_CONTROL_EXPLICIT, kNotExplicit));
  ASSIGN_OR_RETURN(const auto claim, claim_related(name, changes));
  Names path;
  return bring_up(name, changes, path, true);
}

StatusOr<ModelClaims::Claim> ModelManager::claim_related(const std::string& name,
                                                         const ModelOverride& changes) {
  std::set<std::string> wanted = related_to(name, changes);
  while (true) {
    auto claim = claims_.take(wanted);
    if (!claim.ok()) return claim;
    // What they are made of may have changed while this waited.
    const auto needed = related_to(name, changes);
    if (std::includes(wanted.begin(), wanted.end(), needed.begin(), needed.end())) return claim;
    wanted.insert(needed.begin(), needed.end());
  }
}

std::set<std::string> ModelManager::related_to(const std::string& name,
                                               const ModelOverride& changes) const {
  std::set<std::string> found;
  Names todo = {name};
  const auto add_steps = [&](const ModelConfig& config) {
    for (const auto& step : config.steps) todo.push_back(step.model);
  };
  while (!todo.empty()) {
    const std::string next = std::move(todo.back());
    todo.pop_back();
    if (!found.insert(next).second) continue;
    for (auto& user : users_of(next)) todo.push_back(std::move(user));
    bool is_known = false;
    {
      std::shared_lock lock(table_->mutex);
      const auto it = table_->entries.find(next);
      is_known = it != table_->entries.end() && it->second.files && it->second.wanted;
      if (is_known) add_steps(it->second.files->config);
    }
    if (is_known && next != name) continue;
    // What cannot be read has no steps, and its load says why.
    const auto config = repositories_.read_config(next, next == name ? changes : ModelOverride());
    if (config.ok()) add_steps(*config);
  }
  return found;
}

Status ModelManager::unload(const std::string& name, bool dependents) {
  RETURN_IF_ERROR(check_control(TRITONSERVER_MODEL_CONTROL_EXPLICIT, kNotExplicit));
  ASSIGN_OR_RETURN(const auto claim, claim_related(name, {}));
  std::vector<EnsembleStep> steps;
  {
    std::unique_lock lock(table_->mutex);
    const auto it = table_->entries.find(name);
    if (it == table_->entries.end()) return ok();
    Entry& entry = it->second;
    entry.wanted = entry.is_explicit = false;
    entry.problem = ok();
    if (entry.files && dependents) steps = entry.files->config.steps;
    for (auto& [_, version] : entry.versions) {
      if (version.state == ModelState::kUnavailable) version.reason = "unloaded";
    }
  }
  retire_all(name);
  for (const auto& step : steps) {
    if (!users_of(step.model).empty()) continue;
    std::unique_lock lock(table_->mutex);
    const auto it = table_->entries.find(step.model);
    if (it == table_->entries.end() || it->second.is_explicit) continue;
    it->second.wanted = false;
    lock.unlock();
    retire_all(step.model);
  }
  return ok();
}

Status ModelManager::poll() {
  RETURN_IF_ERROR(check_control(TRITONSERVER_MODEL_CONTROL_POLL, "polling is disabled"));
  std::set<std::string> duplicates;
  ASSIGN_OR_RETURN(const std::set<std::string> names, repositories_.names(&duplicates));
  std::set<std::string> all = names;
  for (const auto& row : table()) all.insert(row.name);
  ASSIGN_OR_RETURN(const auto claim, claims_.take(std::move(all)));
  Names vanished;
  {
    std::shared_lock lock(table_->mutex);
    for (const auto& [name, entry] : table_->entries) {
      if (!names.contains(name) && entry.wanted) vanished.push_back(name);
    }
  }
  for (const auto& name : vanished) {
    {
      std::unique_lock lock(table_->mutex);
      Entry& entry = table_->entries[name];
      entry.wanted = entry.is_explicit = false;
      entry.problem = ok();
    }
    retire_all(name);
  }
  for (const auto& name : names) {
    Names path;
    if (Status s = bring_up(name, {}, path, true); !s.ok()) log_error("{}", message(s));
  }
  return ok();
}

Status ModelManager::register_repository(const std::string& root) {
  if (options_.control_mode != TRITONSERVER_MODEL_CONTROL_EXPLICIT) {
    return unsupported(
        "repository registration is not allowed if model control mode is not "
        "EXPLICIT");
  }
  return repositories_.add_root(root);
}

Status ModelManager::unregister_repository(const std::string& root) {
  if (options_.control_mode != TRITONSERVER_MODEL_CONTROL_EXPLICIT) {
    return unsupported(
        "repository unregistration is not allowed if model control mode is not "
        "EXPLICIT");
  }
  return repositories_.remove_root(root);
}

std::vector<ModelRow> ModelManager::index(bool ready_only) const {
  std::set<std::string> duplicates;
  auto names = repositories_.names(&duplicates);
  std::vector<ModelRow> out;
  std::shared_lock lock(table_->mutex);
  std::set<std::string> listed;
  if (names.ok()) listed = *names;
  for (const auto& [name, entry] : table_->entries) {
    // A model of an override lives in no repository; it is listed while it serves.
    const auto serves = [](const auto& v) { return v.second.model != nullptr; };
    if (std::any_of(entry.versions.begin(), entry.versions.end(), serves)) listed.insert(name);
  }
  for (const auto& name : listed) {
    const auto it = table_->entries.find(name);
    if (it == table_->entries.end() || !it->second.problem.ok()) {
      if (!ready_only) out.push_back({name});
      continue;
    }
    for (const auto& [number, version] : it->second.versions) {
      if (ready_only && version.state != ModelState::kReady) continue;
      out.push_back({name, number, version.state, version.reason});
    }
  }
  for (const auto& name : duplicates) {
    if (!ready_only) {
      out.push_back(
          {name, 0, ModelState::kUnavailable, "model appears in two or more repositories"});
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
  for (const auto& [name, entry] : table_->entries) {
    if (!entry.problem.ok()) {
      out.push_back({name, 0, ModelState::kUnavailable, std::string(message(entry.problem))});
    } else if (entry.versions.empty()) {
      out.push_back({name, 0, ModelState::kUnavailable, "Not loaded: No model version was found"});
    }
    for (const auto& [number, version] : entry.versions) {
      out.push_back({name, number, version.state, version.reason});
    }
  }
  return out;
}

bool ModelManager::all_ready() const {
  std::shared_lock lock(table_->mutex);
  for (const auto& [name, entry] : table_->entries) {
    if (!entry.problem.ok() || entry.versions.empty()) return false;
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
  std::string out;
  for (const auto& row : table()) {
    if (row.state == ModelState::kReady) continue;
    out += fmt::format("{}{}: {}", out.empty() ? "" : "; ", row.name, row.reason);
  }
  return out;
}

std::vector<std::shared_ptr<Model>> ModelManager::busy_models() {
  std::vector<std::shared_ptr<Model>> busy;
  std::lock_guard lock(live_mutex_);
  for (const auto& weak : live_) {
    if (auto model = weak.lock(); model && model->num_running() > 0) busy.push_back(model);
  }
  return busy;
}

bool ModelManager::stop(Time deadline) {
  stopping_.store(true);
  claims_.close();
  // A load may take minutes: what it has made is stopped when it ends in time.
  const bool all = stop_live(deadline);
  return claims_.wait_until_free(deadline) && stop_live(deadline) && all;
}

bool ModelManager::stop_live(Time deadline) {
  std::vector<std::shared_ptr<Model>> models;
  {
    std::lock_guard lock(live_mutex_);
    for (const auto& weak : live_) {
      auto model = weak.lock();
      if (model && !model->is_closed()) models.push_back(std::move(model));
    }
  }
  // Models that send requests to others drain first, ensembles before what they are made of.
  const auto callers = std::stable_partition(
      models.begin(), models.end(), [](const auto& model) { return !model->calls_models(); });
  std::vector<std::shared_ptr<Model>> drained;
  const auto drain = [&](const std::shared_ptr<Model>& model) {
    if (model->drain(deadline)) {
      drained.push_back(model);
    } else {
      keep_for_ever(model);
    }
  };
  std::for_each(models.rbegin(), std::make_reverse_iterator(callers), drain);
  std::for_each(models.begin(), callers, [](const auto& model) { model->close(); });
  std::for_each(models.begin(), callers, drain);
  if (!take_down(drained, deadline)) {
    is_taking_down_ = true;
    return false;
  }
  return drained.size() == models.size();
}

}  // namespace nereid::server
