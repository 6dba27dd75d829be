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
  bool has_namespaces = false;  // each repository is one: a model's name may be in several
  TRITONSERVER_ModelControlMode control_mode = TRITONSERVER_MODEL_CONTROL_NONE;
  std::set<std::string> startup_models;  // explicit mode; a lone "*" = all
  bool strict_readiness = true;
  bool strict_model_config = true;  // a model without config.pbtxt is refused
  std::string model_config_name;    // configs/<name>.pbtxt before config.pbtxt
  bool exit_on_error = true;
  uint32_t exit_timeout_s = 30;
  uint32_t model_load_threads = 4;
  uint32_t model_load_retries = 0;
  MetricsConfig metrics;
  uint64_t pinned_pool_bytes = uint64_t{256} << 20;
  std::string cache_name, cache_config = "{}";  // of the response cache; "" = none; JSON
  std::string cache_dir = "/opt/tritonserver/caches";
  std::string agent_dir = "/opt/tritonserver/repoagents";
  std::string backend_dir = "/opt/tritonserver/backends";
  std::map<std::string, BackendSettings>
      backend_settings;  // backend ("" = all) -> setting -> value
  std::map<std::string, BackendSettings> host_policies;
  bool limit_rates = false;  // instances wait for the resources that they name
  std::map<std::pair<int, std::string>, uint64_t> rate_resources;  // RateLimiter::Capacities
  double min_compute_capability = 6.0;                             // of GPUs, told to backends
};

}  // namespace nereid::server
