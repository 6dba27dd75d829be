// A tensor's elements as text of the trace file.
#pragma once

#include <cstddef>
#include <string>

#include "triton/core/tritonserver.h"

namespace nereid::front {

// Elements separated by commas; BYTES elements in quotes. Ends with "..." for more than a million
// elements, or truncated data.
std::string tensor_text(TRITONSERVER_DataType type, const void* base, size_t byte_size);

}  // namespace nereid::front
