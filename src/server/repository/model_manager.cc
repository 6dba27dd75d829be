// Load, unload and poll requests, and the end of all models; see model_manager.h.
#include "server/repository/model_manager.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <functional>
#include <thread>

#include "base/contained.h"
#include "base/log.h"
#include "server/api/error.h"

namespace nereid::server {
namespace {

// Leaks `what`: a backend still holds requests of the model, so its memory must outlive every use.
void keep_for_ever(std::shared_ptr<void> what) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::shared_ptr<void>>;
  std::lock_guard lock(mutex);
  kept->push_back(std::move(what));
}

// Calls work(0) ... work(count - 1) on up to `max_threads` threads, this one included. Rethrows an
// exception when all have ended.
void in_parallel(size_t count, size_t max_threads, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr thrown;
  const auto run = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        thrown = std::current_exception();
      }
    }
  };
  std::vector<std::thread> threads;
  try {
    for (size_t i = 1; i < std::min(count, max_threads); ++i) threads.emplace_back(run);
  } catch (const std::system_error&) {  // fewer threads do the same work
  }
  run();
  for (auto& thread : threads) thread.join();
  if (thrown != nullptr) std::rethrow_exception(thrown);
}

// Takes models down in parallel, since they are independent. False: a backend has not returned at
// `deadline`; such models are kept.
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
      contained("unloading a model", [&] { model->take_down(); });
      lock.lock();
      if (--state->num_left == 0) state->changed.notify_all();
    }
  };
  std::vector<std::thread> threads;
  try {
    while (threads.size() < std::min(models.size(), kMaxThreads)) threads.emplace_back(run);
  } catch (const std::system_error&) {  // fewer threads do the same work
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

ModelManager::ModelManager(Server* server, const ServerOptions& options)
    : server_(server),
      options_(options),
      repositories_(options),
      agents_(options.agent_dir),
      load_slots_(std::max(1u, options.model_load_threads)) {}

ModelManager::~ModelManager() {
  std::map<ModelId, Entry> gone;
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
  std::set<ModelId> duplicates;
  ASSIGN_OR_RETURN(std::set<ModelId> ids, repositories_.ids(&duplicates));
  if (options_.control_mode == TRITONSERVER_MODEL_CONTROL_EXPLICIT) {
    const auto& wanted = options_.startup_models;
    if (wanted.size() != 1 || !wanted.contains("*")) {
      ids.clear();
      for (const auto& name : wanted) {
        for (auto& id : repositories_.named(name)) ids.insert(std::move(id));
      }
    }
  } else {
    ids.merge(duplicates);
  }
  ASSIGN_OR_RETURN(const auto claim, locks_.take(ids));
  load_all(ids);
  return ok();
}

void ModelManager::load_all(const std::set<ModelId>& ids) {
  std::vector<ModelFiles> plain, ensembles;
  for (const auto& id : ids) {
    auto files = read(id);
    if (!files.ok()) {
      log_error("Poll failed for model directory '{}': {}", id.text(), message(files.status()));
      std::unique_lock lock(table_->mutex);
      Entry& entry = table_->entries[id];
      entry.problem = files.status();
      entry.wanted = entry.is_explicit = true;
      continue;
    }
    (files->config.is_ensemble() ? ensembles : plain).push_back(*std::move(files));
  }
  // Flags, not messages: a thread without memory cannot make one.
  std::vector<char> is_short(plain.size());
  in_parallel(plain.size(), std::max(1u, options_.model_load_threads), [&](size_t i) {
    try {
      Ids path;
      // The error is in the log and in the table.
      (void)load_files(plain[i], path, true);
    } catch (const std::exception&) {
      is_short[i] = 1;
    }
  });
  for (size_t i = 0; i < plain.size(); ++i) {
    if (is_short[i] == 0) continue;
    const Status status = resource_exhausted("out of memory (limits: ulimit -v, ulimit -u)");
    log_error("failed to load '{}': {}", plain[i].id().text(), message(status));
    std::unique_lock lock(table_->mutex);
    table_->entries[plain[i].id()].problem = status;
  }
  for (const auto& files : ensembles) {
    Ids path;
    (void)load_files(files, path, true);
  }
}

Status ModelManager::load(const std::string& name, const ModelOverride& changes) {
  RETURN_IF_ERROR(check_control(TRITONSERVER_MODEL_CONTROL_EXPLICIT, kNotExplicit));
  const bool has_files = !changes.files.empty();  // then the model is in no repository
  Status first;
  for (const auto& id : has_files ? Ids{{"", name}} : repositories_.named(name)) {
    if (Status s = load_one(id, changes); first.ok()) first = std::move(s);
  }
  return first;
}

Status ModelManager::load_one(const ModelId& id, const ModelOverride& changes) {
  ASSIGN_OR_RETURN(const auto claim, lock_related(id, changes));
  Ids path;
  return bring_up(id, changes, path, true);
}

StatusOr<ModelLocks::ModelLock> ModelManager::lock_related(const ModelId& id,
                                                           const ModelOverride& changes) {
  std::set<ModelId> wanted = related_to(id, changes);
  while (true) {
    auto claim = locks_.take(wanted);
    if (!claim.ok()) return claim;
    // The ensemble's parts may have changed during the wait.
    const auto needed = related_to(id, changes);
    if (std::includes(wanted.begin(), wanted.end(), needed.begin(), needed.end())) return claim;
    wanted.insert(needed.begin(), needed.end());
  }
}

std::set<ModelId> ModelManager::related_to(const ModelId& id, const ModelOverride& changes) const {
  std::set<ModelId> found;
  Ids todo = {id};
  const auto add_steps = [&](const ModelConfig& config) {
    for (const auto& step : config.steps) {
      todo.push_back({step.space, step.model});
      todo.push_back(part_id(config.space, step.model));
    }
  };
  while (!todo.empty()) {
    const ModelId next = std::move(todo.back());
    todo.pop_back();
    if (!found.insert(next).second) continue;
    for (auto& user : users_to_load(next)) todo.push_back(std::move(user));
    std::optional<ModelConfig> known;
    {
      std::shared_lock lock(table_->mutex);
      const auto it = table_->entries.find(next);
      if (it != table_->entries.end() && it->second.files && it->second.wanted) {
        known = it->second.files->config;
      }
    }
    if (known) add_steps(*known);
    if (known && next != id) continue;
    // An unreadable model has no steps; its load reports the error.
    const auto config = repositories_.read_config(next, next == id ? changes : ModelOverride());
    if (config.ok()) add_steps(*config);
  }
  return found;
}

Status ModelManager::unload(const std::string& name, bool dependents) {
  RETURN_IF_ERROR(check_control(TRITONSERVER_MODEL_CONTROL_EXPLICIT, kNotExplicit));
  Ids ids;
  {
    std::shared_lock lock(table_->mutex);
    for (const auto& [id, _] : table_->entries) {
      if (id.name == name) ids.push_back(id);
    }
  }
  for (const auto& id : ids) RETURN_IF_ERROR(unload_one(id, dependents));
  return ok();
}

Status ModelManager::unload_one(const ModelId& id, bool dependents) {
  ASSIGN_OR_RETURN(const auto claim, lock_related(id, {}));
  std::vector<EnsembleStep> steps;
  {
    std::unique_lock lock(table_->mutex);
    const auto it = table_->entries.find(id);
    if (it == table_->entries.end()) return ok();
    Entry& entry = it->second;
    entry.wanted = entry.is_explicit = false;
    entry.problem = ok();
    if (entry.files && dependents) steps = entry.files->config.steps;
    for (auto& [_, version] : entry.versions) {
      if (version.state == ModelState::kUnavailable) version.reason = "unloaded";
    }
  }
  retire_all(id);
  for (const auto& step : steps) {
    const ModelId part{step.space, step.model};
    if (!users_of(part).empty()) continue;
    std::unique_lock lock(table_->mutex);
    const auto it = table_->entries.find(part);
    if (it == table_->entries.end() || it->second.is_explicit) continue;
    it->second.wanted = false;
    lock.unlock();
    retire_all(part);
  }
  return ok();
}

Status ModelManager::poll() {
  RETURN_IF_ERROR(check_control(TRITONSERVER_MODEL_CONTROL_POLL, "polling is disabled"));
  std::set<ModelId> duplicates;
  ASSIGN_OR_RETURN(const std::set<ModelId> ids, repositories_.ids(&duplicates));
  std::set<ModelId> all = ids;
  {
    std::shared_lock lock(table_->mutex);
    for (const auto& [id, _] : table_->entries) all.insert(id);
  }
  ASSIGN_OR_RETURN(const auto claim, locks_.take(std::move(all)));
  Ids vanished;
  {
    std::shared_lock lock(table_->mutex);
    for (const auto& [id, entry] : table_->entries) {
      if (!ids.contains(id) && entry.wanted) vanished.push_back(id);
    }
  }
  for (const auto& id : vanished) {
    {
      std::unique_lock lock(table_->mutex);
      Entry& entry = table_->entries[id];
      entry.wanted = entry.is_explicit = false;
      entry.problem = ok();
    }
    retire_all(id);
  }
  for (const auto& id : ids) {
    Ids path;
    if (Status s = bring_up(id, {}, path, true); !s.ok()) log_error("{}", message(s));
  }
  return ok();
}

Status ModelManager::register_repository(const std::string& root,
                                         const Repositories::Mapping& mapping) {
  if (options_.control_mode != TRITONSERVER_MODEL_CONTROL_EXPLICIT) {
    return unsupported(
        "repository registration is not allowed if model control mode is not "
        "EXPLICIT");
  }
  return repositories_.add_root(root, mapping);
}

Status ModelManager::unregister_repository(const std::string& root) {
  if (options_.control_mode != TRITONSERVER_MODEL_CONTROL_EXPLICIT) {
    return unsupported(
        "repository unregistration is not allowed if model control mode is not "
        "EXPLICIT");
  }
  return repositories_.remove_root(root);
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
  locks_.close();
  // A load may take minutes; its model is stopped if it ends before the deadline.
  const bool all = stop_live(deadline);
  return locks_.wait_until_free(deadline) && stop_live(deadline) && all;
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
  // Models that call others drain first, ensembles before their parts.
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
