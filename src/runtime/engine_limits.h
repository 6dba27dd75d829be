// Limits that an engine was built with, applied to the executor's options.
#pragma once

#include <filesystem>

#include "base/status.h"
#include "convert/engine_dir.h"
#include "nereid/config.h"

namespace nereid::runtime {

// Limits of `config` that are 0 become the engine's (or the usual ones if `model` is no engine
// directory); larger values are reduced with a warning, a larger beam width is refused. Device
// "auto" becomes "cpu" for a CPU engine. Draft heads in the engine become `draft_model` if neither
// draft_model nor speculation is set. Returns the engine's other limits. Errors as
// convert::read_engine_limits().
StatusOr<convert::EngineLimits> apply_engine_limits(const std::filesystem::path& model,
                                                    ExecutorConfig& config);

// The encoder's folder of an encoder-decoder model in two folders, of which `decoder` is one.
std::filesystem::path encoder_beside(const std::filesystem::path& decoder);

}  // namespace nereid::runtime
