// Values listed in a schema ("enum", "const"): their texts, and a validator of all other keywords
// that tests them; "format" has no effect here.
#include <algorithm>
#include <cmath>
#include <span>

#include "text/grammar/schema/json_schema_maker.h"
#include "text/unicode/utf8.h"

namespace nereid::text {
namespace {

constexpr int kMaxValueDepth = 64;

bool is_whole(const json::value& value) {
  if (!value.is_double()) return value.is_number();
  const double number = value.get_double();
  return number == std::floor(number);
}

bool has_equals(const json::array& array) {
  for (size_t i = 0; i < array.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (same_value(array[i], array[j])) return true;
  return false;
}

// Whether the count `value` is within the limits under these keys of `at`.
StatusOr<bool> within(const SchemaAt& at, std::string_view least, std::string_view most,
                      size_t value) {
  ASSIGN_OR_RETURN(const int32_t low, schema_count(at, least, 0));
  ASSIGN_OR_RETURN(const int32_t high, schema_count(at, most, kUnbounded));
  return value >= static_cast<size_t>(low) &&
         (high == kUnbounded || value <= static_cast<size_t>(high));
}

}  // namespace

unsigned type_of(const json::value& value) {
  if (value.is_null()) return kNullType;
  if (value.is_bool()) return kBooleanType;
  if (value.is_string()) return kStringType;
  if (value.is_array()) return kArrayType;
  if (value.is_object()) return kObjectType;
  return is_whole(value) ? kIntegerType : kFractionTypes;
}

bool same_value(const json::value& a, const json::value& b) {
  if (a.is_number() && b.is_number() && (a.is_double() || b.is_double())) {
    const auto x = Decimal::of(a), y = Decimal::of(b);
    return x && y && *x == *y;
  }
  if (a.is_array() && b.is_array())
    return std::ranges::equal(a.get_array(), b.get_array(), same_value);
  if (a.is_object() && b.is_object())
    return a.get_object().size() == b.get_object().size() &&
           std::ranges::all_of(a.get_object(), [&](const auto& member) {
             const json::value* other = b.get_object().if_contains(member.key());
             return other && same_value(member.value(), *other);
           });
  return a == b;
}

StatusOr<std::optional<json::array>> JsonSchemaMaker::listed_values(const Parts& parts) {
  std::span<const json::value> all;
  for (const Part& part : parts.all) {
    const json::value *only = part.at.find("const"), *list = part.at.find("enum");
    if (list && (!list->is_array() || list->get_array().empty()))
      return part.at.error("must be an array with at least one value", "enum");
    if (!all.empty()) continue;
    if (only) all = {only, 1};
    if (list && !only) all = list->get_array();
  }
  if (all.empty()) return std::optional<json::array>();
  json::array kept;
  for (const json::value& value : all) {
    bool good = (type_of(value) & parts.types) != 0;
    for (size_t i = 0; good && i < parts.all.size(); ++i) {
      ASSIGN_OR_RETURN(good, allows(parts.all[i].at, value, /*alone=*/true, 0));
    }
    if (good) kept.push_back(value);
  }
  return std::optional(std::move(kept));
}

ExprPtr JsonSchemaMaker::value_expr(const json::value& value) const {
  const bool object = value.is_object();
  const auto number = value.is_number() ? Decimal::of(value) : std::nullopt;
  if (number) {
    const std::string whole = (number->negative ? "-" : "") + number->whole;
    if (!number->fraction.empty()) return literal(whole + "." + number->fraction);
    return value.is_double() ? sequence({literal(whole), optional(literal(".0"))}) : literal(whole);
  }
  if (!object && !value.is_array()) return literal(json::serialize(value));
  std::vector<ExprPtr> parts = {literal(object ? "{" : "["), blanks_};
  const auto add = [&](ExprPtr part, bool first) {
    if (!first) parts.push_back(comma_);
    parts.push_back(std::move(part));
  };
  if (object)
    for (const auto& [key, inner] : value.get_object())
      add(sequence({literal(json_quoted(key)), colon_, value_expr(inner)}), parts.size() == 2);
  else
    for (const json::value& inner : value.get_array()) add(value_expr(inner), parts.size() == 2);
  if (parts.size() > 2) parts.push_back(blanks_);
  parts.push_back(literal(object ? "}" : "]"));
  return sequence(std::move(parts));
}

StatusOr<bool> JsonSchemaMaker::allows(const SchemaAt& from, const json::value& value, bool alone,
                                       int depth) {
  ASSIGN_OR_RETURN(const SchemaAt at, direct(from));
  if (const bool* all = at.value->if_bool()) return *all;
  if (!at.value->is_object()) return at.error("a schema must be an object or a boolean");
  if (depth > kMaxValueDepth) return at.error("schemas are too deep for a given value");
  ASSIGN_OR_RETURN(const unsigned types, types_of(at));
  if ((types & type_of(value)) == 0) return false;
  RETURN_IF_ERROR(spend(at, 10));
  if (const json::value* only = at.find("const"); only && !same_value(value, *only)) return false;
  StatusOr<bool> good = true;
  for (const std::string_view key : {std::string_view("enum"), kExceptKey}) {
    if (!at.find(key)) continue;
    ASSIGN_OR_RETURN(const bool listed, is_listed(at, key, value));
    if (listed != (key == "enum")) return false;
  }
  if (value.is_string()) good = allows_string(at, value.get_string());
  if (value.is_number()) good = allows_number(at, value);
  if (value.is_array()) good = allows_array(at, value.get_array(), depth);
  if (value.is_object()) good = allows_object(at, value.get_object(), depth);
  if (!good.ok() || !*good || alone) return good;
  return allows_combined(at, value, depth);
}

StatusOr<bool> JsonSchemaMaker::is_listed(const SchemaAt& at, std::string_view key,
                                          const json::value& value) {
  const json::array* list = at.find(key)->if_array();
  if (!list) return at.error("must be an array", key);
  if (&value >= list->data() && &value < list->data() + list->size()) return true;
  RETURN_IF_ERROR(spend(at, static_cast<int64_t>(list->size())));
  return std::ranges::any_of(*list,
                             [&](const json::value& other) { return same_value(value, other); });
}

StatusOr<bool> JsonSchemaMaker::allows_combined(const SchemaAt& at, const json::value& value,
                                                int depth) {
  for (const std::string_view key :
       {std::string_view("$ref"), std::string_view("$dynamicRef"), kPlaceKey}) {
    if (!at.find(key)) continue;
    ASSIGN_OR_RETURN(const SchemaAt there, target(at, key));
    ASSIGN_OR_RETURN(const bool good, allows(there, value, false, depth + 1));
    if (!good) return false;
  }
  for (const std::string_view key : {std::string_view("allOf"), std::string_view("anyOf"),
                                     std::string_view("oneOf"), kChoiceKey, kWaysKey}) {
    if (!at.find(key)) continue;
    const SchemaAt list = at[key];
    if (!list.value->is_array()) return list.error("must be an array of schemas");
    size_t count = 0;
    for (size_t i = 0; i < list.value->get_array().size(); ++i) {
      ASSIGN_OR_RETURN(const bool good, allows(list[i], value, false, depth + 1));
      count += good;
    }
    if (key == "allOf"   ? count < list.value->get_array().size()
        : key == "oneOf" ? count != 1
                         : count == 0)
      return false;
  }
  if (at.find("not")) {
    ASSIGN_OR_RETURN(const bool good, allows(at["not"], value, false, depth + 1));
    if (good) return false;
  }
  for (const std::string_view key :
       {"if", "dependentRequired", "dependentSchemas", "dependencies"}) {
    if (!at.find(key)) continue;
    ASSIGN_OR_RETURN(const SchemaAt same, made(at, key, [&] { return conditions(at, key); }));
    ASSIGN_OR_RETURN(const bool good, allows(same, value, false, depth + 1));
    if (!good) return false;
  }
  return true;
}

StatusOr<bool> JsonSchemaMaker::allows_string(const SchemaAt& at, std::string_view text) {
  ASSIGN_OR_RETURN(const bool sized, within(at, "minLength", "maxLength", utf8_length(text)));
  if (!sized) return false;
  for (const std::string_view key : {std::string_view("pattern"), kUnlikeKey}) {
    const json::value* pattern = at.find(key);
    if (!pattern) continue;
    if (!pattern->is_string()) return at.error("must be a string", key);
    ASSIGN_OR_RETURN(const TextSet* set, pattern_set(at, pattern->get_string(), key));
    if (set->contains(text) != (key == "pattern")) return false;
  }
  return true;
}

StatusOr<bool> JsonSchemaMaker::allows_number(const SchemaAt& at, const json::value& value) const {
  const auto number = Decimal::of(value);
  if (!number) return at.error("a given number has too many digits");
  Parts parts;
  parts.all.push_back({at, nullptr});
  ASSIGN_OR_RETURN(const JsonBounds b, bounds(parts));
  if (!b.allow(*number)) return false;
  for (const std::string_view key : {std::string_view("multipleOf"), kUnlikeMultipleKey}) {
    const json::value* divisor = at.find(key);
    if (!divisor) continue;
    if (!divisor->is_number()) return at.error("must be a number above 0", key);
    const double quotient = value.to_number<double>() / divisor->to_number<double>();
    const bool divides =
        std::abs(quotient - std::round(quotient)) < 1e-9 * std::max(1.0, std::abs(quotient));
    if (divides != (key == "multipleOf")) return false;
  }
  return true;
}

StatusOr<bool> JsonSchemaMaker::allows_array(const SchemaAt& at, const json::array& array,
                                             int depth) {
  ASSIGN_OR_RETURN(const bool sized, within(at, "minItems", "maxItems", array.size()));
  const json::value* unique = at.find("uniqueItems");
  if (!sized) return false;
  if (unique && *unique == json::value(true)) {
    RETURN_IF_ERROR(spend(at, static_cast<int64_t>(array.size() * array.size())));
    if (has_equals(array)) return false;
  }
  if (at.find("unevaluatedItems"))
    return at.error("this keyword beside given arrays is not supported", "unevaluatedItems");
  ASSIGN_OR_RETURN(const ElementKeys keys, element_keys(at));
  size_t count = 0;
  for (size_t i = 0; i < array.size(); ++i) {
    bool good = true;
    if (i < keys.size || at.find(keys.rest)) {
      const SchemaAt element = i < keys.size ? at[keys.front][i] : at[keys.rest];
      ASSIGN_OR_RETURN(good, allows(element, array[i], false, depth + 1));
    }
    if (!good) return false;
    if (!at.find("contains")) continue;
    ASSIGN_OR_RETURN(good, allows(at["contains"], array[i], false, depth + 1));
    count += good;
  }
  if (!at.find("contains")) return true;
  ASSIGN_OR_RETURN(const int32_t least, schema_count(at, "minContains", 1));
  ASSIGN_OR_RETURN(const int32_t most, schema_count(at, "maxContains", kUnbounded));
  return count >= static_cast<size_t>(least) &&
         (most == kUnbounded || count <= static_cast<size_t>(most));
}

// Whether the object has each member of kSomeKey.
StatusOr<bool> JsonSchemaMaker::has_some(const SchemaAt& list, const json::object& object,
                                         int depth) {
  if (!list.value->is_array()) return list.error("must be an array");
  for (size_t i = 0; i < list.value->get_array().size(); ++i) {
    RETURN_IF_ERROR(check_some(list[i]));
    bool found = false;
    for (const auto& [name, value] : object) {
      ASSIGN_OR_RETURN(found,
                       allows(list[i]["names"], json::value(json::string(name)), false, depth + 1));
      if (!found) continue;
      ASSIGN_OR_RETURN(found, allows(list[i]["value"], value, false, depth + 1));
      if (found) break;
    }
    if (!found) return false;
  }
  return true;
}

StatusOr<bool> JsonSchemaMaker::allows_object(const SchemaAt& at, const json::object& object,
                                              int depth) {
  ASSIGN_OR_RETURN(const bool sized, within(at, "minProperties", "maxProperties", object.size()));
  if (!sized) return false;
  if (at.find("unevaluatedProperties"))
    return at.error("this keyword beside given objects is not supported", "unevaluatedProperties");
  if (const json::value* names = at.find("required"); names && names->is_array())
    for (const json::value& name : names->get_array())
      if (name.is_string() && !object.contains(name.get_string())) return false;
  if (at.find(kSomeKey)) {
    ASSIGN_OR_RETURN(const bool good, has_some(at[kSomeKey], object, depth));
    if (!good) return false;
  }
  Parts parts;
  parts.all.push_back({at, std::make_shared<const Scope>(Scope{at.value, nullptr})});
  ASSIGN_OR_RETURN(const std::vector<NamePattern> patterns, name_patterns(parts));
  for (const auto& member : object) {
    const std::string name(member.key());
    if (at.find("propertyNames")) {
      ASSIGN_OR_RETURN(const bool good,
                       allows(at["propertyNames"], json::value(name), false, depth + 1));
      if (!good) return false;
    }
    std::vector<bool> matches;
    RETURN_IF_ERROR(spend(at, static_cast<int64_t>(patterns.size() * (1 + name.size()))));
    for (const NamePattern& pattern : patterns) matches.push_back(pattern.names->contains(name));
    for (const SchemaAt& inner : member_schemas(parts, patterns, matches, &name)) {
      ASSIGN_OR_RETURN(const bool good, allows(inner, member.value(), false, depth + 1));
      if (!good) return false;
    }
  }
  return true;
}

}  // namespace nereid::text
