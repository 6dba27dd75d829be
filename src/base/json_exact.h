// JSON parsing that keeps all digits of numbers.
#pragma once

#include <span>

#include "base/json.h"

namespace nereid {

// parse_json() that keeps all digits: a number that neither an int64 nor a double holds exactly
// becomes a value of its own kind (see long_number()).
StatusOr<json::value> parse_json_exact(std::string_view text, size_t max_depth = 128,
                                       json::storage_ptr storage = {},
                                       json::storage_ptr temporary = {});
// The JSON text of a long number; empty for other values. No other JSON text parses to a
// value of this kind.
std::string_view long_number(const json::value& value);
// is_object() of a value from parse_json_exact(), where it holds for long numbers, too.
bool is_exact_object(const json::value& value);
// Makes the long numbers of `value` doubles, as parse_json() has them, but for those of these
// members of the outermost object.
void round_long_numbers(json::value& value, std::span<const std::string_view> kept = {});

}  // namespace nereid
