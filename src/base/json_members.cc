#include "base/json_members.h"

namespace nereid {

const json::object& object_or_empty(const json::value& value) {
  static const json::object none;
  return value.is_object() ? value.get_object() : none;
}

const json::value* member(ObjectView from, std::string_view key) {
  return from.object.if_contains(key);
}

const json::value& member_or_null(ObjectView from, std::string_view key) {
  static const json::value null;
  const json::value* const found = member(from, key);
  return found ? *found : null;
}

std::string text_member(ObjectView from, std::string_view key) {
  const json::string* const text = member_or_null(from, key).if_string();
  return text ? std::string(*text) : std::string();
}

int64_t integer_member(ObjectView from, std::string_view key) {
  const int64_t* const number = member_or_null(from, key).if_int64();
  return number ? *number : 0;
}

bool flag_member(ObjectView from, std::string_view key) {
  const bool* const flag = member_or_null(from, key).if_bool();
  return flag && *flag;
}

const json::object& object_member(ObjectView from, std::string_view key) {
  return object_or_empty(member_or_null(from, key));
}

const json::array& array_member(ObjectView from, std::string_view key) {
  static const json::array none;
  const json::array* const array = member_or_null(from, key).if_array();
  return array ? *array : none;
}

}  // namespace nereid
