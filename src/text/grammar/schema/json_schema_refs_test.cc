// References and addresses of JSON Schema.
#include <gmock/gmock.h>

#include "text/grammar/grammar_test_util.h"

namespace nereid::text {
namespace {

using ::testing::HasSubstr;

TEST(JsonSchemaRefs, LeadWithinTheSchema) {
  expect_schemas({
      {R"x({"$defs": {"n": {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}, "additionalProperties": false}}, "$ref": "#/$defs/n"})x",
       {"{}", "{\"next\":{\"next\":{}}}"},
       {"{\"next\":1}"}},
      {R"x({"type": "array", "items": {"$ref": "#"}})x", {"[]", "[[],[[]]]"}, {"[1]"}},
      {R"x({"$id": "http://x/root", "$defs": {"n": {"$id": "other", "$defs": {"m": {"$anchor": "here", "type": "null"}}}}, "type": "array", "items": {"$ref": "other#here"}})x",
       {"[null]"},
       {"[1]"}},
      {R"x({"type": "object", "properties": {"next": {"$ref": "#"}, "v": {}}, "additionalProperties": false})x",
       {"{}", "{\"next\":{\"v\":1}}"},
       {"{\"next\":1}"}},
      // Addresses of older drafts.
      {R"x({"$schema": "http://json-schema.org/draft-04/schema#", "definitions": {"A": {"id": "#foo", "type": "integer"}}, "allOf": [{"$ref": "#foo"}]})x",
       {"1"},
       {"null"}},
      {R"x({"$schema": "http://json-schema.org/draft-04/schema#", "id": "http://x/root.json", "definitions": {"A": {"id": "nested/a.json", "definitions": {"B": {"id": "b.json", "type": "integer"}}}}, "items": {"$ref": "http://x/nested/b.json"}, "type": "array"})x",
       {"[1]"},
       {"[null]"}},
      {R"x({"definitions": {"A": {"id": "#foo", "type": "integer"}}, "$ref": "#foo"})x",
       {"1"},
       {"null"}},
      {R"x({"$schema": "http://json-schema.org/draft-04/schema#", "id": "http://x/a", "properties": {"a": {"id": "/properties/a", "$ref": "#/definitions/n"}, "b": {"id": "b", "allOf": [{"$ref": "#/definitions/n"}]}}, "definitions": {"n": {"type": "null"}}, "type": "object", "additionalProperties": false})x",
       {R"({"a":null,"b":null})"},
       {R"({"a":1})", R"({"b":1})"}},
      // Up to draft 7 nothing counts beside "$ref", an "$id" neither.
      {R"x({"$schema": "http://json-schema.org/draft-07/schema#", "$id": "http://x/sibling_id/base/", "definitions": {"foo": {"$id": "http://x/sibling_id/foo.json", "type": "string"}, "base_foo": {"$id": "foo.json", "type": "number"}}, "allOf": [{"$id": "http://x/sibling_id/", "$ref": "foo.json"}]})x",
       {"1"},
       {"\"a\""}},
      {R"x({"$schema": "http://json-schema.org/draft-06/schema#", "$ref": "#/definitions/a", "type": "null", "not": {}, "definitions": {"a": {"type": "integer"}}})x",
       {"1"},
       {"null"}},
      {R"x({"$schema": "http://json-schema.org/draft-07/schema#", "not": {"$ref": "#/definitions/a", "minimum": 5}, "definitions": {"a": {"type": "integer"}}})x",
       {"\"a\""},
       {"1", "7"}},
      {R"x({"$ref": "#/$defs/a", "minimum": 5, "$defs": {"a": {"type": "integer"}}})x",
       {"7"},
       {"1", "\"a\""}},
      {R"x({"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"A": {"$id": "#here", "type": "integer"}}, "items": {"$ref": "#here"}, "type": "array"})x",
       {"[1]"},
       {"[null]"}},
      // A schema beside "$ref" is none of draft 7, neither are those in it.
      {R"x({"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": {"$ref": "#/definitions/a", "properties": {"b": {"$ref": "nowhere.json"}}}, "definitions": {"a": {"type": "integer"}}})x",
       {"[1]"},
       {"[null]"}},
      // "$ref" that is the name of a property.
      {R"x({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"$ref": {"type": "string"}}, "required": ["$ref"], "additionalProperties": false})x",
       {R"({"$ref":"a"})"},
       {"{}", R"({"$ref":1})"}},
      // Relative addresses, with and without a path, and one that two schemas have.
      {R"x({"$id": "http://x/a/b/root.json", "$defs": {"up": {"$id": "../up.json", "type": "integer"}, "here": {"$id": "./here.json", "type": "string"}, "top": {"$id": "/top.json", "type": "null"}, "net": {"$id": "//y/net.json", "type": "boolean"}}, "type": "array", "prefixItems": [{"$ref": "http://x/a/up.json"}, {"$ref": "http://x/a/b/here.json"}, {"$ref": "http://x/top.json"}, {"$ref": "http://y/net.json"}], "items": false})x",
       {R"([1,"a",null,true])"},
       {R"(["a"])", "[1,1]", R"([1,"a",1])", R"([1,"a",null,null])"}},
      {R"x({"$id": "http://x", "$defs": {"a": {"$id": "n.json", "type": "integer"}}, "items": {"$ref": "http://x/n.json"}, "type": "array"})x",
       {"[1]"},
       {"[null]"}},
      {R"x({"$id": "urn:x:y", "$defs": {"a": {"$anchor": "n", "type": "integer"}}, "items": {"$ref": "urn:x:y#n"}, "type": "array"})x",
       {"[1]"},
       {"[null]"}},
      {R"x({"$defs": {"a": {"$id": "twice", "type": "integer"}, "b": {"$id": "twice", "type": "string"}}, "$ref": "twice"})x",
       {"1"},
       {"\"a\""}},
      // A pointer into a schema with an address of its own, or, if absent there, into the whole.
      {R"x({"$id": "http://x/r", "$defs": {"p": {"$id": "part", "$defs": {"n": {"type": "null"}}, "type": "array", "items": {"$ref": "#/$defs/n"}}}, "$ref": "part"})x",
       {"[null]"},
       {"[1]"}},
      {R"x({"$id": "http://x/r", "$defs": {"n": {"type": "null"}, "p": {"$id": "part", "type": "array", "items": {"$ref": "#/$defs/n"}}}, "$ref": "part"})x",
       {"[null]"},
       {"[1]"}},
      // Escapes of pointers.
      {R"x({"$defs": {"a/b~c d%": {"type": "null"}}, "items": {"$ref": "#/$defs/a~1b~0c%20d%25"}, "type": "array"})x",
       {"[null]"},
       {"[1]"}},
      {R"x({"$dynamicAnchor": "node", "type": "object", "properties": {"child": {"$dynamicRef": "#node"}}, "additionalProperties": false})x",
       {"{}", R"({"child":{"child":{}}})"},
       {R"({"child":1})"}},
      {R"x({"$schema": "http://json-schema.org/draft-04/schema#", "id": "http://x/r", "type": "object", "properties": {"id": {"type": "string"}, "$id": {"type": "integer"}}, "required": ["id"], "additionalProperties": false})x",
       {R"({"id":"a"})", R"({"id":"a","$id":1})"},
       {"{}", R"({"id":1})"}},
      // A value that never ends is not begun.
      {R"x({"anyOf": [{"type": "object", "properties": {"a": {"$ref": "#/anyOf/0"}}, "required": ["a"]}, {"type": "null"}, {"type": "array", "items": {"$ref": "#/anyOf/0"}}]})x",
       {"null", "[]"},
       {"{", "[{", "1"}},
      // Several references at once, through each other.
      {R"x({"$defs": {"pos": {"minimum": 1}, "int": {"type": "integer", "allOf": [{"$ref": "#/$defs/pos"}]}}, "allOf": [{"$ref": "#/$defs/int"}, {"$ref": "#/$defs/pos"}], "maximum": 3})x",
       {"1", "3"},
       {"0", "4", "1.5"}},
  });
}

TEST(JsonSchemaRefs, Refusals) {
  const auto refused = [](const std::string& schema) {
    return refusal(GrammarKind::kJsonSchema, schema);
  };
  EXPECT_THAT(refused(R"({"$ref": "http://json-schema.org/draft-07/schema#"})"),
              HasSubstr("'/$ref': only references into this schema"));
  EXPECT_THAT(refused(R"({"$ref": 1})"), HasSubstr("'/$ref': must be a string"));
  EXPECT_THAT(refused(R"({"$ref": "#here"})"), HasSubstr("'/$ref': there is no anchor 'here'"));
  EXPECT_THAT(refused(R"({"$id": "http://x/r", "$ref": "other"})"),
              HasSubstr("'/$ref': only references into this schema"));
  EXPECT_THAT(refused(R"({"$defs": {"a": {"$dynamicAnchor": "n"}, "b": {"$dynamicAnchor": "n"}},
                          "$dynamicRef": "#n"})"),
              HasSubstr("several '$dynamicAnchor' of this name"));
  EXPECT_THAT(refused(R"({"$schema": "http://json-schema.org/draft-07/schema#",
                          "$ref": "#/definitions/a",
                          "definitions": {"a": {"$ref": "#/definitions/b"},
                                          "b": {"$ref": "#/definitions/a"}}})"),
              HasSubstr("a schema is a part of itself here"));
  // An address of more than 1000 characters is none.
  const std::string address = "http://x/" + std::string(1000, 'a');
  EXPECT_THAT(
      refused(fmt::format(R"({{"$defs": {{"a": {{"$id": "{0}"}}}}, "$ref": "{0}"}})", address)),
      HasSubstr("'/$ref': only references into this schema"));
}

}  // namespace
}  // namespace nereid::text
