// The last step from protobuf's JSON of a ModelConfig to what Triton clients read.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace nereid::server {

// Protobuf prints 64-bit integers as strings; clients expect numbers for dims, shapes, versions,
// *_microseconds, priority levels and ensemble versions. Everything else stays as printed.
StatusOr<std::string> numbers_in_config_json(std::string_view printed);

}  // namespace nereid::server
