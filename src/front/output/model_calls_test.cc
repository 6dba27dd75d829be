// Tool calls as models write them, in the formats of their templates and with their deviations.
#include <gtest/gtest.h>

#include "front/output/chat_output_fixture.h"

namespace nereid::front {
namespace {

using namespace testing_only;

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
      {nullptr,
       "kimi_k2",
       "",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"
       "\"a\": 1,"
       " \"b\": \"x\"}<|tool_call_end|><|tool_calls_section_end|>",
       "",
       "",
       {{"f", "{\"a\":1,\"b\":\"x\"}", "functions.f:0"}}},
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

// Deviations of models from their templates' formats.
TEST(ChatOutput, CallsAsModelsWriteThem) {
  const std::vector<ToolCall> f = {{"f", R"({"a":1,"b":"x"})"}};
  const std::vector<ToolCall> g = {{"g", "{}"}};
  const std::vector<ToolCall> both = {f[0], g[0]};
  struct Case {
    const char* format;
    std::string text, content;
    std::vector<ToolCall> calls;
  };
  const Case cases[] = {
      // The wrapper's opening marker, or both, are missing.
      {"qwen3_coder",
       "I look.\n\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\nx\n</parameter>\n"
       "</function>\n</tool_call>\n",
       "I look.", f},
      {"qwen3_coder", "<function=g>\n</function>", "", g},
      {"qwen3_coder", "<function=g></function><function=g></function> ok", " ok", {g[0], g[0]}},
      {"qwen3_coder",
       "Write <function=NAME> for a call, <tool_call> around.",
       "Write <function=NAME> for a call, <tool_call> around.",
       {}},
      {"qwen3_coder", "<function=other>\n</function>", "<function=other>\n</function>", {}},
      {"qwen3_coder",
       "<tool_call>\n<function=other>\n</function>\n</tool_call>",
       "",
       {{"other", "{}"}}},
      {"qwen3_coder", "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>", "", g},
      {"qwen3_coder", "<function=f>{\"a\": 1, \"b\": \"x\"}</function>", "", f},
      // End markers of parameters and functions are missing.
      {"qwen3_coder",
       "<tool_call>\n<function=f>\n<parameter=a>\n1\n<parameter=b>\nx\n</parameter>\n</function>\n"
       "</tool_call>",
       "", f},
      {"qwen3_coder",
       "<tool_call>\n<function=f>\n<parameter=a>1<parameter=b>x</parameter></function></tool_call>",
       "", f},
      {"qwen3_coder",
       "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\nx\n</function>\n"
       "</tool_call>",
       "", f},
      {"qwen3_coder",
       "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\nx\n</parameter>\n"
       "</tool_call>",
       "", f},
      {"qwen3_coder",
       "<tool_call>\n<function=f>\n<parameter=a>\n1\n",
       "<tool_call>\n<function=f>\n<parameter=a>\n1\n",
       {}},
      // A value contains markers.
      {"qwen3_coder",
       "<tool_call>\n<function=f>\n<parameter=b>\n<parameter=q>\n</parameter> x </function> y "
       "</tool_call>\n</parameter>\n</function>\n</tool_call>",
       "",
       {{"f", R"({"b":"<parameter=q>\n</parameter> x </function> y </tool_call>"})"}}},
      {"qwen3_coder",
       "<tool_call><function=f><parameter=b>x</function></tool_call>",
       "",
       {{"f", R"({"b":"x"})"}}},
      {"seed_oss",
       "<seed:tool_call>\n<function=f>\n<parameter=a>1</parameter>\n<parameter=b>x</parameter>\n"
       "</function>\n</seed:tool_call>",
       "", f},
      {"minimax_m2",
       "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">1</parameter>\n<parameter "
       "name=\"b\">x</parameter>\n</invoke>\n<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>",
       "", both},
      {"deepseek_v32",
       "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" "
       "string=\"false\">1</｜DSML｜parameter>\n<｜DSML｜parameter name=\"b\" "
       "string=\"true\">x</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
       "", f},
      {"glm45",
       "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value><arg_key>b</arg_key><arg_value>x"
       "</arg_value></tool_call>",
       "", f},
      {"glm45",
       "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1\n<arg_key>b</arg_key>\n"
       "<arg_value>x</arg_value>\n</tool_call>",
       "", f},
      {"glm45", "The tag <tool_call> begins a call.", "The tag <tool_call> begins a call.", {}},
      {"glm45", "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>", "", g},
      {"deepseek_v3",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"b\": "
       "\"```json\\n{}\\n```\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "",
       {{"f", R"({"b":"```json\n{}\n```"})"}}},
      {"deepseek_v3",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"b\": "
       "\"```sh\\n```\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "",
       {{"f", R"({"b":"```sh\n```"})"}}},
      {"deepseek_v3",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>g<｜tool▁sep｜><｜tool▁call▁end｜><"
       "｜tool▁calls▁end｜>",
       "", g},
      {"deepseek_v3",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n\n```<"
       "｜tool▁call▁"
       "end｜><｜tool▁calls▁end｜>",
       "", g},
      {"deepseek_v3", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>g<｜tool▁call▁end｜>", "", g},
      {"kimi_k2",
       "<|tool_call_begin|>functions.g:7<|tool_call_end|><|tool_calls_section_end|>",
       "",
       {{"g", "{}", "functions.g:7"}}},
      {"kimi_k2",
       "<|tool_calls_section_begin|><|tool_call_begin|>g<|tool_call_argument_begin|><|tool_call_"
       "end|>"
       "<|tool_calls_section_end|>",
       "", g},
      {"mistral",
       "[TOOL_CALLS]f[CALL_ID]abcDEF123[ARGS]{\"a\": 1, \"b\": \"x\"}",
       "",
       {{"f", f[0].arguments, "abcDEF123"}}},
      {"mistral",
       "[TOOL_CALLS] [{\"name\": \"g\", \"arguments\": {}, \"id\": \"abcDEF123\"}]",
       "",
       {{"g", "{}", "abcDEF123"}}},
      // The answer ends behind the arguments, but not within them.
      {"mistral", "[TOOL_CALLS][{\"name\": \"g\", \"arguments\": {}}", "", g},
      {"kimi_k2",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.g:0<|tool_call_argument_begin|>{}",
       "",
       {{"g", "{}", "functions.g:0"}}},
      {"kimi_k2",
       "<|tool_call_begin|>functions.g:0<|tool_call_argument_begin|>{",
       "<|tool_call_begin|>functions.g:0<|tool_call_argument_begin|>{",
       {}},
      {"deepseek_v3", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}", "", g},
      {"deepseek_v3", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```", "", g},
      // Arguments that are null, or a string.
      {"deepseek_v3", "<｜tool▁call▁begin｜>g<｜tool▁sep｜>null<｜tool▁call▁end｜>", "", g},
      {"deepseek_v3",
       "<｜tool▁call▁begin｜>f<｜tool▁sep｜>\"{\\\"a\\\": 1, \\\"b\\\": "
       "\\\"x\\\"}\"<｜tool▁call▁end｜>",
       "", f},
      {"kimi_k2", "<|tool_call_begin|>g<|tool_call_argument_begin|>null<|tool_call_end|>", "", g},
      {"kimi_k2",
       "<|tool_call_begin|>f<|tool_call_argument_begin|>\"{\\\"a\\\": 1, \\\"b\\\": \\\"x\\\"}\""
       "<|tool_call_end|>",
       "", f},
      // A duplicate opening marker.
      {"hermes", "<tool_call>\n<tool_call>{\"name\": \"g\"}</tool_call></tool_call>", "", g},
      {"hermes", "Two <tool_call> <tool_call> tags", "Two <tool_call> <tool_call> tags", {}},
      {"qwen3_coder", "<tool_call>\n<tool_call>\n<function=g>\n</function>\n</tool_call>", "", g},
      {"kimi_k2",
       "<|tool_calls_section_begin|><|tool_calls_section_begin|><|tool_call_begin|>g"
       "<|tool_call_end|><|tool_calls_section_end|>",
       "", g},
      // Closing markers and braces are missing.
      {"hermes",
       "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": \"x\"}\n</tool_call>\n"
       "<tool_call>{\"name\": \"g\"}\n<tool_call>{\"name\": \"g\"}",
       "",
       {f[0], g[0], g[0]}},
      {"hermes", "<tool_call>{\"name\": \"g\"}}</tool_call> ok", " ok", g},
      {"hermes", "<tool_call>{\"name\": \"g\"}\n{\"name\": \"g\"}</tool_call>", "", {g[0], g[0]}},
      {"hermes", "<tool_call>{\"name\": \"g\", \"arguments\": \"\"}</tool_call>", "", g},
      {"hermes",
       "<tool_call>{\"type\": \"function\", \"function\": {\"name\": \"g\", \"arguments\": "
       "null}}</tool_call>",
       "", g},
      {"hermes", "<tool_call>{'name': 'f', 'arguments': {'a': 1, 'b': 'x',},}</tool_call>", "", f},
      {"hermes", "The tag <tool_call> begins a call.", "The tag <tool_call> begins a call.", {}},
      // An answer in JSON that is no call.
      {"llama3_json", "{\"name\": \"Ann\", \"age\": 5}", "{\"name\": \"Ann\", \"age\": 5}", {}},
      {"llama3_json", "{\"name\": \"g\", \"age\": 5}", "{\"name\": \"g\", \"age\": 5}", {}},
      {"llama3_json", "{\"type\": \"function\", \"name\": \"g\", \"parameters\": {}} and text",
       " and text", g},
      {"llama3_json", "<|python_tag|>f.call(a=1, b=\"x\")", "", f},
      {"llama3_json", "<|python_tag|>print(1)", "<|python_tag|>print(1)", {}},
      {"json", "```json\n[{\"name\": \"g\", \"arguments\": {}}]\n```", "", g},
      {"json", "```json\n{\"answer\": 42}\n```", "```json\n{\"answer\": 42}\n```", {}},
      {"pythonic", "[1] First line.", "[1] First line.", {}},
      {"pythonic", "[Note: f(a=1)] x", "[Note: f(a=1)] x", {}},
      {"pythonic", "<|python_start|>[f(a=1, b='x'), g()]<|python_end|>", "", both},
      {"olmo3", "<function_calls>\nf(a=1, b=\"x\")\ng()\n</function_calls>", "", both},
      {"olmo3",
       "<function_calls>f(a=1, b=\"</function_calls>\")</function_calls>",
       "",
       {{"f", R"({"a":1,"b":"</function_calls>"})"}}},
      {"granite", "<tool_call>[{\"name\": \"g\", \"arguments\": {}}]</tool_call>", "", g},
      {"granite", "<|tool_call|>[{\"name\": \"g\", \"arguments\": {}}] x", " x", g},
      {"phi4_mini", "<|tool_call|>[{\"name\": \"g\", \"arguments\": {}}]<|/tool_call|>", "", g},
      {"tool_calls",
       "<tool_calls>\n{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": \"x\"}}\n{\"name\": "
       "\"g\", \"arguments\": {}}\n</tool_calls>",
       "", both},
      {"nemotron", "<TOOLCALL>[{\"name\": \"g\", \"arguments\": {}}]</TOOLCALL>", "", g},
      {"internlm",
       "x<|action_start|><|plugin|>\n{\"name\": \"g\", \"parameters\": {}}<|action_end|>\n", "x",
       g},
      {"apertus",
       "<|tools_prefix|>[{\"f\": {\"a\": 1, \"b\": \"x\"}}, {\"g\": {}}]<|tools_suffix|>", "",
       both},
      {"command",
       "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"g\", \"parameters\": "
       "{}}\n]<|END_ACTION|>",
       "", g},
      {"command_r", "Action:\n```json\n[{\"tool_name\": \"g\", \"parameters\": {}}]```", "", g},
      // A code block within the markers.
      {"hermes",
       "<tool_call>\n```json\n{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": \"x\"}}\n```\n"
       "</tool_call>\n<tool_call>```\n{\"name\": \"g\"}```</tool_call>",
       "", both},
      {"hermes", "<tool_call>```json\n{\"name\": \"g\"}\n</tool_call> ok", " ok", g},
      {"hermes", "<tool_call>```json\n{\"name\": \"g\"}", "", g},
      {"hermes",
       "<tool_call>```json\n{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": "
       "\"x\"}\n```</tool_call>",
       "", f},
      {"hermes",
       "The tag `<tool_call>` with ```json\n{}\n``` in it.",
       "The tag `<tool_call>` with ```json\n{}\n``` in it.",
       {}},
      {"qwen3_coder", "<tool_call>\n```json\n{\"name\": \"g\"}\n```\n</tool_call>", "", g},
      {"glm45", "<tool_call>```json\n{\"name\": \"g\"}\n```</tool_call>", "", g},
      {"mistral", "[TOOL_CALLS]```json\n[{\"name\": \"g\"}]\n```", "", g},
      {"kimi_k2",
       "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>```json\n{\"a\": 1, \"b\": "
       "\"x\"}\n```<|tool_call_end|>",
       "",
       {{"f", f[0].arguments, "functions.f:0"}}},
      // No object for a tool without arguments.
      {"mistral", "[TOOL_CALLS]g[ARGS]", "", g},
      {"mistral",
       "[TOOL_CALLS]g[ARGS]\n[TOOL_CALLS]f[ARGS]{\"a\": 1, \"b\": \"x\"}",
       "",
       {g[0], f[0]}},
      {"mistral",
       "[TOOL_CALLS]g[CALL_ID]abcdefghi[ARGS][TOOL_CALLS]g{}",
       "",
       {{"g", "{}", "abcdefghi"}, g[0]}},
      {"mistral", "[TOOL_CALLS]g", "[TOOL_CALLS]g", {}},
      {"mistral", "[TOOL_CALLS]g[ARGS] is", "[TOOL_CALLS]g[ARGS] is", {}},
      // The marker behind the name is missing.
      {"deepseek_v3",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f{\"a\": 1, \"b\": \"x\"}<｜tool▁call▁end｜>"
       "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "", both},
      {"deepseek_v3",
       "<｜tool▁call▁begin｜>f\n```json\n{\"a\": 1, \"b\": \"x\"}\n```<｜tool▁call▁end｜>", "", f},
      {"deepseek_v3", "<｜tool▁call▁begin｜>g<｜tool▁call▁end｜>", "", g},
      {"deepseek_v3",
       "<｜tool▁call▁begin｜> and <｜tool▁call▁end｜> stand around a call.",
       "<｜tool▁call▁begin｜> and <｜tool▁call▁end｜> stand around a call.",
       {}},
      // A truncated list: its complete calls are calls.
      {"mistral", "[TOOL_CALLS][{\"name\": \"g\", \"arguments\": {}}, {\"name\": \"f\", \"argu",
       ", {\"name\": \"f\", \"argu", g},
      {"granite", "<|tool_call|>[{\"name\": \"g\", \"arguments\": {}}, {\"name\": \"f\", \"argu",
       ", {\"name\": \"f\", \"argu", g},
      {"apertus", "<|tools_prefix|>[{\"g\": {}}, {\"f\": {\"a\":", "}, {\"f\": {\"a\":", g},
      {"json", "[{\"name\": \"g\"}, {\"name\": \"f\",", ", {\"name\": \"f\",", g},
      {"pythonic", "[g(), f(a=1, b='", ", f(a=1, b='", g},
      {"olmo3", "<function_calls>\ng()\nf(a=1, b='", "\nf(a=1, b='", g},
      {"chatglm", "f\n{\"a\": 1, \"b\": \"x\"}", "", f},
      {"chatglm", "find it", "find it", {}},
      {"chatglm", "你好", "你好", {}},
  };
  for (const Case& c : cases)
    expect_at_every_split(
        {nullptr, c.format, "", c.text, "", c.content, c.calls, {}, &known_tools()});
}

// In an answer cut by a limit the missing arguments may have followed.
TEST(ChatOutput, ACallThatIsCutIsNoCallWithoutArguments) {
  const std::string text = "[TOOL_CALLS]g[ARGS]";
  for (const size_t step : {size_t{1}, text.size()}) {
    const auto make = [] {
      return ChatOutput(nullptr, find_tool_format("mistral"), &known_tools(), "");
    };
    EXPECT_EQ(read(make(), text, step, /*is_cut=*/true).text, text);
    EXPECT_EQ(read(make(), text, step).calls.size(), 1u);
  }
}

// Calls in unclosed reasoning.
TEST(ChatOutput, CallsEndReasoningThatIsNotClosed) {
  const std::string hermes = "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";
  const std::string kimi =
      "<|tool_calls_section_begin|><|tool_call_begin|>functions.g:0<|tool_call_argument_begin|>{}"
      "<|tool_call_end|><|tool_calls_section_end|>";
  const std::string deepseek =
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
      "<｜tool▁calls▁end｜>";
  const std::vector<ToolCall> g = {{"g", "{}"}}, kimi_g = {{"g", "{}", "functions.g:0"}};
  struct Case {
    const char *reasoning_format, *format;
    std::string text, reasoning, content;
    std::vector<ToolCall> calls;
  };
  const Case cases[] = {
      // Plain-text markers: only calls at the answer's end.
      {"qwen3", "hermes", "I look.\n\n" + hermes + "\n", "I look.", "", g},
      {"qwen3", "hermes", hermes + "\n" + hermes, "", "", {g[0], g[0]}},
      {"qwen3", "hermes", "A <tool_call> is " + hermes + " or " + hermes,
       "A <tool_call> is " + hermes + " or", "", g},
      {"qwen3",
       "hermes",
       "I may write " + hermes + " or not.",
       "I may write " + hermes + " or not.",
       "",
       {}},
      {"qwen3", "hermes", "I write " + hermes + "\n</think>\n\n" + hermes, "I write " + hermes, "",
       g},
      {"qwen3", "hermes", "I write " + hermes + "</think>Four.", "I write " + hermes, "Four.", {}},
      {"qwen3",
       "hermes",
       "a <tool_call>{\"name\": \"g\", \"arg",
       "a <tool_call>{\"name\": \"g\", \"arg",
       "",
       {}},
      {"qwen3",
       "hermes",
       "a <tool_call>{\"name\": \"</think>\"}</tool_call>",
       "a <tool_call>{\"name\": \"",
       "\"}</tool_call>",
       {}},
      {"qwen3", "hermes", "I look. " + hermes + "<tool_call>{\"name\": \"f\", \"arg", "I look.",
       "<tool_call>{\"name\": \"f\", \"arg", g},
      {"qwen3",
       "hermes",
       "A <tool_call>{\"name\": \"other\"}</tool_call>",
       "A <tool_call>{\"name\": \"other\"}</tool_call>",
       "",
       {}},
      {"qwen3", "hermes", "ab <tool_c", "ab <tool_c", "", {}},
      {"qwen3", "qwen3_coder", "I look. <tool_call>\n<function=g>\n</function>\n</tool_call>",
       "I look.", "", g},
      {"deepseek_r1", "glm45", "I look.<tool_call>g\n</tool_call>", "I look.", "", g},
      {"deepseek_r1", "llama3_json", "{\"name\": \"g\"}", "{\"name\": \"g\"}", "", {}},
      // Control tokens: any complete call.
      {"qwen3", "kimi_k2", "I look. " + kimi, "I look.", "", kimi_g},
      {"qwen3", "kimi_k2", "I look. " + kimi + "</think>", "I look.", "", kimi_g},
      {"qwen3", "kimi_k2", "I look. " + kimi + "\n</think>\n\nI have looked.", "I look.",
       "I have looked.", kimi_g},
      {"qwen3", "kimi_k2", "I look. " + kimi + "</thin", "I look.", "</thin", kimi_g},
      {"qwen3", "kimi_k2", "I look. " + kimi + " Done.", "I look.", " Done.", kimi_g},
      {"qwen3",
       "kimi_k2",
       "The mark <|tool_calls_section_begin|> begins calls.</think>Yes",
       "The mark <|tool_calls_section_begin|> begins calls.",
       "Yes",
       {}},
      {"qwen3", "kimi_k2", "The mark <|tool_calls_section_begin|> begins " + kimi,
       "The mark <|tool_calls_section_begin|> begins", "", kimi_g},
      {"qwen3",
       "kimi_k2",
       "<|tool_call_begin|>functions.f:1<|tool_call_argument_begin|>{\"b\": "
       "\"</think>\"}<|tool_call_end|>",
       "",
       "",
       {{"f", "{\"b\":\"</think>\"}", "functions.f:1"}}},
      {"deepseek_r1", "deepseek_v3", "I look." + deepseek, "I look.", "", g},
      {"mistral", "mistral", "I look.[TOOL_CALLS]g[ARGS]", "I look.", "", g},
  };
  for (const Case& c : cases) {
    const ReasoningFormat& format = *find_reasoning_format(c.reasoning_format);
    const std::string open(format.open);
    expect_at_every_split({c.reasoning_format,
                           c.format,
                           open.c_str(),
                           c.text,
                           c.reasoning,
                           c.content,
                           c.calls,
                           {},
                           &known_tools()});
  }
}

// Reasoning cut by a limit may be quoting the call.
TEST(ChatOutput, CallsInReasoningThatIsCutAreNone) {
  const std::string text = R"(I may write <tool_call>{"name": "g"}</tool_call>)";
  for (const size_t step : {size_t{1}, text.size()}) {
    const auto make = [] {
      return ChatOutput(find_reasoning_format("qwen3"), find_tool_format("hermes"), nullptr,
                        "<think>");
    };
    EXPECT_EQ(read(make(), text, step, /*is_cut=*/true).reasoning, text);
    EXPECT_EQ(read(make(), text, step).calls.size(), 1u);
  }
}

}  // namespace
}  // namespace nereid::front
