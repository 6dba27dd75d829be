// Python's arithmetic on template values.
#pragma once

#include <string_view>

#include "text/jinja/evaluator.h"

namespace nereid::text::jinja {

// `op` is + - * / // % or **. Throws Error for wrong types, division by zero and
// integers beyond 64 bits.
Value binary(Evaluator& evaluator, std::string_view op, const Value& a, const Value& b);
Value negate(const Value& value);

// value[start:stop:step], clipped as in Python; absent bounds are null.
Value slice(Evaluator& evaluator, const Value& value, const Value* start, const Value* stop,
            const Value* step);

// format % values (printf style) and format.format(args).
std::string format_percent(Evaluator& evaluator, const std::string& format, const Value& values);
std::string format_braces(Evaluator& evaluator, const std::string& format, const Args& args);

}  // namespace nereid::text::jinja
