// Models served by a backend shared object: the library, the model, its instances and their
// threads.
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

// An opened libtriton_<name>.so. Never closed: threads a backend left behind may still run its
// code.
class Backend {
 public:
  // `dir` is what the backend is told its folder is.
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

  std::string name;
  std::string dir;  // folder of the shared object, or of a backend in Python
  TRITONSERVER_Message config;
  void* state = nullptr;
  bool parallel_instances = false;
  TRITONBACKEND_ExecutionPolicy policy = TRITONBACKEND_EXECUTION_BLOCKING;
  std::vector<PreferredGroup> preferred_groups;

  BackendFn finalize = nullptr;
  ModelFn model_initialize = nullptr, model_finalize = nullptr;
  InstanceFn instance_initialize = nullptr, instance_finalize = nullptr, instance_ready = nullptr;
  ExecuteFn execute = nullptr;
  BatchFunctions batching;                      // most have none
  RequestIsQuickFn request_is_quick = nullptr;  // nereid/backend.h; most have none
  LendsThreadFn lends_thread = nullptr;         // likewise
  OpenParametersFn open_parameters = nullptr;   // likewise
};

class BackendModel;

struct Instance {
  BackendModel* model = nullptr;
  size_t index = 0;  // among the model's that are not passive
  std::string name;
  InstanceGroup group;
  int32_t device = 0;  // GPU; 0 for other kinds
  TRITONSERVER_Message host_policy;
  void* state = nullptr;
  std::unique_ptr<Gate> gate;         // with the rate limiter
  std::mutex busy;                    // held while it executes, where callers may
  std::mutex* device_busy = nullptr;  // likewise, of all instances on its GPU; null: may overlap
  std::thread thread;
  bool is_leaving = false;
  std::promise<void> over;  // the thread does nothing more
  std::future<void> is_over = over.get_future();
};

// What the backend is told of the CPUs and the memory of an instance.
std::string host_policy_json(const InstanceGroup& group, int32_t device,
                             const ServerOptions& options);

class BackendModel : public Model {
 public:
  using Model::Model;
  ~BackendModel() override;

  // Initialises the model and its instances. On failure what was initialised is finalised again.
  Status load(Backend* backend, const ServerOptions& options);

  // Gives a loaded model the instance groups of `wanted`. Instances that these have too go on,
  // others come, and what is left over goes once it has executed what it has taken. On failure all
  // stay as they were. By one thread at a time, and only where the instances are not fixed.
  Status update_instances(const ModelConfig& wanted, const ServerOptions& options);
  // So are those of a model that has had kMostUpdates other configurations, all of which it keeps.
  bool has_fixed_instances() const;
  static constexpr int kMostUpdates = 100;

  bool lends_thread() override;
  bool calls_models() const override { return calls_models_.load(); }
  void mark_calls_models() { calls_models_.store(true); }
  // The backend's own readiness hook; true without one.
  bool ready() const;

  // The model's own changes to its configuration, from within ModelInitialize only.
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
  void serve(Instance& instance);  // until the queue is closed and drained
  Status warm_up(Instance& instance);
  void run(Instance& instance, std::promise<Status> initialised);
  bool may_run_here(const ServerOptions& options) const;
  // True: an idle instance has executed it, on this thread.
  bool run_here(InferenceRequest* request);
  void execute(Instance& instance, std::vector<InferenceRequest*> batch);
  void drop(InferenceRequest* request, const Status& status, FailureReason reason);

  Backend* backend_ = nullptr;
  bool model_initialised_ = false;
  bool may_auto_complete_ = false;
  std::mutex update_mutex_;                    // held while instances come and go
  std::atomic<int> num_updates_{0};            // that changed the configuration
  mutable std::mutex instances_mutex_;         // of the list, which loads change
  std::list<Instance> instances_;              // addresses are stable
  size_t num_active_ = 0;                      // so far, not passive
  std::map<int32_t, std::mutex> device_busy_;  // by GPU; of a backend that blocks whole devices
  std::atomic<bool> is_unloading_{false};      // passive instances wait for it
  std::unique_ptr<BatchStrategy> strategy_;    // null: none
  std::unique_ptr<Batcher> queue_;             // while loaded
  std::unique_ptr<ResponseOrder> order_;       // with preserve_ordering
  bool may_run_here_ = false;                  // quick requests need not go to an instance's thread
  std::atomic<int64_t> num_queued_{0};
  std::atomic<bool> calls_models_{false};
};

inline Backend* of(TRITONBACKEND_Backend* b) { return reinterpret_cast<Backend*>(b); }
inline BackendModel* of(TRITONBACKEND_Model* m) { return reinterpret_cast<BackendModel*>(m); }
inline Instance* of(TRITONBACKEND_ModelInstance* i) { return reinterpret_cast<Instance*>(i); }

}  // namespace nereid::server
