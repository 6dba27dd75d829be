// Flags of requests that our front ends and our core share beyond Triton's C API.
#pragma once

#include <cstdint>

namespace nereid {

// Private bit of a request's flags: TRITONSERVER_ServerInferAsync may execute quick models, and
// deliver their responses, before it returns. The core clears the bit: backends do not see it.
constexpr uint32_t kMayRunHere = uint32_t{1} << 31;

}  // namespace nereid
