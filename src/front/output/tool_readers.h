// Readers of tool calls. Internal to front/output.
#pragma once

#include "front/output/tool_formats.h"
#include "front/output/tool_literal.h"

namespace nereid::front {

// The result of a reader that has stopped at `at`.
inline CallsRead not_calls(bool may_go_on, bool final, size_t at, size_t size) {
  if (may_go_on && !final) return {CallsRead::State::kMore};
  return {CallsRead::State::kText, may_go_on ? size : at};
}
inline CallsRead found_calls(size_t length, std::vector<ToolCall> calls) {
  return {CallsRead::State::kCalls, length, std::move(calls)};
}

// {"name" (or "tool_name", "function"), "arguments" (or "parameters")}, alone or in an array.
CallsRead read_json(const ToolMarker&, std::string_view, bool final, const json::array* tools);
// {NAME: ARGUMENTS}, alone or in an array.
CallsRead read_by_name(const ToolMarker&, std::string_view, bool final, const json::array* tools);
// Mistral's: JSON, or a name followed by an object.
CallsRead read_mistral(const ToolMarker&, std::string_view, bool final, const json::array* tools);
// Cohere's: without the tool that represents a text answer.
CallsRead read_command(const ToolMarker&, std::string_view, bool final, const json::array* tools);
// Llama's: JSON, or NAME.call(key=literal, ...) for built-in tools.
CallsRead read_llama(const ToolMarker&, std::string_view, bool final, const json::array* tools);
// [name(key=literal, ...), ...] with Python's literals, or lines of such calls up to `close`.
CallsRead read_pythonic(const ToolMarker&, std::string_view, bool final, const json::array* tools);
// DeepSeek V3 (a code block) and V3.1.
CallsRead read_deepseek(const ToolMarker&, std::string_view, bool final, const json::array* tools);
CallsRead read_kimi(const ToolMarker&, std::string_view, bool final, const json::array* tools);
// <function=name><parameter=key>value</parameter></function>, of Qwen3-Coder and Seed-OSS.
CallsRead read_qwen_coder(const ToolMarker&, std::string_view, bool final,
                          const json::array* tools);
CallsRead read_seed(const ToolMarker&, std::string_view, bool final, const json::array* tools);
// <invoke name="name"><parameter name="key">value</parameter></invoke>.
CallsRead read_minimax(const ToolMarker&, std::string_view, bool final, const json::array* tools);
CallsRead read_deepseek_v32(const ToolMarker&, std::string_view, bool final,
                            const json::array* tools);
// name<arg_key>..</arg_key><arg_value>...
CallsRead read_glm(const ToolMarker&, std::string_view, bool final, const json::array* tools);
// The name of a tool, a line break, an object.
CallsRead read_name_and_object(const ToolMarker&, std::string_view, bool final,
                               const json::array* tools);

}  // namespace nereid::front
