// Every keyword of JSON Schema: texts that it allows and texts that it does not.
#include "text/grammar/schema/json_schema.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "text/grammar/grammar_test_util.h"

namespace nereid::text {
namespace {

using ::testing::HasSubstr;

TEST(JsonSchema, AllowsWhatEachKeywordAllows) {
  expect_schemas({
      {"true",
       {"1", "null", "{\"a\": [1, \"x\"]}", "-0.5e+10", "\"\\ud83d\\ude00\\n\""},
       {"", "01", "[1,]", "\"\\ud83d\"", "nul", "\"\x01\""}},
      {R"x({"type": "null"})x", {"null"}, {"true", "\"null\""}},
      {R"x({"type": "boolean"})x", {"true", "false"}, {"1", "null"}},
      {R"x({"type": ["integer", "null"]})x", {"-12", "0", "null"}, {"1.5", "-", "00"}},
      {R"x({"type": "number"})x", {"-12", "1.5", "1e9", "2E-1"}, {"1.", ".5", "+1", "1e"}},
      {R"x({"type": "integer", "minimum": -3, "maximum": 12})x",
       {"-3", "-1", "0", "9", "12"},
       {"-4", "13", "-0", "100", "1.0"}},
      {R"x({"type": "integer", "exclusiveMinimum": 98, "exclusiveMaximum": 1234})x",
       {"99", "100", "999", "1233"},
       {"98", "1234", "9", "2000"}},
      {R"x({"type": "integer", "minimum": 17})x", {"17", "99", "100", "12345"}, {"16", "1", "-17"}},
      {R"x({"type": "integer", "maximum": -5})x", {"-5", "-10", "-99"}, {"-4", "5", "0"}},
      {R"x({"type": "integer", "minimum": 1.5, "maximum": 3.5})x", {"2", "3"}, {"1", "4"}},
      {R"x({"type": "number", "minimum": -1, "maximum": 2})x",
       {"-1", "-1.0", "-0.5", "0", "1.99", "2", "2.00"},
       {"-1.1", "2.1", "2.01", "3"}},
      {R"x({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1})x",
       {"0.5", "0.01"},
       {"0", "1", "0.0", "-0.5"}},
      {R"x({"type": "number", "minimum": 10})x", {"10", "10.5", "999"}, {"9.9", "-11"}},
      {R"x({"type": "string", "minLength": 1, "maxLength": 2})x",
       {"\"a\"", "\"\xC3\xA4\\u00e4\""},
       {"\"\"", "\"abc\"", "a"}},
      {R"x({"type": "string", "pattern": "^a.\"$"})x",
       {"\"ab\\\"\"", "\"a\\u0001\\\"\""},
       {"\"ab\"\"", "\"xab\\\"\""}},
      {R"x({"type": "string", "pattern": "b"})x",
       {"\"b\"", "\"abc\"", "\"\\nb\""},
       {"\"a\"", "\"\""}},
      {R"x({"type": "string", "format": "date-time"})x",
       {"\"2024-02-29T10:00:00Z\"", "\"1999-12-31T23:59:59.5+01:00\""},
       {"\"2023-02-29T10:00:00Z\"", "\"2024-02-29\""}},
      {R"x({"type": "string", "format": "date"})x",
       {"\"2000-02-29\""},
       {"\"1900-02-29\"", "\"2024-04-31\"", "\"0000-01-01\"", "\"0000-02-29\""}},
      {R"x({"type": "string", "format": "uuid"})x",
       {"\"01234567-89ab-cdef-0123-456789abcdef\""},
       {"\"x\""}},
      {R"x({"type": "string", "format": "ipv4"})x",
       {"\"255.0.10.9\""},
       {"\"256.0.0.1\"", "\"1.2.3\""}},
      {R"x({"type": "string", "format": "email"})x", {"\"a.b@example.com\""}, {"\"a@\""}},
      {R"x({"enum": ["a", 1, null, {"b": [2]}]})x",
       {"\"a\"", "1", "null", "{\"b\":[2]}"},
       {"a", "2"}},
      {R"x({"const": "x\"y"})x", {"\"x\\\"y\""}, {"\"x\"y\""}},
      {R"x({"type": "string", "enum": ["a", 1]})x", {"\"a\""}, {"1"}},
      {R"x({"type": "array", "items": {"type": "integer"}})x",
       {"[]", "[ ]", "[1, 2]", "[\n1\n]"},
       {"[1,]", "[\"a\"]", "[,1]"}},
      {R"x({"type": "array", "minItems": 2, "maxItems": 3})x",
       {"[1,2]", "[1,2,3]"},
       {"[]", "[1]", "[1,2,3,4]"}},
      {R"x({"type": "array", "maxItems": 0})x", {"[]"}, {"[1]"}},
      {R"x({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "null"}], "items": {"type": "boolean"}})x",
       {"[]", "[1]", "[1,null]", "[1,null,true,false]"},
       {"[null]", "[1,2]", "[1,null,3]"}},
      {R"x({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "null"}], "items": false, "minItems": 1})x",
       {"[1]", "[1,null]"},
       {"[]", "[1,null,1]"}},
      {R"x({"type": "array", "prefixItems": [{"type": "integer"}], "minItems": 3, "maxItems": 4})x",
       {"[1,2,3]", "[1,\"a\",3,4]"},
       {"[1,2]", "[1,2,3,4,5]", "[\"a\",2,3]"}},
      {R"x({"type": "object", "properties": {"a": {"type": "integer"}, "b": {}, "c": {"type": "null"}}, "required": ["b"], "additionalProperties": false})x",
       {"{\"b\":1}", "{\"a\": 1, \"b\": 2}", "{ \"b\" : \"x\" , \"c\" : null }",
        "{\"a\":1,\"b\":{},\"c\":null}"},
       {"{}", "{\"a\":1}", "{\"b\":1,\"a\":1}", "{\"b\":1,\"d\":2}", "{\"b\":1,}", "{,\"b\":1}",
        "{\"a\":\"x\",\"b\":1}"}},
      {R"x({"type": "object", "properties": {"ab": {"type": "integer"}}})x",
       {"{}", "{\"ab\":1}", "{\"a\":true}", "{\"abc\":true, \"x\":1}", "{\"ab\":1,\"\":null}",
        "{\"\xC3\xA4\":1}"},
       {"{\"ab\":true}", "{\"x\":1,\"ab\":true}", "{\"\\u0061b\":true}"}},
      {R"x({"type": "object", "properties": {"a": false}, "additionalProperties": {"type": "integer"}})x",
       {"{}", "{\"b\":1}"},
       {"{\"a\":1}", "{\"b\":\"x\"}"}},
      {R"x({"type": "object", "required": ["k"]})x",
       {"{\"k\":1}", "{\"k\":1,\"l\":2}"},
       {"{}", "{\"l\":2}"}},
      {R"x({"type": "object", "minProperties": 1, "maxProperties": 2})x",
       {"{\"a\":1}", "{\"a\":1,\"b\":2}", "{ \"a\":1 }"},
       {"{}", "{\"a\":1,\"b\":2,\"c\":3}"}},
      {R"x({"type": "object", "maxProperties": 0})x", {"{}", "{ }"}, {"{\"a\":1}"}},
      {R"x({"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "additionalProperties": false, "minProperties": 2})x",
       {"{\"a\":1,\"b\":2}", "{\"a\":1,\"c\":3}", "{\"b\":2,\"c\":3}", "{\"a\":1,\"b\":2,\"c\":3}"},
       {"{}", "{\"a\":1}", "{\"c\":1}"}},
      {R"x({"type": "object", "properties": {"a": {}, "b": {}}, "required": ["b"], "maxProperties": 2})x",
       {"{\"b\":1}", "{\"a\":1,\"b\":2}", "{\"b\":1,\"x\":2}"},
       {"{\"a\":1,\"b\":2,\"x\":3}", "{\"b\":1,\"x\":2,\"y\":3}", "{\"a\":1}"}},
      {R"x({"type": "object", "properties": {"a": {}}, "minProperties": 2})x",
       {"{\"a\":1,\"x\":2}"},
       {"{}", "{\"a\":1}", "{\"x\":2,\"x\":3}"}},
      {R"x({"anyOf": [{"type": "integer"}, {"type": "string"}]})x", {"1", "\"a\""}, {"null"}},
      {R"x({"type": "integer", "anyOf": [{"maximum": 3}, {"minimum": 7}]})x",
       {"3", "7", "-2"},
       {"4", "6", "\"a\""}},
      {R"x({"oneOf": [{"type": "integer"}, {"type": "string"}]})x", {"1", "\"a\""}, {"null"}},
      {R"x({"oneOf": [{"type": "object", "properties": {"k": {"const": 1}}, "required": ["k"]}, {"type": "object", "properties": {"k": {"const": 2}, "x": {"type": "null"}}, "required": ["k"]}]})x",
       {"{\"k\":1}", "{\"k\":2,\"x\":null}"},
       {"{\"k\":3}", "{\"k\":2,\"x\":1}"}},
      {R"x({"allOf": [{"type": "object", "properties": {"a": {"minimum": 2}}}, {"properties": {"a": {"type": "integer", "maximum": 4}}, "required": ["a"]}]})x",
       {"{\"a\":2}", "{\"a\":4}"},
       {"{}", "{\"a\":5}", "{\"a\":1}", "3"}},
      {R"x({"type": "object", "allOf": [{"properties": {"a": {}}, "additionalProperties": false}, {"required": ["a"]}]})x",
       {"{\"a\":1}"},
       {"{}", "{\"a\":1,\"b\":2}"}},
      {R"x({"type": "number", "minimum": 0.25, "exclusiveMaximum": 1.5})x",
       {"0.25", "0.250", "0.3", "1", "1.0", "1.49"},
       {"0.24", "0", "1.5", "1.50", "2", "-0.3"}},
      {R"x({"type": "number", "minimum": -0.5, "maximum": -0.25})x",
       {"-0.5", "-0.3"},
       {"-0.51", "-0.2", "0"}},
      {R"x({"type": "number", "minimum": 1, "exclusiveMinimum": true})x", {"1.5", "2"}, {"1", "0"}},
      {R"x({"type": "number", "multipleOf": 0.25})x",
       {"0", "0.25", "1.5", "-2.750", "3"},
       {"0.3", "1.51", "00.5", "1."}},
      {R"x({"type": "number", "multipleOf": 0.1, "minimum": 0.5, "maximum": 1.2})x",
       {"0.5", "1", "1.2"},
       {"0.4", "0.55", "1.3"}},
      // Bounds of both signs: all but zero.
      {R"x({"type": "number", "multipleOf": 0.01, "minimum": -180, "maximum": 180})x",
       {"0", "-180", "180.00", "0.01", "-0.01", "-179.99", "10.5"},
       {"0.001", "180.01", "-180.01", "-0.005"}},
      {R"x({"type": "number", "multipleOf": 0.01, "exclusiveMinimum": 0})x",
       {"0.01", "0.10", "7", "12.34"},
       {"0", "0.0", "0.001", "-0.01"}},
      {R"x({"type": "number", "exclusiveMinimum": 0})x",
       {"0.1000000000000000055511151231257827", "0.000000000000000001", "3.0"},
       {"0", "0.000", "-1"}},
      {R"x({"type": "integer", "multipleOf": 0.5})x", {"1", "2"}, {"1.5"}},
      {R"x({"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 3, "not": {"const": "abc"}})x",
       {"\"ab\"", "\"abd\""},
       {"\"a\"", "\"abc\"", "\"abcd\"", "\"AB\""}},
      {R"x({"type": "string", "format": "ipv6"})x",
       {"\"::\"", "\"::1\"", "\"1:2:3:4:5:6:7:8\"", "\"::ffff:1.2.3.4\"", "\"1::8\""},
       {"\"1:2\"", "\":::\"", "\"1::2::3\"", "\"12345::\""}},
      {R"x({"type": "string", "format": "uri"})x",
       {"\"https://a.b/c?d=e#f\"", "\"mailto:a@b\"", "\"urn:x:y\""},
       {"\"/a\"", "\"a b:c\"", "\"//a\""}},
      {R"x({"type": "string", "format": "duration"})x",
       {"\"P1DT2H\"", "\"P3W\""},
       {"\"P\"", "\"P1D2H\""}},
      {R"x({"type": "string", "format": "a name of its own"})x", {"\"x\""}, {"1"}},
      {R"x({"type": "object", "properties": {"ab": {"type": "null"}}, "patternProperties": {"^a": {"type": ["integer", "null"]}, "b$": {"maximum": 3}}, "additionalProperties": false})x",
       {"{}", "{\"ab\":null}", "{\"a\":9}", "{\"axb\":2}", "{\"xb\":\"x\"}"},
       {"{\"ab\":1}", "{\"a\":\"x\"}", "{\"axb\":4}", "{\"xb\":4}", "{\"c\":1}"}},
      {R"x({"type": "object", "propertyNames": {"pattern": "^[a-c]+$", "maxLength": 2}})x",
       {"{}", "{\"ab\":1}"},
       {"{\"abc\":1}", "{\"d\":1}"}},
      {R"x({"allOf": [{"properties": {"a": {}}, "additionalProperties": false}, {"properties": {"b": {}}}], "type": "object"})x",
       {"{}", "{\"a\":1}"},
       {"{\"b\":1}"}},
      {R"x({"type": "object", "allOf": [{"properties": {"a": {"type": "null"}}}], "properties": {"b": {}}, "unevaluatedProperties": false})x",
       {"{\"b\":1}", "{\"b\":1,\"a\":null}"},
       {"{\"c\":1}"}},
      {R"x({"type": "object", "properties": {"a": {}}, "not": {"not": {"properties": {"b": {}}}}, "unevaluatedProperties": false})x",
       {"{}", "{\"a\":1}"},
       {"{\"a\":1,\"b\":1}"}},
      {R"x({"type": "array", "allOf": [{"prefixItems": [{"type": "null"}]}], "unevaluatedItems": false})x",
       {"[]", "[null]"},
       {"[null,1]", "[1]"}},
      {R"x({"enum": [[1, {"a": "b"}], 2.5, -3.0], "minimum": -2})x",
       {"[1,{\"a\":\"b\"}]", "[ 1, {\"a\": \"b\"} ]", "2.5"},
       {"-3", "[1]"}},
      {R"x({"type": "null", "own": {"any": "thing"}})x", {"null"}, {"1"}},
      // Numbers that are no integers have digits that a double keeps.
      {R"x({"type": "number", "not": {"type": "integer"}})x",
       {"1.5", "-0.25", "999999999.5"},
       {"1.0", "2", "1234567890123456789.5", "0.99999999999999999999"}},
      {R"x({"title": "t", "description": "d", "default": 1, "examples": [], "$schema": "s", "$comment": "c", "type": "null", "uniqueItems": false, "x-own": 1})x",
       {"null"},
       {"1"}},
  });
}

// Every integer of a range, with bounds of both signs, one or none.
TEST(JsonSchema, MultiplesAreThoseThatDivisionFinds) {
  constexpr int kNone = 9999;
  for (const int divisor : {1, 3, 8, 25, 130})
    for (const auto& [least, most] : std::vector<std::pair<int, int>>{
             {kNone, kNone}, {-260, kNone}, {24, kNone}, {kNone, -99}, {kNone, 300}, {-26, 1000}}) {
      json::object schema{{"type", "number"}, {"multipleOf", divisor}};
      if (least != kNone) schema["minimum"] = least;
      if (most != kNone) schema["maximum"] = most;
      const std::string text = json::serialize(schema);
      const auto grammar = test_grammar(GrammarKind::kJsonSchema, text);
      for (int i = -320; i <= 1100; ++i) {
        const bool good =
            i % divisor == 0 && (least == kNone || i >= least) && (most == kNone || i <= most);
        ASSERT_EQ(matches(grammar, std::to_string(i)), good) << text << ": " << i;
      }
      EXPECT_FALSE(matches(grammar, "0" + std::to_string(divisor)));
      EXPECT_FALSE(matches(grammar, "-0"));
    }
  const auto both = test_grammar(GrammarKind::kJsonSchema,
                                 R"x({"allOf": [{"multipleOf": 4}, {"multipleOf": 6}]})x");
  EXPECT_TRUE(matches(both, "24") && matches(both, "\"a\"") && !matches(both, "20"));
}

TEST(JsonSchema, ErrorsBeginWithThePointer) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"x({"properties": {"a/b": {"not": {"multipleOf": 0.5}}}})x",
       "schema: '/properties/a~1b/not/multipleOf': the opposite of this keyword"},
      {R"x({"items": {"multipleOf": 1001}})x",
       "schema: '/items/multipleOf': only numbers of up to 1000 times 1, 0.1"},
      {R"x({"multipleOf": 0})x", "'/multipleOf': must be a number above 0"},
      {R"x({"type": "integer", "multipleOf": 7, "minimum": 8, "maximum": 13})x",
       "'': no value is of this schema"},
      {R"x({"allOf": [{"multipleOf": 999}, {"multipleOf": 7}]})x",
       "'/allOf/0/multipleOf': only numbers of up to 1000"},
      {R"x({"type": "object", "minProperties": 2})x",
       "'/minProperties': only one member outside of 'properties' counts"},
      {R"x({"type": "object", "minProperties": 2, "maxProperties": 1})x",
       "'': no value is of this schema"},
      {R"x({"type": "object", "required": ["a", "b"], "maxProperties": 1})x",
       "'': no value is of this schema"},
      {R"x({"type": "array", "uniqueItems": true, "minItems": 9})x",
       "'/uniqueItems': more than 8 elements are not supported here"},
      {R"x({"type": "array", "items": {"type": "boolean"}, "uniqueItems": true, "minItems": 3})x",
       "'': no value is of this schema"},
      {R"x({"patternProperties": {"(?=a)": {}}})x", "'/patternProperties/(?=a)': regular"},
      {R"x({"type": "text"})x", "'/type': must be one or several of null"},
      {R"x({"type": "string", "pattern": "a{,3}"})x", "a quantifier without its lower limit"},
      {R"x({"type": "string", "pattern": "(?=a)"})x", "'/pattern': regular expression"},
      {R"x({"type": "string", "minLength": -1})x",
       "'/minLength': must be an integer that is not negative"},
      {R"x({"type": "integer", "minimum": 5, "maximum": 4})x", "'': no value is of this schema"},
      {R"x({"enum": []})x", "'/enum': must be an array"},
      {R"x({"$ref": "other.json"})x", "'/$ref': only references into this schema"},
      {R"x({"$ref": "#/x"})x", "'/$ref': there is nothing at '#/x'"},
      {R"x({"type": "object", "required": ["a"], "additionalProperties": false})x",
       "'': no value is of this schema"},
      {R"x({"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {"$ref": "#/definitions/a"}}, "items": {"$ref": "#/definitions/a"}})x",
       "a schema is a part of itself"},
      {R"x({"\u0001some": [1]})x", "this keyword is not supported"},
      {R"x({"$recursiveRef": "#"})x", "'/$recursiveRef': this keyword is not supported"},
      {R"x({"const": 1, "minimum": 3})x", "'': no value is of this schema"},
      {"false", "'': no value is of this schema"},
      {"[]", "'': a schema must be an object or a boolean"},
      {R"x({"$ref": "#"})x", "'': no value is of this schema"},
      {R"x({"allOf": [{"$ref": "#"}]})x", "'': a schema is a part of itself"},
      {R"x({"minLength": 1, "allOf": [{"$ref": "#"}]})x", "'': a schema is a part of itself"},
      {"{", "schema: "},
  };
  for (const auto& [schema, error] : cases)
    EXPECT_THAT(refusal(GrammarKind::kJsonSchema, schema), HasSubstr(error)) << schema;
}

// Work that doubles with each of these counts against the limit.
TEST(JsonSchema, RefusesWhatTakesTooLong) {
  std::string choices;
  for (int i = 0; i < 20; ++i)
    choices += fmt::format(R"x({{"anyOf": [{{"minLength": {}}}, {{"maxLength": 100}}]}},)x", i);
  choices += R"x({"anyOf": [{"const": 1}, {"const": 2}]})x";
  EXPECT_THAT(refusal(GrammarKind::kJsonSchema,
                      fmt::format(R"x({{"type": "string", "allOf": [{}]}})x", choices)),
              HasSubstr("this takes more than 10000000 steps"));

  std::string defs = R"x("0": {"type": "integer"})x";
  for (int i = 0; i < 18; ++i)
    defs += fmt::format(
        R"x(, "{}": {{"allOf": [{{"$ref": "#/$defs/{}"}}, {{"$ref": "#/$defs/{}"}}]}})x", i + 1, i,
        i);
  const std::string given = fmt::format(
      R"x({{"const": {{"a": 1}}, "properties": {{"a": {{"$ref": "#/$defs/18"}}}}, "$defs": {{{}}}}})x",
      defs);
  EXPECT_THAT(refusal(GrammarKind::kJsonSchema, given),
              HasSubstr("this takes more than 10000000 steps"));

  // A schema that is twice in a list is there once.
  const auto twice = test_grammar(GrammarKind::kJsonSchema, R"x({"$defs": {"n": {"type": "object",
      "properties": {"a": {"$ref": "#/$defs/n"}}, "additionalProperties": false}},
      "allOf": [{"$ref": "#/$defs/n"}, {"$ref": "#/$defs/n"}]})x");
  EXPECT_TRUE(matches(twice, "{\"a\":{\"a\":{}}}") && !matches(twice, "{\"a\":1}"));
}

TEST(JsonSchema, LongStringsHaveEveryLengthWithinTheirLimits) {
  const auto text = [](size_t length) { return '"' + std::string(length, 'x') + '"'; };
  const auto some =
      test_grammar(GrammarKind::kJsonSchema, R"x({"minLength": 2100, "maxLength": 5000})x");
  for (size_t length = 0; length < 5100; length += length < 2090 || length > 2110 ? 10 : 1)
    EXPECT_EQ(matches(some, text(length)), length >= 2100 && length <= 5000) << length;
  EXPECT_FALSE(matches(some, text(5001)));
  const auto most = test_grammar(GrammarKind::kJsonSchema, R"x({"maxLength": 65535})x");
  for (const size_t length : {0, 1, 1023, 1024, 2047, 2048, 65534, 65535})
    EXPECT_TRUE(matches(most, text(length))) << length;
  EXPECT_FALSE(matches(most, text(65536)));
  const auto least = test_grammar(GrammarKind::kJsonSchema, R"x({"minLength": 3000})x");
  EXPECT_TRUE(matches(least, text(3000)) && matches(least, text(9000)));
  EXPECT_FALSE(matches(least, text(2999)));
}

// Schemas that are written twice cost as little as references to one.
TEST(JsonSchema, EqualSchemasShareTheirRules) {
  const std::string inner =
      R"({"type": "object", "properties": {"first": {"type": "string", "maxLength": 20}, "second": {"enum": [1, 2]}}})";
  std::string copies, references;
  for (int i = 0; i < 40; ++i) {
    const char* comma = i > 0 ? "," : "";
    copies += fmt::format("{}\"m{}\":{}", comma, i, inner);
    references += fmt::format("{}\"m{}\":{{\"$ref\":\"#/$defs/one\"}}", comma, i);
  }
  const auto num_states = [](const std::string& schema) {
    WorkLimit work;
    const auto network = Grammar::parse(GrammarKind::kJsonSchema, schema, work);
    EXPECT_TRUE(network.ok()) << network.status();
    return network.ok() ? network->states.size() : 0;
  };
  const size_t of_copies = num_states(R"({"type":"object","properties":{)" + copies + "}}");
  const size_t of_references = num_states(R"({"type":"object","$defs":{"one":)" + inner +
                                          R"(},"properties":{)" + references + "}}");
  EXPECT_LT(of_copies, of_references + 40 * 20);  // a few states for a call
}

TEST(ExprNumbers, EqualExpressionsHaveOneNumber) {
  ExprNumbers numbers;
  const auto make = [] {
    return sequence({literal("a"), repeat(one_of({'b', 'c'}), 0, 3), call(7)});
  };
  const int32_t one = numbers.of(make());
  EXPECT_EQ(numbers.of(make()), one);
  for (const ExprPtr& other :
       {sequence({literal("a"), repeat(one_of({'b', 'c'}), 0, 4), call(7)}),
        sequence({literal("a"), repeat(one_of({'b', 'd'}), 0, 3), call(7)}),
        sequence({literal("a"), repeat(one_of({'b', 'c'}), 0, 3), call(8)}),
        choice({literal("a"), repeat(one_of({'b', 'c'}), 0, 3), call(7)}), literal("a")})
    EXPECT_NE(numbers.of(other), one);
}

TEST(JsonSchema, HasAtMostEightBlanksInARow) {
  const auto grammar = test_grammar(GrammarKind::kJsonObject, "");
  EXPECT_TRUE(matches(grammar, "{" + std::string(8, ' ') + "}"));
  EXPECT_FALSE(matches(grammar, "{" + std::string(9, ' ') + "}"));
  EXPECT_FALSE(matches(grammar, " {}"));
  EXPECT_FALSE(matches(grammar, "[]"));
}

}  // namespace
}  // namespace nereid::text
