// C API: server options, the server itself, and logging.
#include <spdlog/spdlog.h>

#include "base/json.h"
#include "base/log.h"
#include "base/request_flags.h"
#include "nereid/server.h"
#include "server/api/accessors.h"
#include "server/api/error.h"
#include "server/api/values.h"
#include "server/log_switches.h"
#include "server/memory/client_memory.h"
#include "server/model/run_here.h"
#include "server/request/request.h"
#include "server/server.h"

using namespace nereid;          // NOLINT: this file is the C face of what is in there
using namespace nereid::server;  // NOLINT

namespace {

ServerOptions* of(TRITONSERVER_ServerOptions* options) {
  return reinterpret_cast<ServerOptions*>(options);
}

// The core takes over the trace only with the request.
Status enqueue_traced(InferenceRequest* request, InferenceTrace* trace) {
  const auto hold = std::make_shared<TraceHold>(trace);
  request->trace = hold;
  const auto model = request->model;  // the request may be gone when this returns
  Status status = model->enqueue(request);
  if (status.ok()) return status;
  request->trace.reset();
  hold->disown();
  return status;
}

TRITONSERVER_Message* message_of(std::string text) {
  return new TRITONSERVER_Message{std::move(text)};
}

spdlog::level::level_enum log_level(TRITONSERVER_LogLevel level) {
  switch (level) {
    case TRITONSERVER_LOG_INFO:
      return spdlog::level::info;
    case TRITONSERVER_LOG_WARN:
      return spdlog::level::warn;
    case TRITONSERVER_LOG_ERROR:
      return spdlog::level::err;
    case TRITONSERVER_LOG_VERBOSE:
      return spdlog::level::debug;
  }
  return spdlog::level::info;
}

}  // namespace

bool TRITONSERVER_LogIsEnabled(TRITONSERVER_LogLevel level) { return is_log_on(level); }

TRITONSERVER_Error* TRITONSERVER_LogMessage(TRITONSERVER_LogLevel level, const char* filename,
                                            const int line, const char* msg) try {
  spdlog::log({filename == nullptr ? "" : filename, line, ""}, log_level(level), "{}", msg);
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_ServerOptionsNew(TRITONSERVER_ServerOptions** options) try {
  install_log_switches();
  *options = reinterpret_cast<TRITONSERVER_ServerOptions*>(new ServerOptions);
  return nullptr;
}
NEREID_CATCH

NEREID_DELETER(TRITONSERVER_ServerOptionsDelete, TRITONSERVER_ServerOptions, of(x))

// A setter that stores its value.
#define NEREID_STORE_OPTION(setter, type, field)                                              \
  TRITONSERVER_Error* TRITONSERVER_ServerOptions##setter(TRITONSERVER_ServerOptions* options, \
                                                         type value) try {                    \
    of(options)->field = value;                                                               \
    return nullptr;                                                                           \
  }                                                                                           \
  NEREID_CATCH
NEREID_STORE_OPTION(SetServerId, const char*, id)
NEREID_STORE_OPTION(SetModelControlMode, TRITONSERVER_ModelControlMode, control_mode)
NEREID_STORE_OPTION(SetModelConfigName, const char*, model_config_name)
NEREID_STORE_OPTION(SetStrictModelConfig, bool, strict_model_config)
NEREID_STORE_OPTION(SetModelNamespacing, bool, has_namespaces)
NEREID_STORE_OPTION(SetModelLoadThreadCount, unsigned int, model_load_threads)
NEREID_STORE_OPTION(SetModelLoadRetryCount, unsigned int, model_load_retries)
NEREID_STORE_OPTION(SetExitOnError, bool, exit_on_error)
NEREID_STORE_OPTION(SetStrictReadiness, bool, strict_readiness)
NEREID_STORE_OPTION(SetMinSupportedComputeCapability, double, min_compute_capability)
NEREID_STORE_OPTION(SetExitTimeout, unsigned int, exit_timeout_s)
NEREID_STORE_OPTION(SetMetrics, bool, metrics.enabled)
NEREID_STORE_OPTION(SetGpuMetrics, bool, metrics.gpu)
NEREID_STORE_OPTION(SetCpuMetrics, bool, metrics.cpu)
NEREID_STORE_OPTION(SetPinnedMemoryPoolByteSize, uint64_t, pinned_pool_bytes)
NEREID_STORE_OPTION(SetBackendDirectory, const char*, backend_dir)
NEREID_STORE_OPTION(SetCacheDirectory, const char*, cache_dir)
NEREID_STORE_OPTION(SetRepoAgentDirectory, const char*, agent_dir)
#undef NEREID_STORE_OPTION

// GPUs of the core's own, which it does not have: every value is accepted, none has an effect.
TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetEnablePeerAccess(TRITONSERVER_ServerOptions*,
                                                                  bool) {
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetMetricsInterval(
    TRITONSERVER_ServerOptions* options, uint64_t metrics_interval_ms) try {
  if (metrics_interval_ms == 0) {
    return to_error(invalid_argument("metrics interval must be at least 1 ms, got 0"));
  }
  of(options)->metrics.interval_ms = metrics_interval_ms;
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetMetricsConfig(TRITONSERVER_ServerOptions* options,
                                                               const char*, const char* setting,
                                                               const char* value) try {
  return to_error(set_metrics_config(of(options)->metrics, setting, value));
}
NEREID_CATCH

// Options of memory pools and threads that this core does not have; 0 is the only accepted value.
TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetCudaMemoryPoolByteSize(TRITONSERVER_ServerOptions*,
                                                                        int gpu_device,
                                                                        uint64_t size) try {
  if (size == 0) return nullptr;
  return to_error(
      unsupported("CUDA memory pool of {} bytes on GPU {}: the core has no pools of GPU memory, "
                  "backends allocate their own; only 0 is allowed",
                  size, gpu_device));
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetCudaVirtualAddressSize(TRITONSERVER_ServerOptions*,
                                                                        int gpu_device,
                                                                        size_t size) try {
  if (size == 0) return nullptr;
  return to_error(
      unsupported("CUDA virtual address size of {} bytes on GPU {}: the core keeps implicit state "
                  "in host memory; only 0 is allowed",
                  size, gpu_device));
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetBufferManagerThreadCount(
    TRITONSERVER_ServerOptions*, unsigned int thread_count) try {
  if (thread_count == 0) return nullptr;
  return to_error(
      unsupported("buffer manager thread count {}: tensors are handed on without copies, there is "
                  "no buffer manager; only 0 is allowed",
                  thread_count));
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetModelLoadDeviceLimit(
    TRITONSERVER_ServerOptions*, const TRITONSERVER_InstanceGroupKind kind, const int device_id,
    const double fraction) try {
  if (device_id < 0) return to_error(invalid_argument("expects device ID >= 0, got {}", device_id));
  if (!(fraction >= 0 && fraction <= 1))
    return to_error(
        invalid_argument("expects limit fraction to be in range [0.0, 1.0], got {:f}", fraction));
  if (kind != TRITONSERVER_INSTANCEGROUPKIND_GPU)
    return to_error(invalid_argument("given device kind is not supported, got: {}",
                                     TRITONSERVER_InstanceGroupKindString(kind)));
  if (fraction < 1)
    log_warn(
        "model load limit of {} for GPU {}: no effect, GPU memory is bounded by each model's own "
        "parameters",
        fraction, device_id);
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetRateLimiterMode(
    TRITONSERVER_ServerOptions* options, TRITONSERVER_RateLimitMode mode) try {
  if (mode != TRITONSERVER_RATE_LIMIT_OFF && mode != TRITONSERVER_RATE_LIMIT_EXEC_COUNT) {
    return to_error(
        invalid_argument("TRITONSERVER_ServerOptionsSetRateLimiterMode: unknown rate limit mode {}",
                         static_cast<int>(mode)));
  }
  of(options)->limit_rates = mode == TRITONSERVER_RATE_LIMIT_EXEC_COUNT;
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_ServerOptionsAddRateLimiterResource(
    TRITONSERVER_ServerOptions* options, const char* name, size_t count, int device) try {
  if (device < RateLimiter::kGlobal) {
    return to_error(invalid_argument(
        "rate limiter resource '{}': device {}, allowed are devices from 0, -1 (every device) and "
        "-2 (global)",
        name, device));
  }
  of(options)->rate_resources[{device, name}] = count;
  return nullptr;
}
NEREID_CATCH

NEREID_SETTER(TRITONSERVER_ServerOptionsSetModelRepositoryPath, TRITONSERVER_ServerOptions,
              const char*, of(x)->repositories.emplace_back(value))
NEREID_SETTER(TRITONSERVER_ServerOptionsSetStartupModel, TRITONSERVER_ServerOptions, const char*,
              of(x)->startup_models.insert(value))

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetBackendConfig(TRITONSERVER_ServerOptions* options,
                                                               const char* backend_name,
                                                               const char* setting,
                                                               const char* value) try {
  of(options)->backend_settings[backend_name][setting] = value;
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetHostPolicy(TRITONSERVER_ServerOptions* options,
                                                            const char* policy_name,
                                                            const char* setting,
                                                            const char* value) try {
  of(options)->host_policies[policy_name][setting] = value;
  return nullptr;
}
NEREID_CATCH

NEREID_SETTER(TRITONSERVER_ServerOptionsSetLogInfo, TRITONSERVER_ServerOptions, bool,
              switch_log(TRITONSERVER_LOG_INFO, value))
NEREID_SETTER(TRITONSERVER_ServerOptionsSetLogWarn, TRITONSERVER_ServerOptions, bool,
              switch_log(TRITONSERVER_LOG_WARN, value))
NEREID_SETTER(TRITONSERVER_ServerOptionsSetLogError, TRITONSERVER_ServerOptions, bool,
              switch_log(TRITONSERVER_LOG_ERROR, value))
NEREID_SETTER(TRITONSERVER_ServerOptionsSetLogVerbose, TRITONSERVER_ServerOptions, int,
              set_log_verbosity(value))
NEREID_SETTER(TRITONSERVER_ServerOptionsSetLogFormat, TRITONSERVER_ServerOptions,
              TRITONSERVER_LogFormat, set_log_format(value))

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetCacheConfig(TRITONSERVER_ServerOptions* options,
                                                             const char* cache_name,
                                                             const char* config_json) try {
  ServerOptions& o = *of(options);
  if (cache_name == nullptr || *cache_name == 0) {
    return to_error(invalid_argument("the cache has no name"));
  }
  if (!o.cache_name.empty() && o.cache_name != cache_name) {
    return to_error(invalid_argument("cache '{}': only one cache is possible, and '{}' is set",
                                     cache_name, o.cache_name));
  }
  const auto config = parse_json(config_json == nullptr ? "" : config_json);
  if (!config.ok() || !config->is_object()) {
    return to_error(invalid_argument("cache '{}': the configuration is no JSON object: {}",
                                     cache_name, config_json == nullptr ? "" : config_json));
  }
  o.cache_name = cache_name;
  o.cache_config = config_json;
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetResponseCacheByteSize(
    TRITONSERVER_ServerOptions* options, uint64_t size) try {
  if (size == 0) return nullptr;
  const std::string config = fmt::format(R"({{"size":"{}"}})", size);
  return TRITONSERVER_ServerOptionsSetCacheConfig(options, "local", config.c_str());
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetLogFile(TRITONSERVER_ServerOptions*,
                                                         const char* file) try {
  return to_error(set_log_file(file));
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_ServerNew(TRITONSERVER_Server** server,
                                           TRITONSERVER_ServerOptions* options) try {
  auto made = Server::create(*of(options));
  if (!made.ok()) return to_error(made.status());
  *server = reinterpret_cast<TRITONSERVER_Server*>(made->release());
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_ServerDelete(TRITONSERVER_Server* server) try {
  const Status stopped = of(server)->stop();
  if (!stopped.ok()) log_error("failed to stop server: {}", message(stopped));
  // A load that did not end in time still uses the manager.
  if (!of(server)->models().is_changing()) delete of(server);
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_ServerStop(TRITONSERVER_Server* server) try {
  return to_error(of(server)->stop());
}
NEREID_CATCH

NEREID_SETTER(TRITONSERVER_ServerSetExitTimeout, TRITONSERVER_Server, unsigned int,
              of(x)->set_exit_timeout(value))

TRITONSERVER_Error* TRITONSERVER_ServerIsLive(TRITONSERVER_Server* server, bool* live) try {
  *live = of(server)->is_live();
  return to_error(of(server)->check_not_exiting());
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_ServerIsReady(TRITONSERVER_Server* server, bool* ready) try {
  *ready = of(server)->is_ready();
  return to_error(of(server)->check_not_exiting());
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_ServerModelIsReady(TRITONSERVER_Server* server,
                                                    const char* model_name, int64_t model_version,
                                                    bool* ready) try {
  *ready = false;
  if (Status s = of(server)->check_running(); !s.ok()) return to_error(s);
  auto model = of(server)->find(model_name, model_version);
  if (!model.ok()) return to_error(model.status());
  const auto* backend_model = dynamic_cast<const BackendModel*>(model->get());
  *ready = backend_model == nullptr || backend_model->ready();
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_ServerModelBatchProperties(TRITONSERVER_Server* server,
                                                            const char* model_name,
                                                            int64_t model_version, uint32_t* flags,
                                                            void** voidp) try {
  if (voidp != nullptr) *voidp = nullptr;
  auto model = of(server)->find(model_name, model_version);
  if (!model.ok()) return to_error(model.status());
  *flags = (*model)->config().max_batch_size > 0 ? TRITONSERVER_BATCH_FIRST_DIM
                                                 : TRITONSERVER_BATCH_UNKNOWN;
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_ServerModelTransactionProperties(TRITONSERVER_Server* server,
                                                                  const char* model_name,
                                                                  int64_t model_version,
                                                                  uint32_t* txn_flags,
                                                                  void** voidp) try {
  if (voidp != nullptr) *voidp = nullptr;
  auto model = of(server)->find(model_name, model_version);
  if (!model.ok()) return to_error(model.status());
  *txn_flags = (*model)->decoupled() ? TRITONSERVER_TXN_DECOUPLED : TRITONSERVER_TXN_ONE_TO_ONE;
  return nullptr;
}
NEREID_CATCH

NEREID_GETTER(TRITONSERVER_ServerMetadata, TRITONSERVER_Server, TRITONSERVER_Message*,
              message_of(of(x)->metadata()))

TRITONSERVER_Error* TRITONSERVER_ServerModelMetadata(TRITONSERVER_Server* server,
                                                     const char* model_name, int64_t model_version,
                                                     TRITONSERVER_Message** model_metadata) try {
  auto text = of(server)->model_metadata(model_name, model_version);
  if (!text.ok()) return to_error(text.status());
  *model_metadata = message_of(*std::move(text));
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_ServerModelConfig(TRITONSERVER_Server* server,
                                                   const char* model_name, int64_t model_version,
                                                   uint32_t config_version,
                                                   TRITONSERVER_Message** model_config) try {
  if (config_version != 1) return refuse_config_version(config_version);
  auto model = of(server)->find(model_name, model_version);
  if (!model.ok()) return to_error(model.status());
  *model_config = message_of((*model)->config().json);
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_ServerModelIndex(TRITONSERVER_Server* server, uint32_t flags,
                                                  TRITONSERVER_Message** model_index) try {
  *model_index = message_of(of(server)->index((flags & TRITONSERVER_INDEX_FLAG_READY) != 0));
  return nullptr;
}
NEREID_CATCH

void NEREID_ServerCountMemory(NEREID_HoldMemoryFn_t hold, NEREID_ReleaseMemoryFn_t release,
                              void* userp) {
  ClientMemory::count_with(hold, release, userp);
}

TRITONSERVER_Error* NEREID_ServerHoldMemory(uint64_t byte_size) {
  return ClientMemory::hold(byte_size);
}

void NEREID_ServerReleaseMemory(uint64_t byte_size) { ClientMemory::release(byte_size); }

void NEREID_ServerSetTenant(TRITONSERVER_InferenceRequest* request, uint64_t tenant) {
  of(request)->tenant = tenant;
}

uint64_t NEREID_ServerTenant(TRITONBACKEND_Request* request) { return of(request)->tenant; }

uint64_t NEREID_ServerModelChanges(TRITONSERVER_Server* server) {
  return of(server)->models().num_changes();
}

TRITONSERVER_Error* NEREID_ServerModelView(TRITONSERVER_Server* server, const char* model_name,
                                           int64_t model_version, uint32_t view,
                                           TRITONSERVER_Message** message) try {
  auto model = of(server)->find(model_name, model_version);
  if (!model.ok()) return to_error(model.status());
  auto text = (*model)->view(view);
  if (!text.ok()) return to_error(text.status());
  *message = message_of(*std::move(text));
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_ServerModelStatistics(TRITONSERVER_Server* server,
                                                       const char* model_name,
                                                       const int64_t model_version,
                                                       TRITONSERVER_Message** model_stats) try {
  auto text = of(server)->statistics(model_name, model_version);
  if (!text.ok()) return to_error(text.status());
  *model_stats = message_of(*std::move(text));
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_ServerInferAsync(TRITONSERVER_Server*,
                                                  TRITONSERVER_InferenceRequest* request,
                                                  TRITONSERVER_InferenceTrace* trace) try {
  InferenceRequest* r = server::of(request);
  if (r->is_owned()) {
    return to_error(invalid_argument("{}the request is in flight already", r->log_id()));
  }
  const InlineExecution here((r->flags & kMayRunHere) != 0);
  r->flags &= ~kMayRunHere;
  if (trace == nullptr) return to_error(r->model->enqueue(r));
  return to_error(enqueue_traced(r, server::of(trace)));
}
NEREID_CATCH

struct TRITONSERVER_Metrics {
  std::string text;
};

TRITONSERVER_Error* TRITONSERVER_ServerMetrics(TRITONSERVER_Server* server,
                                               TRITONSERVER_Metrics** metrics) try {
  *metrics = new TRITONSERVER_Metrics{of(server)->metrics_text()};
  return nullptr;
}
NEREID_CATCH

NEREID_DELETER(TRITONSERVER_MetricsDelete, TRITONSERVER_Metrics, x)

TRITONSERVER_Error* TRITONSERVER_MetricsFormatted(TRITONSERVER_Metrics* metrics,
                                                  TRITONSERVER_MetricFormat format,
                                                  const char** base, size_t* byte_size) try {
  if (format != TRITONSERVER_METRIC_PROMETHEUS) {
    return to_error(invalid_argument("unknown metrics format {}", static_cast<int>(format)));
  }
  *base = metrics->text.data();
  *byte_size = metrics->text.size();
  return nullptr;
}
NEREID_CATCH
