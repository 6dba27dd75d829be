// Schemas that hold at once, and schemas of which at most one holds.
#include <algorithm>
#include <numeric>

#include "text/grammar/json_schema_maker.h"

namespace nereid::text {
namespace {

constexpr std::string_view kCombining[] = {"$ref", "allOf", "anyOf", "oneOf"};
constexpr std::string_view kSkipped[] = {"title",    "description", "default",  "examples",
                                         "$schema",  "$id",         "$comment", "deprecated",
                                         "readOnly", "writeOnly",   "$defs",    "definitions"};

bool is_in(std::span<const std::string_view> list, std::string_view key) {
  return std::ranges::find(list, key) != list.end();
}

size_t num_values(const json::value& value) {
  size_t count = 1;
  if (value.is_array())
    for (const json::value& one : value.get_array()) count += num_values(one);
  if (value.is_object())
    for (const auto& member : value.get_object()) count += num_values(member.value());
  return count;
}

json::array common(const json::array& a, const json::array& b) {
  json::array result;
  for (const json::value& one : a)
    if (std::ranges::find(b, one) != b.end()) result.push_back(one);
  return result;
}

json::array as_list(const json::value& value) {
  return value.is_array() ? value.get_array() : json::array{value};
}

// Types of both; an integer is a number.
json::array common_types(const json::value& a, const json::value& b) {
  const json::array left = as_list(a), right = as_list(b);
  json::array result = common(left, right);
  const auto has = [](const json::array& list, std::string_view type) {
    return std::ranges::find(list, json::value(type)) != list.end();
  };
  const bool integer = (has(left, "integer") && has(right, "number")) ||
                       (has(left, "number") && has(right, "integer"));
  if (integer && !has(result, "integer") && !has(result, "number")) result.push_back("integer");
  return result;
}

// A whole number above zero that is small enough for the product of two.
std::optional<int64_t> divisor_of(const json::value& value) {
  constexpr int64_t kMost = 1'000'000;
  const int64_t* whole = value.if_int64();
  return whole && *whole > 0 && *whole <= kMost ? std::optional(*whole) : std::nullopt;
}

// Whether `schema` allows other members only as "additionalProperties" says, and `other` has some.
bool closes_against(const json::object& schema, const json::object& other) {
  const json::value* additional = schema.if_contains("additionalProperties");
  const json::value *own = schema.if_contains("properties"),
                    *others = other.if_contains("properties");
  if (!additional || *additional == json::value(true) || !others || !others->is_object())
    return false;
  return std::ranges::any_of(others->get_object(), [&](const auto& member) {
    return !own || !own->is_object() || !own->get_object().contains(member.key());
  });
}

}  // namespace

StatusOr<SchemaAt> JsonSchemaMaker::keep(json::value schema, std::string pointer) {
  constexpr size_t kMaxMergedValues = 100'000;
  num_merged_values_ += num_values(schema);
  if (num_merged_values_ > kMaxMergedValues)
    return SchemaAt{nullptr, pointer}.error(
        fmt::format("combined schemas have more than {} parts", kMaxMergedValues));
  merged_.push_back(std::move(schema));
  return SchemaAt{&merged_.back(), std::move(pointer)};
}

StatusOr<SchemaAt> JsonSchemaMaker::merge(const SchemaAt& a, const SchemaAt& b) {
  if (*b.value == json::value(true)) return a;
  if (!b.value->is_object()) return b.error("allows no value here, or is no schema");
  RETURN_IF_ERROR(check_keywords(b));
  const json::object &left = a.object(), &right = b.object();
  if (closes_against(left, right) || closes_against(right, left))
    return b.error("'additionalProperties' together with other 'properties' is not supported");
  const bool prefix = left.contains("prefixItems") != right.contains("prefixItems");
  if (prefix && (left.contains("items") || right.contains("items")))
    return b.error("'items' together with other 'prefixItems' is not supported");
  json::object all = left;
  for (const auto& [key, value] : right) {
    if (is_in(kSkipped, key)) continue;
    if (!all.contains(key))
      all[key] = value;
    else if (all[key] != value)
      RETURN_IF_ERROR(merge_member(all, b, key));
  }
  return keep(std::move(all), b.pointer);
}

// Into all[key], which differs from b[key].
Status JsonSchemaMaker::merge_member(json::object& all, const SchemaAt& b, std::string_view key) {
  json::value& own = all[key];
  const json::value& other = *b.find(key);
  const auto both = [](const json::value& x, const json::value& y) {
    return json::value{{"allOf", json::array{x, y}}};
  };
  if (is_in(kCombining, key)) {
    json::array list;
    if (const json::value* former = all.if_contains("allOf"); former && former->is_array())
      list = former->get_array();
    if (key == "allOf" && other.is_array())
      list.insert(list.end(), other.get_array().begin(), other.get_array().end());
    else
      list.push_back(json::object{{key, other}});
    all["allOf"] = std::move(list);
  } else if (key == "type") {
    own = common_types(own, other);
    if (own.get_array().empty())
      return b.error("has no type in common with what stands beside it", key);
  } else if (key == "enum" && own.is_array() && other.is_array()) {
    own = common(own.get_array(), other.get_array());
  } else if (key == "required" && own.is_array() && other.is_array()) {
    for (const json::value& name : other.get_array()) own.get_array().push_back(name);
  } else if (key == "properties" && own.is_object() && other.is_object()) {
    for (const auto& [name, value] : other.get_object()) {
      json::value& mine = own.get_object()[name];
      mine = mine.is_null() ? value : both(mine, value);
    }
  } else if (key == "items" || key == "additionalProperties") {
    own = both(own, other);
  } else if (key == "multipleOf") {
    const auto left = divisor_of(own), right = divisor_of(other);
    if (!left || !right)
      return b.error("differs from the one beside it, which is supported only for integers", key);
    own = std::lcm(*left, *right);
  } else if (own.is_number() && other.is_number()) {
    const bool low = key.starts_with("min") || key == "exclusiveMinimum";
    const bool larger = other.to_number<double>() > own.to_number<double>();
    if (low == larger) own = other;
  } else if (!key.starts_with("x-")) {
    return b.error("differs from the one beside it, which is not supported", key);
  }
  return ok();
}

Status JsonSchemaMaker::check_exclusive(const SchemaAt& list) {
  constexpr size_t kMost = 256;
  const size_t size = list.value->get_array().size();
  if (size > kMost) return list.error(fmt::format("more than {} schemas", kMost));
  for (size_t i = 0; i < size; ++i)
    for (size_t j = 0; j < i; ++j)
      if (!exclusive(list[i], list[j], 0))
        return list.error(fmt::format(
            "a value may be of schemas {} and {}; only 'oneOf' of schemas that differ in their "
            "types, or in 'const' or 'enum' of a required property, is supported (use 'anyOf')",
            j, i));
  return ok();
}

// Whether it is plain that no value is of both.
bool JsonSchemaMaker::exclusive(const SchemaAt& a, const SchemaAt& b, int depth) {
  constexpr int kMaxDepth = 8;
  if (depth > kMaxDepth) return false;
  if (*a.value == json::value(false) || *b.value == json::value(false)) return true;
  if (!a.value->is_object() || !b.value->is_object()) return false;
  for (const SchemaAt* one : {&a, &b}) {
    if (!one->find("$ref")) continue;
    const auto there = target(*one);
    return there.ok() && exclusive(*there, one == &a ? b : a, depth + 1);
  }
  const auto values_of = [](const SchemaAt& at) {
    if (const json::value* value = at.find("const")) return std::optional(json::array{*value});
    const json::value* list = at.find("enum");
    return list && list->is_array() ? std::optional(list->get_array()) : std::nullopt;
  };
  if (const auto left = values_of(a), right = values_of(b); left && right)
    return common(*left, *right).empty();
  const auto left = types(a), right = types(b);
  if (!left.ok() || !right.ok()) return false;
  bool objects = false;
  for (const std::string_view x : *left)
    for (const std::string_view y : *right) {
      const bool numbers = (x == "number" || x == "integer") && (y == "number" || y == "integer");
      if (x == "object" && y == "object")
        objects = true;
      else if (x == y || numbers)
        return false;
    }
  if (!objects) return true;
  const auto is_required = [](const SchemaAt& at, std::string_view name) {
    const json::value* list = at.find("required");
    return list && list->is_array() &&
           std::ranges::find(list->get_array(), json::value(name)) != list->get_array().end();
  };
  const json::value *of_a = a.find("properties"), *of_b = b.find("properties");
  if (!of_a || !of_b || !of_a->is_object() || !of_b->is_object()) return false;
  return std::ranges::any_of(of_a->get_object(), [&](const auto& member) {
    const std::string_view name = member.key();
    return of_b->get_object().contains(name) && is_required(a, name) && is_required(b, name) &&
           exclusive(a["properties"][name], b["properties"][name], depth + 1);
  });
}

}  // namespace nereid::text
