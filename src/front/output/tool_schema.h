// Types of arguments from the request's tools, for formats without JSON's types.
// Internal to front/output.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace nereid::front {

// Whether the request has a tool of this name; true without `tools`.
bool may_be_tool(const json::array* tools, std::string_view name);

// Whether a tool has the parameter; kNotSaid: its schema does not determine it.
enum class Known { kYes, kNo, kNotSaid };
Known has_parameter(const json::array* tools, std::string_view tool, std::string_view parameter);

// The value of a parameter as JSON text. A parameter that may be a string is one, except for
// `null`, lists and objects where those are allowed too; any other, and one without a schema, is
// parsed as a literal.
std::string value_json(const json::array* tools, std::string_view tool, std::string_view parameter,
                       std::string_view text);

}  // namespace nereid::front
