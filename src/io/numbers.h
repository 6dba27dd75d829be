// Numbers of a stored tensor.
#pragma once

#include <vector>

#include "base/status.h"
#include "io/checkpoint.h"

namespace nereid::io {

// All numbers, row-major. InvalidArgument: a type other than BF16, F16 and F32.
StatusOr<std::vector<float>> numbers_of(const StoredTensor& tensor);

}  // namespace nereid::io
