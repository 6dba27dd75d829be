// Checkpoints that are dimensions alone, for benchmarks with random weights.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace nereid::convert {

// Published models whose dimensions are known: llama-3.1-8b, mixtral-8x7b, ...
std::span<const std::string> random_model_names();

// A folder with the config.json of such a model and nothing else, written below `cache_dir` (empty:
// base's cache_dir()). NotFound naming the known ones.
StatusOr<std::filesystem::path> random_model_dir(std::string_view name,
                                                 const std::filesystem::path& cache_dir);

}  // namespace nereid::convert
