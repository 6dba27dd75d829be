// The cache key of an engine; see engine_cache.h for what it covers.
#pragma once

#include <filesystem>
#include <string>

#include "convert/engine_cache.h"
#include "io/safetensors.h"

namespace nereid::convert {

// 16 hex digits. `checkpoint` may be null (random weights).
StatusOr<std::string> engine_key(const std::filesystem::path& model_dir,
                                 const io::Checkpoint* checkpoint,
                                 const kernels::Registry& registry, const DeviceInfo& device,
                                 const BuildOptions& options);

}  // namespace nereid::convert
