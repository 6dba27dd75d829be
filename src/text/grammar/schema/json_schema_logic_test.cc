// Combinations of small schemas, whose values are known, against all of a few values: what a
// grammar allows must be valid, and nearly all that is valid must be allowed.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "text/grammar/grammar_test_util.h"

namespace nereid::text {
namespace {

// Members of an object or elements of an array, in the order of their names or places, as JSON; an
// empty text is a member that is absent.
using Parts = std::vector<std::string>;
struct Atom {
  const char* schema;
  std::function<bool(const Parts&)> holds;
};
struct Value {
  Parts parts;
  std::vector<std::string> texts;  // that it can be written as
};

struct Form {
  const char* text;  // with X and Y in it
  bool (*holds)(bool x, bool y);
};
constexpr Form kForms[] = {
    {R"("not": X)", [](bool x, bool) { return !x; }},
    {R"("oneOf": [X, Y])", [](bool x, bool y) { return x != y; }},
    {R"("anyOf": [X, {"not": Y}])", [](bool x, bool y) { return x || !y; }},
    {R"("allOf": [X, {"not": Y}])", [](bool x, bool y) { return x && !y; }},
    {R"("allOf": [X], "anyOf": [Y, false])", [](bool x, bool y) { return x && y; }},
    {R"("if": X, "then": Y)", [](bool x, bool y) { return !x || y; }},
    {R"("if": X, "else": Y)", [](bool x, bool y) { return x || y; }},
    {R"("not": {"oneOf": [X, Y]})", [](bool x, bool y) { return x == y; }},
    {R"("not": {"if": X, "then": Y})", [](bool x, bool y) { return x && !y; }},
    {R"("not": {"anyOf": [X, {"not": Y}]})", [](bool x, bool y) { return !x && y; }},
    {R"("oneOf": [X, Y, {"allOf": [X, Y]}])", [](bool x, bool y) { return x != y; }}};

std::string written(std::string_view form, std::string_view x, std::string_view y) {
  std::string text;
  for (const char c : form) c == 'X' ? text += x : c == 'Y' ? text += y : text += c;
  return text;
}

struct Allowed {
  double share = 0;     // of the valid values, in all combinations
  int num_without = 0;  // combinations of which no valid value is allowed
};
Allowed expect_valid(std::string_view base, const std::vector<Atom>& atoms,
                     const std::vector<Value>& values) {
  Allowed result;
  int num_valid = 0, num_allowed = 0;
  for (const Form& form : kForms)
    for (const Atom& x : atoms)
      for (const Atom& y : atoms) {
        if (std::string_view(form.text).find('Y') == std::string_view::npos && &y != &atoms[0])
          continue;
        const std::string schema =
            fmt::format("{{{}, {}}}", base, written(form.text, x.schema, y.schema));
        const auto grammar = Grammar::compile(GrammarKind::kJsonSchema, schema, test_tokens());
        int valid_here = 0, allowed_here = 0;
        for (const Value& value : values) {
          const bool is_valid = form.holds(x.holds(value.parts), y.holds(value.parts));
          const bool is_allowed =
              grammar.ok() && std::ranges::any_of(value.texts, [&](const std::string& text) {
                return matches(*grammar, text);
              });
          EXPECT_TRUE(is_valid || !is_allowed) << schema << " allows " << value.texts[0];
          valid_here += is_valid;
          allowed_here += is_allowed;
        }
        if (allowed_here == 0 && valid_here > 0) ++result.num_without;
        num_valid += valid_here, num_allowed += allowed_here;
      }
  result.share = static_cast<double>(num_allowed) / num_valid;
  return result;
}

bool is_number(const std::string& part) { return part == "1" || part == "2"; }
size_t count_of(const Parts& parts) {
  return parts.size() - static_cast<size_t>(std::ranges::count(parts, ""));
}

// Atoms about members a, b and c.
const std::vector<Atom>& object_atoms() {
  static const std::vector<Atom> all = {
      {R"({"required": ["a"]})", [](const Parts& p) { return !p[0].empty(); }},
      {R"({"properties": {"a": {"type": "integer"}}})",
       [](const Parts& p) { return p[0].empty() || is_number(p[0]); }},
      {R"({"properties": {"a": {}}, "additionalProperties": {"type": "integer"}})",
       [](const Parts& p) {
         return (p[1].empty() || is_number(p[1])) && (p[2].empty() || is_number(p[2]));
       }},
      {R"({"properties": {"a": {}, "b": {}}, "additionalProperties": false})",
       [](const Parts& p) { return p[2].empty(); }},
      {R"({"propertyNames": {"enum": ["a", "b"]}})", [](const Parts& p) { return p[2].empty(); }},
      {R"({"patternProperties": {"^[bc]$": {"type": "string"}}})",
       [](const Parts& p) { return !is_number(p[1]) && !is_number(p[2]); }},
      {R"({"patternProperties": {"b": {"const": 1}}, "additionalProperties": {"const": "x"}})",
       [](const Parts& p) {
         return (p[1].empty() || p[1] == "1") && !is_number(p[0]) && !is_number(p[2]);
       }},
      {R"({"minProperties": 2})", [](const Parts& p) { return count_of(p) >= 2; }},
      {R"({"maxProperties": 1})", [](const Parts& p) { return count_of(p) <= 1; }},
      {R"({"dependentRequired": {"a": ["b"]}})",
       [](const Parts& p) { return p[0].empty() || !p[1].empty(); }},
      {R"({"dependentSchemas": {"b": {"properties": {"a": {"const": "x"}}}}})",
       [](const Parts& p) { return p[1].empty() || p[0].empty() || p[0] == "\"x\""; }},
      {R"({"properties": {"b": {"const": 1}}, "required": ["b"]})",
       [](const Parts& p) { return p[1] == "1"; }},
      {R"({"enum": [{"a": 1}, {"b": "x", "c": 1}, {}]})", [](const Parts& p) {
         return count_of(p) == 0 || p == Parts{"1", "", ""} || p == Parts{"", "\"x\"", "1"};
       }}};
  return all;
}

TEST(JsonSchemaLogic, CombinationsOfObjects) {
  std::vector<Value> values;
  const std::vector<std::string> members = {"", "1", "\"x\""};
  for (const std::string& a : members)
    for (const std::string& b : members)
      for (const std::string& c : members) {
        std::vector<std::string> written_members;
        for (const auto& [name, value] :
             {std::pair("\"a\":", a), std::pair("\"b\":", b), std::pair("\"c\":", c)})
          if (!value.empty()) written_members.push_back(name + value);
        Value& one = values.emplace_back(Value{{a, b, c}, {}});
        do one.texts.push_back(fmt::format("{{{}}}", fmt::join(written_members, ",")));
        while (std::ranges::next_permutation(written_members).found);
      }
  const Allowed allowed = expect_valid(
      R"("type": "object", "properties": {"a": {}, "b": {}, "c": {}})", object_atoms(), values);
  EXPECT_GE(allowed.share, 0.99);
  EXPECT_EQ(allowed.num_without, 0);
}

// Atoms about up to three elements.
const std::vector<Atom>& array_atoms() {
  static const auto all_numbers = [](const Parts& p) { return std::ranges::all_of(p, is_number); };
  static const auto count_numbers = [](const Parts& p) {
    return std::ranges::count_if(p, is_number);
  };
  static const std::vector<Atom> all = {
      {R"({"items": {"type": "integer"}})", all_numbers},
      {R"({"prefixItems": [{"type": "integer"}]})",
       [](const Parts& p) { return p.empty() || is_number(p[0]); }},
      {R"({"prefixItems": [{"type": "integer"}], "items": {"type": "string"}})",
       [](const Parts& p) { return p.empty() || (is_number(p[0]) && count_numbers(p) == 1); }},
      {R"({"prefixItems": [true, {"const": 1}], "items": false})",
       [](const Parts& p) { return p.size() < 2 || (p.size() == 2 && p[1] == "1"); }},
      {R"({"minItems": 2})", [](const Parts& p) { return p.size() >= 2; }},
      {R"({"maxItems": 1})", [](const Parts& p) { return p.size() <= 1; }},
      {R"({"contains": {"type": "integer"}})", [](const Parts& p) { return count_numbers(p) > 0; }},
      {R"({"uniqueItems": true})",
       [](const Parts& p) {
         Parts sorted = p;
         std::ranges::sort(sorted);
         return std::ranges::adjacent_find(sorted) == sorted.end();
       }},
      {R"({"enum": [[], [1], ["x", 2]]})", [](const Parts& p) {
         return p.empty() || p == Parts{"1"} || p == Parts{"\"x\"", "2"};
       }}};
  return all;
}

TEST(JsonSchemaLogic, CombinationsOfArrays) {
  std::vector<Value> values = {{{}, {"[]"}}};
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].parts.size() == 3) continue;
    for (const char* part : {"1", "2", "\"x\""}) {
      Parts parts = values[i].parts;
      parts.push_back(part);
      values.push_back({parts, {fmt::format("[{}]", fmt::join(parts, ","))}});
    }
  }
  const Allowed allowed = expect_valid(R"("type": "array")", array_atoms(), values);
  // Opposites of "uniqueItems" are a few pairs of values.
  EXPECT_GE(allowed.share, 0.89);
  EXPECT_LE(allowed.num_without, 21);
}

// Atoms about one value.
const std::vector<Atom>& scalar_atoms() {
  static const auto number = [](const Parts& p) { return p[0][0] != '"' && p[0][0] != 'n'; };
  static const auto value_of = [](const Parts& p) { return std::stod(p[0]); };
  static const auto text = [](const Parts& p) { return p[0][0] == '"'; };
  static const std::vector<Atom> all = {
      {R"({"type": "integer"})",
       [](const Parts& p) { return number(p) && p[0].find('.') == std::string::npos; }},
      {R"({"type": ["string", "null"]})", [](const Parts& p) { return !number(p); }},
      {R"({"minimum": 2})", [](const Parts& p) { return !number(p) || value_of(p) >= 2; }},
      {R"({"exclusiveMaximum": 2})", [](const Parts& p) { return !number(p) || value_of(p) < 2; }},
      {R"({"multipleOf": 2})",
       [](const Parts& p) { return !number(p) || std::remainder(value_of(p), 2) == 0; }},
      {R"({"multipleOf": 3, "maximum": 4})",
       [](const Parts& p) {
         return !number(p) || (std::remainder(value_of(p), 3) == 0 && value_of(p) <= 4);
       }},
      {R"({"enum": [2, "ab", null]})",
       [](const Parts& p) { return p[0] == "2" || p[0] == "\"ab\"" || p[0] == "null"; }},
      {R"({"const": 2.5})", [](const Parts& p) { return p[0] == "2.5"; }},
      {R"({"pattern": "^a"})", [](const Parts& p) { return !text(p) || p[0][1] == 'a'; }},
      {R"({"pattern": "b\\b"})",
       [](const Parts& p) { return !text(p) || p[0].find("b\"") != std::string::npos; }},
      {R"({"minLength": 2})", [](const Parts& p) { return !text(p) || p[0].size() >= 4; }},
      {R"({"maxLength": 1, "type": "string"})",
       [](const Parts& p) { return text(p) && p[0].size() <= 3; }}};
  return all;
}

TEST(JsonSchemaLogic, CombinationsOfScalars) {
  std::vector<Value> values;
  for (const char* text :
       {"-3", "-1.5", "0", "1", "2", "2.5", "3", "4", "6", "8", "null", "\"\"", "\"a\"", "\"b\"",
        "\"ab\"", "\"ba\"", "\"abc\"", "\"2024-02-29\"", "\"2024-02-30\""})
    values.push_back({{text}, {text}});
  const Allowed allowed =
      expect_valid(R"("type": ["integer", "number", "null", "string"])", scalar_atoms(), values);
  EXPECT_GE(allowed.share, 0.999);
  EXPECT_EQ(allowed.num_without, 0);
}

}  // namespace
}  // namespace nereid::text
