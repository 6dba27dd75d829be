#include "front/output/chat_output.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace nereid::front {
namespace {

OutputPart read(ChatOutput output, std::string_view all, size_t step) {
  OutputPart out;
  const auto add = [&](OutputPart part) {
    out.reasoning += part.reasoning;
    out.text += part.text;
    for (ToolCall& call : part.calls) out.calls.push_back(std::move(call));
  };
  for (size_t i = 0; i < all.size(); i += step) add(output.push(all.substr(i, step), false));
  add(output.push("", true));
  return out;
}

struct Example {
  const char* reasoning_format;  // or null
  const char* tool_format;       // or null
  const char* prompt_end;
  std::string text;
  std::string reasoning, content;
  std::vector<ToolCall> calls;
  bool is_guided = false;
};

void expect_at_every_split(const Example& e) {
  const ReasoningFormat* reasoning =
      e.reasoning_format ? find_reasoning_format(e.reasoning_format) : nullptr;
  const ToolFormat* tools = e.tool_format ? find_tool_format(e.tool_format) : nullptr;
  ASSERT_TRUE(reasoning || !e.reasoning_format);
  ASSERT_TRUE(tools || !e.tool_format) << e.tool_format;
  for (size_t step = 1; step <= e.text.size(); ++step) {
    const OutputPart got =
        read({reasoning, tools, nullptr, e.prompt_end, e.is_guided}, e.text, step);
    ASSERT_EQ(got.reasoning, e.reasoning) << e.text << " in pieces of " << step;
    ASSERT_EQ(got.text, e.content) << e.text << " in pieces of " << step;
    ASSERT_EQ(got.calls.size(), e.calls.size()) << e.text << " in pieces of " << step;
    for (size_t i = 0; i < e.calls.size(); ++i) {
      ASSERT_EQ(got.calls[i].name, e.calls[i].name) << e.text;
      ASSERT_EQ(got.calls[i].arguments, e.calls[i].arguments) << e.text;
    }
  }
}

TEST(ChatOutput, ReasoningAtEverySplit) {
  const Example examples[] = {
      {"qwen3", nullptr, "", "<think>\nI add.\n</think>\n\nFour.", "I add.", "Four.", {}},
      {"qwen3",
       nullptr,
       "<think>\n",
       "I add. </think> Four </think> <think>",
       "I add.",
       "Four </think> <think>",
       {}},
      {"qwen3", nullptr, "", "  <thin air>", "", "  <thin air>", {}},
      {"qwen3", nullptr, "<think>\n\n</think>\n\n", "Four.", "", "Four.", {}},
      {"deepseek_r1", nullptr, "", "I add.\n</think>Four.", "I add.", "Four.", {}},
      {"deepseek_r1", nullptr, "", "\n<think>I add", "I add", "", {}},
      {"deepseek_r1", nullptr, "<think></think>\n", "<think>I add", "", "<think>I add", {}},
      {"mistral", nullptr, "", "[THINK]a b[/THINK]c", "a b", "c", {}},
      {"granite",
       nullptr,
       "",
       "Here is my thought process: x\n\nHere is my response: y",
       "x",
       "y",
       {}},
      {"qwen3",
       "hermes",
       "",
       "<think>a <tool_call></think>b <tool_call>{\"name\": \"f\"}</tool_call>",
       "a <tool_call>",
       "b",
       {{"f", "{}"}}},
  };
  for (const Example& e : examples) expect_at_every_split(e);
}

TEST(ChatOutput, HarmonyChannels) {
  const Example examples[] = {
      {"gpt_oss",
       "openai",
       "",
       "<|channel|>analysis<|message|>I "
       "look.<|end|><|start|>assistant<|channel|>final<|message|>Four.",
       "I look.",
       "Four.",
       {}},
      {"gpt_oss",
       "openai",
       "",
       "<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>commentary "
       "to=functions.f "
       "<|constrain|>json<|message|>{\"a\": 1}<|call|>",
       "x",
       "",
       {{"f", "{\"a\": 1}"}}},
      {"gpt_oss",
       "openai",
       "",
       " to=functions.g<|channel|>commentary json<|message|>{}",
       "",
       "",
       {{"g", "{}"}}},
      {"gpt_oss", "openai", "", "plain text", "", "plain text", {}},
      {"gpt_oss", "openai", "", "a <| b", "", "a <| b", {}},
      {"gpt_oss",
       "openai",
       "",
       std::string(1500, 'x') + " a <| b",
       "",
       std::string(1500, 'x') + " a <| b",
       {}},
      {"gpt_oss", "openai", "", "<|channel|>final", "", "", {}},
  };
  for (const Example& e : examples) expect_at_every_split(e);
}

// What a guide holds begins behind the mark of the final channel.
TEST(ChatOutput, HarmonyBeforeAGuide) {
  const std::string prompt = "<|end|><|start|>assistant";
  const std::string thoughts =
      "<|channel|>analysis<|message|>I <|channel|>look.<|end|><|start|>assistant<|channel|>final<|"
      "message|>";
  const Example examples[] = {
      {"gpt_oss",
       nullptr,
       prompt.c_str(),
       thoughts + "{\"a\": \"<|end|>\"}",
       "I <|channel|>look.",
       "{\"a\": \"<|end|>\"}",
       {},
       true},
      {"gpt_oss",
       "json",
       prompt.c_str(),
       thoughts + "[{\"name\": \"f\", \"parameters\": {}}]",
       "I <|channel|>look.",
       "",
       {{"f", "{}"}},
       true},
      {"gpt_oss", nullptr, prompt.c_str(), "{\"a\": 1}", "", "{\"a\": 1}", {}, true},
      {"gpt_oss",
       nullptr,
       prompt.c_str(),
       "<|channel|>analysis<|message|>I look",
       "I look",
       "",
       {},
       true},
      {"gpt_oss",
       nullptr,
       "<|end|><|start|>assistant<|channel|>final<|message|>",
       "{}",
       "",
       "{}",
       {},
       true},
  };
  for (const Example& e : examples) expect_at_every_split(e);
}

TEST(ChatOutput, CallsOfEveryFormat) {
  const std::vector<ToolCall> one = {{"f", "{\"a\":1,\"b\":\"x\"}"}};
  const std::vector<ToolCall> two = {one[0], {"g", "{}"}};
  const Example examples[] = {
      {nullptr, "hermes", "",
       "Hm.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": "
       "\"x\"}}\n</tool_call>\n"
       "<tool_call>{\"name\": \"g\"}</tool_call>\n",
       "", "Hm.", two},
      {nullptr, "hermes", "",
       "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": \"x\"}}", "", "", one},
      {nullptr,
       "hermes",
       "",
       "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"</tool_call>\"}}</tool_call>!",
       "",
       "!",
       {{"f", "{\"a\":\"</tool_call>\"}"}}},
      {nullptr,
       "hermes",
       "",
       "<tool_call>{\"name\": </tool_call> x",
       "",
       "<tool_call>{\"name\": </tool_call> x",
       {}},
      {nullptr, "llama3_json", "",
       " {\"name\": \"f\", \"parameters\": {\"a\": 1, \"b\": \"x\"}}; {\"name\": \"g\", "
       "\"parameters\": {}}",
       "", "", two},
      {nullptr, "llama3_json", "",
       "<|python_tag|>{\"name\": \"f\", \"parameters\": {\"a\": 1, \"b\": \"x\"}}", "", "", one},
      {nullptr, "llama3_json", "", "{\"answer\": 4} is it", "", "{\"answer\": 4} is it", {}},
      {nullptr, "pythonic", "", "[f(a=1, b='x'), g()]", "", "", two},
      {nullptr, "pythonic", "", "[1, 2]", "", "[1, 2]", {}},
      {nullptr, "mistral", "",
       "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": \"x\"}}, {\"name\": \"g\", "
       "\"arguments\": {}}]",
       "", "", two},
      {nullptr, "mistral", "", "ok [TOOL_CALLS]f[ARGS]{\"a\": 1, \"b\": \"x\"}[TOOL_CALLS]g{}", "",
       "ok", two},
      {nullptr, "deepseek_v3", "",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1, "
       "\"b\": "
       "\"x\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
       "<｜tool▁calls▁end｜>",
       "", "", two},
      {nullptr, "kimi_k2", "",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"
       "\"a\": 1,"
       " \"b\": \"x\"}<|tool_call_end|><|tool_calls_section_end|>",
       "", "", one},
      {nullptr, "glm45", "",
       "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>b</arg_key>\n"
       "<arg_value>x</arg_value>\n</tool_call><tool_call>g\n</tool_call>",
       "", "", two},
      {nullptr, "qwen3_coder", "",
       "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\nx\n</parameter>\n"
       "</function>\n</tool_call>",
       "", "", one},
      {nullptr, "granite", "",
       "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": \"x\"}}]", "", "", one},
      {nullptr, "phi4_mini", "",
       "functools[{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": \"x\"}}]", "", "", one},
      {nullptr, "command", "",
       "<|START_ACTION|>[{\"tool_name\": \"f\", \"parameters\": {\"a\": 1, \"b\": "
       "\"x\"}}]<|END_ACTION|>",
       "", "", one},
      {nullptr, "command", "", "<|START_RESPONSE|>Four.<|END_RESPONSE|>", "", "Four.", {}},
      {nullptr,
       "command_r",
       "",
       "Action: ```json\n[{\"tool_name\": \"directly_answer\", \"parameters\": {}}]```",
       "",
       "",
       {}},
      {nullptr, "json", "",
       "[{\"name\": \"f\", \"parameters\": {\"a\": 1, \"b\": \"x\"}}, {\"name\": \"g\"}]", "", "",
       two},
  };
  for (const Example& e : examples) expect_at_every_split(e);
}

TEST(ChatOutput, TextWithoutCallsIsUnchanged) {
  for (const ToolFormat& format : tool_formats()) {
    if (format.markers.empty()) continue;
    for (const std::string text :
         {"plain", "a < b <tool <tool_cal", "<tool_call>{broken}</tool_call> after \n",
          "<tool_call>{\"name\": \"f\"", "<tool_call>[1]</tool_call>", " \n ", "[TOOL_CALLS",
          "{\"a\"", "[f(", "functools", "Action: ```json\nx", "<|tool_call|>",
          "<｜tool▁calls▁begin｜>"})
      expect_at_every_split({nullptr, std::string(format.name).c_str(), "", text, "", text, {}});
  }
}

}  // namespace
}  // namespace nereid::front
