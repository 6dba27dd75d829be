// Flags of the repository and of the core.
#include "absl/strings/ascii.h"
#include "cli/flags/flag_values.h"
#include "cli/triton/triton_flags.h"
#include "triton/core/tritonserver.h"

namespace nereid::cli {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 60;

using TextSetter = TRITONSERVER_Error* (*)(Core, const char*);
using CountSetter = TRITONSERVER_Error* (*)(Core, unsigned int);

Status text(TritonOptions& o, const char* flag, const std::string& v, TextSetter set) {
  o.set_core(flag, [set, v](Core core) { return set(core, v.c_str()); });
  return ok();
}

Status count(TritonOptions& o, const char* flag, const std::string& v, CountSetter set,
             int64_t low) {
  ASSIGN_OR_RETURN(const int64_t value, parse_integer(v, low, kMaxInt));
  o.set_core(flag, [set, value](Core core) { return set(core, static_cast<unsigned>(value)); });
  return ok();
}

// Case is ignored, as in the stock server.
Status set_control_mode(TritonOptions& o, const std::string& given) {
  const std::string v = absl::AsciiStrToLower(given);
  TRITONSERVER_ModelControlMode mode = TRITONSERVER_MODEL_CONTROL_NONE;
  if (v == "poll") {
    mode = TRITONSERVER_MODEL_CONTROL_POLL;
  } else if (v == "explicit") {
    mode = TRITONSERVER_MODEL_CONTROL_EXPLICIT;
  } else if (v != "none") {
    return invalid_argument(
        "invalid argument for --model-control-mode: {} (allowed: none, poll, explicit)", given);
  }
  o.control_mode = v;
  o.set_core("--model-control-mode", [mode](Core core) {
    return TRITONSERVER_ServerOptionsSetModelControlMode(core, mode);
  });
  return ok();
}

// [<backend>,]<key>=<value>
Status set_backend_config(TritonOptions& o, const std::string& v) {
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
  o.set_core("--backend-config", [backend, pair](Core core) {
    return TRITONSERVER_ServerOptionsSetBackendConfig(core, backend.c_str(), pair.first.c_str(),
                                                      pair.second.c_str());
  });
  return ok();
}

// <name>,<key>=<value>; all settings of the only cache are passed together.
Status set_cache_config(TritonOptions& o, const std::string& v) {
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

Status set_rate_limit(TritonOptions& o, const std::string& v) {
  if (v != "off" && v != "execution_count") {
    return invalid_argument("invalid argument for --rate-limit: {} (allowed: off, execution_count)",
                            v);
  }
  const auto mode = v == "off" ? TRITONSERVER_RATE_LIMIT_OFF : TRITONSERVER_RATE_LIMIT_EXEC_COUNT;
  o.set_core("--rate-limit", [mode](Core core) {
    return TRITONSERVER_ServerOptionsSetRateLimiterMode(core, mode);
  });
  return ok();
}

// <name>:<count>[:<device>|global]
Status set_rate_limit_resource(TritonOptions& o, const std::string& v) {
  constexpr int kEveryDevice = -1, kGlobal = -2;
  const auto parts = split_list(v, ':');
  if (parts.size() < 2 || parts.size() > 3 || parts[0].empty()) {
    return invalid_argument(
        "--rate-limit-resource option format is <resource_name>:<count>:<device> or "
        "<resource_name>:<count>. Got {}",
        v);
  }
  ASSIGN_OR_RETURN(const int64_t number, parse_integer(parts[1], 0, kMaxInt));
  int64_t device = kEveryDevice;
  if (parts.size() == 3 && parts[2] == "global") {
    device = kGlobal;
  } else if (parts.size() == 3) {
    ASSIGN_OR_RETURN(device, parse_integer(parts[2], 0, kMaxInt));
  }
  o.set_core("--rate-limit-resource", [name = parts[0], number, device](Core core) {
    return TRITONSERVER_ServerOptionsAddRateLimiterResource(
        core, name.c_str(), static_cast<size_t>(number), static_cast<int>(device));
  });
  return ok();
}

Status set_host_policy(TritonOptions& o, const std::string& v) {
  constexpr const char *kFlag = "--host-policy", *kFormat = "<policy_name>,<setting>=<value>";
  ASSIGN_OR_RETURN(const auto named, parse_pair(v, ',', kFlag, kFormat));
  ASSIGN_OR_RETURN(const auto setting, parse_pair(named.second, '=', kFlag, kFormat));
  o.set_core("--host-policy", [policy = named.first, setting](Core core) {
    return TRITONSERVER_ServerOptionsSetHostPolicy(core, policy.c_str(), setting.first.c_str(),
                                                   setting.second.c_str());
  });
  return ok();
}

// <gpu>:<bytes> of a pool that does not exist here: checked, then noted as without effect.
Status note_gpu_pool(TritonOptions& o, const char* flag, const std::string& v) {
  ASSIGN_OR_RETURN(const auto pair, parse_pair(v, ':', flag, "<GPU device ID>:<number of bytes>"));
  RETURN_IF_ERROR(parse_integer(pair.first, 0, kMaxInt).status());
  ASSIGN_OR_RETURN(const int64_t bytes, parse_integer(pair.second, 0, kMaxBytes));
  if (bytes > 0) {
    o.warnings.push_back(
        fmt::format("{}={}: no effect, tensors are exchanged in CPU memory", flag, v));
  }
  return ok();
}

// <gpu>:<fraction>: each model's own parameters set its share.
Status set_gpu_limit(TritonOptions& o, const std::string& v) {
  ASSIGN_OR_RETURN(const auto pair,
                   parse_pair(v, ':', "--model-load-gpu-limit", "<GPU device ID>:<fraction>"));
  RETURN_IF_ERROR(parse_integer(pair.first, 0, kMaxInt).status());
  ASSIGN_OR_RETURN(const double fraction, parse_number(pair.second));
  if (fraction < 0 || fraction > 1) {
    return invalid_argument("Invalid option value. Got {} (allowed: fractions from 0 to 1)", v);
  }
  if (fraction < 1) {
    o.warnings.push_back(fmt::format(
        "--model-load-gpu-limit={}: no effect, GPU memory is bounded by each model's own "
        "parameters (memory_bytes, kv_cache_free_gpu_mem_fraction)",
        v));
  }
  return ok();
}

std::vector<TritonFlag> model_flags() {
  return {
      {"model-repository", "PATH", "folder of the model repository, required; may be repeated",
       [](TritonOptions& o, const std::string& v) {
         o.repositories.push_back(v);
         return text(o, "--model-repository", v, TRITONSERVER_ServerOptionsSetModelRepositoryPath);
       }},
      {"model-store", "PATH", "old name of --model-repository",
       [](TritonOptions& o, const std::string& v) {
         o.repositories.push_back(v);
         return text(o, "--model-store", v, TRITONSERVER_ServerOptionsSetModelRepositoryPath);
       }},
      {"exit-on-error", "BOOL",
       "end the process when a model fails to load at the start; default true",
       [](TritonOptions& o, const std::string& v) {
         return o.set_core_bool("--exit-on-error", v, TRITONSERVER_ServerOptionsSetExitOnError);
       }},
      {"disable-auto-complete-config", "",
       "use config.pbtxt as written, without the backend's completion",
       [](TritonOptions& o, const std::string&) {
         o.uses_config_as_written = true;
         return ok();
       }},
      {"strict-model-config", "BOOL", "--disable-auto-complete-config (for true)",
       [](TritonOptions& o, const std::string& v) -> Status {
         ASSIGN_OR_RETURN(o.strict_model_config, parse_bool(v));
         return ok();
       },
       /*is_deprecated=*/true},
      {"strict-readiness", "BOOL", "/v2/health/ready only when every model is ready; default true",
       [](TritonOptions& o, const std::string& v) {
         return o.set_core_bool("--strict-readiness", v,
                                TRITONSERVER_ServerOptionsSetStrictReadiness);
       }},
      {"model-control-mode", "MODE",
       "which models are loaded: none (default: all, at the start), poll (as the repository "
       "changes) or explicit (by --load-model and requests)",
       set_control_mode},
      {"repository-poll-secs", "N",
       "poll mode: seconds between checks of the repository, 0 = only at the start; default 15",
       [](TritonOptions& o, const std::string& v) {
         ASSIGN_OR_RETURN(const int64_t seconds, parse_integer(v, 0, kMaxInt));
         o.poll_interval = std::chrono::seconds(seconds);
         return ok();
       }},
      {"load-model", "NAME", "explicit mode: model to load at start; may be repeated; * = all",
       [](TritonOptions& o, const std::string& v) {
         o.load_models.push_back(v);
         return text(o, "--load-model", v, TRITONSERVER_ServerOptionsSetStartupModel);
       }},
      {"model-config-name", "NAME", "use configs/NAME.pbtxt where a model has one",
       [](TritonOptions& o, const std::string& v) {
         if (v.empty()) return invalid_argument("must not be empty; leave it out for config.pbtxt");
         return text(o, "--model-config-name", v, TRITONSERVER_ServerOptionsSetModelConfigName);
       }},
  };
}

std::vector<TritonFlag> model_load_flags() {
  return {
      {"model-load-thread-count", "N", "models that load in parallel; default 4",
       [](TritonOptions& o, const std::string& v) {
         return count(o, "--model-load-thread-count", v,
                      TRITONSERVER_ServerOptionsSetModelLoadThreadCount, 1);
       }},
      {"model-load-retry-count", "N", "retries of a load that fails; default 0",
       [](TritonOptions& o, const std::string& v) {
         return count(o, "--model-load-retry-count", v,
                      TRITONSERVER_ServerOptionsSetModelLoadRetryCount, 0);
       }},
      {"model-namespacing", "BOOL",
       "allow the same model name in several repositories; default false",
       [](TritonOptions& o, const std::string& v) {
         return o.set_core_bool("--model-namespacing", v,
                                TRITONSERVER_ServerOptionsSetModelNamespacing);
       }},
  };
}

std::vector<TritonFlag> core_flags() {
  return {
      {"id", "NAME", "name of the server in its metadata; default triton",
       [](TritonOptions& o, const std::string& v) {
         return text(o, "--id", v, TRITONSERVER_ServerOptionsSetServerId);
       }},
      {"exit-timeout-secs", "N",
       "seconds that running requests may take to finish at a stop; default 30",
       [](TritonOptions& o, const std::string& v) {
         ASSIGN_OR_RETURN(const int64_t seconds, parse_integer(v, 0, kMaxInt));
         o.exit_timeout = std::chrono::seconds(seconds);
         return count(o, "--exit-timeout-secs", v, TRITONSERVER_ServerOptionsSetExitTimeout, 0);
       }},
      {"backend-directory", "DIR",
       "folder of the backends libtriton_NAME.so; default: backends beside bin",
       [](TritonOptions& o, const std::string& v) {
         return text(o, "--backend-directory", v, TRITONSERVER_ServerOptionsSetBackendDirectory);
       }},
      {"backend-config", "[B,]K=V",
       "setting of backend B, or of all, such as python,shm-default-byte-size=1048576; may be "
       "repeated",
       set_backend_config},
      {"repoagent-directory", "DIR", "folder of the repository agents",
       [](TritonOptions& o, const std::string& v) {
         return text(o, "--repoagent-directory", v,
                     TRITONSERVER_ServerOptionsSetRepoAgentDirectory);
       }},
      {"cache-directory", "DIR", "folder of the response caches",
       [](TritonOptions& o, const std::string& v) {
         return text(o, "--cache-directory", v, TRITONSERVER_ServerOptionsSetCacheDirectory);
       }},
      {"cache-config", "C,K=V", "setting of the response cache, such as local,size=1048576",
       set_cache_config},
      {"response-cache-byte-size", "N", "--cache-config local,size=N",
       [](TritonOptions& o, const std::string& v) {
         RETURN_IF_ERROR(parse_integer(v, 0, kMaxBytes).status());
         o.has_old_cache_size = true;
         o.cache_settings.emplace_back("size", v);
         return ok();
       },
       /*is_deprecated=*/true},
  };
}

std::vector<TritonFlag> resource_flags() {
  return {
      {"rate-limit", "MODE", "rate limiter of model instances: off (default) or execution_count",
       set_rate_limit},
      {"rate-limit-resource", "NAME:N[:DEVICE]",
       "capacity of a resource that instances name; may be repeated", set_rate_limit_resource},
      {"pinned-memory-pool-byte-size", "N",
       "bytes of the pinned memory pool for backends; 0 = none",
       [](TritonOptions& o, const std::string& v) {
         ASSIGN_OR_RETURN(const int64_t bytes, parse_integer(v, 0, kMaxBytes));
         o.set_core("--pinned-memory-pool-byte-size", [bytes](Core core) {
           return TRITONSERVER_ServerOptionsSetPinnedMemoryPoolByteSize(
               core, static_cast<uint64_t>(bytes));
         });
         return ok();
       }},
      {"cuda-memory-pool-byte-size", "GPU:N", "CUDA memory pool; no effect here",
       [](TritonOptions& o, const std::string& v) {
         return note_gpu_pool(o, "--cuda-memory-pool-byte-size", v);
       }},
      {"cuda-virtual-address-size", "GPU:N", "growable CUDA memory; no effect here",
       [](TritonOptions& o, const std::string& v) {
         return note_gpu_pool(o, "--cuda-virtual-address-size", v);
       }},
      {"min-supported-compute-capability", "X.Y",
       "least compute capability of GPUs that are used; default 6.0",
       [](TritonOptions& o, const std::string& v) {
         ASSIGN_OR_RETURN(const double capability, parse_number(v));
         o.set_core("--min-supported-compute-capability", [capability](Core core) {
           return TRITONSERVER_ServerOptionsSetMinSupportedComputeCapability(core, capability);
         });
         return ok();
       }},
      {"enable-peer-access", "BOOL", "peer access between GPUs; no effect here; default true",
       [](TritonOptions& o, const std::string& v) {
         return o.set_core_bool("--enable-peer-access", v,
                                TRITONSERVER_ServerOptionsSetEnablePeerAccess);
       }},
      {"buffer-manager-thread-count", "N", "copy threads; no effect here",
       [](TritonOptions& o, const std::string& v) {
         ASSIGN_OR_RETURN(const int64_t threads, parse_integer(v, 0, kMaxInt));
         if (threads > 0) {
           o.warnings.push_back(fmt::format(
               "--buffer-manager-thread-count={}: no effect, tensors are not gathered by copies",
               v));
         }
         return ok();
       }},
      {"host-policy", "POLICY,K=V",
       "numa-node or cpu-cores for instances of a policy, such as gpu_0,numa-node=0; may be "
       "repeated",
       set_host_policy},
      {"model-load-gpu-limit", "GPU:FRACTION", "share of a GPU's memory; no effect here",
       set_gpu_limit},
      {"allow-client-shm", "BOOL", "let clients register shared memory for tensors; default true",
       [](TritonOptions& o, const std::string& v) {
         ASSIGN_OR_RETURN(o.http.allow_shared_memory, parse_bool(v));
         o.grpc.allow_shared_memory = o.http.allow_shared_memory;
         return ok();
       }},
  };
}

}  // namespace

std::vector<TritonFlag> server_flags() {
  auto flags = model_flags();
  for (const auto& more : {model_load_flags(), core_flags(), resource_flags()})
    flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

}  // namespace nereid::cli
