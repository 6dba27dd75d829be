// Reasoning, channels, guides and plain text of answers, cut at every place.
#include <gtest/gtest.h>

#include "front/output/chat_output_fixture.h"

namespace nereid::front {
namespace {

using namespace testing_only;

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
       {{"f", "{\"a\":1}"}}},
      {"gpt_oss", "openai", "", " to=functions.g<|message|>{\"a\": 1<|call|>", "", "{\"a\": 1", {}},
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
      {"gpt_oss",
       "openai",
       "",
       std::string(1500, 'x') + "<|channel|>final",
       "",
       std::string(1500, 'x') + "final",
       {}},
  };
  for (const Example& e : examples) expect_at_every_split(e);
}

// The grammar applies behind the marker of the final channel.
TEST(ChatOutput, HarmonyBeforeAGuide) {
  const std::string prompt = "<|end|><|start|>assistant";
  const std::string thoughts =
      "<|channel|>analysis<|message|>I <|channel|>look.<|end|><|start|>assistant<|channel|>final<|"
      "message|>";
  const GrammarAnswer text = {GrammarAnswer::To::kText}, calls = {GrammarAnswer::To::kCalls};
  const Example examples[] = {
      {"gpt_oss",
       nullptr,
       prompt.c_str(),
       thoughts + "{\"a\": \"<|end|>\"}",
       "I <|channel|>look.",
       "{\"a\": \"<|end|>\"}",
       {},
       text},
      {"gpt_oss",
       nullptr,
       prompt.c_str(),
       thoughts + "[{\"name\": \"f\", \"parameters\": {}}]",
       "I <|channel|>look.",
       "",
       {{"f", "{}"}},
       calls},
      {"gpt_oss", nullptr, prompt.c_str(), "{\"a\": 1}", "", "{\"a\": 1}", {}, text},
      {"gpt_oss",
       nullptr,
       prompt.c_str(),
       "<|channel|>analysis<|message|>I look",
       "I look",
       "",
       {},
       text},
      {"gpt_oss",
       nullptr,
       "<|end|><|start|>assistant<|channel|>final<|message|>",
       "{}",
       "",
       "{}",
       {},
       text},
  };
  for (const Example& e : examples) expect_at_every_split(e);
}

TEST(ChatOutput, CallsBehindControlTokensAreNotHeldBack) {
  ChatOutput output(find_reasoning_format("qwen3"), find_tool_format("kimi_k2"), nullptr,
                    "<think>");
  EXPECT_EQ(output.push("I look. ", false).reasoning, "I look.");
  EXPECT_EQ(output.push("<|tool_call_begin|>functions.g:0<|tool_call_argument_begin|>{}", false)
                .calls.size(),
            0u);
  EXPECT_EQ(output.push("<|tool_call_end|>", false).calls.size(), 1u);
}

// Reasoning with many texts that look like calls is read in linear time.
TEST(ChatOutput, ReasoningAboutCallsIsReadInLinearTime) {
  std::string text = "I ";
  for (int i = 0; i < 20'000; ++i) text += "<tool_call>{\"name\": \"g\"}</tool_call>";
  text += " do not.";
  const OutputPart got = read(
      {find_reasoning_format("qwen3"), find_tool_format("hermes"), nullptr, "<think>"}, text, 7);
  EXPECT_EQ(got.reasoning, text);
}

TEST(ChatOutput, WantedCallsComeAsTheyAreMade) {
  const GrammarAnswer calls = {GrammarAnswer::To::kCalls}, of_f = {GrammarAnswer::To::kCalls, "f"};
  const std::string first = R"([{"name": "f", "parameters": {"a": [1, {"b": "}]\""}]}})";
  const std::string all = first + R"(, {"name":"g","parameters":{}} ] )";
  const ToolCall f = {"f", R"({"a": [1, {"b": "}]\""}]})"}, g = {"g", "{}"};
  const Example examples[] = {
      {nullptr, nullptr, "", all, "", "", {f, g}, calls},
      {"qwen3", nullptr, "", "<think>hm [{</think>\n" + all, "hm [{", "", {f, g}, calls},
      // Cut by a limit: complete calls, and the arguments so far of the incomplete one.
      {nullptr,
       nullptr,
       "",
       first.substr(0, first.size() - 6),
       "",
       "",
       {{"f", R"({"a": [1, {"b": "}]\)"}},
       calls},
      {nullptr, nullptr, "", first + ", ", "", "", {f}, calls},
      {nullptr, nullptr, "", first + R"(, {"name": "g)", "", "", {f}, calls},
      {nullptr, nullptr, "", first + R"(, {"name": "g", "para)", "", "", {f, {"g", ""}}, calls},
      {nullptr,
       nullptr,
       "",
       first + R"(, {"name": "g", "parameters":)",
       "",
       "",
       {f, {"g", ""}},
       calls},
      {nullptr, nullptr, "", "[{\"na", "", "", {}, calls},
      // The arguments of one tool.
      {nullptr, nullptr, "", "{\"a\": 1}", "", "", {{"f", "{\"a\": 1}"}}, of_f},
      {nullptr, nullptr, "", "{\"a\": ", "", "", {{"f", "{\"a\": "}}, of_f},
      {"qwen3", nullptr, "", "<think>hm", "hm", "", {}, of_f},
      // Text that no grammar allows.
      {nullptr, nullptr, "", "No.", "", "No.", {}, calls},
      {nullptr, nullptr, "", "[{\"a\": 1}]", "", "{\"a\": 1}]", {}, calls},
      {nullptr, nullptr, "", all + "more", "", "more", {f, g}, calls},
  };
  for (const Example& e : examples) expect_at_every_split(e);
  ChatOutput output(nullptr, nullptr, nullptr, "", calls);
  EXPECT_TRUE(output.push(R"([{"name": "f")", false).calls.empty());
  const OutputPart begin = output.push(R"(, "parameters": {"a": )", false);
  ASSERT_EQ(begin.calls.size(), 1u);
  EXPECT_EQ(begin.calls[0].name, "f");
  EXPECT_EQ(begin.calls[0].arguments, "{\"a\": ");
  EXPECT_TRUE(output.has_open_call());
  const OutputPart more = output.push("1}}, {", false);
  ASSERT_EQ(more.calls.size(), 1u);
  EXPECT_EQ(more.calls[0].name, "") << "a part of the call before";
  EXPECT_EQ(more.calls[0].arguments, "1}");
  EXPECT_FALSE(output.has_open_call());
}

// Text that is certainly no call is not held back until the end.
TEST(ChatOutput, AnswersThatBeginLikeCallsFlow) {
  const std::pair<const char*, const char*> cases[] = {
      {"llama3_json", "{\"answer\": 42} and"},
      {"llama3_json", "{\"answer\": \"a long"},
      {"llama3_json", "{\"name\": \"Ann\", "},
      {"json", "[{\"step\": 1"},
      {"json", "[1, 2"},
      {"json", "```json\n{\"answer\":"},
      {"pythonic", "[1] First"},
      {"pythonic", "[See the"},
      {"hermes", "The tag <tool_call> begins"},
      {"hermes", "<tool_call>{\"name\" is"},
      {"qwen3_coder", "<tool_call> begins"},
      {"qwen3_coder", "<function=f> is"},
      {"glm45", "<tool_call>f is"},
      {"mistral", "[TOOL_CALLS] are"},
      {"olmo3", "<function_calls> are"},
      {"kimi_k2", "<|tool_calls_section_begin|> x"},
      {"chatglm", "First line."},
  };
  for (const auto& [format, text] : cases) {
    ChatOutput output(nullptr, find_tool_format(format), &known_tools(), "");
    const std::string with_more = std::string(text) + " more";
    std::string got;
    for (const char c : with_more) got += output.push(std::string_view(&c, 1), false).text;
    EXPECT_EQ(got, with_more) << format;
  }
}

TEST(ChatOutput, LongTextsAreReadInLinearTime) {
  const std::string value(120'000, ')');
  for (const std::string& text :
       {"<tool_call>{\"name\": \"f\", \"arguments\": {\"b\": \"" + value + "\"}}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"b\": \"" + value + value + "\"}}"}) {
    const bool is_call = text.size() < (128 << 10);
    const OutputPart got = read({nullptr, find_tool_format("hermes"), nullptr, ""}, text, 1);
    EXPECT_EQ(got.calls.size(), is_call);
    EXPECT_EQ(got.text, is_call ? "" : text);
  }
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
