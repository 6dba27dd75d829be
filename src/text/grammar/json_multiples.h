// Integers that are multiples of another.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "text/grammar/expr.h"
#include "text/grammar/json_numbers.h"

namespace nereid::text {

inline constexpr int64_t kMaxJsonDivisor = 1000;

// JSON integers within `bounds` that `divisor` (1 to kMaxJsonDivisor) divides, without point and
// exponent; without a bound, of any number of digits. Adds rules to `rules`. Null when there are
// none. InvalidArgument: too many rules are needed.
StatusOr<ExprPtr> json_multiples(const JsonBounds& bounds, int64_t divisor, Rules& rules);

}  // namespace nereid::text
