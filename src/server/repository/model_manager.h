// The loaded models: loading, reloading, unloading, states, and the ensembles between them.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <semaphore>
#include <set>
#include <shared_mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "server/model/backend_model.h"
#include "server/model/model.h"
#include "server/options.h"
#include "server/repository/model_claims.h"
#include "server/repository/reaper.h"
#include "server/repository/repository.h"

namespace nereid::server {

enum class ModelState { kReady, kUnavailable, kLoading, kUnloading };
const char* state_name(ModelState state);

struct BackendRow {
  std::string name;
  std::string path;    // path of the shared object
  std::string config;  // JSON as passed to the backend
};

// One row of the repository index. version 0: never loaded.
struct ModelRow {
  std::string name;
  int64_t version = 0;
  ModelState state = ModelState::kUnavailable;
  std::string reason;
};

class ModelManager {
 public:
  ModelManager(Server* server, const ServerOptions& options);
  ~ModelManager();

  // Loads the start-up models of the control mode. Only unreadable roots are an error; models that
  // failed are listed by failures().
  Status start();

  // version -1: the newest ready one. NotFound and Unavailable with the protocol's texts;
  // InvalidArgument when models in several namespaces have the name.
  StatusOr<std::shared_ptr<Model>> find(const std::string& name, int64_t version) const;
  // Ready versions of a model, ascending.
  std::vector<std::shared_ptr<Model>> ready_versions(const std::string& name) const;
  std::vector<std::shared_ptr<Model>> ready_models() const;  // by name, then version

  // Loads or reloads the models of a name, with an ensemble's parts. Serving versions go on until
  // the new ones are ready, and stay if that fails.
  Status load(const std::string& name, const ModelOverride& changes);
  // Returns at once; running requests finish. Ensembles that use the model are unloaded too, until
  // it is loaded again.
  Status unload(const std::string& name, bool dependents);
  // Control mode poll: updates the loaded models to the state of the repositories.
  Status poll();
  Status register_repository(const std::string& root, const Repositories::Mapping& mapping);
  Status unregister_repository(const std::string& root);

  std::vector<ModelRow> index(bool ready_only) const;
  // Counts every change of a version to or from ready.
  uint64_t num_changes() const { return table_->num_changes.load(); }
  std::vector<BackendRow> backends();  // backends opened by models
  std::vector<AgentRow> agents() { return agents_.in_use(); }
  const UsableGpus& gpus() const { return repositories_.gpus(); }
  std::vector<ModelRow> table() const;  // last known state, without reading the disk
  bool all_ready() const;               // false while a known model is missing, loading or failed
  std::string failures() const;         // "" when everything requested is loaded

  // Models with running requests, among all in memory.
  std::vector<std::shared_ptr<Model>> busy_models();
  // Stops all models. False: requests or loads were still running at `deadline`, and their models
  // are kept for ever.
  bool stop(Time deadline);
  // Whether a load or unload is running; after a stop() that failed, the manager must then
  // never be destroyed.
  bool is_changing() const { return locks_.any() || is_taking_down_.load(); }
  // After a stop() that failed: backends are not finalised.
  void abandon_backends() { are_backends_abandoned_ = true; }

 private:
  struct Version {
    ModelState state = ModelState::kUnavailable;
    std::string reason;
    std::shared_ptr<Model> model;  // null unless ready
    // Serial number of the model object, to distinguish it from its successors.
    uint64_t serial = 0;
  };
  struct Entry {
    std::optional<ModelFiles> files;  // files of the versions loaded last
    Status problem;                   // the error for an unreadable model
    bool wanted = false;              // loaded, or to be loaded again when its parts are
    bool is_explicit = false;         // requested by name
    std::map<int64_t, Version> versions;
  };
  struct Table {
    mutable std::shared_mutex mutex;
    std::atomic<uint64_t> num_changes{0};  // changes together with the table, under one lock
    std::map<ModelId, Entry> entries;
  };
  using Ids = std::vector<ModelId>;

  Status check_control(TRITONSERVER_ModelControlMode mode, const char* message) const;
  // Locks the model and everything that its load or unload may change: its parts, and the
  // ensembles that use it.
  StatusOr<ModelLocks::ModelLock> lock_related(const ModelId& id, const ModelOverride& changes);
  std::set<ModelId> related_to(const ModelId& id, const ModelOverride& changes) const;
  // The id of a loaded model; InvalidArgument when `name` is none's or several models'.
  StatusOr<ModelId> loaded_id(const std::string& name) const;  // table locked
  // The model that an ensemble in namespace `space` names: the one in that namespace,
  // else the only one.
  ModelId part_id(const std::string& space, const std::string& name) const;
  StatusOr<std::shared_ptr<Model>> find_version(const ModelId& id,
                                                int64_t version) const;  // table locked
  bool has_ready_version(const ModelId& id) const;
  Status load_one(const ModelId& id, const ModelOverride& changes);
  Status unload_one(const ModelId& id, bool dependents);
  void load_all(const std::set<ModelId>& ids);
  StatusOr<ModelFiles> read(const ModelId& id);
  // Reads and loads one model; `path` are the ensembles that wait for it.
  Status bring_up(const ModelId& id, const ModelOverride& changes, Ids& path, bool is_explicit);
  Status load_files(ModelFiles files, Ids& path, bool is_explicit);
  Status load_checked(ModelFiles& files, Ids& path);
  Status load_parts(ModelFiles& files, Ids& path);
  StatusOr<std::vector<std::shared_ptr<Model>>> find_parts(const ModelConfig& config) const;
  // Updates the instances of the loaded versions when only instance groups have
  // changed; nullopt otherwise.
  std::optional<Status> update_instances(const ModelFiles& files);
  Status load_versions(const ModelFiles& files);
  StatusOr<std::shared_ptr<Model>> make_model(const ModelFiles& files, int64_t version,
                                              uint64_t serial);
  StatusOr<std::shared_ptr<Model>> load_model(const ModelFiles& files, int64_t version,
                                              uint64_t serial);
  std::shared_ptr<Model> adopt(std::unique_ptr<Model> model, const ModelFiles& files,
                               uint64_t serial);
  StatusOr<Backend*> backend_for(const ModelConfig& config, const std::filesystem::path& dir,
                                 int64_t version);
  // The backend of `library`, opened once for each path that is `shown` to administrators;
  // its folder is `home`.
  StatusOr<Backend*> opened(const std::string& name, const std::filesystem::path& library,
                            const std::filesystem::path& shown, const std::filesystem::path& home);
  bool unchanged(const ModelId& id, const ModelFiles& files) const;
  // Whether a step of a loaded ensemble now names a model of another repository.
  bool has_moved_parts(const ModelId& id) const;
  void note_failure(const ModelFiles& files, int64_t version, const Status& status);
  void retire(Entry& entry, int64_t version);  // table locked
  void retire_all(const ModelId& id);
  Ids users_of(const ModelId& id) const;  // loaded ensembles with a step of it
  // users_of(), and ensembles in its namespace that use another repository's model.
  Ids users_to_load(const ModelId& id) const;
  template <class Uses>  // Uses: bool(const EnsembleStep&, const std::string& space)
  Ids users_where(const Uses& uses) const;

  Server* server_;
  const ServerOptions& options_;
  Repositories repositories_;
  RepoAgents agents_;
  std::mutex backends_mutex_;
  std::map<std::string, std::unique_ptr<Backend>> backends_;  // by path; destroyed after the models
  std::atomic<bool> are_backends_abandoned_{false};
  std::shared_ptr<Table> table_ = std::make_shared<Table>();
  ModelLocks locks_;
  std::counting_semaphore<> load_slots_;  // bounds the versions that load at a time
  std::mutex live_mutex_;
  std::vector<std::weak_ptr<Model>> live_;  // in order of loading
  bool stop_live(Time deadline);            // stops the models that stop() has not stopped yet
  std::atomic<uint64_t> next_serial_{1};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> is_taking_down_{false};  // still true after a stop() that failed
  Reaper reaper_;
};

}  // namespace nereid::server
