// What our front ends and our core agree on beyond Triton's C API.
#pragma once

#include <cstdint>

namespace nereid {

// Private bit of a request's flags: TRITONSERVER_ServerInferAsync may run models that are quick,
// and deliver their responses, before it returns. The core clears it: backends do not see it.
constexpr uint32_t kMayRunHere = uint32_t{1} << 31;

}  // namespace nereid
