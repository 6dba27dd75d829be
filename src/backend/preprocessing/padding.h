// A bound on the padding of a tensor.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/status.h"

namespace nereid::backend {

// Elements of an output beyond those of its texts: padding of shorter rows, and zeros.
inline constexpr size_t kMaxPadding = size_t{32} << 20;

// InvalidArgument, with the numbers, when an output of `rows` by `width` elements has more than
// kMaxPadding beyond the `given` ones. To be called before it is allocated.
Status check_padding(std::string_view name, size_t rows, size_t width, size_t given);

}  // namespace nereid::backend
