// Types of parameters; see tool_schema.h.
#include "front/output/tool_schema.h"

#include "base/blanks.h"
#include "base/json_exact.h"
#include "base/json_members.h"
#include "front/http/json_text.h"
#include "front/output/tool_literal.h"

namespace nereid::front {
namespace {

enum Kinds : unsigned {
  kNull = 1,
  kBool = 2,
  kNumber = 4,
  kText = 8,
  kList = 16,
  kObject = 32,
  kAny = 63,
};

unsigned kind_of(const json::value& value) {
  if (value.is_null()) return kNull;
  if (value.is_bool()) return kBool;
  if (value.is_string()) return kText;
  if (value.is_array()) return kList;
  return is_exact_object(value) ? kObject : kNumber;
}

unsigned kind_of_json(std::string_view json) {
  switch (json.front()) {
    case 'n':
      return kNull;
    case 't':
    case 'f':
      return kBool;
    case '"':
      return kText;
    case '[':
      return kList;
    case '{':
      return kObject;
    default:
      return kNumber;
  }
}

unsigned kind_of_type(const json::value& type) {
  if (!type.is_string()) return 0;
  const std::string_view name(type.get_string());
  if (name == "null") return kNull;
  if (name == "boolean") return kBool;
  if (name == "number" || name == "integer") return kNumber;
  if (name == "string") return kText;
  if (name == "array") return kList;
  return name == "object" ? kObject : kAny;
}

// The part of JSON Schema that determines a value's type. Time is bounded, whatever the references.
class Schema {
 public:
  // `by_value`: listed values are the only ones; else only their types count.
  explicit Schema(const json::value& root, bool by_value = true)
      : root_(root), by_value_(by_value) {}

  // Possible types of a value written as `text`.
  unsigned kinds(const json::value& schema, std::string_view text) {
    const json::object* const object = schema.if_object();
    if (!object || --steps_ < 0) return kAny;
    unsigned out = kAny;
    if (const json::value* target = target_of(*object)) out &= kinds(*target, text);
    if (const json::value* type = object->if_contains("type")) out &= kinds_of_types(*type);
    if (const json::value* values = object->if_contains("enum"); values && values->is_array())
      out &= kinds_of_values(values->get_array(), text);
    if (const json::value* value = object->if_contains("const"))
      out &= kinds_of_values(json::array(1, *value), text);
    for (const char* key : {"anyOf", "oneOf"}) {
      const json::value* const choices = object->if_contains(key);
      if (!choices || !choices->is_array()) continue;
      unsigned any = 0;
      for (const json::value& choice : choices->get_array()) any |= kinds(choice, text);
      out &= any;
    }
    for (const json::value& part : array_member(*object, "allOf")) out &= kinds(part, text);
    if (flag_member(*object, "nullable")) out |= kNull;
    return out;
  }

  // The schema of an object's member; null: none.
  const json::value* member(const json::value& schema, std::string_view name) {
    const json::object* const object = schema.if_object();
    if (!object || --steps_ < 0) return nullptr;
    if (const json::value* found = object_member(*object, "properties").if_contains(name))
      return found;
    if (const json::value* target = target_of(*object))
      if (const json::value* found = member(*target, name)) return found;
    for (const char* key : {"allOf", "anyOf", "oneOf"})
      for (const json::value& part : array_member(*object, key))
        if (const json::value* found = member(part, name)) return found;
    const json::value* const others = object->if_contains("additionalProperties");
    return others && others->is_object() ? others : nullptr;
  }

 private:
  static unsigned kinds_of_types(const json::value& type) {
    const json::array* const list = type.if_array();
    if (!list) return kind_of_type(type);
    unsigned out = 0;
    for (const json::value& one : *list) out |= kind_of_type(one);
    return out;
  }
  // Types of the listed values that `text` may represent.
  unsigned kinds_of_values(const json::array& values, std::string_view text) const {
    unsigned all = 0, meant = 0;
    const std::string read = json_of(text).value_or("");
    for (const json::value& value : values) {
      std::string written;
      append_json(written, value);
      const bool is_meant =
          value.is_string() ? std::string_view(value.get_string()) == text : written == read;
      all |= kind_of(value);
      if (is_meant) meant |= kind_of(value);
    }
    return by_value_ ? meant : all;
  }
  const json::value* target_of(const json::object& schema) const {
    const std::string path = text_member(schema, "$ref");
    if (!path.starts_with('#')) return nullptr;
    boost::system::error_code error;
    return root_.find_pointer(std::string_view(path).substr(1), error);
  }

  const json::value& root_;
  const bool by_value_;
  int steps_ = 1000;
};

const json::object* find_function(const json::array* tools, std::string_view name) {
  if (!tools) return nullptr;
  for (const json::value& one : *tools) {
    const json::object& function = object_member(one, "function");
    if (!function.empty() && text_member(function, "name") == name) return &function;
  }
  return nullptr;
}

const json::value* parameters_of(const json::array* tools, std::string_view tool) {
  const json::object* const function = find_function(tools, tool);
  const json::value* const parameters = function ? function->if_contains("parameters") : nullptr;
  return parameters && parameters->is_object() ? parameters : nullptr;
}

}  // namespace

bool may_be_tool(const json::array* tools, std::string_view name) {
  return !tools || find_function(tools, name);
}

Known has_parameter(const json::array* tools, std::string_view tool, std::string_view parameter) {
  const json::value* const parameters = parameters_of(tools, tool);
  if (!parameters) return Known::kNotSaid;
  return Schema(*parameters).member(*parameters, parameter) ? Known::kYes : Known::kNo;
}

std::string value_json(const json::array* tools, std::string_view tool, std::string_view parameter,
                       std::string_view text) {
  unsigned kinds = kAny;
  if (const json::value* parameters = parameters_of(tools, tool)) {
    Schema schema(*parameters);
    if (const json::value* own = schema.member(*parameters, parameter)) {
      kinds = schema.kinds(*own, text);
      if (kinds == 0) kinds = Schema(*parameters, /*by_value=*/false).kinds(*own, text);
    }
  }
  const auto read = json_of(text);
  if (!read) return json_string(text);
  if (kinds == kAny || !(kinds & kText)) return *read;
  const unsigned kind = kind_of_json(*read);
  const bool is_null = kind == kNull && without_blanks(text) == "null";
  const bool is_other = (kinds & kind) && (is_null || kind == kList || kind == kObject);
  return is_other ? *read : json_string(text);
}

}  // namespace nereid::front
