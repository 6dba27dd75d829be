// A tensor's elements as the trace file shows them.
#pragma once

#include <cstddef>
#include <string>

#include "triton/core/tritonserver.h"

namespace nereid::front {

// Elements separated by commas; BYTES elements in quotes. Ends with "..." when there are more than
// a million, or the data end early.
std::string tensor_text(TRITONSERVER_DataType type, const void* base, size_t byte_size);

}  // namespace nereid::front
