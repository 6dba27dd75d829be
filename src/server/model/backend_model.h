// Models served by a backend's shared object: the library, the model, its instances
// and their threads.
#pragma once

#include <atomic>
#include <chrono>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/api/values.h"
#include "server/batching/batch_strategy.h"
#include "server/batching/batcher.h"
#include "server/batching/response_order.h"
#include "server/model/model.h"
#include "server/options.h"
#include "triton/core/tritonbackend.h"

namespace nereid::server {

// An opened libtriton_<name>.so, never closed: threads that a backend left behind may
// still run its code.
class Backend {
 public:
  // `dir` is the folder reported to the backend.
  static StatusOr<std::unique_ptr<Backend>> open(const std::string& name,
                                                 const std::filesystem::path& path,
                                                 const std::filesystem::path& dir,
                                                 const ServerOptions& options);
  ~Backend();

  using BackendFn = TRITONSERVER_Error* (*)(TRITONBACKEND_Backend*);
  using AttributeFn = TRITONSERVER_Error* (*)(TRITONBACKEND_Backend*,
                                              TRITONBACKEND_BackendAttribute*);
  using ModelFn = TRITONSERVER_Error* (*)(TRITONBACKEND_Model*);
  using InstanceFn = TRITONSERVER_Error* (*)(TRITONBACKEND_ModelInstance*);
  using ExecuteFn = TRITONSERVER_Error* (*)(TRITONBACKEND_ModelInstance*, TRITONBACKEND_Request**,
                                            uint32_t);
  using RequestIsQuickFn = bool (*)(TRITONBACKEND_Request*);
  using LendsThreadFn = bool (*)(TRITONBACKEND_Model*);
  using OpenParametersFn = const char* (*)(TRITONBACKEND_Model*);
  using ModelViewFn = TRITONSERVER_Error* (*)(TRITONBACKEND_Model*, uint32_t,
                                              TRITONSERVER_Message**);

  std::string name;
  std::string dir;  // folder of the shared object, or of a backend written in Python
  TRITONSERVER_Message config;
  void* state = nullptr;
  bool parallel_instances = false;
  TRITONBACKEND_ExecutionPolicy policy = TRITONBACKEND_EXECUTION_BLOCKING;
  std::vector<PreferredGroup> preferred_groups;

  BackendFn finalize = nullptr;
  ModelFn model_initialize = nullptr, model_finalize = nullptr;
  InstanceFn instance_initialize = nullptr, instance_finalize = nullptr, instance_ready = nullptr;
  ExecuteFn execute = nullptr;
  BatchFunctions batching;                      // mostly empty
  RequestIsQuickFn request_is_quick = nullptr;  // of nereid/backend.h; mostly null
  LendsThreadFn lends_thread = nullptr;         // mostly null
  OpenParametersFn open_parameters = nullptr;   // mostly null
  ModelViewFn model_view = nullptr;             // mostly null
};

class BackendModel;

struct Instance {
  BackendModel* model = nullptr;
  size_t index = 0;  // index among the model's active instances
  std::string name;
  InstanceGroup group;
  int32_t device = 0;  // GPU number; 0 for other kinds
  TRITONSERVER_Message host_policy;
  void* state = nullptr;
  std::unique_ptr<Gate> gate;  // null without rate limiting
  std::mutex busy;             // held while it executes, where other threads may execute too
  // The same for all instances on its GPU; null: they may overlap.
  std::mutex* device_busy = nullptr;
  std::thread thread;
  bool is_leaving = false;
  std::promise<void> over;  // set when the thread has finished
  std::future<void> is_over = over.get_future();
};

// The host policy of an instance as JSON for the backend: its CPUs and memory.
std::string host_policy_json(const InstanceGroup& group, int32_t device,
                             const ServerOptions& options);

class BackendModel : public Model {
 public:
  using Model::Model;
  ~BackendModel() override;

  // Initialises the model and its instances. On failure those initialised are finalised.
  Status load(Backend* backend, const ServerOptions& options);

  // Changes a loaded model's instances to the groups of `wanted`: instances in both stay, missing
  // ones are added, others finish their batch and end. On failure all stay as they were. One caller
  // at a time; only if instances are not fixed.
  Status update_instances(const ModelConfig& wanted, const ServerOptions& options);
  // Whether update_instances() is impossible; also after kMostUpdates updates, since every
  // configuration is kept.
  bool has_fixed_instances() const;
  static constexpr int kMostUpdates = 100;

  bool lends_thread() override;
  StatusOr<std::string> view(uint32_t which) override;
  bool calls_models() const override { return calls_models_.load(); }
  void mark_calls_models() { calls_models_.store(true); }
  // The backend's readiness function; true without one.
  bool ready() const;

  // Applies the model's own changes to its configuration; only within ModelInitialize.
  Status auto_complete(std::string_view json);
  bool may_auto_complete() const { return may_auto_complete_; }

  Backend* backend() const { return backend_; }
  void* state = nullptr;

 protected:
  Status accept(InferenceRequest* request,
                const std::shared_ptr<ResponseContext>& context) override;
  bool continues(const InferenceRequest& request) override;
  void unload() override;

 private:
  Status make_batcher();
  Status make_strategy();
  Status show_open_parameters();
  // `number` counts the group's instances on `device`.
  struct Place {
    const InstanceGroup& group;
    int32_t number, device;
  };
  static std::vector<Place> places_of(const ModelConfig& config);
  static bool is_at(const Instance& instance, const Place& place, const ServerOptions& options);
  StatusOr<Instance*> add_instance(const Place& place, const ServerOptions& options);
  Status start_instances(const std::vector<Place>& places, const ServerOptions& options);
  void let_go(Instance& instance);
  void remove_gone(std::chrono::milliseconds patience);
  void serve(Instance& instance);  // runs batches until the queue is closed and drained
  Status warm_up(Instance& instance);
  void run(Instance& instance, std::promise<Status> initialised);
  bool may_run_here(const ServerOptions& options) const;
  // True: an idle instance has executed the request on this thread.
  bool run_here(InferenceRequest* request);
  void execute(Instance& instance, std::vector<InferenceRequest*> batch);
  void drop(InferenceRequest* request, const Status& status, FailureReason reason);

  Backend* backend_ = nullptr;
  bool model_initialised_ = false;
  bool may_auto_complete_ = false;
  std::mutex update_mutex_;                    // held while instances are added and removed
  std::atomic<int> num_updates_{0};            // updates that changed the configuration
  mutable std::mutex instances_mutex_;         // guards the list, which loads change
  std::list<Instance> instances_;              // a list: addresses are stable
  size_t num_active_ = 0;                      // active instances so far
  std::map<int32_t, std::mutex> device_busy_;  // by GPU; for a backend that blocks whole devices
  std::atomic<bool> is_unloading_{false};      // ends the wait of passive instances
  std::unique_ptr<BatchStrategy> strategy_;    // null: no custom batching
  std::unique_ptr<Batcher> queue_;             // set while loaded
  std::unique_ptr<ResponseOrder> order_;       // set with preserve_ordering
  bool may_run_here_ = false;                  // quick requests may run on the caller's thread
  std::atomic<int64_t> num_queued_{0};
  std::atomic<bool> calls_models_{false};
};

inline Backend* of(TRITONBACKEND_Backend* b) { return reinterpret_cast<Backend*>(b); }
inline BackendModel* of(TRITONBACKEND_Model* m) { return reinterpret_cast<BackendModel*>(m); }
inline Instance* of(TRITONBACKEND_ModelInstance* i) { return reinterpret_cast<Instance*>(i); }

}  // namespace nereid::server
