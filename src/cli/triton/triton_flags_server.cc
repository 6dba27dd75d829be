// Flags of the repository and of the core.
#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "cli/flags/flag_values.h"
#include "cli/triton/triton_flags.h"
#include "triton/core/tritonserver.h"

namespace nereid::cli {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 60;

using config::Action;
using config::field;
using config::Option;
using config::Options;

constexpr const char* kServerGroup = "Models and server";

// An action that gets the options.
Action with(TritonOptions& o, Status (*set)(TritonOptions&, const Option&, const std::string&)) {
  return [&o, set](const Option& flag, const std::string& v) { return set(o, flag, v); };
}

Option core_count(TritonOptions& o, const char* name, const char* help, double low,
                  TRITONSERVER_Error* (*set)(Core, unsigned int), const char* fallback,
                  int32_t* copy = nullptr) {
  const auto act = [&o, set, low, copy](const Option& flag, const std::string& v) -> Status {
    ASSIGN_OR_RETURN(const int32_t value, value_of<int32_t>(v, {low, kMaxInt}));
    if (copy) *copy = value;
    o.set_core(flag, [set, value](Core core) { return set(core, static_cast<unsigned>(value)); });
    return ok();
  };
  return row(name, "N", help, act, {}, fallback);
}

Status add_repository(TritonOptions& o, const Option& flag, const std::string& v) {
  o.repositories.push_back(v);
  o.set_core(flag, [v](Core core) {
    return TRITONSERVER_ServerOptionsSetModelRepositoryPath(core, v.c_str());
  });
  return ok();
}

// Case is ignored, as in the stock server.
Status set_control_mode(TritonOptions& o, const Option& flag, const std::string& given) {
  const std::string mode = absl::AsciiStrToLower(given);
  const auto number = mode == "poll"       ? TRITONSERVER_MODEL_CONTROL_POLL
                      : mode == "explicit" ? TRITONSERVER_MODEL_CONTROL_EXPLICIT
                                           : TRITONSERVER_MODEL_CONTROL_NONE;
  if (number == TRITONSERVER_MODEL_CONTROL_NONE && mode != "none")
    return invalid_argument(
        "invalid argument for --model-control-mode: {} (allowed: none, poll, explicit)", given);
  o.control_mode = mode;
  o.set_core(flag, [number](Core core) {
    return TRITONSERVER_ServerOptionsSetModelControlMode(core, number);
  });
  return ok();
}

Status add_startup_model(TritonOptions& o, const Option& flag, const std::string& v) {
  o.load_models.push_back(v);
  o.set_core(flag,
             [v](Core core) { return TRITONSERVER_ServerOptionsSetStartupModel(core, v.c_str()); });
  return ok();
}

Status set_config_name(TritonOptions& o, const Option& flag, const std::string& v) {
  if (v.empty()) return invalid_argument("must not be empty; leave it out for config.pbtxt");
  o.set_core(flag, [v](Core core) {
    return TRITONSERVER_ServerOptionsSetModelConfigName(core, v.c_str());
  });
  return ok();
}

// [<backend>,]<key>=<value>
Status set_backend_config(TritonOptions& o, const Option& flag, const std::string& v) {
  ASSIGN_OR_RETURN(auto pair,
                   parse_pair(v, '=', "--backend-config", "<backend name>,<setting>=<value>"));
  std::string backend;
  if (const size_t comma = pair.first.find(','); comma != std::string::npos) {
    if (comma == 0) {
      return invalid_argument(
          "No backend specified. --backend-config option format is '<backend "
          "name>,<setting>=<value>' or '<setting>=<value>'. Got {}",
          v);
    }
    backend = pair.first.substr(0, comma);
    pair.first.erase(0, comma + 1);
  }
  if (pair.first.empty()) return invalid_argument("--backend-config: no setting in {}", v);
  o.set_core(flag, [backend, pair](Core core) {
    return TRITONSERVER_ServerOptionsSetBackendConfig(core, backend.c_str(), pair.first.c_str(),
                                                      pair.second.c_str());
  });
  return ok();
}

// <name>,<key>=<value>; all settings of the only cache are passed together.
Status set_cache_config(TritonOptions& o, const Option&, const std::string& v) {
  constexpr const char *kFlag = "--cache-config", *kFormat = "<cache name>,<setting>=<value>";
  ASSIGN_OR_RETURN(const auto named, parse_pair(v, ',', kFlag, kFormat));
  ASSIGN_OR_RETURN(auto setting, parse_pair(named.second, '=', kFlag, kFormat));
  if (!o.cache_name.empty() && o.cache_name != named.first) {
    return invalid_argument(
        "--cache-config: multiple cache configurations, one cache only, got '{}' "
        "and '{}'",
        o.cache_name, named.first);
  }
  o.cache_name = named.first;
  o.cache_settings.push_back(std::move(setting));
  return ok();
}

Status set_rate_limit(TritonOptions& o, const Option& flag, const std::string& v) {
  std::string word;
  RETURN_IF_ERROR(parse_value(
      {.name = flag.name, .field = &word, .help = "", .words = "off|execution_count"}, v));
  const auto mode = v == "off" ? TRITONSERVER_RATE_LIMIT_OFF : TRITONSERVER_RATE_LIMIT_EXEC_COUNT;
  o.set_core(
      flag, [mode](Core core) { return TRITONSERVER_ServerOptionsSetRateLimiterMode(core, mode); });
  return ok();
}

// <name>:<count>[:<device>|global]
Status set_rate_limit_resource(TritonOptions& o, const Option& flag, const std::string& v) {
  constexpr int kEveryDevice = -1, kGlobal = -2;
  const std::vector<std::string> parts = absl::StrSplit(v, ':');
  if (parts.size() < 2 || parts.size() > 3 || parts[0].empty()) {
    return invalid_argument(
        "--rate-limit-resource option format is <resource_name>:<count>:<device> or "
        "<resource_name>:<count>. Got {}",
        v);
  }
  ASSIGN_OR_RETURN(const int64_t number, value_of<int64_t>(parts[1], {0, kMaxInt}));
  int64_t device = kEveryDevice;
  if (parts.size() == 3 && parts[2] == "global") {
    device = kGlobal;
  } else if (parts.size() == 3) {
    ASSIGN_OR_RETURN(device, value_of<int64_t>(parts[2], {0, kMaxInt}));
  }
  o.set_core(flag, [name = parts[0], number, device](Core core) {
    return TRITONSERVER_ServerOptionsAddRateLimiterResource(
        core, name.c_str(), static_cast<size_t>(number), static_cast<int>(device));
  });
  return ok();
}

Status set_host_policy(TritonOptions& o, const Option& flag, const std::string& v) {
  constexpr const char *kFlag = "--host-policy", *kFormat = "<policy_name>,<setting>=<value>";
  ASSIGN_OR_RETURN(const auto named, parse_pair(v, ',', kFlag, kFormat));
  ASSIGN_OR_RETURN(const auto setting, parse_pair(named.second, '=', kFlag, kFormat));
  o.set_core(flag, [policy = named.first, setting](Core core) {
    return TRITONSERVER_ServerOptionsSetHostPolicy(core, policy.c_str(), setting.first.c_str(),
                                                   setting.second.c_str());
  });
  return ok();
}

Status set_pinned_pool(TritonOptions& o, const Option& flag, const std::string& v) {
  ASSIGN_OR_RETURN(const uint64_t bytes, value_of<uint64_t>(v, {0, kMaxBytes}));
  o.set_core(flag, [bytes](Core core) {
    return TRITONSERVER_ServerOptionsSetPinnedMemoryPoolByteSize(core, bytes);
  });
  return ok();
}

Status set_capability(TritonOptions& o, const Option& flag, const std::string& v) {
  ASSIGN_OR_RETURN(const double capability, value_of<double>(v));
  o.set_core(flag, [capability](Core core) {
    return TRITONSERVER_ServerOptionsSetMinSupportedComputeCapability(core, capability);
  });
  return ok();
}

Status set_cache_size(TritonOptions& o, const Option&, const std::string& v) {
  RETURN_IF_ERROR(value_of<int64_t>(v, {0, kMaxBytes}).status());
  o.has_old_cache_size = true;
  o.cache_settings.emplace_back("size", v);
  return ok();
}

// <gpu>:<bytes> of a pool that does not exist here: checked, then noted as without effect.
Status note_gpu_pool(TritonOptions& o, const Option& flag, const std::string& v) {
  ASSIGN_OR_RETURN(const auto pair,
                   parse_pair(v, ':', flag.flag, "<GPU device ID>:<number of bytes>"));
  RETURN_IF_ERROR(value_of<int64_t>(pair.first, {0, kMaxInt}).status());
  ASSIGN_OR_RETURN(const int64_t bytes, value_of<int64_t>(pair.second, {0, kMaxBytes}));
  if (bytes > 0)
    o.warnings.push_back(
        fmt::format("{}={}: no effect, tensors are exchanged in CPU memory", flag.flag, v));
  return ok();
}

Status note_copy_threads(TritonOptions& o, const Option&, const std::string& v) {
  ASSIGN_OR_RETURN(const int64_t threads, value_of<int64_t>(v, {0, kMaxInt}));
  if (threads > 0)
    o.warnings.push_back(fmt::format(
        "--buffer-manager-thread-count={}: no effect, tensors are not gathered by copies", v));
  return ok();
}

// <gpu>:<fraction>: each model's own parameters set its share.
Status note_gpu_limit(TritonOptions& o, const Option&, const std::string& v) {
  ASSIGN_OR_RETURN(const auto pair,
                   parse_pair(v, ':', "--model-load-gpu-limit", "<GPU device ID>:<fraction>"));
  RETURN_IF_ERROR(value_of<int64_t>(pair.first, {0, kMaxInt}).status());
  ASSIGN_OR_RETURN(const double fraction, value_of<double>(pair.second, {0, 1}));
  if (fraction < 1)
    o.warnings.push_back(fmt::format(
        "--model-load-gpu-limit={}: no effect, GPU memory is bounded by each model's own "
        "parameters (memory_bytes, kv_cache_free_gpu_mem_fraction)",
        v));
  return ok();
}

Status set_client_memory(TritonOptions& o, const Option&, const std::string& v) {
  ASSIGN_OR_RETURN(o.http.allow_shared_memory, value_of<bool>(v));
  o.grpc.allow_shared_memory = o.http.allow_shared_memory;
  return ok();
}

Status set_strict_config(TritonOptions& o, const Option&, const std::string& v) {
  ASSIGN_OR_RETURN(o.strict_model_config, value_of<bool>(v));
  return ok();
}

Option deprecated(Option flag) {
  flag.is_deprecated = true;
  return flag;
}

void add_model_flags(Options& flags, TritonOptions& o) {
  add_group(
      flags, kServerGroup,
      {row("--model-repository", "PATH",
           "folder of the model repository, required; may be repeated", with(o, add_repository)),
       row("--model-store", "PATH", "old name of --model-repository", with(o, add_repository)),
       core_bool(o, "--exit-on-error", "end the process when a model fails to load at the start",
                 true, TRITONSERVER_ServerOptionsSetExitOnError),
       row("--disable-auto-complete-config", "",
           "use config.pbtxt as written, without the backend's completion",
           [&o](const Option&, const std::string&) {
             o.uses_config_as_written = true;
             return ok();
           }),
       deprecated(row("--strict-model-config", "BOOL", "--disable-auto-complete-config (for true)",
                      with(o, set_strict_config))),
       core_bool(o, "--strict-readiness", "/v2/health/ready only when every model is ready", true,
                 TRITONSERVER_ServerOptionsSetStrictReadiness),
       row("--model-control-mode", "MODE",
           "which models are loaded: none (all, at the start), poll (as the repository changes) or "
           "explicit (by --load-model and requests)",
           with(o, set_control_mode), {}, "none"),
       row("--repository-poll-secs", "N",
           "poll mode: seconds between checks of the repository, 0 = only at the start",
           field(o.poll_seconds), {0, kMaxInt}),
       row("--load-model", "NAME",
           "explicit mode: model to load at start; may be repeated; * = all",
           with(o, add_startup_model)),
       row("--model-config-name", "NAME", "use configs/NAME.pbtxt where a model has one",
           with(o, set_config_name)),
       core_count(o, "--model-load-thread-count", "models that load in parallel", 1,
                  TRITONSERVER_ServerOptionsSetModelLoadThreadCount, "4"),
       core_count(o, "--model-load-retry-count", "retries of a load that fails", 0,
                  TRITONSERVER_ServerOptionsSetModelLoadRetryCount, "0"),
       core_bool(o, "--model-namespacing", "allow the same model name in several repositories",
                 false, TRITONSERVER_ServerOptionsSetModelNamespacing)});
}

void add_core_flags(Options& flags, TritonOptions& o) {
  add_group(
      flags, kServerGroup,
      {core_text(o, "--id", "NAME", "name of the server in its metadata",
                 TRITONSERVER_ServerOptionsSetServerId, "triton"),
       core_count(o, "--exit-timeout-secs",
                  "seconds that running requests may take to finish at a stop", 0,
                  TRITONSERVER_ServerOptionsSetExitTimeout, "30", &o.exit_seconds),
       core_text(o, "--backend-directory", "DIR", "folder of the backends libtriton_NAME.so",
                 TRITONSERVER_ServerOptionsSetBackendDirectory, "backends beside bin"),
       row("--backend-config", "[B,]K=V",
           "setting of backend B, or of all, such as python,shm-default-byte-size=1048576; may be "
           "repeated",
           with(o, set_backend_config)),
       core_text(o, "--repoagent-directory", "DIR", "folder of the repository agents",
                 TRITONSERVER_ServerOptionsSetRepoAgentDirectory),
       core_text(o, "--cache-directory", "DIR", "folder of the response caches",
                 TRITONSERVER_ServerOptionsSetCacheDirectory),
       row("--cache-config", "C,K=V", "setting of the response cache, such as local,size=1048576",
           with(o, set_cache_config)),
       deprecated(row("--response-cache-byte-size", "N", "--cache-config local,size=N",
                      with(o, set_cache_size)))});
}

void add_resource_flags(Options& flags, TritonOptions& o) {
  add_group(
      flags, kServerGroup,
      {row("--rate-limit", "MODE", "rate limiter of model instances: off or execution_count",
           with(o, set_rate_limit), {}, "off"),
       row("--rate-limit-resource", "NAME:N[:DEVICE]",
           "capacity of a resource that instances name; may be repeated",
           with(o, set_rate_limit_resource)),
       row("--pinned-memory-pool-byte-size", "N",
           "bytes of the pinned memory pool for backends; 0 = none", with(o, set_pinned_pool)),
       row("--cuda-memory-pool-byte-size", "GPU:N", "CUDA memory pool; no effect here",
           with(o, note_gpu_pool)),
       row("--cuda-virtual-address-size", "GPU:N", "growable CUDA memory; no effect here",
           with(o, note_gpu_pool)),
       row("--min-supported-compute-capability", "X.Y",
           "least compute capability of GPUs that are used", with(o, set_capability), {}, "6.0"),
       core_bool(o, "--enable-peer-access", "peer access between GPUs; no effect here", true,
                 TRITONSERVER_ServerOptionsSetEnablePeerAccess),
       row("--buffer-manager-thread-count", "N", "copy threads; no effect here",
           with(o, note_copy_threads)),
       row("--host-policy", "POLICY,K=V",
           "numa-node or cpu-cores for instances of a policy, such as gpu_0,numa-node=0; may be "
           "repeated",
           with(o, set_host_policy)),
       row("--model-load-gpu-limit", "GPU:FRACTION", "share of a GPU's memory; no effect here",
           with(o, note_gpu_limit)),
       row("--allow-client-shm", "BOOL", "let clients register shared memory for tensors",
           with(o, set_client_memory), {}, "true")});
}

}  // namespace

void add_server_flags(Options& flags, TritonOptions& o) {
  add_model_flags(flags, o);
  add_core_flags(flags, o);
  add_resource_flags(flags, o);
}

}  // namespace nereid::cli
