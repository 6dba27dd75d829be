// Structural tags: free text, triggers, and the content of tags.
#include "text/grammar/structural_tag.h"

#include <gmock/gmock.h>

#include "text/grammar/grammar_test_util.h"

namespace nereid::text {
namespace {

using ::testing::HasSubstr;

constexpr auto kTag = GrammarKind::kStructuralTag;

std::string format(const std::string& inner) {
  return R"({"type": "structural_tag", "format": )" + inner + "}";
}

constexpr const char* kTools = R"({"structures": [
    {"begin": "<fn=a>", "schema": {"type": "integer"}, "end": "</fn>"},
    {"begin": "<fn=b>", "schema": {"enum": ["x"]}, "end": "</fn>"}], "triggers": ["<fn="]})";

TEST(StructuralTag, OlderForm) {
  expect_texts(kTag, kTools,
               {"", "free <f", "<fn=a>12</fn>", "a<fn=b>\"x\"</fn> b <fn=a>-3</fn> <<fn=a>0</fn><f",
                "</fn>", "<<<fnn=", "\xC3\xA4<fn=a>1</fn>\xF0\x9F\x98\x80"},
               {"<fn=", "a<fn=c>1</fn>", "<fn=a>1", "<fn=a>\"x\"</fn>", "<fn=b>1</fn>", "<f<fn=a>",
                "<fn=a>1</fn><fn=a>x", "\xC3"});
}

TEST(StructuralTag, TriggersThatBeginAlike) {
  expect_texts(kTag, R"({"structures": [{"begin": "aab", "schema": {"const": 1}, "end": "."},
                                  {"begin": "acX", "schema": {"const": 2}, "end": "."}],
                   "triggers": ["aab", "ac"]})",
               {"aaab1.", "aacX2.", "aa", "aaaa",
                "abcaab1.ac"
                "X2.a"},
               {"aab", "aaab2.", "ac", "acc", "aaabX", "baab1"});
}

TEST(StructuralTag, Formats) {
  expect_texts(kTag, format(R"({"type": "const_string", "value": "a\"b"})"), {"a\"b"}, {"", "a"});
  expect_texts(kTag, format(R"({"type": "json_schema", "json_schema": {"type": "boolean"}})"),
               {"true"}, {"1"});
  expect_texts(kTag, format(R"({"type": "regex", "pattern": "[ab]+"})"), {"ab"}, {"", "c"});
  expect_texts(kTag, format(R"x({"type": "grammar", "grammar": "root ::= \"(\" root? \")\""})x"),
               {"(())"}, {"(()", ""});
  expect_texts(kTag, format(R"({"type": "any_text"})"), {"", "x\n"}, {"\xFF"});
  expect_texts(kTag, format(R"({"type": "any_text", "excludes": ["no", "on"]})"), {"", "n o"},
               {"no", "onn", "annox"});
  expect_texts(kTag,
               format(R"({"type": "sequence", "elements": [{"type": "const_string", "value": "a"},
                          {"type": "regex", "pattern": "b?"}]})"),
               {"a", "ab"}, {"b", ""});
  expect_texts(kTag, format(R"({"type": "or", "elements": [{"type": "const_string", "value": "a"},
                          {"type": "const_string", "value": "bc"}]})"),
               {"a", "bc"}, {"b", ""});
}

TEST(StructuralTag, TagsCloseWhatIsFreeAtTheirFirstEnd) {
  const std::string think = R"({"begin": "<t>", "content": {"type": "any_text"}, "end": "</t>"})";
  expect_texts(kTag,
               format(R"({"type": "sequence", "elements": [{"type": "tag", )" + think.substr(1) +
                      R"(, {"type": "json_schema", "json_schema": {"type": "null"}}]})"),
               {"<t></t>null", "<t>a<t></ </t>null"},
               {"<t></t></t>null", "<t>", "null", "<t>null"});
  expect_texts(
      kTag,
      format(
          R"({"type": "tag", "begin": "", "content": {"type": "any_text"}, "end": ["aa", "b"]})"),
      {"aa", "b", "caa", "cab"}, {"aaa", "bb", "a", ""});
  // An end marker inside free text with tags of its own closes the tag around it.
  expect_texts(kTag, format(R"({"type": "tag", "begin": "[", "end": "]", "content": {"type":
      "triggered_tags", "triggers": ["<"], "tags": [{"begin": "<n>", "content": {"type": "regex",
      "pattern": "\\d+"}, "end": "</n>"}]}})"),
               {"[]", "[a<n>1</n>b]", "[<n>12</n><n>3</n>]"}, {"[", "[<n>]", "[a]b", "[<n>1</n>"});
  expect_texts(kTag, format(R"x({"type": "tag", "begin": "(", "end": ")", "content": {"type": "or",
      "elements": [{"type": "any_text"}, {"type": "sequence", "elements": [
      {"type": "const_string", "value": "!"}, {"type": "any_text"}]}]}})x"),
               {"()", "(a)", "(!b)"}, {"(a))", "(!))", "a"});
}

TEST(StructuralTag, OptionsOfTags) {
  const std::string tags =
      R"("tags": [{"begin": "<a>", "content": {"type": "regex", "pattern": "\\d"}, "end": ""}])";
  const auto triggered = [&](const std::string& options) {
    return format(R"({"type": "triggered_tags", "triggers": ["<a"], )" + tags + options + "}");
  };
  expect_texts(kTag, triggered(""), {"", "x", "x<a>1y<a>2"}, {"<a>", "<a>x"});
  expect_texts(kTag, triggered(R"(, "at_least_one": true)"), {"<a>1", "<a>1x", "<a>1<a>2z"},
               {"", "x<a>1"});
  expect_texts(kTag, triggered(R"(, "stop_after_first": true)"), {"", "x", "x<a>1"},
               {"<a>1x", "<a>1<a>1"});
  expect_texts(kTag, triggered(R"(, "at_least_one": true, "stop_after_first": true)"), {"<a>1"},
               {"", "<a>1x", "x<a>1"});
  expect_texts(kTag, triggered(R"(, "excludes": ["no"])"), {"n<a>1o"}, {"no", "<a>1no"});
  const auto separated = [&](const std::string& options) {
    return format(R"({"type": "tags_with_separator", "separator": ", ", )" + tags + options + "}");
  };
  expect_texts(kTag, separated(""), {"", "<a>1", "<a>1, <a>2"}, {"x", "<a>1,", "<a>1<a>2"});
  expect_texts(kTag, separated(R"(, "at_least_one": true)"), {"<a>1"}, {""});
  expect_texts(kTag, separated(R"(, "stop_after_first": true)"), {"", "<a>1"}, {"<a>1, <a>2"});
}

// Any division of the text into tokens gives the same result; masks agree.
TEST(StructuralTag, EverySplitAndMaskAgree) {
  const auto tokens = test_tokens();
  const auto grammar = test_grammar(kTag, kTools);
  const std::string text = "12 <<fn=a>12</fn> true <fn=b>\"x\"</fn>\xC3\xA4 <fn";
  for (size_t i = 0; i <= text.size(); ++i)
    for (size_t j = i; j <= text.size(); ++j) {
      Matcher matcher(grammar);
      EXPECT_TRUE(matcher.accept(text.substr(0, i)).ok());
      EXPECT_TRUE(matcher.accept(text.substr(i, j - i)).ok());
      EXPECT_TRUE(matcher.accept(text.substr(j)).ok());
      EXPECT_TRUE(matcher.may_end());
    }
  const int32_t end_id = tokens->vocab_size() - 4;
  std::vector<uint32_t> mask((static_cast<size_t>(tokens->vocab_size()) + 31) / 32);
  Matcher matcher(grammar);
  for (const char& c : text) {
    ASSERT_TRUE(matcher.fill_mask(mask, {&end_id, 1}).ok());
    for (int32_t id = 0; id < tokens->vocab_size(); ++id) {
      Matcher ahead = matcher;
      const bool accepted =
          id == end_id ? matcher.may_end()
                       : !tokens->token(id).empty() && ahead.accept(tokens->token(id)).ok();
      ASSERT_EQ((mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0, accepted)
          << "token '" << tokens->token(id) << "'";
    }
    ASSERT_TRUE(matcher.accept({&c, 1}).ok());
  }
}

TEST(StructuralTag, RefusesByPointer) {
  const auto expect = [](const std::string& tag, std::string_view text) {
    EXPECT_THAT(refusal(kTag, tag), HasSubstr(text)) << tag;
  };
  expect("[", "structural_tag: ");
  expect("[]", "'': expected an object");
  expect(R"({"structures": []})", "'triggers' is missing");
  expect(R"({"structures": [], "triggers": []})", "'/structures': expected an array");
  expect(R"({"type": "x", "format": {"type": "any_text"}})",
         "'/type': expected \"structural_tag\"");
  expect(format(R"({"type": "qwen_xml_parameter"})"),
         "'/format/type': 'qwen_xml_parameter' is not");
  expect(format(R"({"type": "regex", "pattern": "("})"), "'/format/pattern': regular expression");
  expect(format(R"({"type": "grammar", "grammar": "root ::= x"})"), "'/format/grammar': grammar: ");
  expect(format(R"({"type": "json_schema", "json_schema": {"items": {"minItems": -1}}})"),
         "'/format/json_schema': schema: '/items/minItems'");
  expect(format(R"({"type": "const_string", "value": "a", "x/y": 1})"),
         "'/format/x~1y': it is not");
  expect(format(R"({"type": "tag", "begin": "a", "content": {"type": "any_text"}})"),
         "'end' is missing");
  expect(format(R"({"type": "sequence", "elements": [{"type": "any_text", "excludes": [""]}]})"),
         "'/format/elements/0/excludes/0': expected a text that is not empty");
  const auto two = [&](const std::string& begin, const std::string& triggers) {
    return R"({"structures": [{"begin": ")" + begin +
           R"(", "schema": {}, "end": "e"}], "triggers": )" + triggers + "}";
  };
  expect(two("<a", R"(["<b"])"), "'/triggers': none of them begins '<a'");
  expect(two("<a", R"(["<", "<a"])"), "'/triggers': two of them begin '<a'");
  expect(two("<a", R"(["<a", "b"])"), "'/triggers/1': no 'begin' starts with it");
  expect(two("<a", R"(["<a", "<a"])"), "two of them");
  expect(format(R"({"type": "any_text", "excludes": ["abc", "b"]})"), "'b' is in 'abc'");
  expect(format(R"({"type": "any_text", "excludes": ["abc", "bc"]})"), "'bc' is in 'abc'");
  expect(format(R"({"type": "any_text", "excludes": ["ab", "abc"]})"), "'ab' is in 'abc'");
  expect(format(R"({"type": "any_text", "excludes": ["ab", "ab"]})"), "'ab' stands twice");
}

TEST(StructuralTag, WorkIsBounded) {
  std::string words;
  for (int i = 0; i < 4000; ++i) {
    char32_t c = 0x4E00 + static_cast<char32_t>(i);
    words += fmt::format("{}\"\\u{:04x}{}\"", i > 0 ? "," : "", static_cast<uint32_t>(c),
                         std::string(40, 'x'));
  }
  EXPECT_THAT(refusal(kTag, format(R"({"type": "any_text", "excludes": [)" + words + "]}")),
              HasSubstr("steps to prepare"));
}

}  // namespace
}  // namespace nereid::text
