#include "front/openai/tool_calls.h"

#include <gtest/gtest.h>

namespace nereid::front {
namespace {

struct Result {
  std::string text;
  std::vector<ToolCall> calls;
};

Result parse(std::string_view all, size_t step) {
  ToolCallParser parser;
  Result out;
  for (size_t i = 0; i < all.size(); i += step) {
    auto o = parser.push(all.substr(i, step), false);
    out.text += o.text;
    for (auto& c : o.calls) out.calls.push_back(c);
  }
  auto o = parser.push("", true);
  out.text += o.text;
  for (auto& c : o.calls) out.calls.push_back(c);
  return out;
}

TEST(ToolCalls, EverySplitGivesTheSameResult) {
  const std::string text =
      "I look.\n<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1.5, \"s\": \"<tool_call>\"}}"
      "</tool_call>\n<tool_call>\n{\"name\": \"g\"}\n</tool_call>\n";
  for (size_t step = 1; step <= text.size(); ++step) {
    const Result r = parse(text, step);
    EXPECT_EQ(r.text, "I look.") << step;
    ASSERT_EQ(r.calls.size(), 2u) << step;
    EXPECT_EQ(r.calls[0].name, "f");
    EXPECT_EQ(r.calls[0].arguments, R"({"x":1.5,"s":"<tool_call>"})");
    EXPECT_EQ(r.calls[1].arguments, "{}");
  }
}

TEST(ToolCalls, TextWithoutCallsIsUnchanged) {
  for (const std::string text :
       {"plain", "a < b <tool <tool_cal", "<tool_call>{broken}</tool_call> after \n",
        "<tool_call>{\"name\": \"f\"", "<tool_call>[1]</tool_call>", " \n "}) {
    for (size_t step = 1; step <= text.size(); ++step) EXPECT_EQ(parse(text, step).text, text);
  }
}

}  // namespace
}  // namespace nereid::front
