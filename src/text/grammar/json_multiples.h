// Numbers that are multiples of another.
#pragma once

#include <cstdint>
#include <functional>

#include "base/status.h"
#include "text/grammar/expr.h"
#include "text/grammar/json_numbers.h"
#include "text/grammar/work_limit.h"

namespace nereid::text {

inline constexpr int64_t kMaxJsonDivisor = 1000;

// JSON integers within `bounds` whose absolute value leaves a good remainder when it is divided by
// `divisor` (1 to kMaxJsonDivisor), without point and exponent; without a bound, of any number of
// digits. Adds rules to `rules`. Null when there are none. InvalidArgument: too many rules are
// needed.
StatusOr<ExprPtr> json_multiples(const JsonBounds& bounds, int64_t divisor,
                                 const std::function<bool(int64_t remainder)>& good, Rules& rules);

// Numbers within `bounds`, without exponent, that are multiples of `units` (1 to kMaxJsonDivisor)
// divided by ten `places` (1 to kMaxDivisorPlaces) times. Else as above.
inline constexpr size_t kMaxDivisorPlaces = 12;
StatusOr<ExprPtr> json_decimal_multiples(const JsonBounds& bounds, int64_t units, size_t places,
                                         Rules& rules, WorkLimit& work);

}  // namespace nereid::text
