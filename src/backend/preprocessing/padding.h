// How much of a tensor may be padding.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/status.h"

namespace nereid::backend {

// Elements of an output that no text accounts for: those that fill shorter rows, and zeros.
inline constexpr size_t kMaxPadding = size_t{32} << 20;

// InvalidArgument, with the numbers, when an output of `rows` by `width` elements, `given` of which
// come from texts, has more. To be asked before it is made.
Status check_padding(std::string_view name, size_t rows, size_t width, size_t given);

}  // namespace nereid::backend
