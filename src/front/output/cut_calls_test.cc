// Calls that max_tokens cuts: a call that is not complete is text, since an argument that is cut
// may mean something else.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "front/output/chat_output.h"

namespace nereid::front {
namespace {

const json::array& tools_of_cut_calls() {
  static const json::value tools = *parse_json(R"([
      {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties":
        {"a": {"type": "integer"}, "b": {"type": "string"}}}}},
      {"type": "function", "function": {"name": "g"}}])");
  return tools.get_array();
}

OutputPart read_until(const char* format, std::string_view text, bool is_cut, bool in_one_piece) {
  const char* const reasoning = std::string_view(format) == "openai" ? "gpt_oss" : nullptr;
  ChatOutput output(reasoning ? find_reasoning_format(reasoning) : nullptr,
                    find_tool_format(format), &tools_of_cut_calls(), "");
  OutputPart all;
  const auto add = [&](OutputPart part) {
    all.text += part.text;
    for (ToolCall& call : part.calls) all.calls.push_back(std::move(call));
  };
  if (in_one_piece) {
    add(output.push(text, true, is_cut));
    return all;
  }
  for (const char& c : text) add(output.push(std::string_view(&c, 1), false));
  add(output.push("", true, is_cut));
  return all;
}

// Each has two calls; the text "b" of the first has the format's own marks in it.
const std::pair<const char*, std::string> kWholeAnswers[] = {
    {"openai",
     " to=functions.f<|channel|>commentary json<|message|>{\"a\": 12, \"b\": \"x}\"}<|call|>"
     "<|start|>assistant to=functions.g<|channel|>commentary json<|message|>{}<|call|>"},
    {"hermes", R"(<tool_call>
{"name": "f", "arguments": {"a": 12, "b": "x}}</tool_call>"}}
</tool_call>
<tool_call>
{"arguments": {"a": 12}, "name": "f"}
</tool_call>)"},
    {"llama3_json",
     R"({"name": "f", "parameters": {"a": 12, "b": "x}}"}}; {"name": "g", "parameters": {}})"},
    {"pythonic", R"([f(a=12, b="x)]"), g()])"},
    {"olmo3", "<function_calls>\nf(a=12, b=\"x)\")\ng()\n</function_calls>"},
    {"mistral",
     R"([TOOL_CALLS][{"name": "f", "arguments": {"a": 12, "b": "x}]"}}, {"name": "g"}])"},
    {"mistral", R"([TOOL_CALLS]f[ARGS]{"a": 12, "b": "x}"}[TOOL_CALLS]g[ARGS]{"a": 1})"},
    {"deepseek_v3",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
     "{\"a\": 12, \"b\": \"x}```<｜tool▁call▁end｜>\"}\n```<｜tool▁call▁end｜>\n"
     "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
    {"kimi_k2",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
     "{\"a\": 12, \"b\": \"x}<|tool_call_end|>\"}<|tool_call_end|>"
     "<|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{\"a\": 1}<|tool_call_end|>"
     "<|tool_calls_section_end|>"},
    {"glm45",
     "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>12</arg_value>\n<arg_key>b</arg_key>\n"
     "<arg_value>x\n</tool_call>\ny</arg_value>\n</tool_call>\n"
     "<tool_call>g\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>"},
    {"qwen3_coder",
     "<tool_call>\n<function=f>\n<parameter=a>\n12\n</parameter>\n<parameter=b>\nx\n</function>\n"
     "y\n</parameter> z\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n"
     "<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"},
    {"seed_oss",
     "<seed:tool_call>\n<function=f>\n<parameter=a>12</parameter>\n<parameter=b>x</function>y"
     "</parameter>\n</function>\n</seed:tool_call>"},
    {"minimax_m2",
     "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">12</parameter>\n"
     "<parameter name=\"b\">x</invoke>y</parameter>\n</invoke>\n<invoke name=\"g\">\n"
     "<parameter name=\"a\">1</parameter>\n</invoke>\n</minimax:tool_call>"},
    {"granite",
     R"(<|tool_call|>[{"name": "f", "arguments": {"a": 12, "b": "x}]"}}, {"name": "g"}])"},
    {"apertus",
     R"(<|tools_prefix|>[{"f": {"a": 12, "b": "x}]"}}, {"g": {"a": 1}}]<|tools_suffix|>)"},
    {"command", R"(<|START_ACTION|>[{"tool_name": "f", "parameters": {"a": 12, "b": "x}]"}}, )"
                R"({"tool_name": "g", "parameters": {}}]<|END_ACTION|>)"},
    {"chatglm", "f\n{\"a\": 12, \"b\": \"x}\"}"},
    {"json", "```json\n[{\"name\": \"f\", \"parameters\": {\"a\": 12, \"b\": \"x}]```\"}}]\n```"},
};

TEST(CutCalls, OnlyCompleteCallsAreCalls) {
  for (const auto& [format, text] : kWholeAnswers) {
    const std::vector<ToolCall> whole = read_until(format, text, false, true).calls;
    ASSERT_GE(whole.size(), 1u) << format << ": " << text;
    ASSERT_EQ(whole[0].arguments.find("\"a\":12"), 1u) << whole[0].arguments;
    for (size_t end = 0; end < text.size(); ++end) {
      for (const bool in_one_piece : {false, true}) {
        const std::string_view cut = std::string_view(text).substr(0, end);
        const OutputPart got = read_until(format, cut, true, in_one_piece);
        ASSERT_LE(got.calls.size(), whole.size()) << format << ": " << cut;
        for (size_t i = 0; i < got.calls.size(); ++i) {
          ASSERT_EQ(got.calls[i].name, whole[i].name) << format << ": " << cut;
          ASSERT_EQ(got.calls[i].arguments, whole[i].arguments) << format << ": " << cut;
        }
      }
    }
  }
}

}  // namespace
}  // namespace nereid::front
