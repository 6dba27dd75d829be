// Execution of models by backends.
#include "server/model/backend_model.h"

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/contained.h"
#include "base/json.h"
#include "base/log.h"
#include "server/batching/request_queue.h"
#include "server/batching/sequence_batcher.h"
#include "server/cache/response_cache.h"
#include "server/model/backend_call.h"
#include "server/model/run_here.h"
#include "server/model/warmup.h"
#include "server/request/response.h"
#include "server/server.h"

namespace nereid::server {
namespace {

// Parses "0-3,8" into a set of CPUs; InvalidArgument for other text.
StatusOr<cpu_set_t> parse_cpus(const std::string& text) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  const char* at = text.c_str();
  const char* const end = at + text.size();
  while (true) {
    int first = -1;
    auto read = std::from_chars(at, end, first);
    int last = first;
    if (read.ec == std::errc() && read.ptr != end && *read.ptr == '-') {
      read = std::from_chars(read.ptr + 1, end, last);
    }
    if (read.ec != std::errc() || first < 0 || last < first || last >= CPU_SETSIZE) break;
    for (int cpu = first; cpu <= last; ++cpu) CPU_SET(cpu, &cpus);
    if (read.ptr == end) return cpus;
    if (*read.ptr != ',') break;
    at = read.ptr + 1;
  }
  return invalid_argument(
      "host policy 'cpu-cores' must be a list of CPUs and ranges, like 0-3,8, got '{}'", text);
}

// Allocates the calling thread's memory on NUMA node `node` ("0") from now on.
Status use_memory_of(const std::string& node) {
  constexpr int kModeBind = 2;  // MPOL_BIND
  constexpr size_t kMaxNodes = 1024;
  size_t number = 0;
  const char* const end = node.data() + node.size();
  const auto read = std::from_chars(node.data(), end, number);
  if (read.ec != std::errc() || read.ptr != end || number >= kMaxNodes) {
    return invalid_argument("host policy 'numa-node' must be a number from 0 to {}, got '{}'",
                            kMaxNodes - 1, node);
  }
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  std::array<unsigned long, kMaxNodes / kBits> nodes{};
  nodes[number / kBits] = 1ul << number % kBits;
  if (::syscall(SYS_set_mempolicy, kModeBind, nodes.data(), kMaxNodes + 1) == 0) return ok();
  return invalid_argument("host policy 'numa-node' '{}': {}", node, std::strerror(errno));
}

// Binds the calling thread, an instance's, to the CPUs and the NUMA node of its host policy.
Status apply_host_policy(const std::string& policy) {
  const auto parsed = parse_json(policy);
  if (!parsed.ok() || !parsed->is_object()) return ok();
  for (const auto& [name, settings] : parsed->get_object()) {
    if (const auto* node = settings.as_object().if_contains("numa-node")) {
      RETURN_IF_ERROR(use_memory_of(std::string(node->as_string())));
    }
    const auto* cores = settings.as_object().if_contains("cpu-cores");
    if (cores == nullptr) continue;
    ASSIGN_OR_RETURN(const cpu_set_t cpus, parse_cpus(std::string(cores->as_string())));
    const int error = pthread_setaffinity_np(pthread_self(), sizeof cpus, &cpus);
    if (error == 0) continue;
    return invalid_argument("host policy 'cpu-cores' '{}': {}", std::string(cores->as_string()),
                            std::strerror(error));
  }
  return ok();
}

}  // namespace

std::string host_policy_json(const InstanceGroup& group, int32_t device,
                             const ServerOptions& options) {
  std::string name = group.host_policy;
  if (name.empty() && group.kind == TRITONSERVER_INSTANCEGROUPKIND_GPU) {
    name = fmt::format("gpu_{}", device);
  }
  if (name.empty()) name = group.kind == TRITONSERVER_INSTANCEGROUPKIND_MODEL ? "model" : "cpu";
  json::object settings;
  if (const auto it = options.host_policies.find(name); it != options.host_policies.end()) {
    for (const auto& [key, value] : it->second) settings[key] = value;
  }
  return json::serialize(json::object{{name, std::move(settings)}});
}

BackendModel::~BackendModel() { unload(); }

Status BackendModel::load(Backend* backend, const ServerOptions& options) {
  backend_ = backend;
  auto* self = reinterpret_cast<TRITONBACKEND_Model*>(this);
  may_auto_complete_ = !options.strict_model_config;
  if (!may_auto_complete_) RETURN_IF_ERROR(config().problem());
  model_initialised_ = true;
  if (backend->model_initialize != nullptr)
    RETURN_IF_ERROR(call_backend(backend->model_initialize, self));
  may_auto_complete_ = false;
  if (!config().is_given) {
    return not_found("model configuration is not provided for model '{}'", config().name);
  }
  RETURN_IF_ERROR(config().problem());
  RETURN_IF_ERROR(show_open_parameters());
  RETURN_IF_ERROR(make_batcher());
  may_run_here_ = may_run_here(options);
  return start_instances(places_of(config()), options);
}

Status BackendModel::start_instances(const std::vector<Place>& places,
                                     const ServerOptions& options) {
  std::vector<std::future<Status>> pending;
  Status status;
  for (const Place& place : places) {
    auto instance = add_instance(place, options);
    if (status = instance.status(); !status.ok()) break;
    std::promise<Status> initialised;
    pending.push_back(initialised.get_future());
    (*instance)->thread =
        std::thread([this, instance = *instance, p = std::move(initialised)]() mutable {
          run(*instance, std::move(p));
          instance->over.set_value();
        });
    if (!backend_->parallel_instances) pending.back().wait();
  }
  for (auto& p : pending) {
    try {
      if (Status s = p.get(); status.ok()) status = s;
    } catch (const std::exception& e) {
      status =
          resource_exhausted("{} (limits on memory and threads: ulimit -v, ulimit -u)", e.what());
    }
  }
  return status;
}

Status BackendModel::make_batcher() {
  auto drop_queued = [this](InferenceRequest* request, const Status& status) {
    --num_queued_;
    statistics().pending(-1);
    drop(request, status,
         absl::IsCancelled(status) ? FailureReason::kCanceled : FailureReason::kRejected);
  };
  if (config().sequences) {
    size_t num_instances = 0;
    for (const auto& group : config().groups) {
      if (!group.is_passive) num_instances += group.num_instances();
    }
    ASSIGN_OR_RETURN(queue_, SequenceBatcher::create(*this, num_instances, std::move(drop_queued)));
    return ok();
  }
  RETURN_IF_ERROR(make_strategy());
  queue_ = std::make_unique<RequestQueue>(config(), strategy_.get(), std::move(drop_queued));
  if (config().batching && config().batching->preserve_ordering) {
    order_ = std::make_unique<ResponseOrder>();
  }
  return ok();
}

Status BackendModel::make_strategy() {
  if (!config().batching) return ok();
  constexpr char kName[] = "batchstrategy.so";
  std::vector<std::filesystem::path> libraries = {dir() / std::to_string(version()) / kName,
                                                  dir() / kName,
                                                  std::filesystem::path(backend_->dir) / kName};
  if (const std::string& given = config().batch_strategy; !given.empty()) {
    // A configuration must not load libraries outside the model's repository: its author may
    // have no other rights.
    std::error_code error;
    const auto home = std::filesystem::weakly_canonical(dir(), error);
    const auto is_inside = [&](const std::filesystem::path& path) {
      return std::mismatch(home.begin(), home.end(), path.begin(), path.end()).first == home.end();
    };
    // A relative path is tried from the working directory, as in the stock server, then from
    // the model's folder.
    auto path = std::filesystem::weakly_canonical(given, error);
    if (!is_inside(path)) path = std::filesystem::weakly_canonical(dir() / given, error);
    if (!is_inside(path)) {
      return invalid_argument(
          "model '{}': TRITON_BATCH_STRATEGY_PATH '{}' must be below the model's folder {}",
          config().name, given, home.string());
    }
    if (!std::filesystem::exists(path, error)) {
      return not_found("model '{}': TRITON_BATCH_STRATEGY_PATH '{}' does not exist", config().name,
                       given);
    }
    libraries = {path};
  }
  ASSIGN_OR_RETURN(const BatchFunctions functions,
                   find_batch_functions(libraries, backend_->batching));
  if (!functions.any()) return ok();
  ASSIGN_OR_RETURN(strategy_,
                   BatchStrategy::create(functions, reinterpret_cast<TRITONBACKEND_Model*>(this)));
  return ok();
}

StatusOr<Instance*> BackendModel::add_instance(const Place& place, const ServerOptions& options) {
  const auto& [group, number, device] = place;
  const std::lock_guard lock(instances_mutex_);
  Instance& instance = instances_.emplace_back();
  instance.model = this;
  instance.name = fmt::format("{}_{}", group.name, number);
  instance.group = group;
  instance.device = device;
  instance.host_policy.text = host_policy_json(group, device, options);
  if (group.is_passive) return &instance;
  instance.index = num_active_++;
  if (backend_->policy == TRITONBACKEND_EXECUTION_DEVICE_BLOCKING &&
      group.kind == TRITONSERVER_INSTANCEGROUPKIND_GPU) {
    instance.device_busy = &device_busy_[device];
  }
  if (RateLimiter* limiter = server()->limiter()) {
    ASSIGN_OR_RETURN(instance.gate, limiter->add_instance(group.limits, device));
  }
  return &instance;
}

Status BackendModel::show_open_parameters() {
  if (backend_->open_parameters == nullptr) return ok();
  const char* const text = backend_->open_parameters(reinterpret_cast<TRITONBACKEND_Model*>(this));
  ASSIGN_OR_RETURN(const json::value open, parse_json(text == nullptr ? "" : text));
  if (!open.is_object())
    return internal_error("backend '{}': open parameters: {}", backend_->name, text);
  ModelConfig shown = config();
  ASSIGN_OR_RETURN(json::value root, parse_json(shown.json));
  json::value& parameters = root.as_object()["parameters"];
  if (!parameters.is_object()) parameters = json::object();
  for (const auto& [key, value] : open.as_object()) {
    json::value& parameter = parameters.as_object()[key];
    if (!parameter.is_object()) parameter = json::object();
    json::value& given = parameter.as_object()["string_value"];
    if (!given.is_string() || given.as_string().empty() || given.as_string().starts_with("${")) {
      given = value;
    }
  }
  shown.json = json::serialize(root);
  set_config(std::move(shown));
  return ok();
}

Status BackendModel::auto_complete(std::string_view json) {
  if (!may_auto_complete_) {
    return unsupported(
        "model '{}': its configuration can only be completed while it initialises, "
        "and when auto-completion is on",
        config().name);
  }
  ASSIGN_OR_RETURN(ModelConfig completed, adopt_auto_complete(config(), json));
  set_config(std::move(completed));
  return ok();
}

Status BackendModel::warm_up(Instance& instance) {
  const auto* sequences = dynamic_cast<const SequenceBatcher*>(queue_.get());
  WarmupSteps steps;
  steps.complete = [&](InferenceRequest& request) {
    if (sequences != nullptr) sequences->add_warmup_inputs(request);
  };
  steps.execute = [&](std::vector<InferenceRequest*> batch) {
    if (instance.gate != nullptr) instance.gate->enter();
    execute(instance, std::move(batch));
    if (instance.gate != nullptr) instance.gate->leave();
  };
  return run_warmup(shared_from_this(), instance.name, steps);
}

bool BackendModel::continues(const InferenceRequest& request) {
  return queue_ != nullptr && queue_->continues(request);
}

void BackendModel::run(Instance& instance, std::promise<Status> initialised) {
  auto* self = reinterpret_cast<TRITONBACKEND_ModelInstance*>(&instance);
  const bool is_passive = instance.group.is_passive;
  Status status;
  bool is_placed = false;
  try {
    status = apply_host_policy(instance.host_policy.text);
    is_placed = status.ok();
    if (is_placed && backend_->instance_initialize != nullptr)
      status = call_backend(backend_->instance_initialize, self);
    if (status.ok() && !config().warmup.empty() && !is_passive) status = warm_up(instance);
  } catch (const std::exception&) {  // without memory there is no message either
    return initialised.set_exception(std::current_exception());
  }
  const bool usable = status.ok();
  initialised.set_value(std::move(status));
  if (usable && is_passive) is_unloading_.wait(false);
  if (usable && !is_passive) run_contained(instance.name, [&] { serve(instance); });
  if (is_placed && backend_->instance_finalize != nullptr) {
    if (Status s = call_backend(backend_->instance_finalize, self); !s.ok()) {
      log_error("instance '{}': finalize: {}", instance.name, message(s));
    }
  }
  instance.gate.reset();  // releases its share of the rate limit
}

void BackendModel::serve(Instance& instance) {
  while (true) {
    auto batch = queue_->take(instance.index, instance.gate.get());
    if (batch.empty()) break;
    const auto num_queued = std::count_if(batch.begin(), batch.end(),
                                          [](const auto* request) { return !request->is_padding; });
    statistics().pending(-static_cast<int64_t>(num_queued));
    std::unique_lock busy(instance.busy, std::defer_lock);
    if (may_run_here_) busy.lock();
    // Only now, so that no request overtakes the batch.
    num_queued_ -= static_cast<int64_t>(num_queued);
    execute(instance, std::move(batch));
  }
}

Status BackendModel::accept(InferenceRequest* request,
                            const std::shared_ptr<ResponseContext>& context) {
  request->report_queued();
  if (config().response_cache && server()->cache() != nullptr &&
      answer_from_cache(*server()->cache(), request, context)) {
    return ok();
  }
  if (InlineExecution::allowed() && run_here(request)) return ok();
  statistics().pending(1);
  ++num_queued_;
  std::shared_ptr<ResponseOrder::Place> place;
  if (order_ != nullptr) place = order_->enter(*context);
  Status status = queue_->push(request);
  if (status.ok()) return status;
  --num_queued_;
  statistics().pending(-1);
  if (order_ != nullptr) order_->leave(place);
  return status;
}

StatusOr<std::string> BackendModel::view(uint32_t which) {
  if (backend_->model_view == nullptr) return Model::view(which);
  if (!hold_open()) return unavailable("model '{}' is being unloaded", config().name);
  TRITONSERVER_Message* message = nullptr;
  const Status status = call_backend(backend_->model_view,
                                     reinterpret_cast<TRITONBACKEND_Model*>(this), which, &message);
  request_ended();
  const std::unique_ptr<TRITONSERVER_Message> owner(message);
  if (!status.ok()) return status;
  return std::move(owner->text);
}

bool BackendModel::lends_thread() {
  return backend_->lends_thread != nullptr &&
         backend_->lends_thread(reinterpret_cast<TRITONBACKEND_Model*>(this));
}

// Whether an idle instance of the model starts a request at once, so that any thread may run it.
bool BackendModel::may_run_here(const ServerOptions& options) const {
  if (backend_->request_is_quick == nullptr || config().sequences || !options.host_policies.empty())
    return false;
  const DynamicBatching batching = config().batching.value_or(DynamicBatching());
  return batching.max_delay_us == 0 && !batching.preserve_ordering &&
         server()->limiter() == nullptr;
}

bool BackendModel::run_here(InferenceRequest* request) {
  // Waiting requests go first.
  if (!may_run_here_ || num_queued_.load() > 0) return false;
  if (!backend_->request_is_quick(reinterpret_cast<TRITONBACKEND_Request*>(request))) return false;
  for (Instance& instance : instances_) {
    if (instance.group.is_passive) continue;
    std::unique_lock busy(instance.busy, std::try_to_lock);
    if (!busy) continue;
    // Keeps the model alive until this thread has left it: the request may end inside.
    const auto alive = shared_from_this();
    execution_began();
    execute(instance, {request});
    busy.unlock();
    request_ended();
    return true;
  }
  return false;
}

void BackendModel::drop(InferenceRequest* request, const Status& status, FailureReason reason) {
  if (!request->is_padding) statistics().failure(reason, request->start_ns);
  const auto context = request->context();
  context->fail(status);
  request->release(TRITONSERVER_REQUEST_RELEASE_ALL);
}

void BackendModel::execute(Instance& instance, std::vector<InferenceRequest*> batch) {
  const auto here = InlineExecution::never();
  std::unique_lock<std::mutex> device;
  if (instance.device_busy != nullptr) device = std::unique_lock(*instance.device_busy);
  auto* requests = reinterpret_cast<TRITONBACKEND_Request**>(batch.data());
  const ReleasedHere released;
  const auto size = static_cast<uint32_t>(batch.size());
  const Status status = call_backend(
      backend_->execute, reinterpret_cast<TRITONBACKEND_ModelInstance*>(&instance), requests, size);
  if (status.ok()) return;
  // The requests stay the core's, except those released before an exception.
  const auto reason =
      absl::IsCancelled(status) ? FailureReason::kCanceled : FailureReason::kBackend;
  for (InferenceRequest* request : batch) {
    if (!released.has(request)) drop(request, status, reason);
  }
}

void BackendModel::unload() {
  const std::lock_guard updating(update_mutex_);
  if (queue_ != nullptr) queue_->close();
  is_unloading_.store(true);
  is_unloading_.notify_all();
  for (auto& instance : instances_) {
    if (instance.thread.joinable()) instance.thread.join();
  }
  instances_.clear();
  queue_.reset();
  strategy_.reset();
  if (model_initialised_ && backend_->model_finalize != nullptr) {
    if (Status s =
            call_backend(backend_->model_finalize, reinterpret_cast<TRITONBACKEND_Model*>(this));
        !s.ok()) {
      log_error("model '{}': finalize: {}", config().name, message(s));
    }
  }
  model_initialised_ = false;
}

bool BackendModel::ready() const {
  if (backend_ == nullptr || backend_->instance_ready == nullptr) return true;
  const std::lock_guard lock(instances_mutex_);
  for (const auto& instance : instances_) {
    if (instance.is_leaving) continue;
    auto* self = reinterpret_cast<TRITONBACKEND_ModelInstance*>(const_cast<Instance*>(&instance));
    if (!call_backend(backend_->instance_ready, self).ok()) return false;
  }
  return true;
}

}  // namespace nereid::server
