// JSON as Python's json module writes it.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/status.h"

namespace nereid {

// Parses a document that Python's json module wrote: NaN, Infinity and -Infinity, which JSON does
// not have, become strings of these names, so that a reader of a number field refuses them.
StatusOr<json::value> parse_python_json(std::string_view text);

}  // namespace nereid
