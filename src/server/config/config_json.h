// The last step from protobuf's JSON of a ModelConfig to the JSON that Triton clients read.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace nereid::server {

// Turns 64-bit integers, which protobuf prints as strings, into numbers: dims, shapes, versions,
// *_microseconds, priority levels, ensemble versions. Everything else stays.
StatusOr<std::string> numbers_in_config_json(std::string_view printed);

}  // namespace nereid::server
