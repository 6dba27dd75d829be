// Which models are loaded: loading, reloading, unloading, their states, and the ensembles between
// them.
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
  std::string path;    // of the shared object
  std::string config;  // JSON, as the backend sees it
};

// One line of the repository index. version 0: never loaded.
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

  // Loads the start-up models of the control mode. Only unreadable roots are an error; what failed
  // to load is told by failures().
  Status start();

  // version -1: the newest ready. NotFound / Unavailable with the protocol's texts; InvalidArgument
  // when several models, each in a namespace of its own, have the name.
  StatusOr<std::shared_ptr<Model>> find(const std::string& name, int64_t version) const;
  // Ready versions of a model, ascending.
  std::vector<std::shared_ptr<Model>> ready_versions(const std::string& name) const;
  std::vector<std::shared_ptr<Model>> ready_models() const;  // by name, then version

  // Loads or reloads the models of a name, with what an ensemble is made of. The versions that
  // serve now go on until the new ones are ready, and stay when that fails.
  Status load(const std::string& name, const ModelOverride& changes);
  // Returns at once; running requests finish. Ensembles that use the model go too, until it comes
  // back.
  Status unload(const std::string& name, bool dependents);
  // Mode poll: brings the loaded models in line with the repositories.
  Status poll();
  Status register_repository(const std::string& root, const Repositories::Mapping& mapping);
  Status unregister_repository(const std::string& root);

  std::vector<ModelRow> index(bool ready_only) const;
  // How often so far a version became ready or stopped being it.
  uint64_t num_changes() const { return table_->num_changes.load(); }
  std::vector<BackendRow> backends();  // those that models have opened
  std::vector<AgentRow> agents() { return agents_.in_use(); }
  const UsableGpus& gpus() const { return repositories_.gpus(); }
  std::vector<ModelRow> table() const;  // what is known, without a look at the disk
  bool all_ready() const;               // nothing known is missing, loading or failed
  std::string failures() const;         // "" when everything wanted is loaded

  // Models, of all that are in memory, in which something runs.
  std::vector<std::shared_ptr<Model>> busy_models();
  // Stops all models; false when requests or loads were still running at `deadline`: the models of
  // these are left for ever.
  bool stop(Time deadline);
  // Something is still being loaded or unloaded; after a stop() that failed, the manager must then
  // be left for ever.
  bool is_changing() const { return claims_.any() || is_taking_down_.load(); }
  // After a stop() that failed: backends must not be finalised.
  void abandon_backends() { are_backends_abandoned_ = true; }

 private:
  struct Version {
    ModelState state = ModelState::kUnavailable;
    std::string reason;
    std::shared_ptr<Model> model;  // while ready
    uint64_t serial = 0;           // of the model, to tell it from its successors
  };
  struct Entry {
    std::optional<ModelFiles> files;  // of the versions that were loaded last
    Status problem;                   // why the model could not even be read
    bool wanted = false;              // loaded, or to be loaded again when its parts come back
    bool is_explicit = false;         // asked for by name
    std::map<int64_t, Version> versions;
  };
  struct Table {
    mutable std::shared_mutex mutex;
    std::atomic<uint64_t> num_changes{0};  // with what has changed under one lock
    std::map<ModelId, Entry> entries;
  };
  using Ids = std::vector<ModelId>;

  Status check_control(TRITONSERVER_ModelControlMode mode, const char* message) const;
  // Claims the model and all that a load or unload of it may touch: what it is made of, and what is
  // made of it.
  StatusOr<ModelClaims::Claim> claim_related(const ModelId& id, const ModelOverride& changes);
  std::set<ModelId> related_to(const ModelId& id, const ModelOverride& changes) const;
  // The id of a loaded model; InvalidArgument when `name` stands for none or for several.
  StatusOr<ModelId> loaded_id(const std::string& name) const;  // table locked
  // What an ensemble in namespace `space` means by a name: a model in that namespace, else the only
  // one there is.
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
  // Where only instance groups differ from what is loaded, the loaded versions get those. Nothing:
  // that is not so.
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
  // The backend of `library`, opened once for each path that is `shown` to administrators; its
  // folder is `home`.
  StatusOr<Backend*> opened(const std::string& name, const std::filesystem::path& library,
                            const std::filesystem::path& shown, const std::filesystem::path& home);
  bool unchanged(const ModelId& id, const ModelFiles& files) const;
  // Whether a step of a loaded ensemble would be another repository's model now.
  bool has_moved_parts(const ModelId& id) const;
  void note_failure(const ModelFiles& files, int64_t version, const Status& status);
  void retire(Entry& entry, int64_t version);  // table locked
  void retire_all(const ModelId& id);
  Ids users_of(const ModelId& id) const;  // ensembles made of it, wanted
  Ids users_to_load(
      const ModelId& id) const;  // and those in its namespace that made do with another
  template <class Uses>          // bool(const EnsembleStep&, const std::string& space)
  Ids users_where(const Uses& uses) const;

  Server* server_;
  const ServerOptions& options_;
  Repositories repositories_;
  RepoAgents agents_;
  std::mutex backends_mutex_;
  std::map<std::string, std::unique_ptr<Backend>> backends_;  // by path; destroyed after the models
  std::atomic<bool> are_backends_abandoned_{false};
  std::shared_ptr<Table> table_ = std::make_shared<Table>();
  ModelClaims claims_;
  std::counting_semaphore<> load_slots_;  // versions that may load at a time
  std::mutex live_mutex_;
  std::vector<std::weak_ptr<Model>> live_;  // in the order of loading
  bool stop_live(Time deadline);            // those that stop() has not stopped yet
  std::atomic<uint64_t> next_serial_{1};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> is_taking_down_{false};  // still, after a stop() that failed
  Reaper reaper_;
};

}  // namespace nereid::server
