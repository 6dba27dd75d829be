// Multiples of a number.
#pragma once

#include <cstdint>
#include <functional>

#include "base/status.h"
#include "text/grammar/expr.h"
#include "text/grammar/schema/json_numbers.h"
#include "text/grammar/work_limit.h"

namespace nereid::text {

inline constexpr int64_t kMaxJsonDivisor = 1000;

// JSON integers within `bounds`, without point and exponent, whose absolute value modulo `divisor`
// (1 to kMaxJsonDivisor) is a good remainder; any number of digits without a bound. Adds rules to
// `rules`. Null: none. InvalidArgument: too many rules are needed.
StatusOr<ExprPtr> json_multiples(const JsonBounds& bounds, int64_t divisor,
                                 const std::function<bool(int64_t remainder)>& good, Rules& rules);

// Numbers within `bounds`, without exponent, that are multiples of units / 10^places (units 1 to
// kMaxJsonDivisor, places 1 to kMaxDivisorPlaces). Otherwise as json_multiples().
inline constexpr size_t kMaxDivisorPlaces = 12;
StatusOr<ExprPtr> json_decimal_multiples(const JsonBounds& bounds, int64_t units, size_t places,
                                         Rules& rules, WorkLimit& work);

}  // namespace nereid::text
