// JSON numbers within bounds.
#pragma once

#include <cstdint>
#include <optional>

#include "text/grammar/expr.h"

namespace nereid::text {

// Most digits before and after the point.
inline constexpr int32_t kMaxJsonDigits = 40;

struct JsonBounds {
  std::optional<int64_t> least, most;            // within 2^53
  bool above_least = false, below_most = false;  // the bound itself is left out
};

// Integers without point and exponent. Null when there are none.
ExprPtr json_integer(JsonBounds bounds);
// Numbers; with bounds, those without exponent. Null when there are none.
ExprPtr json_number(const JsonBounds& bounds);

}  // namespace nereid::text
