#include "text/grammar/json_schema.h"

#include <algorithm>

#include "base/check.h"
#include "text/grammar/json_schema_maker.h"
#include "text/grammar/regex_expr.h"

namespace nereid::text {
namespace {

constexpr int kMaxMerges = 16;
constexpr std::string_view kTypes[] = {"null",    "boolean", "string", "number",
                                       "integer", "array",   "object"};
constexpr std::string_view kAnnotations[] = {
    "title", "description", "default",         "examples",        "$schema",
    "$id",   "$comment",    "deprecated",      "readOnly",        "writeOnly",
    "$defs", "definitions", "contentEncoding", "contentMediaType"};
constexpr std::string_view kKeywords[] = {"type",
                                          "enum",
                                          "const",
                                          "anyOf",
                                          "oneOf",
                                          "allOf",
                                          "$ref",
                                          "minLength",
                                          "maxLength",
                                          "pattern",
                                          "format",
                                          "minimum",
                                          "maximum",
                                          "exclusiveMinimum",
                                          "exclusiveMaximum",
                                          "multipleOf",
                                          "items",
                                          "prefixItems",
                                          "minItems",
                                          "maxItems",
                                          "properties",
                                          "required",
                                          "minProperties",
                                          "maxProperties",
                                          "additionalProperties"};
// Keywords with a value that says nothing.
bool says_nothing(std::string_view key, const json::value& value) {
  if (key == "uniqueItems") return value == json::value(false);
  return key.starts_with("x-");
}

bool listed(std::span<const std::string_view> list, std::string_view key) {
  return std::ranges::find(list, key) != list.end();
}

}  // namespace

std::string SchemaAt::pointer_of(std::string_view key) const {
  std::string result = pointer + "/";
  for (const char c : key) {
    if (c == '~' || c == '/')
      result += c == '~' ? "~0" : "~1";
    else
      result += c;
  }
  return result;
}

SchemaAt SchemaAt::operator[](std::string_view key) const {
  return {&object().at(key), pointer_of(key)};
}

SchemaAt SchemaAt::operator[](size_t index) const {
  return {&value->get_array().at(index), fmt::format("{}/{}", pointer, index)};
}

const json::value* SchemaAt::find(std::string_view key) const { return object().if_contains(key); }

Status SchemaAt::error(std::string_view reason, std::string_view key) const {
  constexpr size_t kLongest = 500;
  const std::string where = key.empty() ? pointer : pointer_of(key);
  return invalid_argument("schema: '{}': {}", where.substr(0, kLongest), reason);
}

JsonSchemaMaker::JsonSchemaMaker(const json::value& root) : root_{&root, ""} {
  rules_.push_back(nullptr);  // the root's
  CharSet blanks(' ', ' ');
  blanks.add('\t', '\n'), blanks.add('\r', '\r');
  blanks_ = repeat(one_of(blanks), 0, kMaxJsonBlanks);
  comma_ = sequence({blanks_, literal(","), blanks_});
  colon_ = sequence({blanks_, literal(":"), blanks_});
  make_any();
}

int32_t JsonSchemaMaker::add_rule(ExprPtr expr) {
  rules_.push_back(std::move(expr));
  return static_cast<int32_t>(rules_.size()) - 1;
}

ExprPtr JsonSchemaMaker::object_of(ExprPtr members) const {
  return sequence(
      {literal("{"), blanks_, optional(sequence({std::move(members), blanks_})), literal("}")});
}

void JsonSchemaMaker::make_any() {
  any_string_ =
      add_rule(sequence({literal("\""), repeat(json_char(), 0, kUnbounded), literal("\"")}));
  any_number_ = add_rule(json_number({}));
  any_integer_ = add_rule(json_integer({}));
  const int32_t any = add_rule(nullptr);
  any_ = call(any);
  const ExprPtr member = sequence({call(any_string_), colon_, any_});
  any_object_ =
      add_rule(object_of(sequence({member, repeat(sequence({comma_, member}), 0, kUnbounded)})));
  const ExprPtr elements = sequence({any_, repeat(sequence({comma_, any_}), 0, kUnbounded)});
  any_array_ = add_rule(
      sequence({literal("["), blanks_, optional(sequence({elements, blanks_})), literal("]")}));
  rules_[static_cast<size_t>(any)] =
      choice({literal("null"), literal("true"), literal("false"), call(any_string_),
              call(any_number_), call(any_array_), call(any_object_)});
}

StatusOr<Rules> JsonSchemaMaker::make() {
  ASSIGN_OR_RETURN(rules_[0], schema(root_));
  return std::move(rules_);
}

StatusOr<ExprPtr> JsonSchemaMaker::schema(const SchemaAt& at) {
  constexpr int kMaxDepth = 200;  // schemas within schemas, by name or by place
  if (const bool* all = at.value->if_bool()) {
    if (*all) return any_;
    return at.error("'false' allows no value");
  }
  if (!at.value->is_object()) return at.error("a schema must be an object or a boolean");
  const auto [found, is_new] = rule_of_.try_emplace(at.value, static_cast<int32_t>(rules_.size()));
  const int32_t index = found->second;
  if (!is_new) return call(index);
  add_rule(nullptr);
  if (++depth_ > kMaxDepth)
    return at.error(fmt::format("more than {} schemas within each other", kMaxDepth));
  ASSIGN_OR_RETURN(rules_[static_cast<size_t>(index)], body(at, 0));
  --depth_;
  return call(index);
}

Status JsonSchemaMaker::check_keywords(const SchemaAt& at) const {
  for (const auto& [key, value] : at.object())
    if (!listed(kKeywords, key) && !listed(kAnnotations, key) && !says_nothing(key, value))
      return at.error("this keyword is not supported", key);
  return ok();
}

StatusOr<SchemaAt> JsonSchemaMaker::target(const SchemaAt& at) const {
  const json::value& ref = *at.find("$ref");
  const json::string* text = ref.if_string();
  if (!text || !std::string_view(*text).starts_with('#'))
    return at.error("only references into this schema ('#/...') are supported", "$ref");
  const std::string_view pointer = std::string_view(*text).substr(1);
  boost::system::error_code failure;
  const json::value* value = root_.value->find_pointer(pointer, failure);
  if (!value) return at.error(fmt::format("there is nothing at '#{}'", pointer), "$ref");
  return SchemaAt{value, std::string(pointer)};
}

StatusOr<ExprPtr> JsonSchemaMaker::body(const SchemaAt& at, int depth) {
  RETURN_IF_ERROR(check_keywords(at));
  if (depth > kMaxMerges) return at.error("too many schemas are combined here");
  const bool alone = std::ranges::none_of(at.object(), [](const auto& member) {
    return member.key() != "$ref" && !listed(kAnnotations, member.key());
  });
  if (at.find("$ref") && alone) {
    ASSIGN_OR_RETURN(const SchemaAt there, target(at));
    return schema(there);
  }
  for (const std::string_view key : {"$ref", "allOf", "anyOf", "oneOf"})
    if (at.find(key)) return merged_body(at, key, depth);
  if (const json::value* value = at.find("const")) {
    if (at.find("enum")) return at.error("'const' and 'enum' together are not supported", "const");
    return values(at, {value, 1});
  }
  if (const json::value* list = at.find("enum")) {
    if (!list->is_array() || list->get_array().empty())
      return at.error("must be an array with at least one value", "enum");
    return values(at, {list->get_array().data(), list->get_array().size()});
  }
  ASSIGN_OR_RETURN(const auto all, types(at));
  std::vector<ExprPtr> ways;
  for (const std::string_view type : all) {
    ASSIGN_OR_RETURN(ExprPtr way, of_type(at, type));
    ways.push_back(std::move(way));
  }
  return choice(std::move(ways));
}

// `key` combines schemas; what stands beside it is combined with each of them.
StatusOr<ExprPtr> JsonSchemaMaker::merged_body(const SchemaAt& at, std::string_view key,
                                               int depth) {
  json::object rest = at.object();
  rest.erase(key);
  ASSIGN_OR_RETURN(SchemaAt base, keep(std::move(rest), at.pointer));
  if (key == "$ref") {
    ASSIGN_OR_RETURN(const SchemaAt there, target(at));
    ASSIGN_OR_RETURN(const SchemaAt both, merge(base, there));
    return body(both, depth + 1);
  }
  const SchemaAt list = at[key];
  if (!list.value->is_array() || list.value->get_array().empty())
    return list.error("must be an array with at least one schema");
  const size_t size = list.value->get_array().size();
  if (key == "allOf") {
    for (size_t i = 0; i < size; ++i) {
      ASSIGN_OR_RETURN(base, merge(base, list[i]));
    }
    return body(base, depth + 1);
  }
  if (key == "oneOf") RETURN_IF_ERROR(check_exclusive(list));
  const bool alone = std::ranges::all_of(
      base.object(), [](const auto& member) { return listed(kAnnotations, member.key()); });
  std::vector<ExprPtr> ways;
  for (size_t i = 0; i < size; ++i) {
    if (alone) {
      if (*list[i].value == json::value(false)) continue;  // allows nothing
      ASSIGN_OR_RETURN(ExprPtr way, schema(list[i]));
      ways.push_back(std::move(way));
      continue;
    }
    ASSIGN_OR_RETURN(const SchemaAt both, merge(base, list[i]));
    ASSIGN_OR_RETURN(ExprPtr way, body(both, depth + 1));
    ways.push_back(std::move(way));
  }
  if (ways.empty()) return list.error("allows no value");
  return choice(std::move(ways));
}

// Values as they are written without white space.
StatusOr<ExprPtr> JsonSchemaMaker::values(const SchemaAt& at, std::span<const json::value> values) {
  constexpr std::string_view kBeside[] = {"type", "const", "enum"};
  for (const auto& member : at.object())
    if (!listed(kAnnotations, member.key()) && !listed(kBeside, member.key()) &&
        !says_nothing(member.key(), member.value()))
      return at.error("this keyword beside 'const' or 'enum' is not supported", member.key());
  ASSIGN_OR_RETURN(const auto all, types(at));
  std::vector<ExprPtr> ways;
  for (const json::value& value : values) {
    const bool whole = value.is_int64() || value.is_uint64();
    const std::string_view type = value.is_null()     ? "null"
                                  : value.is_bool()   ? "boolean"
                                  : value.is_string() ? "string"
                                  : value.is_array()  ? "array"
                                  : value.is_object() ? "object"
                                  : whole             ? "integer"
                                                      : "number";
    if (listed(all, type) || (whole && listed(all, "number")))
      ways.push_back(literal(json::serialize(value)));
  }
  if (ways.empty()) return at.error("none of its values is of the given type");
  return choice(std::move(ways));
}

// Without "integer" where there is "number".
StatusOr<std::vector<std::string_view>> JsonSchemaMaker::types(const SchemaAt& at) const {
  const json::value* type = at.find("type");
  std::vector<std::string_view> all;
  if (!type) {
    all.assign(std::begin(kTypes), std::end(kTypes));
  } else if (const json::string* one = type->if_string()) {
    all.push_back(*one);
  } else if (const json::array* list = type->if_array()) {
    for (const json::value& one : *list)
      all.push_back(one.is_string() ? std::string_view(one.get_string()) : std::string_view());
  }
  const bool known = std::ranges::all_of(all, [](auto one) { return listed(kTypes, one); });
  if (all.empty() || !known)
    return at.error(fmt::format("must be one or several of {}", fmt::join(kTypes, ", ")), "type");
  if (listed(all, "number")) std::erase(all, "integer");
  return all;
}

StatusOr<ExprPtr> JsonSchemaMaker::of_type(const SchemaAt& at, std::string_view type) {
  if (type == "null") return literal("null");
  if (type == "boolean") return choice({literal("true"), literal("false")});
  if (type == "string") return string(at);
  if (type == "array") return array(at);
  if (type == "object") return object(at);
  return number(at, type == "integer");
}

StatusOr<Rules> json_schema_rules(const json::value& schema) {
  return JsonSchemaMaker(schema).make();
}

Rules json_object_rules() {
  const json::value schema = {{"type", "object"}};
  auto rules = json_schema_rules(schema);
  NEREID_CHECK(rules.ok());
  return *std::move(rules);
}

}  // namespace nereid::text
