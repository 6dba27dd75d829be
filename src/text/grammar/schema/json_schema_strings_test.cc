// Strings of JSON Schema: patterns, formats, lengths.
#include <gmock/gmock.h>

#include "text/grammar/grammar_test_util.h"

namespace nereid::text {
namespace {

using ::testing::HasSubstr;

TEST(JsonSchemaStrings, PatternsFormatsLengths) {
  expect_schemas({
      // A format that needs too many states for all lengths allows shorter texts only.
      {R"x({"type": "string", "format": "email", "maxLength": 1024})x",
       {"\"ab@c.de\""},
       {"\"ab\""}},
      // Anchors within groups, edges of words, escapes.
      {R"x({"type": "string", "pattern": "(^a$)|(^b+$)"})x",
       {"\"a\"", "\"bb\""},
       {"\"ab\"", "\"xa\"", "\"\""}},
      {R"x({"type": "string", "pattern": "((^|,)x(,|$))"})x",
       {"\"x\"", "\"a,x\"", "\"x,b\""},
       {"\"ax\"", "\"xx\"", "\"\""}},
      {R"x({"type": "string", "pattern": "^(?:[a-z]+(?:$|\\.))+$"})x",
       {"\"ab\"", "\"a.b\"", "\"a.\""},
       {"\".\"", "\"\""}},
      {R"x({"type": "string", "pattern": "\\bcat\\b"})x",
       {"\"cat\"", "\"a cat.\"", "\"-cat \""},
       {"\"cats\"", "\"concat\"", "\"_cat\""}},
      {R"x({"type": "string", "pattern": "^a\\Bb\\b$", "maxLength": 9})x",
       {"\"ab\""},
       {"\"a\"", "\"a b\""}},
      {R"x({"type": "string", "pattern": "\\A[\\w-.]+\\_{1}\\Z"})x",
       {"\"a-._\""},
       {"\"a\"", "\"a_b\""}},
      {R"x({"type": "string", "pattern": "^(?!ab|[)]$)(?=.*[a-c])[a-z)]+$"})x",
       {"\"ba\"", "\"a\"", "\"))a\""},
       {"\"ab\"", "\"abc\"", "\")\"", "\"x\""}},
      {R"x({"type": "string", "pattern": "^/{id}$"})x", {"\"/{id}\""}, {"\"/id\""}},
      {R"x({"patternProperties": {"(^x$|^y)": {"type": "null"}}, "additionalProperties": false, "type": "object"})x",
       {R"({"x":null})", R"({"yz":null})"},
       {R"({"xy":null})", R"({"x":1})"}},
      // Formats: an unknown one has no effect.
      {R"x({"type": "string", "format": "color"})x", {"\"red\""}, {"1"}},
      {R"x({"type": "string", "format": "regex"})x",
       {"\"^(ab|c)*[a-z]+\\\\d$\"", "\"\""},
       {"\"(\"", "\"[\"", "\"*\"", "\"a\\\\\""}},
      {R"x({"type": "string", "format": "regex", "not": {"const": "a"}})x",
       {"\"b\"", "\"a+\""},
       {"\"a\"", "\"+\""}},
      {R"x({"type": ["string", "integer"], "format": "date", "maximum": 3})x",
       {"3", "\"2024-02-29\""},
       {"4", "\"2023-02-29\""}},
      {R"x({"type": "string", "format": "time"})x",
       {"\"10:00:00Z\"", "\"23:59:59.25-08:30\""},
       {"\"24:00:00Z\"", "\"10:00:00\"", "\"10:00Z\""}},
      {R"x({"type": "string", "format": "hostname"})x",
       {"\"a.example\"", "\"a-b\""},
       {"\"\"", "\"-a\"", "\"a..b\""}},
      {R"x({"type": "string", "format": "uri-reference"})x",
       {"\"/a?b\"", "\"#c\"", "\"http://[::1]/\"", "\"\""},
       {"\"a b\"", "\"%zz\""}},
      {R"x({"type": "string", "format": "json-pointer"})x",
       {"\"\"", "\"/a~0b/~1\""},
       {"\"a\"", "\"/~2\""}},
      {R"x({"type": "string", "format": "relative-json-pointer"})x",
       {"\"0#\"", "\"12/a\""},
       {"\"/a\"", "\"01#\""}},
      // Formats and patterns with lengths and with each other.
      {R"x({"type": "string", "format": "ipv4", "pattern": "^10\\.", "maxLength": 8})x",
       {"\"10.0.0.1\""},
       {"\"11.0.0.1\"", "\"10.0.0.10\""}},
      {R"x({"type": "string", "allOf": [{"pattern": "^a"}, {"pattern": "b$"}, {"minLength": 3}]})x",
       {"\"acb\"", "\"aab\""},
       {"\"ab\"", "\"bca\""}},
      {R"x({"type": "string", "pattern": "^\\d+$", "minLength": 2, "maxLength": 3})x",
       {"\"12\"", "\"123\""},
       {"\"1\"", "\"1234\"", "\"ab\""}},
      // One format is not the opposite of another one that it may be of.
      {R"x({"type": "string", "not": {"format": "ipv4"}})x", {"\"a\"", "\"::\""}, {"\"10.0.0.1\""}},
      {R"x({"type": "string", "not": {"format": "email"}})x", {"\"a\""}, {"\"a@b.example\""}},
      {R"x({"oneOf": [{"type": "string", "format": "ipv4"}, {"type": "string", "format": "ipv6"}, {"type": "string", "format": "hostname", "maxLength": 3}]})x",
       {"\"10.0.0.1\"", "\"::1\"", "\"abc\""},
       {"\"abcd\""}},
      // Anchors that no place can be, in one of several alternatives.
      {R"x({"type": "string", "pattern": "(a^b)|c"})x", {"\"c\"", "\"xcx\""}, {"\"ab\"", "\"\""}},
      {R"x({"type": "string", "pattern": "^(a|$)"})x", {"\"\"", "\"ab\""}, {"\"b\""}},
      {R"x({"type": "string", "pattern": "(?:^|[^0-9])7(?:[^0-9]|$)"})x",
       {"\"7\"", "\"a7\"", "\"x 7 y\""},
       {"\"77\"", "\"17\"", "\"\""}},
      {R"x({"type": "string", "pattern": "^.*\\b(yes|no)\\b.*$", "minLength": 4})x",
       {"\"yes!\"", "\"oh no\""},
       {"\"no\"", "\"noon\"", "\"yes\\n\""}},
      {R"x({"type": "string", "pattern": "^(?!.*--)[a-z-]+$"})x",
       {"\"a-b\"", "\"-\""},
       {"\"a--b\"", "\"\""}},
      {R"x({"type": "string", "pattern": "^(?=.{3,5}$)a*$"})x",
       {"\"aaa\"", "\"aaaaa\""},
       {"\"aa\"", "\"aaaaaa\""}},
      {R"x({"type": "object", "propertyNames": {"format": "date"}, "additionalProperties": {"type": "null"}})x",
       {"{}", R"({"2024-01-31":null})"},
       {R"({"2024-01-32":null})", R"({"2024-01-31":1})"}},
      {R"x({"type": "object", "propertyNames": {"anyOf": [{"enum": ["a", "b"]}, {"pattern": "^x", "maxLength": 2}]}})x",
       {R"({"a":1,"xy":2})"},
       {R"({"c":1})", R"({"xyz":1})"}},
      {R"x({"type": "object", "properties": {"ab": {}}, "patternProperties": {"^a": {"type": "integer"}, "^.b": {"minimum": 3}}, "propertyNames": {"maxLength": 2}, "additionalProperties": false})x",
       {"{}", R"({"ab":3})", R"({"a":1})", R"({"cb":"x"})"},
       {R"({"ab":2})", R"({"ab":"x"})", R"({"abc":3})", R"({"c":1})"}},
  });
}

// Beside a pattern, a length that would need too many states allows the shorter of its texts, and
// all of those where it need not.
TEST(JsonSchemaStrings, LongTextsBesidePatternsAreLeftOut) {
  const auto text = [](size_t length) { return '"' + std::string(length, 'a') + '"'; };
  const auto some = test_grammar(GrammarKind::kJsonSchema,
                                 R"x({"type": "string", "pattern": "^a+$", "maxLength": 3000})x");
  EXPECT_TRUE(matches(some, text(1)) && matches(some, text(3000)));
  EXPECT_FALSE(matches(some, text(0)) || matches(some, text(3001)));
  const auto most = test_grammar(GrammarKind::kJsonSchema,
                                 R"x({"type": "string", "pattern": "^a+$", "maxLength": 100000})x");
  EXPECT_TRUE(matches(most, text(1)) && matches(most, text(1000)));
  EXPECT_FALSE(matches(most, text(100'001)));
  const auto least = test_grammar(GrammarKind::kJsonSchema,
                                  R"x({"type": "string", "pattern": "^a+$", "minLength": 900})x");
  EXPECT_TRUE(matches(least, text(900)) && matches(least, text(5000)));
  EXPECT_FALSE(matches(least, text(899)));
  EXPECT_THAT(refusal(GrammarKind::kJsonSchema,
                      R"x({"type": "string", "pattern": "^a+$", "minLength": 10001})x"),
              HasSubstr("'/minLength': more than 10000 beside other keywords is not supported"));
}

}  // namespace
}  // namespace nereid::text
