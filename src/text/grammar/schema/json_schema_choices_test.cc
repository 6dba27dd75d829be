// Choices, opposites and conditions of JSON Schema.
#include <gmock/gmock.h>

#include <algorithm>

#include "text/grammar/grammar_test_util.h"

namespace nereid::text {
namespace {

using ::testing::HasSubstr;

TEST(JsonSchemaChoices, OneOfAndNot) {
  expect_schemas({
      {R"x({"not": {"type": ["integer", "object"]}})x", {"\"a\"", "1.5", "null"}, {"1", "{}"}},
      {R"x({"type": "integer", "not": {"enum": [3, 5]}, "minimum": 2, "maximum": 6})x",
       {"2", "4", "6"},
       {"3", "5", "7"}},
      {R"x({"oneOf": [{"type": "integer"}, {"minimum": 3}]})x",
       {"2", "3.5", "\"a\""},
       {"3", "2.5"}},
      {R"x({"type": "object", "properties": {"a": {}, "b": {}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]})x",
       {"{\"a\":1}", "{\"b\":1}"},
       {"{}", "{\"a\":1,\"b\":1}"}},
      // One of objects that may both have other members: what is not of the other branches.
      {R"x({"oneOf": [{"type": "string"}, {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "integer"}}, {"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": {"type": "string"}}]})x",
       {"\"s\"", R"({"a":"x","c":1})", R"({"c":1})", R"({"b":"x"})", R"({"b":"x","c":"y"})",
        R"({"a":"x","c":"y"})"},
       {"{}", R"({"a":"x"})", R"({"a":1,"b":"x"})", R"({"c":true})"}},
      {R"x({"type": "object", "not": {"additionalProperties": {"type": "integer"}, "properties": {"a": {}}}})x",
       {R"({"b":"x"})", R"({"b":1,"c":null})"},
       {"{}", R"({"a":"x"})", R"({"b":1})"}},
      {R"x({"type": "object", "properties": {"p": {}}, "not": {"patternProperties": {"^x": {"type": "integer"}}}})x",
       {R"({"x":"a"})", R"({"p":1,"xy":null})", R"({"y":1,"x":null})"},
       {"{}", R"({"x":1})", R"({"y":"a"})", R"({"p":"a"})"}},
      {R"x({"type": "object", "not": {"propertyNames": {"maxLength": 2}}, "additionalProperties": {"type": "integer"}})x",
       {R"({"abc":1})", R"({"a":2,"abc":1})"},
       {"{}", R"({"ab":1})", R"({"abc":"x"})"}},
      {R"x({"type": "object", "properties": {"a": {}, "b": {}}, "additionalProperties": false, "not": {"additionalProperties": {"type": "integer"}}, "maxProperties": 1})x",
       {R"({"a":"x"})", R"({"b":null})"},
       {"{}", R"({"a":1})", R"({"a":"x","b":1})"}},
      {R"x({"type": "object", "not": {"unevaluatedProperties": {"type": "integer"}, "properties": {"a": {}}}})x",
       {R"({"b":"x"})"},
       {"{}", R"({"b":1})"}},
      {R"x({"not": {"const": {"a": 1, "b": []}}, "type": "object", "properties": {"a": {}, "b": {}}})x",
       {"{}", R"({"a":1})", R"({"a":2,"b":[]})", R"({"a":1,"b":[1]})", R"({"a":1,"b":[],"c":0})"},
       {R"({"a":1,"b":[]})"}},
      {R"x({"not": {"enum": [[1, "x"], 7, [2]]}})x",
       {"8", "[1]", "[]", "[1,\"y\"]", "[1,\"x\",2]", "[3]"},
       {"7", "[1,\"x\"]", "[2]"}},
      {R"x({"oneOf": [{"multipleOf": 3}, {"multipleOf": 5}], "type": "integer", "minimum": 0})x",
       {"3", "5", "9", "10", "1000"},
       {"0", "15", "7", "30"}},
      {R"x({"type": ["number", "string"], "not": {"multipleOf": 1}})x",
       {"1.5", "-0.25"},
       {"2", "\"a\""}},
      {R"x({"oneOf": [{"type": "string", "format": "date"}, {"type": "string", "format": "date-time"}]})x",
       {"\"2024-02-29\"", "\"2024-02-29T10:00:00Z\""},
       {"\"abc\""}},
      // Opposites of several lists: combinations of sizes that exclude each other are left out.
      {R"x({"type": "array", "not": {"oneOf": [{"enum": [[], [1], [1, 2]]}, {"enum": [[], [1], [1, 2]]}]}})x",
       {"[2]", "[2,1]", "[1,2,3]"},
       {"{}"}},
      {R"x({"type": "array", "contains": {"type": "integer"}, "not": {"items": {"type": "integer"}}})x",
       {"[1,\"a\"]", "[null,2]"},
       {"[1]", "[\"a\"]", "[]"}},
      {R"x({"type": "array", "not": {"uniqueItems": true}})x",
       {"[null,null]", "[1,0,0]", "[\"\",{},\"\"]"},
       {"[]", "[null,0]"}},
      {R"x({"type": "array", "not": {"prefixItems": [{"type": "null"}], "items": {"type": "integer"}}})x",
       {"[1]", "[null,\"a\"]", "[null,1,\"a\"]"},
       {"[]", "[null]", "[null,1,2]"}},
      {R"x({"type": "number", "not": {"minimum": 3, "exclusiveMinimum": true}})x",
       {"3", "2"},
       {"4"}},
      {R"x({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "oneOf": [{"dependentRequired": {"a": ["b"]}}, {"required": ["a"]}]})x",
       {"{}", R"({"b":1})", R"({"a":1})"},
       {R"({"a":1,"b":2})"}},
      // Schemas within themselves have opposites that end.
      {R"x({"$defs": {"t": {"type": "object", "properties": {"c": {"type": "array", "items": {"$ref": "#/$defs/t"}}}, "additionalProperties": false}}, "type": "object", "not": {"$ref": "#/$defs/t"}, "properties": {"c": {}}})x",
       {R"({"c":1})", R"({"c":[{},{"c":2}]})", R"({"d":1})"},
       {"{}", R"({"c":[]})", R"({"c":[{"c":[]}]})"}},
      {R"x({"oneOf": [{"properties": {"a": {}}, "additionalProperties": false}, {"properties": {"b": {}}, "additionalProperties": false}], "type": "object"})x",
       {R"({"a":1})", R"({"b":1})"},
       {"{}", R"({"a":1,"b":1})", R"({"c":1})"}},
      {R"x({"type": "object", "properties": {"y": {}}, "oneOf": [{"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": false}, {"required": ["y"]}]})x",
       {"{}", R"({"x":1})", R"({"y":1})", R"({"y":1,"z":1})"},
       {R"({"x":"a"})", R"({"z":1})"}},
      {R"x({"type": "object", "properties": {"a": {}, "b": {}}, "oneOf": [{"required": ["a"]}, {"properties": {"a": false}}]})x",
       {"{}", R"({"a":1})", R"({"a":1,"b":1,"c":1})"},
       {"1"}},
      {R"x({"$defs": {"cat": {"type": "object", "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}}, "required": ["kind"]}, "dog": {"type": "object", "properties": {"kind": {"enum": ["dog", "puppy"]}, "name": {"type": "string"}}, "required": ["kind"]}}, "type": "array", "items": {"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}]}})x",
       {R"([{"kind":"cat","lives":9},{"kind":"puppy","name":"x"}])",
        R"([{"kind":"dog","lives":"no"}])"},
       {R"([{"kind":"cat","lives":"no"}])", R"([{"kind":"cow"}])", "[{}]"}},
      {R"x({"type": "integer", "oneOf": [{"minimum": 0}, {"maximum": 10}, {"multipleOf": 2}]})x",
       {"-1", "11"},
       {"-2", "0", "5", "4", "12"}},
      // Each keyword of an object has an opposite.
      {R"x({"type": "object", "properties": {"a": {}, "b": {}}, "not": {"required": ["a", "b"]}})x",
       {"{}", R"({"a":1})", R"({"b":1,"c":1})"},
       {R"({"a":1,"b":1})"}},
      {R"x({"type": "object", "not": {"minProperties": 2}})x",
       {"{}", R"({"a":1})"},
       {R"({"a":1,"b":1})"}},
      {R"x({"type": "object", "properties": {"a": {}, "b": {}}, "not": {"maxProperties": 1}})x",
       {R"({"a":1,"b":1})", R"({"a":1,"b":1,"c":1})"},
       {"{}", R"({"a":1})"}},
      {R"x({"type": "object", "properties": {"a": {}, "b": {}}, "not": {"dependentRequired": {"a": ["b"]}}})x",
       {R"({"a":1})", R"({"a":1,"c":1})"},
       {"{}", R"({"b":1})", R"({"a":1,"b":1})"}},
      {R"x({"type": "object", "properties": {"a": {}, "b": {}}, "not": {"dependentSchemas": {"a": {"required": ["b"]}}}})x",
       {R"({"a":1})"},
       {"{}", R"({"b":1})", R"({"a":1,"b":1})"}},
      {R"x({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"a": {}, "b": {}}, "not": {"dependencies": {"a": ["b"], "b": {"required": ["a"]}}}})x",
       {R"({"a":1})", R"({"b":1})"},
       {"{}", R"({"a":1,"b":1})"}},
      {R"x({"type": "object", "additionalProperties": {"type": "integer"}, "allOf": [{"not": {"propertyNames": {"pattern": "^a"}}}, {"not": {"propertyNames": {"pattern": "^b"}}}]})x",
       {R"({"x":1})", R"({"c":1,"x":1})"},
       {"{}", R"({"a":1})", R"({"b":1,"ba":1})", R"({"x":"1"})"}},
      // Negations of conditions on other values.
      {R"x({"type": "integer", "not": {"if": {"minimum": 5}, "then": {"maximum": 10}, "else": {"const": 0}}})x",
       {"11", "4", "-3"},
       {"5", "10", "0"}},
      {R"x({"type": "integer", "not": {"oneOf": [{"minimum": 3}, {"maximum": 5}]}})x",
       {"3", "4", "5"},
       {"2", "6"}},
      {R"x({"type": "integer", "not": {"anyOf": [{"minimum": 3}, {"multipleOf": 2}]}})x",
       {"1", "-3"},
       {"2", "3", "5", "-4"}},
      {R"x({"type": "integer", "not": {"allOf": [{"minimum": 3}, {"maximum": 5}]}})x",
       {"2", "6"},
       {"3", "5"}},
      {R"x({"not": {"not": {"type": "integer", "not": {"const": 3}}}})x",
       {"2", "4"},
       {"3", "\"a\""}},
      {R"x({"type": "string", "not": {"minLength": 2}})x", {"\"\"", "\"a\""}, {"\"ab\""}},
      {R"x({"type": "string", "not": {"maxLength": 1}})x", {"\"ab\""}, {"\"\"", "\"a\""}},
      {R"x({"type": "string", "not": {"pattern": "^a|b$"}})x",
       {"\"\"", "\"ba\""},
       {"\"a\"", "\"xb\""}},
      {R"x({"type": "array", "items": {"type": "integer"}, "not": {"maxItems": 1}})x",
       {"[1,2]", "[1,1,1]"},
       {"[]", "[1]"}},
      {R"x({"type": "array", "not": {"contains": {"type": "integer"}, "minContains": 2}})x",
       {"[]", "[1,\"a\"]"},
       {"[1,2]"}},
      {R"x({"type": "array", "items": {"type": "integer"}, "not": {"contains": {"minimum": 5}, "minContains": 0, "maxContains": 1}})x",
       {"[5,6]", "[1,7,2,9]"},
       {"[]", "[5]", "[1,5]"}},
      {R"x({"type": "array", "not": {"items": {"type": "integer"}}})x",
       {"[null]", "[1,\"a\",2]"},
       {"[]", "[1]"}},
  });
}

TEST(JsonSchemaChoices, Conditions) {
  expect_schemas({
      {R"x({"type": "object", "properties": {"a": {}, "b": {}}, "additionalProperties": false, "dependentRequired": {"a": ["b"]}})x",
       {"{}", "{\"b\":1}", "{\"a\":1,\"b\":2}"},
       {"{\"a\":1}"}},
      {R"x({"type": "object", "properties": {"a": {}, "b": {}}, "dependentSchemas": {"a": {"properties": {"b": {"type": "null"}}}}})x",
       {"{\"b\":1}", "{\"a\":1,\"b\":null}"},
       {"{\"a\":1,\"b\":2}"}},
      {R"x({"if": {"type": "integer"}, "then": {"minimum": 3}, "else": {"type": "string"}})x",
       {"3", "\"a\""},
       {"2", "null"}},
      {R"x({"type": "object", "properties": {"k": {"enum": [1, 2]}, "v": {}}, "required": ["k"], "if": {"properties": {"k": {"const": 1}}}, "then": {"required": ["v"]}})x",
       {"{\"k\":2}", "{\"k\":1,\"v\":0}"},
       {"{\"k\":1}"}},
      {R"x({"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "dependentRequired": {"a": ["b"], "b": ["c"]}})x",
       {"{}", R"({"c":1})", R"({"b":1,"c":1})", R"({"a":1,"b":1,"c":1})"},
       {R"({"a":1})", R"({"a":1,"b":1})", R"({"b":1})", R"({"a":1,"c":1})"}},
      {R"x({"type": "object", "dependentRequired": {"a": ["b"]}})x",
       {"{}", R"({"c":1})", R"({"a":1,"b":1})"},
       {R"({"a":1})", R"({"c":1,"a":1})"}},
      // Members that "properties" forbids: no dependency allows them.
      {R"x({"type": "object", "properties": {"b": {}}, "additionalProperties": false, "dependentRequired": {"a": ["c"]}})x",
       {"{}", R"({"b":1})"},
       {R"({"a":1})", R"({"c":1})"}},
      {R"x({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"a": {}, "b": {}}, "dependencies": {"a": ["b"], "b": {"properties": {"a": {"type": "null"}}}}})x",
       {"{}", R"({"b":1})", R"({"a":null,"b":1})"},
       {R"({"a":null})", R"({"a":1,"b":1})"}},
      {R"x({"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a"], "if": {"properties": {"a": {"type": "integer"}}}, "then": {"required": ["b"]}, "else": {"properties": {"b": false}}})x",
       {R"({"a":1,"b":2})", R"({"a":"x"})"},
       {R"({"a":1})", R"({"a":"x","b":1})"}},
      // "then" and "else" without "if", and "if" alone, say nothing.
      {R"x({"type": "integer", "then": {"minimum": 3}, "else": {"maximum": 2}})x",
       {"2", "3"},
       {"null"}},
      {R"x({"type": "integer", "if": {"minimum": 3}})x", {"2", "3"}, {"null"}},
      {R"x({"type": "integer", "if": true, "then": {"minimum": 3}, "else": false})x", {"3"}, {"2"}},
      {R"x({"type": "integer", "if": {"minimum": 0}, "then": {"if": {"maximum": 9}, "then": {"multipleOf": 3}, "else": {"multipleOf": 5}}})x",
       {"-1", "3", "9", "10"},
       {"1", "5", "11", "12"}},
  });
}

// A list of conditions on the value of one member, as generators of schemas write them: its 2^30
// combinations are not gone through.
TEST(JsonSchemaChoices, LongListsOfConditions) {
  constexpr int kCount = 30;
  std::string kinds, conditions;
  for (int i = 0; i < kCount; ++i) {
    const char* comma = i > 0 ? "," : "";
    kinds += fmt::format(R"({}"k{}")", comma, i);
    conditions += fmt::format(
        R"({}{{"if": {{"properties": {{"kind": {{"const": "k{}"}}}}}}, "then": {{"properties": {{"v": {{"const": {}}}}}, "required": ["v"]}}}})",
        comma, i, i);
  }
  for (const char* required : {R"("required": ["kind"],)", ""}) {
    const auto grammar = test_grammar(
        GrammarKind::kJsonSchema,
        fmt::format(
            R"({{"type": "object", "properties": {{"kind": {{"enum": [{}]}}, "v": {{}}}}, {} "allOf": [{}]}})",
            kinds, required, conditions));
    for (int i = 0; i < kCount; ++i)
      for (int j = std::max(0, i - 2); j < std::min(kCount, i + 2); ++j)
        EXPECT_EQ(matches(grammar, fmt::format(R"({{"kind":"k{}","v":{}}})", i, j)), i == j)
            << i << " " << j;
    EXPECT_FALSE(matches(grammar, R"({"kind":"k3"})"));
    EXPECT_FALSE(matches(grammar, R"({"v":3})")) << "all conditions hold without the member";
  }
}

// Conditions on a member that may have other values, or be absent.
TEST(JsonSchemaChoices, ConditionsOnAMemberWithOtherValues) {
  std::string conditions;
  for (int i = 0; i < 30; ++i)
    conditions += fmt::format(
        R"({}{{"if": {{"properties": {{"kind": {{"const": {}}}}}, "required": ["kind"]}}, "then": {{"required": ["v{}"]}}}})",
        i > 0 ? "," : "", i, i);
  const auto grammar = test_grammar(
      GrammarKind::kJsonSchema,
      fmt::format(R"({{"type": "object", "properties": {{"kind": {{}}}}, "allOf": [{}]}})",
                  conditions));
  EXPECT_TRUE(matches(grammar, R"({"kind":7,"v7":null})"));
  EXPECT_TRUE(matches(grammar, R"({"kind":30})"));
  EXPECT_TRUE(matches(grammar, R"({"x":1})"));
  EXPECT_FALSE(matches(grammar, R"({"kind":7})"));
  EXPECT_FALSE(matches(grammar, R"({"kind":7,"v8":null})"));
}

TEST(JsonSchemaChoices, Refusals) {
  const auto refused = [](const std::string& schema) {
    return refusal(GrammarKind::kJsonSchema, schema);
  };
  std::string many = R"({"type": "null"})";
  for (int i = 0; i < 1024; ++i) many += fmt::format(R"(,{{"const": {}}})", i);
  EXPECT_THAT(refused(R"({"anyOf": [)" + many + "]}"),
              HasSubstr("'/anyOf': more than 1024 schemas"));
  EXPECT_THAT(refused(R"({"anyOf": []})"),
              HasSubstr("'/anyOf': must be an array with at least one schema"));
  EXPECT_THAT(refused(R"({"oneOf": {"type": "null"}})"), HasSubstr("'/oneOf': must be an array"));
  EXPECT_THAT(refused(R"({"not": {"required": "a"}})"),
              HasSubstr("'/not/required': must be an array"));
  EXPECT_THAT(refused(R"({"not": {"properties": []}})"),
              HasSubstr("'/not/properties': must be an object"));
  EXPECT_THAT(refused(R"({"not": {"dependentRequired": {"a": [1]}}})"),
              HasSubstr("'/not/dependentRequired/a': must be an array of strings"));
  EXPECT_THAT(refused(R"({"dependentRequired": {"a": "b"}})"),
              HasSubstr("'/dependentRequired/a': must be an array"));
  EXPECT_THAT(refused(R"({"not": true})"), HasSubstr("'': no value is of this schema"));
  EXPECT_THAT(refused(R"({"oneOf": [{"const": 1}, {"const": 1}]})"),
              HasSubstr("'': no value is of this schema"));
}

}  // namespace
}  // namespace nereid::text
