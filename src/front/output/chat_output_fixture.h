// Tests of chat outputs: answers that come in pieces, and what is read of them.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "front/output/chat_output.h"

namespace nereid::front::testing_only {

// Joins the parts of a call.
inline void add(OutputPart part, OutputPart& out) {
  out.reasoning += part.reasoning;
  out.text += part.text;
  for (ToolCall& call : part.calls) {
    if (call.name.empty())
      out.calls.back().arguments += call.arguments;
    else
      out.calls.push_back(std::move(call));
  }
}

inline OutputPart read(ChatOutput output, std::string_view all, size_t step, bool is_cut = false) {
  OutputPart out;
  for (size_t i = 0; i < all.size(); i += step) add(output.push(all.substr(i, step), false), out);
  add(output.push("", true, is_cut), out);
  return out;
}

// In two pieces, the second of which ends the text.
inline OutputPart read_cut(ChatOutput output, std::string_view all, size_t at) {
  OutputPart out = output.push(all.substr(0, at), false);
  add(output.push(all.substr(at), true), out);
  return out;
}

struct Example {
  const char* reasoning_format;  // or null
  const char* tool_format;       // or null
  const char* prompt_end;
  std::string text;
  std::string reasoning, content;
  std::vector<ToolCall> calls;
  GrammarAnswer guided = {};
  const json::array* tools = nullptr;
};

inline void expect(const OutputPart& got, const Example& e, const std::string& how) {
  ASSERT_EQ(got.reasoning, e.reasoning) << e.text << how;
  ASSERT_EQ(got.text, e.content) << e.text << how;
  ASSERT_EQ(got.calls.size(), e.calls.size()) << e.text << how;
  for (size_t i = 0; i < e.calls.size(); ++i) {
    ASSERT_EQ(got.calls[i].name, e.calls[i].name) << e.text << how;
    ASSERT_EQ(got.calls[i].arguments, e.calls[i].arguments) << e.text << how;
    ASSERT_EQ(got.calls[i].id, e.calls[i].id) << e.text << how;
  }
}

inline void expect_at_every_split(const Example& e) {
  const ReasoningFormat* reasoning =
      e.reasoning_format ? find_reasoning_format(e.reasoning_format) : nullptr;
  const ToolFormat* tools = e.tool_format ? find_tool_format(e.tool_format) : nullptr;
  ASSERT_TRUE(reasoning || !e.reasoning_format);
  ASSERT_TRUE(tools || !e.tool_format) << e.tool_format;
  const auto make = [&] { return ChatOutput(reasoning, tools, e.tools, e.prompt_end, e.guided); };
  for (size_t step = 1; step <= e.text.size(); ++step)
    expect(read(make(), e.text, step), e, fmt::format(" in pieces of {}", step));
  for (size_t at = 0; at <= e.text.size(); ++at)
    expect(read_cut(make(), e.text, at), e, fmt::format(" cut at {}", at));
}

inline const json::array& known_tools() {
  static const json::value tools = *parse_json(R"([
      {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties":
        {"a": {"type": "integer"}, "b": {"type": "string"}}}}},
      {"type": "function", "function": {"name": "g"}}])");
  return tools.get_array();
}

}  // namespace nereid::front::testing_only
