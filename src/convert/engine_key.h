// Cache key of an engine, see engine_cache.h.
#pragma once

#include <string>

#include "convert/compile.h"
#include "io/safetensors.h"

namespace nereid::convert {

// 16 hex digits. `checkpoint` may be null (random weights).
std::string engine_key(const Compiled& compiled, const io::Checkpoint* checkpoint);

}  // namespace nereid::convert
