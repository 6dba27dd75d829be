// The template language: goldens of the reference implementation, whitespace rules, limits.
#include "text/jinja/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>

#include "base/json.h"
#include "base/testing/source_dir.h"

namespace nereid::text::jinja {
namespace {

using testing::HasSubstr;

StatusOr<std::string> try_render(std::string_view source, const json::object& context = {},
                                 const Limits& limits = {}) {
  const auto parsed = Template::parse(source);
  if (!parsed.ok()) return parsed.status();
  return (*parsed)->render(context, limits);
}

// The output, or "error: " and the message.
std::string render(std::string_view source, const char* context = "{}") {
  const auto result = try_render(source, parse_json(context)->as_object());
  return result.ok() ? *result : fmt::format("error: {}", message(result.status()));
}

TEST(Template, EqualsTheReferenceOnGoldens) {
  const auto golden =
      read_json_file(std::filesystem::path(source_dir()) / "tests/golden/jinja.json");
  ASSERT_TRUE(golden.ok()) << golden.status();
  const json::object& context = golden->at("context").as_object();
  ASSERT_GT(golden->at("cases").as_array().size(), 70u);
  for (const json::value& c : golden->at("cases").as_array()) {
    const std::string source(c.at("source").as_string().c_str());
    const auto got = try_render(source, context);
    if (const json::value* want = c.as_object().if_contains("output")) {
      ASSERT_TRUE(got.ok()) << source << "\n" << got.status();
      EXPECT_EQ(*got, std::string(want->as_string().data(), want->as_string().size())) << source;
    } else {
      EXPECT_FALSE(got.ok()) << source << "\n" << *got;
    }
  }
}

TEST(Template, WhitespaceRules) {
  EXPECT_EQ(render("a\n  {% if 1 %}\nb\n  {% endif %}\nc\n"), "a\nb\nc");
  EXPECT_EQ(render("  {{ 1 }}\n x"), "  1\n x");
  EXPECT_EQ(render("a\n  {# c #}\nb"), "a\nb");
  EXPECT_EQ(render("x {%- if 1 -%} y {%- endif -%} z"), "xyz");
  EXPECT_EQ(render("a  {%+ if 1 %} b{% endif +%}\nc"), "a   b\nc");
  EXPECT_EQ(render("a\n\n{% if true %}\n\nb{% endif %}\n"), "a\n\n\nb");
  EXPECT_EQ(render("a\r\nb\r{% if 1 %}\r\nc{% endif %}"), "a\nb\nc");
  EXPECT_EQ(render("{{ 1 -}}  \n 2"), "12");
  EXPECT_EQ(render("a \n {{- 1 }}"), "a1");
  EXPECT_EQ(render("\n\n"), "\n");
}

TEST(Template, GeneratorsAreWalkedOnceAndViewsHaveNoElements) {
  EXPECT_EQ(render("{% set g = [1, 2] | select %}{{ g | list }}{{ g | list }}"), "[1, 2][]");
  EXPECT_EQ(render("{{ 'y' if [] | map('upper') else 'n' }}{{ 'y' if {}.items() else 'n' }}"),
            "yn");
  EXPECT_EQ(render("{{ none | map('upper') | list }}"), "[]");
  EXPECT_EQ(render("{{ {'a': 1}.items() }}"), "dict_items([('a', 1)])");
  EXPECT_EQ(render("{{ {'a': 1}.keys() is sequence }}"), "False");
  EXPECT_EQ(render("{{ range(1, 4) }}{{ range(4)[::-1] }}{{ range(2) | tojson if 0 else 1 }}"),
            "range(1, 4)[3, 2, 1, 0]1");
  EXPECT_THAT(render("{{ [1] | select | length }}"), HasSubstr("has no len()"));
  EXPECT_THAT(render("{{ [1] | select | last }}"), HasSubstr("not reversible"));
  EXPECT_THAT(render("{{ {'a': 1}.items() | tojson }}"), HasSubstr("not JSON serializable"));
}

TEST(Template, TextIsPythons) {
  EXPECT_EQ(render("{{ ['a\u200d\u00a0\u00e9'] }}"), "['a\\u200d\\xa0\u00e9']");
  EXPECT_EQ(render("{{ \"don't re_do\" | wordcount }}"), "3");
  EXPECT_EQ(render("{{ 'x' | tojson }}{{ '\x7f' | tojson(ensure_ascii=true) }}"),
            "\"x\"\"\\u007f\"");
  EXPECT_EQ(render("a\n\u3000{% if 1 %}b{% endif %}"), "a\nb");
  EXPECT_EQ(render("{{ dict([['a', 1]], b=2) }}"), "{'a': 1, 'b': 2}");
  EXPECT_EQ(render("{{ 2.5 is even }}{{ 4.0 is even }}{{ -3 is odd }}"), "FalseTrueTrue");
  EXPECT_THAT(render("{{ [] in {} }}"), HasSubstr("unhashable"));
  EXPECT_THAT(render("{{ 1 | indent }}"), HasSubstr("needs a str"));
  EXPECT_THAT(render("{% set n = namespace(_a=1) %}"), HasSubstr("'_a'"));
  EXPECT_THAT(render("{% macro f() %}{% endmacro %}{% call f() %}{% endcall %}"),
              HasSubstr("caller"));
}

TEST(Template, GenerationBlocksRenderTheirBody) {
  EXPECT_EQ(render("a{% generation %}\nb{% endgeneration %}\nc"), "abc");
}

TEST(Template, ErrorsNameTheLine) {
  EXPECT_EQ(render("a\nb {{ nope.x }}"), "error: line 2: 'nope' is undefined");
  EXPECT_THAT(render("a\n{% for x in [1] %}\n{{ 1 / 0 }}{% endfor %}"),
              HasSubstr("line 3: division by zero"));
  EXPECT_THAT(render("{% if 1 %}\n\nx"), HasSubstr("line 3, column 2: unexpected end of template"));
  EXPECT_THAT(render("{{ 'x"), HasSubstr("line 1, column 4: string is not closed"));
  EXPECT_THAT(render("{% include 'x' %}"), HasSubstr("'include' is not supported"));
  EXPECT_THAT(render("{{ 9223372036854775807 + 1 }}"), HasSubstr("64 bits"));
  EXPECT_THAT(render("{% break %}"), HasSubstr("outside of a loop"));
  EXPECT_THAT(render("\xFF"), HasSubstr("UTF-8"));
}

TEST(Template, StrftimeNowIsTheYear) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  EXPECT_EQ(render("{{ strftime_now('%Y') }}"), std::to_string(1900 + local.tm_year));
}

TEST(Template, KeepsTheOrderOfJsonKeys) {
  EXPECT_EQ(render("{{ d | tojson }}", R"({"d": {"z": 1, "a": [true, null], "m": "<&>"}})"),
            R"({"z": 1, "a": [true, null], "m": "<&>"})");
}

TEST(Template, HostileTemplatesEndWithAnError) {
  const auto limited = [](std::string_view source) {
    const auto result = try_render(source);
    return result.ok() ? "" : std::string(message(result.status()));
  };
  EXPECT_THAT(limited("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), HasSubstr("too deep"));
  EXPECT_THAT(limited("{% set ns = namespace(x='a') %}{% for i in range(99) %}"
                      "{% set ns.x = ns.x ~ ns.x %}{% endfor %}"),
              HasSubstr("too much memory"));
  EXPECT_THAT(limited("{{ 'a' * 9223372036854775807 }}"), HasSubstr("too much memory"));
  EXPECT_THAT(limited("{% set ns = namespace(x=[]) %}{% for i in range(999) %}"
                      "{% set ns.x = [ns.x] %}{% endfor %}"),
              HasSubstr("nested too deep"));
  EXPECT_THAT(limited("{% set ns = namespace(x=[1]) %}{% for i in range(99) %}"
                      "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}"),
              HasSubstr("too m"));
  EXPECT_THAT(limited("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}"
                      "{% endfor %}"),
              HasSubstr("too m"));
  EXPECT_THAT(limited("{{ " + std::string(100000, '(') + std::string(100000, ')') + "}}"),
              HasSubstr("nested more than"));
  std::string sum = "{{ 1";
  for (int i = 0; i < 100000; ++i) sum += "+1";
  EXPECT_THAT(limited(sum + " }}"), HasSubstr("nested more than"));
  EXPECT_THAT(limited("{{ range(10 ** 9) }}"), HasSubstr("longer than"));
  Limits limits;
  limits.max_output = 10;
  EXPECT_FALSE(try_render("{{ 'a' * 11 }}", {}, limits).ok());
}

TEST(Template, NamespaceCyclesAreFreed) {
  EXPECT_EQ(render("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = [b] %}ok"),
            "ok");
}

}  // namespace
}  // namespace nereid::text::jinja
