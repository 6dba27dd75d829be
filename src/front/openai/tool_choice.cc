// Reads tools; see tool_choice.h.
#include "front/openai/tool_choice.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

namespace nereid::front {
namespace {

constexpr size_t kMaxSchemaDepth = 128;

// The tool's function, when it is one with a name.
const json::object* function_of(const json::value& tool) {
  const json::object* object = tool.if_object();
  const json::value* type = object ? object->if_contains("type") : nullptr;
  const json::value* function = object ? object->if_contains("function") : nullptr;
  const json::object* inner = function ? function->if_object() : nullptr;
  const json::value* name = inner ? inner->if_contains("name") : nullptr;
  const bool is_function = type && type->is_string() && type->get_string() == "function";
  return is_function && name && name->is_string() && !name->get_string().empty() ? inner : nullptr;
}

// The schema of a function's arguments; any object when it has none.
json::value schema_of(const json::object& function) {
  const json::value* schema = function.if_contains("parameters");
  return schema && schema->is_object() ? *schema : json::value{{"type", "object"}};
}

// Definitions of one function's schema, which become some of a larger schema under other names.
class Definitions {
 public:
  Definitions(std::string prefix, json::object& all) : prefix_(std::move(prefix)), all_(all) {}

  // Moves the schema's definitions and mends references to them; false: one leads elsewhere.
  bool move_from(json::object& schema) {
    for (const char* key : {"$defs", "definitions"}) {
      json::value* const found = schema.if_contains(key);
      if (!found) continue;
      const json::value own = std::move(*found);
      schema.erase(key);
      if (!own.is_object()) return false;
      for (const auto& [name, value] : own.get_object()) {
        json::value& moved = all_[prefix_ + std::string(name)];
        moved = value;
        if (!mend(moved, 0)) return false;
      }
    }
    for (auto& [name, value] : schema)
      if (!mend_member(name, value, 0)) return false;
    return true;
  }

 private:
  bool mend_member(std::string_view name, json::value& value, size_t depth) {
    if (name != "$ref" || !value.is_string()) return mend(value, depth);
    std::string_view path(value.get_string());
    for (const std::string_view root : {"#/$defs/", "#/definitions/"}) {
      if (!path.starts_with(root)) continue;
      path.remove_prefix(root.size());
      value = "#/$defs/" + prefix_ + std::string(path);
      return true;
    }
    return false;
  }
  bool mend(json::value& value, size_t depth) {
    if (depth > kMaxSchemaDepth) return false;
    if (json::object* object = value.if_object()) {
      for (auto& [name, member] : *object)
        if (!mend_member(name, member, depth + 1)) return false;
    } else if (json::array* list = value.if_array()) {
      for (json::value& item : *list)
        if (!mend(item, depth + 1)) return false;
    }
    return true;
  }

  std::string prefix_;
  json::object& all_;
};

// One call of the tools or more, as an array of {"name", "parameters"}.
std::optional<json::object> schema_of_calls(const json::array& tools, bool only_one) {
  json::array calls;
  json::object definitions;
  for (const json::value& tool : tools) {
    const json::object& function = *function_of(tool);
    json::value parameters = schema_of(function);
    Definitions own(std::to_string(calls.size()) + ".", definitions);
    if (!own.move_from(parameters.get_object())) return std::nullopt;
    calls.push_back(json::object{
        {"type", "object"},
        {"properties", json::object{{"name", json::object{{"const", function.at("name")}}},
                                    {"parameters", std::move(parameters)}}},
        {"required", json::array{"name", "parameters"}},
        {"additionalProperties", false}});
  }
  json::object schema = {{"type", "array"}, {"minItems", 1}};
  if (only_one) schema["maxItems"] = 1;
  schema["items"] = json::object{{"anyOf", std::move(calls)}};
  if (!definitions.empty()) schema["$defs"] = std::move(definitions);
  return schema;
}

void force_call(Fields& fields, const json::array& tools, ChatRequest& out) {
  std::optional<Guide>& guide = out.common.sampling.guide;
  if (guide)
    return fields.fail("tool_choice",
                       "a call is wanted, and another field says what the text has to be");
  if (!out.named_tool.empty()) {
    for (const json::value& tool : tools) {
      const json::object& function = *function_of(tool);
      if (std::string_view(function.at("name").get_string()) != out.named_tool) continue;
      guide = Guide{"json_schema", json::serialize(schema_of(function))};
      return;
    }
    return fields.fail("tool_choice",
                       fmt::format("'{}' is none of the tools", out.named_tool.substr(0, 100)));
  }
  const auto schema = schema_of_calls(tools, !out.parallel_calls);
  if (!schema)
    return fields.fail(
        "tools",
        "a reference in a function's parameters leads elsewhere than to #/$defs/NAME "
        "or #/definitions/NAME, which is not supported with \"tool_choice\": \"required\"",
        "unsupported_parameter");
  guide = Guide{"json_schema", json::serialize(*schema)};
}

// none | auto | required | {"type": "function", "function": {"name"}}.
void read_choice(Fields& fields, bool has_tools, ChatRequest& out) {
  out.tool_use = has_tools ? ToolUse::kAuto : ToolUse::kNone;
  const json::value* choice = fields.get("tool_choice");
  if (!choice || choice->is_null()) return;
  const std::string_view word = choice->is_string() ? std::string_view(choice->get_string()) : "";
  if (word == "auto") return;
  if (word == "none") {
    out.tool_use = ToolUse::kNone;
    return;
  }
  const json::object* const named = function_of(*choice);
  if (word != "required" && !named)
    return fields.fail("tool_choice",
                       "expected \"none\", \"auto\", \"required\" or {\"type\": \"function\", "
                       "\"function\": {\"name\": ..}}");
  if (!has_tools) return fields.fail("tool_choice", "a call is wanted, and there are no \"tools\"");
  out.tool_use = named ? ToolUse::kNamed : ToolUse::kRequired;
  if (named) out.named_tool = std::string(named->at("name").get_string());
}

}  // namespace

void read_tools(Fields& fields, ChatRequest& out) {
  const json::array* tools = fields.array("tools");
  const bool has_tools = tools && !tools->empty();
  out.parallel_calls = fields.flag("parallel_tool_calls").value_or(true);
  out.context["tools"] = nullptr;
  read_choice(fields, has_tools, out);
  if (!has_tools) return;
  std::unordered_set<std::string_view> names;
  bool has_strict = false;
  for (const json::value& tool : *tools) {
    const json::object* const function = function_of(tool);
    if (!function)
      return fields.fail("tools",
                         "expected objects {\"type\": \"function\", \"function\": {\"name\": ..}}",
                         "invalid_type");
    const json::value* const parameters = function->if_contains("parameters");
    if (parameters && !parameters->is_object() && !parameters->is_null())
      return fields.fail("tools", "a function's parameters: expected an object", "invalid_type");
    const json::value* const strict = function->if_contains("strict");
    if (strict && !strict->is_bool() && !strict->is_null())
      return fields.fail("tools", "a function's strict: expected a boolean", "invalid_type");
    has_strict |= strict && strict->is_bool() && strict->get_bool();
    const std::string_view name(function->at("name").get_string());
    if (!names.insert(name).second)
      return fields.fail("tools", fmt::format("'{}' is there twice", name.substr(0, 100)));
  }
  if (out.tool_use == ToolUse::kNone || fields.error()) return;
  out.context["tools"] = *tools;
  if (out.tool_use != ToolUse::kAuto)
    force_call(fields, *tools, out);
  else if (has_strict)
    out.common.warning = "strict functions: only calls that tool_choice wants are held to schemas";
}

}  // namespace nereid::front
