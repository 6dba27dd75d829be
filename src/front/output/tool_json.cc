// Tool calls that are JSON.
#include "front/output/tool_json.h"

#include <string>

#include "base/blanks.h"
#include "front/http/json_text.h"

namespace nereid::front {
namespace {

constexpr size_t kMaxDepth = 100;

std::optional<ToolCall> call_of(const json::value& value) {
  const json::object* const object = value.if_object();
  if (!object) return std::nullopt;
  const auto first = [&](std::initializer_list<const char*> keys) -> const json::value* {
    for (const char* key : keys)
      if (const json::value* v = object->if_contains(key)) return v;
    return nullptr;
  };
  const json::value* const name = first({"name", "tool_name"});
  const json::value* const arguments = first({"arguments", "parameters"});
  if (!name || !name->is_string() || name->get_string().empty()) return std::nullopt;
  ToolCall call{std::string(name->get_string()), "{}"};
  if (arguments && arguments->is_string()) {
    const auto inner = read_object(std::string_view(arguments->get_string()));
    if (!inner) return std::nullopt;
    call.arguments = arguments->get_string();
  } else if (arguments && arguments->is_object()) {
    call.arguments = object_text(arguments->get_object());
  } else if (arguments && !arguments->is_null()) {
    return std::nullopt;
  }
  return call;
}

ToolCalls calls_of(const json::value& value) {
  std::vector<ToolCall> calls;
  const auto add = [&](const json::value& one) {
    auto call = call_of(one);
    if (call) calls.push_back(*std::move(call));
    return call.has_value();
  };
  if (const json::array* list = value.if_array()) {
    for (const json::value& one : *list)
      if (!add(one)) return std::nullopt;
  } else if (!add(value)) {
    return std::nullopt;
  }
  if (calls.empty()) return std::nullopt;
  return calls;
}

}  // namespace

size_t JsonEnd::find(std::string_view text) {
  for (; !is_over_ && seen_ < text.size(); ++seen_) {
    const char c = text[seen_];
    if (in_string_) {
      if (c == '\\')
        ++seen_;
      else if (c == '"')
        in_string_ = false;
      continue;
    }
    if (c == '"') in_string_ = true;
    if (c == '{' || c == '[') ++depth_;
    const bool closes = c == '}' || c == ']';
    if (closes && depth_ == 1) length_ = seen_ + 1;
    if (closes && depth_ > 0) --depth_;
    is_over_ = depth_ == 0;  // or it never began
  }
  return length_;
}

std::optional<json::object> read_object(std::string_view text) {
  StatusOr<json::value> root = parse_json(text, kMaxDepth);
  if (!root.ok() || !root->is_object()) return std::nullopt;
  return std::move(root->get_object());
}

std::string object_text(const json::object& object) {
  std::string text;
  append_json(text, object);
  return text;
}

ToolCalls read_json_calls(std::string_view text, const json::array*) {
  const StatusOr<json::value> root = parse_json(without_blanks(text), kMaxDepth);
  return root.ok() ? calls_of(*root) : std::nullopt;
}

ToolCalls read_json_list(std::string_view text, const json::array* tools) {
  std::vector<ToolCall> calls;
  for (;;) {
    const size_t begin = text.find_first_not_of(" \t\r\n;");
    if (begin == std::string_view::npos) break;
    text.remove_prefix(begin);
    const size_t length = json_length(text);
    ToolCalls some = length > 0 ? read_json_calls(text.substr(0, length), tools) : std::nullopt;
    if (!some) return std::nullopt;
    for (ToolCall& call : *some) calls.push_back(std::move(call));
    text.remove_prefix(length);
  }
  if (calls.empty()) return std::nullopt;
  return calls;
}

ToolCalls read_mistral(std::string_view text, const json::array* tools) {
  constexpr std::string_view kOpen = "[TOOL_CALLS]", kArguments = "[ARGS]";
  text = without_blanks(text);
  if (text.starts_with('[')) {
    const size_t length = json_length(text);
    if (length != text.size()) return std::nullopt;
    return read_json_calls(text, tools);
  }
  std::vector<ToolCall> calls;
  while (!text.empty()) {
    if (text.starts_with(kOpen)) text.remove_prefix(kOpen.size());
    const size_t brace = text.find('{');
    if (brace == std::string_view::npos) return std::nullopt;
    std::string_view name = text.substr(0, brace);
    if (const size_t end = name.find(kArguments); end != std::string_view::npos)
      name = name.substr(0, end);
    if (const size_t end = name.find("[CALL_ID]"); end != std::string_view::npos)
      name = name.substr(0, end);
    name = without_blanks(name);
    text.remove_prefix(brace);
    const size_t length = json_length(text);
    const auto arguments = read_object(text.substr(0, length));
    if (length == 0 || name.empty() || !arguments) return std::nullopt;
    calls.push_back({std::string(name), object_text(*arguments)});
    text = without_blanks(text.substr(length));
  }
  if (calls.empty()) return std::nullopt;
  return calls;
}

ToolCalls read_command(std::string_view text, const json::array* tools) {
  ToolCalls calls = read_json_calls(text, tools);
  if (calls)
    std::erase_if(*calls, [](const ToolCall& call) {
      return call.name == "directly_answer" || call.name == "directly-answer";
    });
  return calls;
}

}  // namespace nereid::front
