// JSON as Python's json module writes it.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/status.h"

namespace nereid {

// A document that Python's json module wrote: NaN, Infinity and -Infinity, for which JSON has no
// words, become the strings of these names, which are no numbers to whoever reads such a field.
StatusOr<json::value> parse_python_json(std::string_view text);

}  // namespace nereid
