// The opposite of a schema, as a choice of schemas: one keyword of it does not hold.
#include <algorithm>

#include "text/grammar/json_schema_maker.h"

namespace nereid::text {
namespace {

Status no_opposite(const SchemaAt& at, std::string_view key) {
  return at.error(
      "the opposite of this keyword, which 'not' or 'oneOf' need here, is not supported", key);
}

json::object typed(std::string_view type, std::string_view key, json::value value) {
  return {{"type", type}, {key, std::move(value)}};
}

// A member of this name must be there and of the schema.
json::object with_member(std::string_view name, json::value schema) {
  return {{"type", "object"},
          {"required", json::array{json::string(name)}},
          {"properties", json::object{{name, std::move(schema)}}}};
}

json::value without_member(std::string_view name) {
  return typed("object", "properties", json::object{{name, false}});
}

json::array list_of(const json::value& value) {
  return value.is_array() ? value.get_array() : json::array{value};
}

json::array common(const json::array& a, const json::array& b) {
  json::array result;
  for (const json::value& one : a)
    if (std::ranges::any_of(b, [&](const json::value& other) { return same_value(one, other); }))
      result.push_back(one);
  return result;
}

bool requires_member(const SchemaAt& at, std::string_view name) {
  const json::value* list = at.find("required");
  return list && list->is_array() &&
         std::ranges::find(list->get_array(), json::value(name)) != list->get_array().end();
}

// Whether a member of this name is not allowed.
bool forbids_member(const SchemaAt& at, std::string_view name) {
  const json::value *properties = at.find("properties"), *other = at.find("additionalProperties");
  const json::value* own =
      properties && properties->is_object() ? properties->get_object().if_contains(name) : nullptr;
  if (own) return *own == json::value(false);
  return other && *other == json::value(false) && !at.find("patternProperties");
}

}  // namespace

StatusOr<json::value> JsonSchemaMaker::negation(SchemaAt at) {
  json::array ways;
  ASSIGN_OR_RETURN(at, direct(std::move(at)));
  if (const bool* all = at.value->if_bool()) {
    if (!*all) ways.push_back(true);
    return json::object{{kChoiceKey, std::move(ways)}};
  }
  if (!at.value->is_object()) return at.error("a schema must be an object or a boolean");
  RETURN_IF_ERROR(check_keywords(at));
  for (const auto& member : at.object()) RETURN_IF_ERROR(negate(at, member.key(), ways));
  return json::object{{kChoiceKey, std::move(ways)}};
}

Status JsonSchemaMaker::negate(const SchemaAt& at, std::string_view key, json::array& ways) {
  constexpr std::string_view kNone[] = {"multipleOf",       "format",
                                        "uniqueItems",      "additionalProperties",
                                        "propertyNames",    "patternProperties",
                                        "unevaluatedItems", "unevaluatedProperties",
                                        kExceptKey,         kUnlikeKey};
  const json::value& value = *at.find(key);
  // Such keywords may still say nothing.
  const bool trivial = value == json::value(key != "uniqueItems") ||
                       (value.is_object() && value.get_object().empty());
  if (std::ranges::find(kNone, key) != std::end(kNone))
    return trivial ? ok() : no_opposite(at, key);
  if (key == "type") {
    ASSIGN_OR_RETURN(const unsigned types, types_of(at));
    json::array others;
    constexpr std::pair<std::string_view, unsigned> kAll[] = {
        {"null", kNullType},       {"boolean", kBooleanType},       {"string", kStringType},
        {"integer", kIntegerType}, {kFractionType, kFractionTypes}, {"array", kArrayType},
        {"object", kObjectType}};
    for (const auto& [name, bit] : kAll)
      if ((types & bit) == 0) others.push_back(json::string(name));
    if (!others.empty()) ways.push_back(json::object{{"type", std::move(others)}});
    return ok();
  }
  if (key == "const") {
    ways.push_back(json::object{{kExceptKey, json::array{value}}});
    return ok();
  }
  if (key == "enum") {
    if (!value.is_array()) return at.error("must be an array", key);
    ways.push_back(json::object{{kExceptKey, value}});
    return ok();
  }
  if (key == "pattern") {
    ways.push_back(typed("string", kUnlikeKey, value));
    return ok();
  }
  RETURN_IF_ERROR(negate_limits(at, key, ways));
  RETURN_IF_ERROR(negate_combined(at, key, ways));
  RETURN_IF_ERROR(negate_elements(at, key, ways));
  return negate_members(at, key, ways);
}

Status JsonSchemaMaker::negate_limits(const SchemaAt& at, std::string_view key, json::array& ways) {
  constexpr std::pair<std::string_view, std::string_view> kBounds[] = {
      {"minimum", "exclusiveMaximum"},
      {"maximum", "exclusiveMinimum"},
      {"exclusiveMinimum", "maximum"},
      {"exclusiveMaximum", "minimum"}};
  struct Counts {
    std::string_view type, least, most;
  };
  constexpr Counts kCounts[] = {{"string", "minLength", "maxLength"},
                                {"array", "minItems", "maxItems"},
                                {"object", "minProperties", "maxProperties"}};
  for (const auto& [own, opposite] : kBounds)
    if (key == own) {
      if (!at.find(key)->is_number()) return no_opposite(at, key);
      ways.push_back(typed("number", opposite, *at.find(key)));
    }
  for (const Counts& c : kCounts) {
    if (key != c.least && key != c.most) continue;
    ASSIGN_OR_RETURN(const int32_t count, schema_count(at, key, 0));
    if (key == c.least && count > 0) ways.push_back(typed(c.type, c.most, count - 1));
    if (key == c.most) ways.push_back(typed(c.type, c.least, count + 1));
  }
  return ok();
}

Status JsonSchemaMaker::negate_combined(const SchemaAt& at, std::string_view key,
                                        json::array& ways) {
  if (key == "$ref" || key == "$dynamicRef") {
    ASSIGN_OR_RETURN(SchemaAt there, target(at, key));
    ways.push_back(opposite(there));
  } else if (key == "not") {
    ways.push_back(place(at[key]));
  } else if (key == "if") {
    if (at.find("then"))
      ways.push_back(json::object{{"allOf", json::array{place(at[key]), opposite(at["then"])}}});
    if (at.find("else"))
      ways.push_back(json::object{{"allOf", json::array{opposite(at[key]), opposite(at["else"])}}});
  } else if (key == "allOf" || key == "anyOf" || key == "oneOf" || key == kChoiceKey) {
    const SchemaAt list = at[key];
    if (!list.value->is_array()) return list.error("must be an array of schemas");
    const size_t size = list.value->get_array().size();
    const auto pairs = static_cast<int64_t>(key == "oneOf" ? size * size : size);
    RETURN_IF_ERROR(spend(list, 10 * pairs));
    json::array none;
    for (size_t i = 0; i < size; ++i) (key == "allOf" ? ways : none).push_back(opposite(list[i]));
    if (key == "allOf") return ok();
    ways.push_back(json::object{{"allOf", std::move(none)}});
    for (size_t i = 0; key == "oneOf" && i < size; ++i)
      for (size_t j = 0; j < i; ++j)
        if (!exclusive(list[j], list[i]))
          ways.push_back(json::object{{"allOf", json::array{place(list[j]), place(list[i])}}});
  } else if (key == "dependentRequired" || key == "dependentSchemas" || key == "dependencies") {
    const SchemaAt all = at[key];
    if (!all.value->is_object()) return at.error("must be an object", key);
    for (const auto& [name, value] : all.object()) {
      json::object present = with_member(name, true);
      if (!value.is_array()) {
        present["allOf"] = json::array{opposite(all[std::string_view(name)])};
        ways.push_back(std::move(present));
        continue;
      }
      for (const json::value& other : value.get_array()) {
        if (!other.is_string()) return all.error("must be an array of strings", name);
        if (other == json::value(name)) continue;
        present["properties"] = json::object{{other.get_string(), false}};
        ways.push_back(present);
      }
    }
  }
  return ok();
}

Status JsonSchemaMaker::negate_elements(const SchemaAt& at, std::string_view key,
                                        json::array& ways) {
  ASSIGN_OR_RETURN(const ElementKeys keys, element_keys(at));
  if (key == keys.front) {
    json::array front;
    for (size_t i = 0; i < keys.size; ++i) {
      json::array all = front;
      all.push_back(opposite(at[key][i]));
      json::object way = typed("array", "minItems", static_cast<int64_t>(i) + 1);
      way["prefixItems"] = std::move(all);
      ways.push_back(std::move(way));
      front.push_back(true);
    }
  } else if (key == keys.rest) {
    const json::value& value = *at.find(key);
    if (value == json::value(true)) return ok();
    if (value == json::value(false))
      ways.push_back(typed("array", "minItems", static_cast<int64_t>(keys.size) + 1));
    else if (keys.size > 0)
      return no_opposite(at, key);
    else
      ways.push_back(typed("array", "contains", opposite(at[key])));
  } else if (key == "contains") {
    ASSIGN_OR_RETURN(const int32_t least, schema_count(at, "minContains", 1));
    ASSIGN_OR_RETURN(const int32_t most, schema_count(at, "maxContains", kUnbounded));
    json::object way = typed("array", key, place(at[key]));
    way["minContains"] = 0;
    way["maxContains"] = least - 1;
    if (least > 0) ways.push_back(way);
    way.erase("maxContains");
    way["minContains"] = most + 1;
    if (most != kUnbounded) ways.push_back(std::move(way));
  }
  return ok();
}

Status JsonSchemaMaker::negate_members(const SchemaAt& at, std::string_view key,
                                       json::array& ways) {
  if (key == "properties") {
    const SchemaAt all = at[key];
    if (!all.value->is_object()) return at.error("must be an object", key);
    for (const auto& member : all.object())
      if (member.value() != json::value(true))
        ways.push_back(with_member(member.key(), opposite(all[std::string_view(member.key())])));
  } else if (key == "required") {
    const json::array* names = at.find(key)->if_array();
    if (!names) return at.error("must be an array", key);
    for (const json::value& name : *names) {
      if (!name.is_string()) return at.error("must be an array of strings", key);
      ways.push_back(without_member(name.get_string()));
    }
  }
  return ok();
}

bool JsonSchemaMaker::exclusive(const SchemaAt& a, const SchemaAt& b, int depth) {
  constexpr int kMaxDepth = 64;
  if (depth > kMaxDepth) return false;
  const auto key = std::minmax(a.value, b.value);
  // A pair within itself: nothing is plain yet.
  const auto [found, is_new] = exclusive_.try_emplace({key.first, key.second}, false);
  if (is_new) found->second = find_exclusive(a, b, depth);
  return found->second;
}

bool JsonSchemaMaker::find_exclusive(const SchemaAt& a, const SchemaAt& b, int depth) {
  if (*a.value == json::value(false) || *b.value == json::value(false)) return true;
  if (!a.value->is_object() || !b.value->is_object()) return false;
  for (const SchemaAt* one : {&a, &b}) {
    if (!one->find("$ref")) continue;
    const auto there = target(*one, "$ref");
    if (there.ok() && exclusive(*there, one == &a ? b : a, depth + 1)) return true;
  }
  const auto values_of = [](const SchemaAt& at) {
    const json::value *value = at.find("const"), *list = at.find("enum");
    return value  ? std::optional(json::array{*value})
           : list ? std::optional(list_of(*list))
                  : std::nullopt;
  };
  const auto of_a = values_of(a), of_b = values_of(b);
  if (of_a && of_b) {
    const auto steps = static_cast<int64_t>(of_a->size() * of_b->size());
    if (work_.spend(steps).ok() && common(*of_a, *of_b).empty()) return true;
  }
  const auto types_of_a = types_of(a), types_of_b = types_of(b);
  if (!types_of_a.ok() || !types_of_b.ok()) return false;
  const unsigned shared = *types_of_a & *types_of_b;
  return shared == 0 || (shared == kObjectType && objects_exclusive(a, b, depth));
}

// By a member that one requires and the other forbids or gives other values.
bool JsonSchemaMaker::objects_exclusive(const SchemaAt& a, const SchemaAt& b, int depth) {
  for (const SchemaAt* one : {&a, &b}) {
    const json::value* names = one->find("required");
    const SchemaAt& other = one == &a ? b : a;
    if (names && names->is_array())
      for (const json::value& name : names->get_array())
        if (name.is_string() && forbids_member(other, name.get_string())) return true;
  }
  const json::value *of_a = a.find("properties"), *of_b = b.find("properties");
  if (!of_a || !of_b || !of_a->is_object() || !of_b->is_object()) return false;
  if (!work_.spend(10 * static_cast<int64_t>(of_a->get_object().size())).ok()) return false;
  return std::ranges::any_of(of_a->get_object(), [&](const auto& member) {
    const std::string_view name = member.key();
    return of_b->get_object().contains(name) &&
           (requires_member(a, name) || requires_member(b, name)) &&
           exclusive(a["properties"][name], b["properties"][name], depth + 1);
  });
}

}  // namespace nereid::text
