// Readers of tool calls. Internal to front/output.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "front/output/tool_call.h"

namespace nereid::front {

using ToolCalls = std::optional<std::vector<ToolCall>>;

std::string_view without_blanks(std::string_view text);

// Bytes of the JSON object or array that `text` begins with, 0 when it does not end.
size_t json_length(std::string_view text);

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
