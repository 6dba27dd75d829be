#include "text/json_fields.h"

namespace nereid::text {

namespace {

std::string_view kind_name(const json::value& value) {
  const auto name = json::to_string(value.kind());
  return {name.data(), name.size()};
}

Status wrong_type(std::string_view name, const json::value& value, std::string_view wanted) {
  if (value.is_null()) return invalid_argument("field '{}' is missing: must be {}", name, wanted);
  return invalid_argument("field '{}' is {}: must be {}", name, kind_name(value), wanted);
}

}  // namespace

const json::value& field_or_null(const json::object& object, std::string_view name) {
  static const json::value null;
  const json::value* found = object.if_contains({name.data(), name.size()});
  return found != nullptr ? *found : null;
}

StatusOr<const json::object*> as_object(const json::value& value, std::string_view what) {
  const json::object* object = value.if_object();
  if (object == nullptr) return wrong_type(what, value, "an object");
  return object;
}

StatusOr<const json::object*> object_field(const json::object& object, std::string_view name) {
  return as_object(field_or_null(object, name), name);
}

StatusOr<const json::array*> array_field(const json::object& object, std::string_view name) {
  const json::value& value = field_or_null(object, name);
  const json::array* array = value.if_array();
  if (array == nullptr) return wrong_type(name, value, "an array");
  return array;
}

StatusOr<std::string_view> string_field(const json::object& object, std::string_view name) {
  const json::value& value = field_or_null(object, name);
  const json::string* string = value.if_string();
  if (string == nullptr) return wrong_type(name, value, "a string");
  return std::string_view(string->data(), string->size());
}

StatusOr<std::string_view> string_field(const json::object& object, std::string_view name,
                                        std::string_view fallback) {
  if (field_or_null(object, name).is_null()) return fallback;
  return string_field(object, name);
}

}  // namespace nereid::text
