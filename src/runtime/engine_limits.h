// What an engine was built for, applied to the options of the executor that loads it.
#pragma once

#include <filesystem>

#include "base/status.h"
#include "convert/engine_dir.h"
#include "nereid/config.h"

namespace nereid::runtime {

// Limits of `config` that are 0 become the engine's, and usual ones where `model` is no engine
// directory; larger ones than the engine's become those with a warning, but more beams are refused.
// Device "auto" becomes "cpu" for an engine that is for CPUs.
// Heads that the engine was built with become `draft_model` where nothing else is wanted.
// Gives the engine's other limits. Errors as convert::read_engine_limits().
StatusOr<convert::EngineLimits> apply_engine_limits(const std::filesystem::path& model,
                                                    ExecutorConfig& config);

}  // namespace nereid::runtime
