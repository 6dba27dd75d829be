// Checkpoints with dimensions only, for benchmarks with random weights.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace nereid::convert {

// Published models with known dimensions: llama-3.1-8b, mixtral-8x7b, ...
std::span<const std::string> random_model_names();

// A folder with config.json only, below `cache_dir` (empty: cache_dir()). NotFound: known names.
StatusOr<std::filesystem::path> random_model_dir(std::string_view name,
                                                 const std::filesystem::path& cache_dir);

}  // namespace nereid::convert
