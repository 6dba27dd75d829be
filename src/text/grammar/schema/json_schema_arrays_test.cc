// Arrays of JSON Schema: elements that differ, elements that must be there.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "text/grammar/grammar_test_util.h"

namespace nereid::text {
namespace {

using ::testing::HasSubstr;

TEST(JsonSchemaArrays, ElementsDifferOrAreThere) {
  expect_schemas({
      {R"x({"type": "array", "contains": {"const": "x"}, "minContains": 1, "maxContains": 2})x",
       {"[\"x\"]", "[1, \"x\"]", "[\"x\",\"y\",\"x\"]"},
       {"[]", "[1]", "[\"x\",\"x\",\"x\"]"}},
      {R"x({"type": "array", "items": {"type": "integer", "minimum": -1.5, "exclusiveMaximum": 3, "not": {"const": 1}}, "uniqueItems": true})x",
       {"[]", "[-1, 2, 0]", "[2]"},
       {"[0, 2, 0]", "[1]", "[-2]", "[3]", "[0.5]"}},
      {R"x({"type": "array", "items": {"type": ["integer", "null"], "minimum": 0, "maximum": 900, "multipleOf": 300}, "uniqueItems": true, "minItems": 4})x",
       {"[0, 300, null, 900, 600]", "[900, 300, 0, null]"},
       {"[0, 300, null, 900, 0]", "[0, 300, null]", "[0, 1, 300, 600]"}},
      {R"x({"prefixItems": [{"type": "boolean"}, {"enum": [true, 5]}], "items": false, "uniqueItems": true, "type": "array"})x",
       {"[]", "[true]", "[true, 5]", "[false, true]", "[false, 5]"},
       {"[true, true]", "[5]", "[false, 5, true]", "[true, false]"}},
      {R"x({"prefixItems": [{"const": 1}], "items": {"type": "boolean"}, "uniqueItems": true, "type": "array"})x",
       {"[1, true, false]", "[1, false]", "[1]"},
       {"[true]", "[1, true, true]", "[1, 1]"}},
      {R"x({"type": "array", "items": {"enum": ["a", "b", 1]}, "uniqueItems": true})x",
       {"[]", "[\"a\"]", "[1, \"b\",\"a\"]"},
       {"[\"a\",\"a\"]", "[1,1]"}},
      // Elements of many values that must differ: each is of another kind than those before.
      {R"x({"type": "array", "items": {"type": "string"}, "uniqueItems": true})x",
       {"[]", R"(["alpha"])", R"(["zeta","alpha","mu"])"},
       {R"(["a","a"])", R"(["ab","a"])", "[1]"}},
      {R"x({"type": "array", "uniqueItems": true, "minItems": 2})x",
       {"[1,\"a\"]", "[[],[1]]", "[true,false]"},
       {"[1,1.0]", "[[],[]]", "[{},{}]", "[null,null]"}},
      {R"x({"type": "array", "items": {"type": "object", "properties": {"id": {"type": "integer"}, "x": {}}, "required": ["id"]}, "uniqueItems": true})x",
       {R"([{"id":1},{"id":2}])"},
       {R"([{"id":1},{"id":1}])", R"([{"id":1,"x":1},{"id":1,"x":2}])"}},
      {R"x({"type": "array", "items": {"type": "string", "pattern": "^http"}, "uniqueItems": true})x",
       {R"(["http1","httpa"])"},
       {R"(["http","http"])"}},
      {R"x({"type": "array", "items": {"enum": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}, "uniqueItems": true})x",
       {"[1,3,12,10]", "[11]"},
       {"[1,1]", "[13]"}},
      {R"x({"type": "array", "items": {"type": "string"}, "contains": {"const": "a"}, "uniqueItems": true})x",
       {R"(["a"])", R"(["a","z"])", R"(["z","a"])"},
       {"[]", R"(["z"])", R"(["a","a"])"}},
      {R"x({"type": "array", "allOf": [{"contains": {"type": "integer"}}, {"contains": {"minimum": 3}}]})x",
       {"[4]", "[1,5,\"a\"]", "[1,3.5]", "[null,1]"},
       {"[]", "[1]", "[2.5]"}},
      // Kinds are of a number its range, of an array its length, of an object one property.
      {R"x({"type": "array", "items": {"type": "number"}, "uniqueItems": true})x",
       {"[-1,0,1.5,3,7,50,500,5000]", "[5000,0.5]"},
       {"[1,1.0]", "[3,4]", "[-1,0,1,2,5,10,100,1000,2000]"}},
      {R"x({"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 100000}, "uniqueItems": true, "minItems": 2})x",
       {"[0,100000]", "[30000,20,99999]"},
       {"[0]", "[0,0]", "[0,100001]", "[-1,5]"}},
      {R"x({"type": "array", "items": {"type": "integer", "minimum": 5000}, "uniqueItems": true})x",
       {"[5000]", "[5000,5001,7000]"},
       {"[5000,5000]", "[4999]"}},
      {R"x({"type": "array", "items": {"type": "array", "items": {"type": "boolean"}}, "uniqueItems": true})x",
       {"[[],[true],[true,false]]"},
       {"[[],[]]", "[[true],[true]]", "[[1]]"}},
      {R"x({"type": "array", "items": {"type": "object", "properties": {"of": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}}, "required": ["of"]}, "uniqueItems": true})x",
       {R"([{"of":{"name":"ada"}},{"of":{"name":"zoe"}}])"},
       {R"([{"of":{"name":"ada"}},{"of":{"name":"ada"}}])", R"([{"of":{}}])"}},
      // A property that must be there goes before one that need not, one of few values behind both.
      {R"x({"type": "array", "items": {"type": "object", "properties": {"fix": {"const": 1}, "may": {"type": "integer"}, "must": {"type": "integer"}}, "required": ["must"], "additionalProperties": false}, "uniqueItems": true, "minItems": 2})x",
       {R"([{"must":1},{"may":1,"must":2}])"},
       {R"([{"must":1},{"must":1}])", R"([{"may":1,"must":1},{"may":2,"must":1}])"}},
      {R"x({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}, "uniqueItems": true})x",
       {R"(["a"])", R"(["b",1,20])"},
       {"[1]", R"(["a",1,1])", R"(["a","b"])"}},
      {R"x({"type": "array", "items": {"type": "string"}, "uniqueItems": true, "maxItems": 1})x",
       {"[]", R"(["a"])"},
       {R"(["a","z"])"}},
      {R"x({"type": "array", "uniqueItems": false, "items": {"type": "null"}})x",
       {"[null,null]"},
       {"[1]"}},
      {R"x({"type": "array", "items": {"type": "boolean"}, "uniqueItems": true, "contains": {"const": true}})x",
       {"[true]", "[true,false]"},
       {"[]", "[false]", "[true,true]"}},
      // "contains" beside other keywords of elements.
      {R"x({"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "string"}, "contains": {"const": "x"}, "maxItems": 3})x",
       {R"([1,"x"])", R"([1,"a","x"])"},
       {"[]", "[1]", R"(["x"])", R"([1,"a","b","x"])"}},
      {R"x({"type": "array", "items": {"type": "integer"}, "contains": {"multipleOf": 2}, "minContains": 2, "minItems": 3})x",
       {"[2,4,1]", "[1,2,3,4]"},
       {"[2,4]", "[1,2,3]"}},
      {R"x({"type": "array", "contains": {"type": "integer"}, "minContains": 0})x",
       {"[]", "[null]"},
       {"{}"}},
      {R"x({"type": "array", "contains": {"type": "integer"}, "minContains": 0, "maxContains": 1})x",
       {"[]", "[null,1]"},
       {"[1,2]"}},
      {R"x({"type": "array", "contains": {"type": "integer"}, "maxContains": 0, "minContains": 0})x",
       {"[]", "[null,\"a\"]"},
       {"[1]"}},
      // Several "contains", each with its own count, which one element may serve.
      {R"x({"type": "array", "items": {"type": "integer"}, "allOf": [{"contains": {"minimum": 3}, "minContains": 2}, {"contains": {"multipleOf": 2}, "maxContains": 1}, {"contains": {"const": 5}}]})x",
       {"[4,5]", "[5,5,2]", "[5,1,6]"},
       {"[5,5]", "[5,4,2]", "[5,2]", "[4,7]"}},
      {R"x({"type": "array", "contains": {"const": 1}, "not": {"items": {"const": 1}}})x",
       {"[1,2]", "[null,1]"},
       {"[]", "[1]", "[2]"}},
      {R"x({"type": "array", "contains": {"const": 1}, "minContains": 2, "allOf": [{"contains": {"const": 1}, "maxContains": 3}]})x",
       {"[1,1]", "[1,2,1,1]"},
       {"[1]", "[1,1,1,1]"}},
      // Elements that differ, beside "contains".
      {R"x({"type": "array", "items": {"enum": ["a", "b", "c"]}, "uniqueItems": true, "contains": {"enum": ["a", "b"]}, "maxContains": 1})x",
       {R"(["a"])", R"(["c","b"])"},
       {"[]", R"(["c"])", R"(["a","b"])", R"(["a","a"])"}},
      {R"x({"type": "array", "items": {"type": "string"}, "uniqueItems": true, "contains": {"const": "a"}, "maxContains": 0, "minContains": 0})x",
       {"[]", R"(["z"])", R"(["z","ab"])"},
       {R"(["a"])", R"(["z","a"])", R"(["z","z"])"}},
      {R"x({"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 7}, "uniqueItems": true, "allOf": [{"contains": {"minimum": 4}, "minContains": 2}, {"contains": {"multipleOf": 3}}]})x",
       {"[6,1,5]", "[4,5,3]"},
       {"[4,5]", "[6,1]", "[6,6]"}},
      // Limits that several schemas say together, and "items" of older drafts.
      {R"x({"type": "array", "allOf": [{"minItems": 1, "maxItems": 3}, {"minItems": 2, "items": {"type": "integer"}}, {"items": {"minimum": 3}}]})x",
       {"[3,4]", "[3,3,3]"},
       {"[3]", "[2,3]", "[3,3,3,3]"}},
      {R"x({"type": "array", "items": [{"type": "integer"}, {"type": "null"}], "additionalItems": {"type": "string"}})x",
       {"[]", "[1]", R"([1,null,"a"])"},
       {"[null]", "[1,null,2]"}},
      {R"x({"type": "array", "not": {"items": [{"type": "integer"}], "additionalItems": false}})x",
       {"[null]", "[1,2]"},
       {"[]", "[1]"}},
      {R"x({"type": "array", "items": [{"type": "integer"}], "additionalItems": false, "not": {"maxItems": 0}})x",
       {"[1]"},
       {"[]", "[1,2]"}},
  });
}

TEST(JsonSchemaArrays, Refusals) {
  const auto refused = [](const char* schema) { return refusal(GrammarKind::kJsonSchema, schema); };
  EXPECT_THAT(refused(R"({"type": "array", "uniqueItems": 1})"),
              HasSubstr("'/uniqueItems': must be true or false"));
  EXPECT_THAT(refused(R"({"type": "array", "items": {}, "prefixItems": {}})"),
              HasSubstr("'/prefixItems': must be an array"));
  EXPECT_THAT(
      refused(R"({"type": "array", "uniqueItems": true, "contains": {}, "maxContains": 300})"),
      HasSubstr("'/uniqueItems': beside these limits of 'contains' this is not supported"));
  EXPECT_THAT(refused(R"({"type": "array", "contains": {}, "unevaluatedItems": false})"),
              HasSubstr("'/unevaluatedItems': beside 'contains' this is not supported"));
  EXPECT_THAT(refused(R"({"type": "array", "contains": {}, "maxContains": 5000, "maxItems": 9})"),
              HasSubstr("'/contains': this number of elements is not supported"));
  EXPECT_THAT(refused(R"({"type": "array", "contains": {}, "minContains": 2, "maxContains": 1})"),
              HasSubstr("'': no value is of this schema"));
  EXPECT_THAT(refused(R"({"type": "array", "contains": {"type": "null"}, "maxContains": 0})"),
              HasSubstr("'': no value is of this schema"));
  // Opposites of "uniqueItems" are a few pairs alone, none of which is of these elements.
  EXPECT_THAT(refused(R"({"type": "array", "items": {"const": 7}, "not": {"uniqueItems": true}})"),
              HasSubstr("'': no value of this schema was found, and some of its alternatives"));
}

// The first 32 alternatives of the opposite have no value; two equal lists in "oneOf" allow none,
// so that the opposite allows all.
TEST(JsonSchemaArrays, OppositeOfListedArrays) {
  const auto schema = [](std::string_view list, std::string_view more) {
    return fmt::format(
        R"({{"type": "array", "not": {{"oneOf": [{{"enum": {}}}, {{"enum": {}}}]}}{}}})", list,
        list, more);
  };
  expect_texts(GrammarKind::kJsonSchema, schema(R"([[], [1], ["x", 2]])", ""), {"[]", "[1]", "[9]"},
               {"{}"});
  expect_texts(
      GrammarKind::kJsonSchema,
      schema("[[1], [2], [3]]", R"(, "minItems": 1, "maxItems": 1, "items": {"enum": [1, 2, 3]})"),
      {"[1]"}, {"[]", "[9]", "[1,1]"});
}

}  // namespace
}  // namespace nereid::text
