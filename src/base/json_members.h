// Members of JSON objects, read without errors: what is absent or of another type is empty.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"

namespace nereid {

// The object that a value is; an empty one for other values.
const json::object& object_or_empty(const json::value& value);

// Argument of the functions below: an object, or a value that is an object.
struct ObjectView {
  ObjectView(const json::object& o) : object(o) {}                  // NOLINT: converts
  ObjectView(const json::value& v) : object(object_or_empty(v)) {}  // NOLINT: converts
  const json::object& object;
};

// null: it is absent.
const json::value* member(ObjectView from, std::string_view key);
// JSON's null when it is absent.
const json::value& member_or_null(ObjectView from, std::string_view key);
// "", 0, false or an empty one for a member of another type.
std::string text_member(ObjectView from, std::string_view key);
int64_t integer_member(ObjectView from, std::string_view key);
bool flag_member(ObjectView from, std::string_view key);
const json::object& object_member(ObjectView from, std::string_view key);
const json::array& array_member(ObjectView from, std::string_view key);

}  // namespace nereid
