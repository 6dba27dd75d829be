// What the server says of a repository's configurations, without a backend and so without engines.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "base/status.h"

namespace nereid::cli {

// The reason for each model whose configuration the server refuses when it reads it. With
// `config_name` it reads configs/<config_name>.pbtxt where a model has one. The process's log goes
// to a file that is gone afterwards: for a tool that ends, not for a server.
StatusOr<std::map<std::string, std::string>> refused_configurations(
    const std::filesystem::path& repository, const std::string& config_name);

}  // namespace nereid::cli
