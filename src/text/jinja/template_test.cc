// The template language: goldens of the reference implementation, whitespace rules, limits.
#include "text/jinja/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>

#include "base/json.h"
#include "base/json_exact.h"
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

TEST(Template, LongNumbersKeepTheirDigits) {
  const json::value context =
      *parse_json_exact(R"({"n": 123456789012345678901, "x": {"y": [0.12345678901234567890]}})");
  const auto shown = [&](std::string_view source) {
    return try_render(source, context.as_object()).value_or("error");
  };
  EXPECT_EQ(shown("{{ n }} {{ n | string }} {{ '%s' % n }} {{ n | tojson }} {{ {'n': n} }}"),
            "123456789012345678901 123456789012345678901 123456789012345678901 "
            "123456789012345678901 {'n': 123456789012345678901}");
  EXPECT_EQ(shown("{{ x | tojson }} {{ x }}"),
            R"({"y": [0.12345678901234567890]} {'y': [0.12345678901234567890]})");
  EXPECT_EQ(shown("{{ n is number }} {{ n is integer }} {{ n is float }} {{ n is mapping }} "
                  "{{ x.y[0] is float }} {{ n is string }}"),
            "True True False False True False");
  EXPECT_EQ(shown("{{ n > 1 }} {{ n * 0 == 0 }} {{ n == n }} {{ 1 if n }}"), "True True True 1");
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

// Each line processes a text of 100 KB a hundred times.
TEST(Template, OperationsChargeWhatTheyReadOfLongTexts) {
  Limits limits;
  limits.max_steps = 100'000;
  for (const char* operation : {"a.center(0)",
                                "a | center(1)",
                                "a.zfill(0)",
                                "b in a",
                                "a.find(b)",
                                "a.rfind(b)",
                                "a.find('b')",
                                "a.count('b')",
                                "a.count('')",
                                "a.split('b')",
                                "a.rsplit('b')",
                                "a.split()",
                                "a.partition('b')",
                                "a.rpartition('b')",
                                "a.replace('b', '')",
                                "a.splitlines()",
                                "a.startswith(a)",
                                "a.endswith(a)",
                                "a.removeprefix(a)",
                                "a.strip('b')",
                                "a | int",
                                "a | float",
                                "a == c",
                                "a < c",
                                "a in [c]",
                                "[c].index(a)",
                                "[c].count(a)",
                                "d.get(a)",
                                "d[a] is defined",
                                "a in d",
                                "d[(a, 1)]",
                                "a | length",
                                "a[0]",
                                "a[-1:]",
                                "a | first",
                                "a | upper",
                                "a.isalpha()",
                                "a is lower",
                                "a | tojson",
                                "a | trim",
                                "a | wordcount",
                                "a | title",
                                "a | urlencode",
                                "a | indent",
                                "[a] | join('')",
                                "'%s' % a",
                                "'{}'.format(a)",
                                "a | escape",
                                "[a] | string",
                                "[a, c] | unique | list",
                                "[a, c] | sort",
                                "[a, c] | max",
                                "[a] | map(attribute=a) | list",
                                "a | attr(a)",
                                "namespace(x=1)[a]",
                                "{1:1, 2:2, 3:3, 4:4, 5:5, 6:6, 7:7, 8:8, a:9}"}) {
    const auto got = try_render(
        fmt::format("{{% set a = 'a' * 100000 %}}{{% set c = 'a' * 100000 %}}"
                    "{{% set b = 'a' * 50000 ~ 'b' %}}"
                    "{{% set d = {{'a': 1, 'b': 1, 'c': 1, 'd': 1, 'e': 1, 'f': 1, 'g': 1, 'h': 1, "
                    "'i': 1}} %}}"
                    "{{% for i in range(100) %}}{{% set x = {} %}}{{% endfor %}}",
                    operation),
        {}, limits);
    EXPECT_FALSE(got.ok()) << operation;
    EXPECT_THAT(std::string(message(got.status())), HasSubstr("too m")) << operation;
  }
}

// The product of the lengths is 10^12 comparisons.
TEST(Template, SearchesForLongTextsTakeLinearTime) {
  for (const char* search :
       {"b in a", "a.find(b)", "a.rfind(b)", "a.count(b)", "a.split(b) | length",
        "a.rsplit(b) | length", "a.partition(b) | length", "a.rpartition(b) | length",
        "a.replace(b, '') | length", "a | replace(b, '') | length"}) {
    EXPECT_FALSE(
        render(fmt::format("{{% set a = 'a' * 2000000 %}}{{% set b = 'a' * 500000 ~ 'b' %}}"
                           "{{{{ {} }}}}",
                           search))
            .starts_with("error"))
        << search;
  }
}

TEST(Template, ManyNamesAndKeysAreFoundByHash) {
  constexpr int kMany = 100'000;
  json::object many;
  for (int i = 0; i < kMany; ++i) many[fmt::format("k{:07}", i)] = i;
  json::object context = many;
  context["d"] = many;
  const auto got = try_render(
      "{{ k0099999 }} {{ d.k0099999 }} {% set n = namespace(**d) %}{{ n.k0000007 }} "
      "{% for k in d %}{% if d[k] != n[k] or k not in d %}{{ k }}{% endif %}{% endfor %}"
      "{{ d == dict(d) }} {{ dict(d, k0000001=5).k0000001 }} {{ d | dictsort | length }} "
      "{% macro f() %}{{ kwargs.k0000002 }}{% endmacro %}{{ f(**d) }} {{ d.nope is defined }}",
      context);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(*got, "99999 99999 7 True 5 100000 2 False");
}

TEST(Template, EqualKeysAreOneKeyInLongDicts) {
  EXPECT_EQ(render("{% set d = {1: 'a', 2: 'b', 3: 'c', 4: 'd', 5: 'e', 6: 'f', 7: 'g', 'x': 'h', "
                   "(1, 'y'): 'i', none: 'j', 0: 'k', 1.5: 'l', true: 'm'} %}"
                   "{{ d | length }}{{ d[1.0] }}{{ d[true] }}{{ d[(1.0, 'y')] }}{{ d[none] }}"
                   "{{ d[false] }}{{ d[-0.0] }}{{ d[1.5] }}{{ d['x'] }}{{ d['y'] is defined }}"),
            "12mmijkklhFalse");
}

TEST(Template, EndsWhenItsTextIsUnwanted) {
  int asked = 0;
  Limits limits;
  limits.is_unwanted = [&] { return ++asked == 3; };
  const auto got = try_render(
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", {}, limits);
  EXPECT_TRUE(absl::IsCancelled(got.status())) << got.status();
  EXPECT_EQ(asked, 3);
}

TEST(Template, MessagesShowTheStartOfLongNames) {
  EXPECT_LT(render("{% set a = 'a' * 1000000 %}{{ {}[a].x }}").size(), 200u);
  EXPECT_LT(render("{% set a = 'a' * 1000000 %}{{ namespace()[a].x }}").size(), 200u);
  EXPECT_LT(render("{{ raise_exception('a' * 1000000) }}").size(), 5000u);
  std::string many;
  for (int i = 0; i < 200'000; ++i) many += "{{1}}";
  EXPECT_THAT(render(many), HasSubstr("more than 400000 tokens"));
}

TEST(Template, NamespaceCyclesAreFreed) {
  EXPECT_EQ(render("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = [b] %}ok"),
            "ok");
}

}  // namespace
}  // namespace nereid::text::jinja
