// Models that a command line names by hf://ORG/NAME.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/status.h"
#include "hub/pull.h"

namespace nereid::cli {

// The model of hf://ORG/NAME[@REVISION][:FILE.gguf]: from the caches without a request if it is
// complete there, else downloaded. `cache_dir`: of --cache-dir; empty: base's. Ends the process by
// its signal where SIGINT or SIGTERM stops a download.
StatusOr<std::filesystem::path> find_hub_model(const std::string& address,
                                               const std::filesystem::path& cache_dir);

// The model's path in the caches, without a download; nullopt: absent.
StatusOr<std::optional<std::filesystem::path>> find_cached_model(
    const std::string& address, const std::filesystem::path& cache_dir);

// Calls hub::pull() or hub::find_or_pull(); signals as above.
StatusOr<hub::Pulled> pull_model(const hub::HubSettings& settings, const hub::ModelName& model,
                                 bool asks_hub);

// settings_from_environment() with the version of this program as the user agent.
StatusOr<hub::HubSettings> hub_settings(const std::filesystem::path& cache_dir);

}  // namespace nereid::cli
