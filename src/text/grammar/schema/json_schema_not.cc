// The complement of a schema, as a choice: one of its keywords does not hold. Keywords without an
// expressible complement are left out, so every value of the choice is right.
#include <algorithm>

#include "text/grammar/schema/json_schema_maker.h"

namespace nereid::text {
namespace {

Status no_opposite(const SchemaAt& at, std::string_view key) {
  return at.error(
      "the opposite of this keyword, which 'not' or 'oneOf' need here, is not supported", key);
}

json::object typed(std::string_view type, std::string_view key, json::value value) {
  return {{"type", type}, {key, std::move(value)}};
}

// Requires a member of this name and schema.
json::object with_member(std::string_view name, json::value schema) {
  return {{"type", "object"},
          {"required", json::array{json::string(name)}},
          {"properties", json::object{{name, std::move(schema)}}}};
}

json::value without_member(std::string_view name) {
  return typed("object", "properties", json::object{{name, false}});
}

// Requires an element of the schema behind these.
json::object with_element(json::array front, json::value schema) {
  json::object way = typed("array", "minItems", static_cast<int64_t>(front.size()) + 1);
  front.push_back(std::move(schema));
  way["prefixItems"] = std::move(front);
  return way;
}

// Requires a member whose name the first schema allows and whose value the second allows.
json::object with_some_member(json::value names, json::value schema) {
  return typed(
      "object", kSomeKey,
      json::array{json::object{{"names", std::move(names)}, {"value", std::move(schema)}}});
}

// Whether keywords beside "properties" and similar ones may evaluate members or elements.
bool combines(const SchemaAt& at) {
  constexpr std::string_view kCombining[] = {"$ref",         "$dynamicRef", "allOf",
                                             "anyOf",        "oneOf",       "dependentSchemas",
                                             "dependencies", "if",          "contains"};
  return std::ranges::any_of(kCombining, [&](std::string_view key) { return at.find(key); });
}

bool allows_all(const json::value& schema) {
  return schema == json::value(true) || (schema.is_object() && schema.get_object().empty());
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

// Limits of the size of a string, array or object.
struct SizeKeys {
  unsigned type;
  std::string_view least, most;
};
constexpr SizeKeys kSizes[] = {{kStringType, "minLength", "maxLength"},
                               {kArrayType, "minItems", "maxItems"},
                               {kObjectType, "minProperties", "maxProperties"}};

// The least size of values of this type: 1 where kExceptKey lists the empty one.
int32_t least_size(const SchemaAt& at, const SizeKeys& keys) {
  const int32_t least = schema_count(at, keys.least, 0).value_or(0);
  const json::value* except = at.find(kExceptKey);
  if (least > 0 || !except || !except->is_array()) return least;
  const auto is_empty = [&](const json::value& value) {
    return type_of(value) == keys.type && (value.is_string()   ? value.get_string().empty()
                                           : value.is_array()  ? value.get_array().empty()
                                           : value.is_object() ? value.get_object().empty()
                                                               : false);
  };
  return std::ranges::any_of(except->get_array(), is_empty) ? 1 : 0;
}

// Whether no value of this one type has a size that both schemas allow.
bool sizes_exclusive(const SchemaAt& a, const SchemaAt& b, unsigned type) {
  const auto* const keys = std::ranges::find(kSizes, type, &SizeKeys::type);
  if (keys == std::end(kSizes)) return false;
  const auto is_above = [&](const SchemaAt& one, const SchemaAt& other) {
    const int32_t most = schema_count(other, keys->most, kUnbounded).value_or(kUnbounded);
    return most != kUnbounded && least_size(one, *keys) > most;
  };
  return is_above(a, b) || is_above(b, a);
}

// Whether `key` limits a size, and `at` limits it as much at least.
bool limits_size(const SchemaAt& at, std::string_view key, const json::value& limit) {
  const json::value* own = at.find(key);
  if (!own || !own->is_int64() || !limit.is_int64()) return false;
  return std::ranges::any_of(kSizes, [&](const SizeKeys& keys) {
    return (key == keys.least && own->get_int64() >= limit.get_int64()) ||
           (key == keys.most && own->get_int64() <= limit.get_int64());
  });
}

// Whether a member of this name is forbidden.
bool forbids_member(const SchemaAt& at, std::string_view name) {
  const json::value *properties = at.find("properties"), *other = at.find("additionalProperties");
  const json::value* own =
      properties && properties->is_object() ? properties->get_object().if_contains(name) : nullptr;
  if (own) return *own == json::value(false);
  return other && *other == json::value(false) && !at.find("patternProperties");
}

}  // namespace

bool requires_member(const SchemaAt& at, std::string_view name) {
  const json::value* list = at.find("required");
  return list && list->is_array() &&
         std::ranges::find(list->get_array(), json::value(name)) != list->get_array().end();
}

StatusOr<json::value> JsonSchemaMaker::negation(SchemaAt at) {
  json::array ways;
  ASSIGN_OR_RETURN(at, direct(std::move(at)));
  if (const bool* all = at.value->if_bool()) {
    if (!*all) ways.push_back(true);
    return json::object{{kWaysKey, std::move(ways)}};
  }
  if (!at.value->is_object()) return at.error("a schema must be an object or a boolean");
  RETURN_IF_ERROR(check_keywords(at));
  Status left_out;  // the first keyword without a complement
  for (const auto& member : at.object()) {
    ASSIGN_OR_RETURN(const bool whole, negate(at, member.key(), ways));
    if (!whole && left_out.ok()) left_out = no_opposite(at, member.key());
  }
  if (ways.empty()) RETURN_IF_ERROR(left_out);
  is_partial_ |= !left_out.ok();
  // A very long string can hardly be combined with another keyword.
  constexpr int64_t kLong = TextSet::kMaxStates / 2;
  const auto is_long = [](const json::value& way) {
    const json::value* least =
        way.is_object() ? way.get_object().if_contains("minLength") : nullptr;
    return least && least->is_int64() && least->get_int64() > kLong;
  };
  if (!std::ranges::all_of(ways, is_long)) {
    json::array kept;
    for (json::value& way : ways)
      if (is_long(way))
        is_partial_ = true;
      else
        kept.push_back(std::move(way));
    ways = std::move(kept);
  }
  return json::object{{kWaysKey, std::move(ways)}};
}

// False: the keyword has no complement, or only a part of it was added.
StatusOr<bool> JsonSchemaMaker::negate(const SchemaAt& at, std::string_view key,
                                       json::array& ways) {
  constexpr std::string_view kOwn[] = {kExceptKey, kUnlikeKey, kUnlikeMultipleKey, kSomeKey};
  constexpr std::string_view kSchemas[] = {
      "items",         "additionalItems",  "additionalProperties",
      "propertyNames", "unevaluatedItems", "unevaluatedProperties"};
  const json::value& value = *at.find(key);
  if (std::ranges::find(kOwn, key) != std::end(kOwn)) return false;
  if (std::ranges::find(kSchemas, key) != std::end(kSchemas) && allows_all(value)) return true;
  if (key.starts_with("unevaluated") && combines(at)) return false;
  if (key == "dependencies" && !refs_.is_old()) return false;  // later drafts do not have it
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
  } else if (key == "const" || key == "enum") {
    if (key == "enum" && !value.is_array()) return at.error("must be an array", key);
    ASSIGN_OR_RETURN(json::object other,
                     unlike(at, key == "enum" ? value.get_array() : json::array{value}));
    ways.push_back(std::move(other));
  } else if (key == "pattern") {
    ways.push_back(typed("string", kUnlikeKey, value));
  } else if (key == "format") {
    const JsonFormat* format = value.is_string() ? json_format(value.get_string()) : nullptr;
    if (format)
      ways.push_back(typed("string", kUnlikeKey, json::string("^(" + format->all + ")$")));
  } else if (key == "multipleOf") {
    return negate_multiples(at, ways);
  }
  RETURN_IF_ERROR(negate_limits(at, key, ways));
  RETURN_IF_ERROR(negate_combined(at, key, ways));
  RETURN_IF_ERROR(negate_elements(at, key, ways));
  RETURN_IF_ERROR(negate_members(at, key, ways));
  return true;
}

// All values but these.
StatusOr<json::object> JsonSchemaMaker::unlike(const SchemaAt& at, const json::array& values) {
  json::array plain, all;
  for (const json::value& value : values) {
    const json::object* object = value.if_object();
    const json::array* array = value.if_array();
    const auto size = static_cast<int64_t>(object ? object->size() : array ? array->size() : 0);
    RETURN_IF_ERROR(spend(at, 10 * (1 + size * size)));
    if (size == 0) {
      plain.push_back(value);
      continue;
    }
    json::array ways;
    ways.push_back(json::object{
        {"type", json::array{"null", "boolean", "string", "number", object ? "array" : "object"}}});
    if (object) {
      json::array names;
      for (const auto& [name, inner] : *object) {
        ASSIGN_OR_RETURN(json::object other, unlike(at, json::array{inner}));
        ways.push_back(without_member(name));
        ways.push_back(with_member(name, std::move(other)));
        names.push_back(json::string(name));
      }
      ways.push_back(with_some_member(json::object{{kExceptKey, std::move(names)}}, true));
    } else {
      ways.push_back(typed("array", "maxItems", size - 1));
      ways.push_back(typed("array", "minItems", size + 1));
      json::array front;
      for (const json::value& inner : *array) {
        ASSIGN_OR_RETURN(json::object other, unlike(at, json::array{inner}));
        ways.push_back(with_element(front, std::move(other)));
        front.push_back(true);
      }
    }
    all.push_back(json::object{{kWaysKey, std::move(ways)}});
  }
  if (!plain.empty()) all.push_back(json::object{{kExceptKey, std::move(plain)}});
  return json::object{{"allOf", std::move(all)}};
}

StatusOr<bool> JsonSchemaMaker::negate_multiples(const SchemaAt& at, json::array& ways) {
  const json::value& value = *at.find("multipleOf");
  const auto divisor = value.is_number() ? Decimal::of(value) : std::nullopt;
  if (!value.is_number() || (divisor && *divisor <= Decimal()))
    return at.error("must be a number above 0", "multipleOf");
  if (!divisor || !divisor->fraction.empty()) return false;
  ways.push_back(json::object{{"type", kFractionType}});
  if (divisor->whole == "1") return true;
  if (divisor->whole.size() > 3) return false;  // see kMaxJsonDivisor
  ways.push_back(typed("integer", kUnlikeMultipleKey, value));
  return true;
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
    if (key == own && !at.find(key)->is_bool()) {
      if (!at.find(key)->is_number()) return at.error("must be a number", key);
      // Before draft 6 a boolean makes the bound exclusive.
      const bool low = key == "minimum", plain = low || key == "maximum";
      const json::value* flag =
          plain ? at.find(low ? "exclusiveMinimum" : "exclusiveMaximum") : nullptr;
      const bool strict = flag && *flag == json::value(true);
      const std::string_view other = strict ? (low ? "maximum" : "minimum") : opposite;
      ways.push_back(typed("number", other, *at.find(key)));
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
  } else if (key == "allOf" || key == "anyOf" || key == "oneOf" || key == kChoiceKey ||
             key == kWaysKey) {
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
  const bool rest = key == keys.rest || (key == "unevaluatedItems" && !at.find(keys.rest));
  if (key == keys.front) {
    json::array front;
    RETURN_IF_ERROR(spend(at, static_cast<int64_t>(keys.size * keys.size)));
    for (size_t i = 0; i < keys.size; ++i) {
      ways.push_back(with_element(front, opposite(at[key][i])));
      front.push_back(true);
    }
  } else if (rest) {
    const json::value& value = *at.find(key);
    json::array front;
    for (size_t i = 0; i < keys.size; ++i) front.push_back(true);
    if (value == json::value(false)) {
      ways.push_back(with_element(std::move(front), true));
    } else if (keys.size == 0) {
      ways.push_back(typed("array", "contains", opposite(at[key])));
    } else {  // one of the first two behind the others
      is_partial_ = true;
      ways.push_back(with_element(front, opposite(at[key])));
      front.push_back(true);
      ways.push_back(with_element(std::move(front), opposite(at[key])));
    }
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
  } else if (key == "uniqueItems" && *at.find(key) == json::value(true)) {
    is_partial_ = true;  // pairs of a few values
    for (const json::value& twice : {json::value(nullptr), json::value(false), json::value(0),
                                     json::value(""), json::value(json::object())}) {
      json::object way = typed("array", "contains", json::object{{"const", twice}});
      way["minContains"] = 2;
      ways.push_back(std::move(way));
    }
  }
  return ok();
}

Status JsonSchemaMaker::negate_members(const SchemaAt& at, std::string_view key,
                                       json::array& ways) {
  const bool rest = key == "additionalProperties" ||
                    (key == "unevaluatedProperties" && !at.find("additionalProperties"));
  if (key == "properties") {
    const SchemaAt all = at[key];
    if (!all.value->is_object()) return at.error("must be an object", key);
    for (const auto& member : all.object())
      if (!allows_all(member.value()))
        ways.push_back(with_member(member.key(), opposite(all[std::string_view(member.key())])));
  } else if (key == "required" && !at.find(key)->is_bool()) {
    const json::array* names = at.find(key)->if_array();
    if (!names) return at.error("must be an array", key);
    for (const json::value& name : *names) {
      if (!name.is_string()) return at.error("must be an array of strings", key);
      ways.push_back(without_member(name.get_string()));
    }
  } else if (key == "patternProperties") {
    const SchemaAt all = at[key];
    if (!all.value->is_object()) return at.error("must be an object", key);
    for (const auto& [pattern, schema] : all.object())
      if (!allows_all(schema))
        ways.push_back(with_some_member(json::object{{"pattern", pattern}},
                                        opposite(all[std::string_view(pattern)])));
  } else if (key == "propertyNames") {
    ways.push_back(with_some_member(opposite(at[key]), true));
  } else if (rest) {
    json::array names, but;
    if (const json::value* all = at.find("properties"); all && all->is_object())
      for (const auto& member : all->get_object()) names.push_back(json::string(member.key()));
    but.push_back(json::object{{kExceptKey, std::move(names)}});
    if (const json::value* all = at.find("patternProperties"); all && all->is_object())
      for (const auto& member : all->get_object())
        but.push_back(json::object{{kUnlikeKey, json::string(member.key())}});
    ways.push_back(with_some_member(json::object{{"allOf", std::move(but)}}, opposite(at[key])));
  }
  return ok();
}

bool JsonSchemaMaker::exclusive(const SchemaAt& a, const SchemaAt& b, int depth) {
  constexpr int kMaxDepth = 64;
  if (depth > kMaxDepth || !work_.spend(2).ok()) return false;
  const std::pair key(std::min(a.value, b.value), std::max(a.value, b.value));
  // A pair that recurs in its own comparison: false for now.
  const auto [found, is_new] = exclusive_.try_emplace(key, false);
  constexpr int64_t kPairSteps = 15;
  if (!is_new || !work_.spend(kPairSteps).ok()) return found->second;
  const bool result = find_exclusive(a, b, depth);
  return exclusive_[key] = result;
}

bool JsonSchemaMaker::find_exclusive(const SchemaAt& from_a, const SchemaAt& from_b, int depth) {
  const auto direct_a = direct(from_a), direct_b = direct(from_b);
  if (!direct_a.ok() || !direct_b.ok()) return false;
  const SchemaAt &a = *direct_a, &b = *direct_b;
  if (*a.value == json::value(false) || *b.value == json::value(false)) return true;
  if (!a.value->is_object() || !b.value->is_object()) return false;
  for (const SchemaAt* one : {&a, &b}) {
    const SchemaAt& other = one == &a ? b : a;
    if (one->find("not") && implies(other, (*one)["not"])) return true;
    if (!one->find("$ref")) continue;
    const auto there = target(*one, "$ref");
    if (there.ok() && exclusive(*there, other, depth + 1)) return true;
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
  return shared == 0 || sizes_exclusive(a, b, shared) ||
         (shared == kObjectType && objects_exclusive(a, b, depth));
}

bool JsonSchemaMaker::implies(const SchemaAt& from_a, const SchemaAt& from_b) {
  const auto a = direct(from_a), b = direct(from_b);
  if (!a.ok() || !b.ok()) return false;
  if (a->value == b->value || allows_all(*b->value)) return true;
  if (!a->value->is_object() || !b->value->is_object()) return false;
  // True if the second schema has only keywords of the first, or a wider type.
  constexpr std::string_view kSilent[] = {"title", "description", "default", "examples"};
  // Keywords that concern one value and do not depend on other keywords.
  constexpr std::string_view kPlain[] = {
      "const",    "pattern",          "format",           "minLength",  "maxLength",
      "minimum",  "exclusiveMinimum", "exclusiveMaximum", "maximum",    "minItems",
      "maxItems", "minProperties",    "maxProperties",    "multipleOf", "uniqueItems"};
  for (const auto& [key, value] : b->object()) {
    const json::value* own = a->find(key);
    if (std::ranges::find(kSilent, std::string_view(key)) != std::end(kSilent)) continue;
    if (key == "type") {
      const auto types_of_a = types_of(*a), types_of_b = types_of(*b);
      if (!types_of_a.ok() || !types_of_b.ok() || (*types_of_a & ~*types_of_b) != 0) return false;
      continue;
    }
    constexpr size_t kLongest = 200;
    if (!own || value.is_structured() ||
        std::ranges::find(kPlain, std::string_view(key)) == std::end(kPlain) ||
        (value.is_string() && value.get_string().size() > kLongest) || *own != value)
      return false;
  }
  return work_.spend(static_cast<int64_t>(10 + b->object().size())).ok();
}

bool JsonSchemaMaker::implied(const Parts& parts, const SchemaAt& way) {
  if (!way.value->is_object()) return *way.value == json::value(true);
  for (const auto& [key, value] : way.object()) {
    if (key == "type") {
      const auto types = types_of(way);
      if (!types.ok() || (parts.types & ~*types) != 0) return false;
    } else if (key == "properties" && value.is_object()) {
      for (const auto& [name, schema] : value.get_object())
        if (schema != json::value(false) || std::ranges::none_of(parts.all, [&](const Part& part) {
              return forbids_member(part.at, name);
            }))
          return false;
    } else if (std::ranges::none_of(
                   parts.all, [&](const Part& part) { return limits_size(part.at, key, value); })) {
      return false;
    }
  }
  return true;
}

// Objects: one schema requires a member that the other forbids or gives a disjoint schema.
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
