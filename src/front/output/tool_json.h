// Readers of tool calls. Internal to front/output.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "front/output/tool_call.h"

namespace nereid::front {

using ToolCalls = std::optional<std::vector<ToolCall>>;

// Finds the end of a JSON object or array in a text that grows.
class JsonEnd {
 public:
  // Bytes of the value that `text` begins with, 0 while it does not end. Each call may pass more of
  // the same text; what an earlier one has seen is not read again.
  size_t find(std::string_view text);

 private:
  size_t seen_ = 0, depth_ = 0, length_ = 0;
  bool in_string_ = false, is_over_ = false;
};

// Bytes of the JSON object or array that `text` begins with, 0 when it does not end.
inline size_t json_length(std::string_view text) { return JsonEnd().find(text); }

// `text` when it is a JSON object.
std::optional<json::object> read_object(std::string_view text);
std::string object_text(const json::object& object);

// {"name" (or "tool_name"), "arguments" (or "parameters")}, alone or in an array.
ToolCalls read_json_calls(std::string_view text, const json::array*);
// Objects one behind the other, with blanks and semicolons between.
ToolCalls read_json_list(std::string_view text, const json::array*);
// As Mistral writes them: an array, or names each with an object behind.
ToolCalls read_mistral(std::string_view text, const json::array*);
// Cohere's: without the tool that stands for an answer in words.
ToolCalls read_command(std::string_view text, const json::array*);
// [name(key=literal, ...), ...] with Python's literals.
ToolCalls read_pythonic(std::string_view text, const json::array*);
// DeepSeek V3 (a code block) and V3.1.
ToolCalls read_deepseek(std::string_view text, const json::array*);
ToolCalls read_kimi(std::string_view text, const json::array*);
// <function=name><parameter=key>value</parameter></function>;
// name<arg_key>..</arg_key><arg_value>...
ToolCalls read_qwen_coder(std::string_view text, const json::array* tools);
ToolCalls read_glm(std::string_view text, const json::array* tools);

}  // namespace nereid::front
