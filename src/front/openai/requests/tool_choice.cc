#include "front/openai/requests/tool_choice.h"

#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/json_exact.h"
#include "base/json_members.h"
#include "front/http/json_text.h"

namespace nereid::front {
namespace {

// The tool's function, if it has a name; else null.
const json::object* function_of(const json::value& tool) {
  const json::object& function = object_member(tool, "function");
  const bool is_function = text_member(tool, "type") == "function";
  return is_function && !text_member(function, "name").empty() ? &function : nullptr;
}

// The schema of a function's arguments; any object without one.
json::value schema_of(const json::object& function) {
  const json::value* schema = function.if_contains("parameters");
  return schema && schema->is_object() ? *schema : json::value{{"type", "object"}};
}

// Makes a schema a resource of its own, so that its references keep their meaning.
void set_resource(json::object& schema, size_t number) {
  const std::string id = text_member(schema, "$id");
  if (id.empty() || id.starts_with('#')) schema["$id"] = fmt::format("nereid:tool-{}", number);
}

// The schema of an array of {"name", "parameters"}: one call of the tools or more.
json::object schema_of_calls(const json::array& tools, bool only_one) {
  json::array calls;
  for (const json::value& tool : tools) {
    const json::object& function = *function_of(tool);
    json::value parameters = schema_of(function);
    set_resource(parameters.get_object(), calls.size());
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
  return schema;
}

// Whether the grammar comes from OpenAI's response_format, which applies to texts alone.
bool is_of_texts(Fields& fields) {
  const json::value* const format = fields.get("response_format");
  const std::string type = format ? text_member(*format, "type") : "";
  return type == "json_object" || type == "json_schema";
}

void force_call(Fields& fields, const json::array& tools, ChatRequest& out) {
  std::optional<GrammarField>& guide = out.common.sampling.guide;
  if (guide && is_of_texts(fields)) guide.reset();
  if (guide)
    return fields.fail("tool_choice",
                       "the call is required, and another field constrains the output");
  if (!out.named_tool.empty()) {
    for (const json::value& tool : tools) {
      const json::object& function = *function_of(tool);
      if (std::string_view(function.at("name").get_string()) != out.named_tool) continue;
      guide = GrammarField{"json_schema", json_text(schema_of(function))};
      return;
    }
    return fields.fail("tool_choice",
                       fmt::format("'{}' is none of the tools", out.named_tool.substr(0, 100)));
  }
  guide = GrammarField{"json_schema", json_text(schema_of_calls(tools, !out.parallel_calls))};
}

// The member `allowed_tools` of a choice of that type: {"mode", "tools"}.
const json::object* allowed_of(const json::value& choice) {
  if (text_member(choice, "type") != "allowed_tools") return nullptr;
  return member_or_null(choice, "allowed_tools").if_object();
}

// The allowed tools, in the order of the request's.
json::array allowed_tools(Fields& fields, const json::object& allowed, const json::array& tools) {
  std::unordered_set<std::string_view> names;
  for (const json::value& one : array_member(allowed, "tools"))
    if (const json::object* function = function_of(one))
      names.insert(std::string_view(function->at("name").get_string()));
  json::array kept;
  for (const json::value& tool : tools)
    if (names.erase(std::string_view(function_of(tool)->at("name").get_string())))
      kept.push_back(tool);
  if (!names.empty())
    fields.fail("tool_choice",
                fmt::format("'{}' is none of the tools", names.begin()->substr(0, 100)));
  else if (kept.empty())
    fields.fail("tool_choice",
                "tools: at least one {\"type\": \"function\", \"function\": {\"name\": ..}} is "
                "required");
  return kept;
}

// none | auto | required | {"type": "function", "function": {"name"}} | {"type": "allowed_tools",
// "allowed_tools": {"mode": auto | required, "tools"}}.
void read_choice(Fields& fields, bool has_tools, ChatRequest& out) {
  out.tool_use = has_tools ? ToolUse::kAuto : ToolUse::kNone;
  const json::value* choice = fields.get("tool_choice");
  if (!choice || choice->is_null()) return;
  const json::object* const allowed = allowed_of(*choice);
  if (allowed) {
    choice = allowed->if_contains("mode");
    if (!choice || (*choice != "auto" && *choice != "required"))
      return fields.fail("tool_choice", "mode: expected \"auto\" or \"required\"");
  }
  const std::string_view word = choice->is_string() ? std::string_view(choice->get_string()) : "";
  if (word == "auto") return;
  if (word == "none") {
    out.tool_use = ToolUse::kNone;
    return;
  }
  const json::object* const named = function_of(*choice);
  if (word != "required" && !named)
    return fields.fail("tool_choice",
                       "expected \"none\", \"auto\", \"required\", {\"type\": \"function\", "
                       "\"function\": {\"name\": ..}} or {\"type\": \"allowed_tools\", "
                       "\"allowed_tools\": {\"mode\": .., \"tools\": ..}}");
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
    if (parameters && !parameters->is_null() && !is_exact_object(*parameters))
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
  const json::value* const choice = fields.get("tool_choice");
  const json::object* const allowed = choice ? allowed_of(*choice) : nullptr;
  json::array shown = allowed ? allowed_tools(fields, *allowed, *tools) : *tools;
  if (fields.error()) return;
  if (out.tool_use != ToolUse::kAuto)
    force_call(fields, shown, out);
  else if (has_strict)
    out.common.warning =
        "strict functions: only calls that tool_choice requires are constrained to schemas";
  out.context["tools"] = std::move(shown);
}

}  // namespace nereid::front
