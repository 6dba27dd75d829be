#include "front/output/tool_formats.h"

#include <gtest/gtest.h>

#include "front/output/reasoning_formats.h"
#include "front/output/tool_json.h"

namespace nereid::front {
namespace {

TEST(ToolFormats, ATemplateTeachesOne) {
  const std::pair<const char*, const char*> cases[] = {
      {"{{ '[TOOL_CALLS]' }}", "mistral"},        {"<tool_call><arg_key>", "glm45"},
      {"<tool_call>\n<function=", "qwen3_coder"}, {"<tool_call>", "hermes"},
      {"<|python_tag|>", "llama3_json"},          {"<|channel|>", "openai"},
      {"nothing of the kind", "hermes"},
  };
  for (const auto& [source, name] : cases) {
    const std::string_view text = source;
    const auto mentions = [&](std::string_view sign) { return text.find(sign) != text.npos; };
    EXPECT_EQ(tool_format_of_template(mentions)->name, name) << source;
  }
  const auto nothing = [](std::string_view) { return false; };
  EXPECT_EQ(reasoning_format_of_template(nothing), nullptr);
  const auto think = [](std::string_view sign) { return sign == "<think>" || sign == "</think>"; };
  EXPECT_EQ(reasoning_format_of_template(think)->name, "qwen3");
}

TEST(ToolFormats, TypesOfParametersComeFromTheRequest) {
  const json::value tools = *parse_json(
      R"([{"type": "function", "function": {"name": "f", "parameters":
          {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}}}])");
  const auto calls =
      read_qwen_coder("<function=f><parameter=a>1</parameter><parameter=b>2</parameter></function>",
                      &tools.get_array());
  ASSERT_TRUE(calls);
  EXPECT_EQ(calls->at(0).arguments, R"({"a":"1","b":2})");
  EXPECT_EQ(read_glm("f<arg_key>a</arg_key><arg_value>true</arg_value>", &tools.get_array())
                ->at(0)
                .arguments,
            R"({"a":"true"})");
}

TEST(ToolFormats, PythonLiterals) {
  const auto calls = read_pythonic(
      R"([a.b(x=-1.5, y=[True, None, (1, 2)], z={"k": 'it\'s', 'l': {}}, s="\n")])", nullptr);
  ASSERT_TRUE(calls);
  EXPECT_EQ(calls->at(0).name, "a.b");
  EXPECT_EQ(calls->at(0).arguments,
            R"({"x":-1.5,"y":[true,null,[1,2]],"z":{"k":"it's","l":{}},"s":"\n"})");
  for (const char* wrong : {"", "[", "[f]", "[f(]", "[f(a)]", "[f(a=)]", "[f(a=b)]", "[f()] x",
                            "[f(a='x)]", "[f(a={1: 2})]"})
    EXPECT_FALSE(read_pythonic(wrong, nullptr)) << wrong;
  const std::string deep = "[f(a=" + std::string(1000, '[') + std::string(1000, ']') + ")]";
  EXPECT_FALSE(read_pythonic(deep, nullptr));
}

TEST(ToolFormats, LengthsOfJson) {
  EXPECT_EQ(json_length(R"({"a": "}\""} x)"), 12u);
  EXPECT_EQ(json_length("[[1], 2]"), 8u);
  EXPECT_EQ(json_length("{"), 0u);
  EXPECT_EQ(json_length("x"), 0u);
  EXPECT_EQ(json_length("}"), 0u);
  // However the text is cut: escapes and all.
  const std::string_view text = R"({"a\"": [1, "\\"], "b": "\"}"}x)";
  JsonEnd end;
  for (size_t n = 0; n < text.size() - 1; ++n) EXPECT_EQ(end.find(text.substr(0, n)), 0u) << n;
  EXPECT_EQ(end.find(text.substr(0, text.size() - 1)), text.size() - 1);
  EXPECT_EQ(end.find(text), text.size() - 1);
}

}  // namespace
}  // namespace nereid::front
