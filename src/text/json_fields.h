// Typed access to the fields of a JSON object, with errors that name the field and its value.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/status.h"

namespace nereid::text {

// The value as an object; `what` names it in the error.
StatusOr<const json::object*> as_object(const json::value& value, std::string_view what);

// Required fields. InvalidArgument: missing, or of another type.
StatusOr<const json::object*> object_field(const json::object& object, std::string_view name);
StatusOr<const json::array*> array_field(const json::object& object, std::string_view name);
StatusOr<std::string_view> string_field(const json::object& object, std::string_view name);

// `fallback` when the field is missing or null.
StatusOr<std::string_view> string_field(const json::object& object, std::string_view name,
                                        std::string_view fallback);

// The field, or null when it is missing.
const json::value& field_or_null(const json::object& object, std::string_view name);

}  // namespace nereid::text
