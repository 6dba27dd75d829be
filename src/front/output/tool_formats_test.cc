#include "front/output/tool_formats.h"

#include <gtest/gtest.h>

#include "base/json_exact.h"
#include "front/output/reasoning_formats.h"
#include "front/output/tool_literal.h"
#include "front/output/tool_parser.h"

namespace nereid::front {
namespace {

// The arguments of the only call in a text, "none" without one.
std::string arguments(const char* format, std::string_view text,
                      const json::array* tools = nullptr) {
  ToolParser parser(*find_tool_format(format), tools);
  OutputPart out;
  parser.push(text, true, out);
  return out.calls.size() == 1 ? out.calls[0].arguments : "none";
}

TEST(ToolFormats, ATemplateTeachesOne) {
  const std::pair<const char*, const char*> cases[] = {
      {"{{ '[TOOL_CALLS]' }}", "mistral"},
      {"<tool_call><arg_key>", "glm45"},
      {"<tool_call>\n<function=", "qwen3_coder"},
      {"<seed:tool_call>\n<function=", "seed_oss"},
      {"<tool_call>", "hermes"},
      {"<function_calls>", "olmo3"},
      {"<|python_tag|>", "llama3_json"},
      {"{\"name\": function name, \"parameters\": dictionary", "llama3_json"},
      {"<|channel|>", "openai"},
      {"nothing of the kind", "hermes"},
      {"{{ tools }} in another way", "none"},
  };
  for (const auto& [source, name] : cases) {
    const std::string_view text = source;
    const auto mentions = [&](std::string_view sign) { return text.find(sign) != text.npos; };
    const ToolFormat* const format = tool_format_of_template(mentions);
    EXPECT_EQ(format ? format->name : "none", name) << source;
  }
  const auto nothing = [](std::string_view) { return false; };
  EXPECT_EQ(reasoning_format_of_template(nothing), nullptr);
  const auto think = [](std::string_view sign) { return sign == "<think>" || sign == "</think>"; };
  EXPECT_EQ(reasoning_format_of_template(think)->name, "qwen3");
}

// An opening marker within another would make the result depend on the division into pieces.
TEST(ToolFormats, OpeningMarksDoNotOverlap) {
  for (const ToolFormat& format : tool_formats())
    for (const ToolMarker& a : format.markers)
      for (const ToolMarker& b : format.markers)
        EXPECT_TRUE(&a == &b || a.open.find(b.open) == std::string_view::npos) << format.name;
}

TEST(ToolFormats, TypesOfParametersComeFromTheRequest) {
  const json::value tools = *parse_json_exact(R"([{"type": "function", "function": {"name": "f",
      "parameters": {"type": "object", "$defs": {"text": {"type": "string"},
        "loop": {"anyOf": [{"$ref": "#/$defs/loop"}, {"$ref": "#/$defs/loop"}]}},
      "allOf": [{"properties": {"deep": {"type": "string"}}}],
      "additionalProperties": {"type": "string"},
      "properties": {
        "text": {"type": "string"}, "number": {"type": "integer"}, "any": {},
        "optional": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "types": {"type": ["string", "null"]}, "one": {"oneOf": [{"type": "string"}]},
        "all": {"allOf": [{"type": "string"}, {}]}, "ref": {"$ref": "#/$defs/text"},
        "loop": {"$ref": "#/$defs/loop"}, "elsewhere": {"$ref": "http://x/y"},
        "words": {"enum": ["1", "2"]}, "values": {"enum": [1, "auto"]},
        "long": {"enum": [123456789012345678901, "auto"]},
        "or_auto": {"anyOf": [{"type": "integer"}, {"enum": ["auto"]}]}, "const": {"const": "1"},
        "nullable": {"type": "integer", "nullable": true}, "flag": {"type": "boolean"},
        "or_list": {"type": ["string", "array"]}, "either": {"type": ["string", "integer"]},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}}}])");
  const std::array<const char*, 3> cases[] = {
      {"text", "1", "\"1\""},
      {"text", "null", "\"null\""},
      {"text", "[1]", "\"[1]\""},
      {"text", " x\n", "\" x\\n\""},
      {"number", "1", "1"},
      {"number", "many", "\"many\""},
      {"number", "1e400", "\"1e400\""},
      {"number", "007", "\"007\""},
      {"number", "12345678901234567890123", "12345678901234567890123"},
      {"any", "1", "1"},
      {"any", "x", "\"x\""},
      {"optional", "1", "\"1\""},
      {"optional", "null", "null"},
      {"optional", "None", "\"None\""},
      {"types", "1", "\"1\""},
      {"types", "null", "null"},
      {"one", "1", "\"1\""},
      {"all", "1", "\"1\""},
      {"ref", "true", "\"true\""},
      {"loop", "1", "1"},
      {"elsewhere", "1", "1"},
      {"words", "1", "\"1\""},
      {"values", "1", "1"},
      {"values", "auto", "\"auto\""},
      {"values", "2", "\"2\""},
      {"long", "123456789012345678901", "123456789012345678901"},
      {"long", "123456789012345678902", "\"123456789012345678902\""},
      {"or_auto", "1", "1"},
      {"or_auto", "auto", "\"auto\""},
      {"words", "3", "\"3\""},
      {"const", "1", "\"1\""},
      {"nullable", "null", "null"},
      {"nullable", "1", "1"},
      {"flag", "True", "true"},
      {"or_list", "[\"a\"]", "[\"a\"]"},
      {"or_list", "1", "\"1\""},
      {"either", "1", "\"1\""},
      {"maybe", "1", "1"},
      {"maybe", "null", "null"},
      {"deep", "1", "\"1\""},
      {"unknown", "1", "\"1\""},
  };
  for (const auto& [key, value, want] : cases) {
    const std::string expected = fmt::format("{{\"{}\":{}}}", key, want);
    EXPECT_EQ(arguments("qwen3_coder",
                        fmt::format("<function=f>\n<parameter={}>\n{}\n</parameter>\n</function>",
                                    key, value),
                        &tools.get_array()),
              expected);
    EXPECT_EQ(arguments("glm45",
                        fmt::format("<tool_call>f\n<arg_key>{}</arg_key>\n<arg_value>{}</arg_value>"
                                    "\n</tool_call>",
                                    key, value),
                        &tools.get_array()),
              expected);
  }
}

TEST(ToolFormats, PythonLiterals) {
  EXPECT_EQ(
      arguments("pythonic",
                R"([a.b(x=-1.5, y=[True, None, (1, 2)], z={"k": 'it\'s', 'l': {}}, s="\n\d")])"),
      R"({"x":-1.5,"y":[true,null,[1,2]],"z":{"k":"it's","l":{}},"s":"\n\\d"})");
  EXPECT_EQ(arguments("pythonic", "[f(a='''it's\n''', b=\"\"\"\"\"\", c='')]"),
            R"({"a":"it's\n","b":"","c":""})");
  for (const char* wrong :
       {"", "[", "[f]", "[f(]", "[f(a)]", "[f(a=)]", "[f(a=b)]", "[f(a='x)]", "[f(a={1: 2})]"})
    EXPECT_EQ(arguments("pythonic", wrong), "none") << wrong;
  const std::string deep = "[f(a=" + std::string(1000, '[') + std::string(1000, ']') + ")]";
  EXPECT_EQ(arguments("pythonic", deep), "none");
}

TEST(ToolFormats, LiteralsBecomeJson) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"a": 1e999, "b": -0.5E+3})", R"({"a":"1e999","b":-0.5E+3})"},
      {R"({"a": 123456789012345678901})", R"({"a":123456789012345678901})"},
      {R"({"a": NaN, "b": -Infinity})", R"({"a":"NaN","b":"-Infinity"})"},
      {R"({"a": 007, "b": 0x1F, "c": 1_000, "d": +5, "e": .5, "f": 5.})",
       R"({"a":"007","b":"0x1F","c":"1_000","d":5,"e":0.5,"f":5.0})"},
      {R"({"a": True, "b": None, "c": [1,], })", R"({"a":true,"b":null,"c":[1]})"},
      {R"({"a": 1, "b": 2, "a": 3})", R"({"a":3,"b":2})"},
      {"{\"a\": \"x\ny\tz\"}", R"({"a":"x\ny\tz"})"},
      {R"({"a": "\u00e9\ud83d\ude00\ud83d\/"})", "{\"a\":\"é😀\uFFFD/\"}"},
      {"{\"a\": \"\xff\"}", "{\"a\":\"\uFFFD\"}"},
  };
  for (const auto& [text, want] : cases) {
    EXPECT_EQ(json_of(text).value_or("none"), want);
    EXPECT_TRUE(parse_json(want).ok()) << want;
  }
  for (const char* wrong : {"", "{", "{a: 1}", "[1 2]", "foo", "{\"a\": bar}", "1 2", "-", "\"x"})
    EXPECT_EQ(json_of(wrong).value_or("none"), "none") << wrong;
}

}  // namespace
}  // namespace nereid::front
