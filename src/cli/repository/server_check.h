// The server's errors in a repository's configurations, found without backends and engines.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "base/status.h"

namespace nereid::cli {

// The error of each model whose configuration the server refuses. `config_name`: it reads
// configs/<config_name>.pbtxt where a model has one. Redirects the process's log to a temporary
// file: for a tool, not for a server.
StatusOr<std::map<std::string, std::string>> refused_configurations(
    const std::filesystem::path& repository, const std::string& config_name);

}  // namespace nereid::cli
