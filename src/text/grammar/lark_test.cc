// Grammars in Lark's notation.
#include "text/grammar/lark.h"

#include <gmock/gmock.h>

#include "text/grammar/grammar_test_util.h"
#include "text/unicode/utf8.h"

namespace nereid::text {
namespace {

using ::testing::HasSubstr;

constexpr auto kEbnf = GrammarKind::kEbnf;

TEST(Lark, Elements) {
  expect_texts(kEbnf, "start: \"a\" | /[bc]+/ \"\\n\\\"\\x41\"", {"a", "bcb\n\"A"},
               {"", "b", "ab"});
  expect_texts(kEbnf, "start: (\"a\" | \"b\")? [\"c\"] \"d\"* \"e\"+", {"e", "acdde", "bee"},
               {"", "abe"});
  expect_texts(kEbnf, "start: \"a\"~2 \"b\" ~ 1..3", {"aab", "aabbb"}, {"ab", "aa", "aabbbb"});
  expect_texts(kEbnf, "start: \"a\"..\"c\" \"\\x30\"..\"9\"", {"b5", "a0"}, {"d5", "bb"});
  expect_texts(kEbnf, "start: \"Ab1\"i /[x-z]q/i", {"aB1Yq", "Ab1xQ"}, {"ab2xq", "ab1aq"});
  expect_texts(kEbnf, "start: /[^a]/i", {"b", "B"}, {"a", "A"});
  expect_texts(kEbnf, "start: /a.b/s", {"a\nb"}, {"ab"});
  expect_texts(kEbnf, "start: /a.b/", {"acb"}, {"a\nb"});
  expect_texts(kEbnf, "start: /a\\/b/ // a comment\n", {"a/b"}, {"a"});
}

TEST(Lark, Statements) {
  expect_texts(kEbnf, R"(// sums
start: _list          # another comment
?_list.2: pair
    | pair "," _list  -> more

!pair: KEY "=" value
value: (NUMBER
        | KEY)
KEY.-3: LETTER+
%import common.LETTER
%import common.INT -> NUMBER
)",
               {"a=1", "ab=cd,x=12"}, {"", "a", "a=", "1=a", "a=1,"});
  expect_texts(kEbnf, "start: A B\n%import common (DIGIT, WORD)\nA: DIGIT\nB: WORD", {"1a"},
               {"a1", "11"});
}

TEST(Lark, IgnoredTextsStandAroundTerminals) {
  expect_texts(kEbnf,
               "start: pair (\",\" pair)*\npair: WORD \"=\" INT\nINT: DIGIT+\nDIGIT: \"0\"..\"9\"\n"
               "%import common.WORD\n%import common.WS\n%ignore WS\n%ignore /#[^\\n]*\\n/",
               {"a=1", " a = 12 , b\n=#x\n 2 ", "a=1,b=2"}, {"a=1 2x", "a =", "a=1#"});
}

TEST(Lark, RulesMayBeginWithThemselves) {
  expect_texts(kEbnf,
               "?start: sum\n?sum: product | sum \"+\" product | sum \"-\" product\n"
               "?product: atom | product \"*\" atom\natom: /\\d/ | \"(\" sum \")\"",
               {"1", "1+2*3-4", "(1-2)*3"}, {"", "+1", "1+", "(1"});
  expect_texts(kEbnf, "start: start | \"a\"", {"a"}, {"aa"});
  expect_texts(kEbnf, "start: start \"b\" | \"a\"\n%ignore \" \"", {" a b b "}, {"b", "ab a"});
}

TEST(Lark, CommonTerminals) {
  const auto expect = [](const std::string& name, const std::vector<std::string>& good,
                         const std::vector<std::string>& bad) {
    expect_texts(kEbnf, "start: T\n%import common." + name + " -> T", good, bad);
  };
  expect("HEXDIGIT", {"f", "0"}, {"g"});
  expect("SIGNED_INT", {"-1", "+22", "3"}, {"-", "1.0"});
  expect("DECIMAL", {"1.", ".5", "1.25"}, {"1", "."});
  expect("FLOAT", {"1e5", "1.", ".5E-2"}, {"1", "e5"});
  expect("SIGNED_FLOAT", {"-1e5", "+1."}, {"1"});
  expect("NUMBER", {"1", "1.5", ".5", "1e9"}, {"-1", ""});
  expect("SIGNED_NUMBER", {"-1", "+.5e1"}, {"--1"});
  expect("ESCAPED_STRING", {"\"\"", "\"a\\\"b\\\\\""}, {"\"", "\"a\"b\"", "\"\n\"", "\"\\\""});
  expect("CNAME", {"_a1", "A"}, {"1a", ""});
  expect("LCASE_LETTER", {"a"}, {"A"});
  expect("UCASE_LETTER", {"A"}, {"a"});
  expect("WS_INLINE", {" \t"}, {"", "\n"});
  expect("WS", {" \n\f"}, {""});
  expect("NEWLINE", {"\n", "\r\n\n"}, {"\r"});
  expect("CR", {"\r"}, {"\n"});
  expect("LF", {"\n"}, {"\r"});
  expect("SH_COMMENT", {"# x"}, {"# \n"});
  expect("CPP_COMMENT", {"// x"}, {"/ x"});
  expect("C_COMMENT", {"/* x* **/", "/**/"}, {"/*/", "/* */ */"});
  expect("SQL_COMMENT", {"-- x"}, {"- x"});
}

TEST(Lark, RefusesByLineAndConstruct) {
  const auto expect = [](const std::string& lark, std::string_view text) {
    EXPECT_THAT(refusal(kEbnf, lark), HasSubstr(text)) << lark;
  };
  expect("rule: \"a\"", "there is no rule 'start'");
  expect("start: x\n", "'x' is not defined, used in line 1");
  expect("start: \"a\"\nstart: \"b\"", "a second 'start' in line 2");
  expect("start: \"a\"\n\nstart{x}: \"b\"", "a template, 'start{' in line 3");
  expect("start: sep{x}", "a template, 'sep{', which is not supported, in line 1");
  expect("start: <|eot|>", "a special token, '<', which is not supported, in line 1");
  expect("start: %json {}", "a directive in a rule, '%', which is not supported, in line 1");
  expect("start: \"a\"\n%declare X", "'%declare', which is not supported");
  expect("%import python.NAME\nstart: NAME", "an import from 'python'");
  expect("%import common.NAME\nstart: NAME", "common has no 'NAME', in line 1");
  expect("start[lazy]: \"a\"", "grammar: ");
  expect("start: T\nT: start", "the rule 'start' in a terminal in line 2");
  expect("start: /a(?=b)/", "lookaround");
  expect("start: /a/x", "the flag 'x'");
  expect("start: \"\xC3\xA4\"i /\xC3\xA4/i", "not ASCII");
  expect("start: \"a", "'\"' without its end in line 1");
  expect("start: /a\n/", "'/' without its end in line 1");
  expect("start: (\"a\"", "'(' without its end");
  expect("start: \"a\")", "')', which belongs to nothing, in line 1");
  expect("start: \"a\"~3..2", "wrong order");
  expect("start: \"a\"~10001", "a number above 10000");
  expect("start: \"ab\"..\"c\"", "no characters in order");
  expect("start: \"c\"..\"a\"", "no characters in order");
  expect("start: \"a\" \xC3\xA4", "which begins no element, in line 1");
  EXPECT_TRUE(is_valid_utf8(refusal(kEbnf, "start: \"a\" \xC3\xA4")));
  expect("start: @", "'@', which begins no element, in line 1");
  expect("start: a\na: b \"x\" | \"y\"\nb: a", "left recursion");
  expect("start: " + std::string(100, '(') + "\"a\"" + std::string(100, ')'), "64 groups");
}

}  // namespace
}  // namespace nereid::text
