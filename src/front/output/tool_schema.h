// What the request's tools say of a call that is written without JSON's types. Internal to
// front/output.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace nereid::front {

// Whether the request may have a tool of this name; without `tools` any.
bool may_be_tool(const json::array* tools, std::string_view name);

// Whether a tool has the parameter; null where that is not said.
enum class Known { kYes, kNo, kNotSaid };
Known has_parameter(const json::array* tools, std::string_view tool, std::string_view parameter);

// The value that stands for a parameter, as JSON text. A parameter that may be a text is one, but
// for `null`, lists and objects where those are allowed too; another, and one without a schema, is
// what it reads as.
std::string value_json(const json::array* tools, std::string_view tool, std::string_view parameter,
                       std::string_view text);

}  // namespace nereid::front
