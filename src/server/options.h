// Server options with their defaults.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "server/metrics/metrics_config.h"
#include "triton/core/tritonserver.h"

namespace nereid::server {

// One backend's settings, in the order given; later ones win.
using BackendSettings = std::map<std::string, std::string>;

struct ServerOptions {
  std::string id = "triton";
  std::vector<std::string> repositories;
  // Each repository is a namespace: several may have a model of the same name.
  bool has_namespaces = false;
  TRITONSERVER_ModelControlMode control_mode = TRITONSERVER_MODEL_CONTROL_NONE;
  std::set<std::string> startup_models;  // for explicit mode; a lone "*" = all
  bool strict_readiness = true;
  bool strict_model_config = true;  // refuses a model without config.pbtxt
  std::string model_config_name;    // reads configs/<name>.pbtxt before config.pbtxt
  bool exit_on_error = true;
  uint32_t exit_timeout_s = 30;
  uint32_t model_load_threads = 4;
  uint32_t model_load_retries = 0;
  MetricsConfig metrics;
  uint64_t pinned_pool_bytes = uint64_t{256} << 20;
  std::string cache_name, cache_config = "{}";  // response cache; name "" = none; config is JSON
  std::string cache_dir = "/opt/tritonserver/caches";
  std::string agent_dir = "/opt/tritonserver/repoagents";
  std::string backend_dir = "/opt/tritonserver/backends";
  std::map<std::string, BackendSettings>
      backend_settings;  // backend ("" = all) -> setting -> value
  std::map<std::string, BackendSettings> host_policies;
  bool limit_rates = false;  // instances wait for their named resources
  std::map<std::pair<int, std::string>, uint64_t> rate_resources;  // RateLimiter::Capacities
  double min_compute_capability = 6.0;  // minimum for GPUs, passed to backends
};

}  // namespace nereid::server
