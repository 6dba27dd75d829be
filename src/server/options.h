// Server options with their defaults.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace nereid::server {

// One backend's settings, in the order given; later ones win.
using BackendSettings = std::map<std::string, std::string>;

struct ServerOptions {
  std::string id = "triton";
  std::vector<std::string> repositories;
  bool strict_readiness = true;
  bool strict_model_config = true;
  bool exit_on_error = true;
  uint32_t exit_timeout_s = 30;
  bool metrics = true;
  std::string backend_dir = "/opt/tritonserver/backends";
  std::map<std::string, BackendSettings>
      backend_settings;  // backend ("" = all) -> setting -> value
  std::map<std::string, BackendSettings> host_policies;
};

}  // namespace nereid::server
