// Tool calls whose names and arguments stand between marks.
#include <string>

#include "base/blanks.h"
#include "base/json.h"
#include "front/http/json_text.h"
#include "front/output/tool_json.h"

namespace nereid::front {
namespace {

// What stands in front of `mark`, which is taken off `text` with it; nothing without a mark.
std::optional<std::string_view> take_until(std::string_view& text, std::string_view mark) {
  const size_t at = text.find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view out = text.substr(0, at);
  text.remove_prefix(at + mark.size());
  return out;
}

// Whether the request's tool says that the parameter is a text.
bool is_text(const json::array* tools, std::string_view tool, std::string_view parameter) {
  if (!tools) return false;
  for (const json::value& one : *tools) {
    boost::system::error_code ec;
    const json::value* const name = one.find_pointer("/function/name", ec);
    if (!name || !name->is_string() || std::string_view(name->get_string()) != tool) continue;
    const json::value* const all = one.find_pointer("/function/parameters/properties", ec);
    const json::value* const schema =
        all && all->is_object() ? all->get_object().if_contains(parameter) : nullptr;
    const json::value* const type =
        schema && schema->is_object() ? schema->get_object().if_contains("type") : nullptr;
    return type && type->is_string() && type->get_string() == "string";
  }
  return false;
}

// A value as it stands in text: JSON where it is some and the parameter is no text.
json::value value_of(std::string_view text, bool is_text) {
  if (!is_text)
    if (StatusOr<json::value> value = parse_json(without_blanks(text), 100); value.ok())
      return *std::move(value);
  return json::value(text);
}

// One line break on either side belongs to the layout.
std::string_view without_line_breaks(std::string_view text) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

ToolCalls some_or_none(std::vector<ToolCall> calls) {
  if (calls.empty()) return std::nullopt;
  return calls;
}

}  // namespace

ToolCalls read_deepseek(std::string_view text, const json::array*) {
  constexpr std::string_view kBegin = "<｜tool▁call▁begin｜>", kEnd = "<｜tool▁call▁end｜>",
                             kSeparator = "<｜tool▁sep｜>", kBlock = "```json";
  std::vector<ToolCall> calls;
  while (take_until(text, kBegin)) {
    auto inner = take_until(text, kEnd);
    if (!inner) return std::nullopt;
    const auto kind_or_name = take_until(*inner, kSeparator);
    if (!kind_or_name) return std::nullopt;
    std::string_view name = *kind_or_name, arguments = *inner;
    if (const auto in_front = take_until(*inner, kBlock)) {
      name = *in_front, arguments = *inner;
      if (const auto block = take_until(arguments, "```")) arguments = *block;
    }
    const auto object = read_object(without_blanks(arguments));
    name = without_blanks(name);
    if (!object || name.empty()) return std::nullopt;
    calls.push_back({std::string(name), object_text(*object)});
  }
  return some_or_none(std::move(calls));
}

ToolCalls read_kimi(std::string_view text, const json::array*) {
  std::vector<ToolCall> calls;
  while (take_until(text, "<|tool_call_begin|>")) {
    auto inner = take_until(text, "<|tool_call_end|>");
    if (!inner) return std::nullopt;
    const auto id = take_until(*inner, "<|tool_call_argument_begin|>");
    if (!id) return std::nullopt;
    std::string_view name = without_blanks(*id);  // functions.NAME:INDEX
    if (name.starts_with("functions.")) name.remove_prefix(10);
    name = name.substr(0, name.rfind(':'));
    const auto object = read_object(without_blanks(*inner));
    if (!object || name.empty()) return std::nullopt;
    calls.push_back({std::string(name), object_text(*object)});
  }
  return some_or_none(std::move(calls));
}

ToolCalls read_qwen_coder(std::string_view text, const json::array* tools) {
  std::vector<ToolCall> calls;
  while (take_until(text, "<function=")) {
    const auto name = take_until(text, ">");
    if (!name || name->empty()) return std::nullopt;
    auto inner = take_until(text, "</function>");
    if (!inner) return std::nullopt;
    json::object arguments;
    while (take_until(*inner, "<parameter=")) {
      const auto key = take_until(*inner, ">");
      const auto value = take_until(*inner, "</parameter>");
      if (!key || !value) return std::nullopt;
      arguments[*key] = value_of(without_line_breaks(*value), is_text(tools, *name, *key));
    }
    calls.push_back({std::string(*name), object_text(arguments)});
  }
  return some_or_none(std::move(calls));
}

ToolCalls read_glm(std::string_view text, const json::array* tools) {
  std::string_view name = text.substr(0, text.find("<arg_key>"));
  text.remove_prefix(name.size());
  name = without_blanks(name);
  constexpr std::string_view kNameCharacters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:";
  if (name.empty() || name.find_first_not_of(kNameCharacters) != std::string_view::npos)
    return std::nullopt;
  json::object arguments;
  while (take_until(text, "<arg_key>")) {
    const auto key = take_until(text, "</arg_key>");
    if (!take_until(text, "<arg_value>")) return std::nullopt;
    const auto value = take_until(text, "</arg_value>");
    if (!key || !value) return std::nullopt;
    arguments[without_blanks(*key)] = value_of(*value, is_text(tools, name, without_blanks(*key)));
  }
  return std::vector<ToolCall>{{std::string(name), object_text(arguments)}};
}

}  // namespace nereid::front
