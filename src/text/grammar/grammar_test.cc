// Regular expressions, GBNF, and masks against what a matcher accepts.
#include "text/grammar/grammar.h"

#include <gmock/gmock.h>

#include <random>

#include "text/grammar/gbnf.h"
#include "text/grammar/grammar_test_util.h"

namespace nereid::text {
namespace {

using ::testing::HasSubstr;

TEST(CharSet, HasUnionsAndDifferencesWithoutSurrogates) {
  CharSet set('a', 'f');
  set.add('g', 'k'), set.add(0xD7FF, 0xE000), set.add('c', 'd');
  EXPECT_EQ(set.ranges().size(), 3u);
  EXPECT_FALSE(set.contains(0xD800));
  const CharSet rest = set.without({'b', 'j'});
  EXPECT_TRUE(rest.contains('a') && !rest.contains('b') && rest.contains('k'));
  EXPECT_TRUE(CharSet::all().without(CharSet::all()).empty());
}

TEST(Grammar, MatchesRegularExpressions) {
  const auto regex = GrammarKind::kRegex;
  expect_texts(regex, "a|bc*d", {"a", "bd", "bccd"}, {"", "b", "ad", "bdd"});
  expect_texts(regex, "^[^a-c\\d]{2,3}$", {"xy", "x\xC3\xA4", "\xF0\x9F\x98\x80zz"},
               {"x", "xa", "x1", "xxxx", "x\xC3"});
  expect_texts(regex, "(?:ab)+?\\.(?<name>x|y)", {"ab.x", "abab.y"}, {"ab", ".x", "abx"});
  expect_texts(regex, "\\u{1F600}|\\x41|[\\]\\-]", {"\xF0\x9F\x98\x80", "A", "]", "-"},
               {"B", "\\"});
  expect_texts(regex, "(a*)*b{0}", {"", "aaa"}, {"b"});
  expect_texts(regex, "", {""}, {"a"});
}

TEST(Grammar, RefusesWhatRegularExpressionsCannotSay) {
  const auto regex = GrammarKind::kRegex;
  for (const char* bad : {"(", ")", "[a", "a**", "*a", "a{2,1}", "(?=a)", "\\1", "\\b", "a^b",
                          "a$b", "[b-a]", "(^a)", "a{99999}", "\\", "[^\\s\\S]", "a++", "a{x"})
    EXPECT_THAT(refusal(regex, bad), HasSubstr("regular expression")) << bad;
  EXPECT_THAT(refusal(regex, "((a{1000}){1000}){1000}"), HasSubstr("200000 states"));
  EXPECT_THAT(refusal(regex, std::string(100, '(') + std::string(100, ')')),
              HasSubstr("64 groups"));
  EXPECT_THAT(refusal(regex, std::string(kMaxGrammarBytes + 1, 'a')),
              HasSubstr("262144 are allowed"));
}

TEST(Grammar, MatchesGbnf) {
  const auto gbnf = GrammarKind::kEbnf;
  expect_texts(gbnf, R"x(root ::= sum # a comment
    sum ::= term (op term)*
    term ::= [0-9]{1,2} | "(" sum ")"
    op ::= "+" | "\x2d")x",
               {"1", "(1+22)-3", "((1))"}, {"", "1+", "(1", "123", "(1))"});
  expect_texts(gbnf, "root ::= \"a\" root | \"\\\"\"", {"\"", "aa\""}, {"a", "\"\""});
  expect_texts(gbnf, choice_gbnf({"yes", "no\n\"\\"}), {"yes", "no\n\"\\"}, {"y", "no", "yesno"});
}

TEST(Grammar, RefusesGbnfThatIsWrong) {
  const auto gbnf = GrammarKind::kEbnf;
  EXPECT_THAT(refusal(gbnf, "a ::= \"x\""), HasSubstr("no rule 'root'"));
  EXPECT_THAT(refusal(gbnf, "root ::= x"), HasSubstr("no rule 'x'"));
  EXPECT_THAT(refusal(gbnf, "root ::= \"x\"\nroot ::= \"y\""),
              HasSubstr("second rule of this name in line 2"));
  EXPECT_THAT(refusal(gbnf, "root ::= root \"x\" | \"y\""), HasSubstr("left recursion"));
  EXPECT_THAT(refusal(gbnf, "root ::= a\na ::= b? root \"x\"\nb ::= \"y\""),
              HasSubstr("left recursion"));
  for (const char* bad : {"root = \"x\"", "root ::= \"x", "root ::= (\"x\"", "root ::= \"x\")",
                          "root ::= [x", "root ::= \"x\"{", "root ::= @"})
    EXPECT_THAT(refusal(gbnf, bad), HasSubstr("grammar: ")) << bad;
}

TEST(Grammar, RefusesToGuessAmongTooManyWays) {
  const auto grammar = test_grammar(GrammarKind::kRegex, "((a?){2000}){2}(a?b?){5000}");
  Matcher matcher(grammar);
  EXPECT_EQ(matcher.accept("aa").code(), absl::StatusCode::kResourceExhausted);
}

TEST(Matcher, LeavesTheTextWhenABytesIsRefused) {
  Matcher matcher(test_grammar(GrammarKind::kRegex, "abc"));
  EXPECT_TRUE(matcher.accept("a").ok());
  EXPECT_EQ(matcher.accept("bx").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(matcher.accept("bc").ok() && matcher.may_end());
}

const std::vector<std::pair<GrammarKind, std::string>>& masked_grammars() {
  static const std::vector<std::pair<GrammarKind, std::string>> all = {
      {GrammarKind::kJsonObject, ""},
      {GrammarKind::kJsonSchema,
       R"x({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "array"}}, "b": {"$ref": "#"}}})x"},
      {GrammarKind::kJsonSchema,
       R"x({"type": "array", "items": {"type": ["number", "boolean"]}, "minItems": 1})x"},
      {GrammarKind::kJsonSchema,
       R"x({"type": "object", "properties": {"a": {"multipleOf": 12}, "ab": {}}, "minProperties": 2, "maxProperties": 3})x"},
      {GrammarKind::kRegex, "(ab|abc|c)*(true)?"},
      {GrammarKind::kRegex, "[a-c]{4,20}(12)?"},
      {GrammarKind::kRegex, "((ab|c){0,9}1){5,12}(true|e)"},
      {GrammarKind::kRegex, "([a-zB]{1,5} ){2,4}[^1]{0,3}1"},
      {GrammarKind::kRegex, "(\\w| |\\S\\S\\S)*"},
      {GrammarKind::kRegex, "([(][a-zA-Z]{3}[a-m]*)*"},
      {GrammarKind::kRegex, "([(][a-zA-Z]{1,5}|[)][^1]{2,6} )*"},
      {GrammarKind::kRegex, "([)][a-z\\u4e00-\\u9fff\\u00e4]{1,3})*"},
      {GrammarKind::kEbnf,
       "root ::= (w [a-zA-Z] [a-zA-Z])*\nw ::= \"(\" [a-zA-Z] [a-zA-Z]? [a-zA-Z]? | \"0\" w \"0\""},
      {GrammarKind::kJsonSchema, R"x({"type": "string", "minLength": 6, "maxLength": 14})x"},
      {GrammarKind::kEbnf, "root ::= \"\" | \"{\" root \"}\" root | \"ab\" root"},
      {GrammarKind::kEbnf, "root ::= word (\" \" word)*\nword ::= [a-zB\u00e4]+"}};
  return all;
}

// Every token's bit is what a matcher says of its bytes, all along random texts.
void expect_exact_masks(const std::shared_ptr<const TokenTrie>& tokens, int num_rounds,
                        int num_steps) {
  const int32_t end_id = tokens->vocab_size() - 4;  // has no bytes of its own here
  std::mt19937 random(1);
  for (const auto& [kind, text] : masked_grammars()) {
    const auto grammar = Grammar::compile(kind, text, tokens).value();
    for (int round = 0; round < num_rounds; ++round) {
      Matcher matcher(grammar);
      for (int step = 0; step < num_steps; ++step) {
        std::vector<uint32_t> mask((static_cast<size_t>(tokens->vocab_size()) + 31) / 32);
        ASSERT_TRUE(matcher.fill_mask(mask, {&end_id, 1}).ok());
        std::vector<int32_t> allowed;
        for (int32_t id = 0; id < tokens->vocab_size(); ++id) {
          const bool bit = mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1;
          Matcher ahead = matcher;
          const bool accepted =
              id == end_id ? matcher.may_end()
                           : !tokens->token(id).empty() && ahead.accept(tokens->token(id)).ok();
          ASSERT_EQ(bit, accepted) << text << ", token '" << tokens->token(id) << "'";
          if (bit && id != end_id) allowed.push_back(id);
        }
        if (allowed.empty()) break;
        ASSERT_TRUE(matcher.accept(tokens->token(allowed[random() % allowed.size()])).ok());
      }
    }
  }
}

TEST(Matcher, MaskIsWhatItAccepts) { expect_exact_masks(test_tokens(), 10, 40); }

// All texts of up to `most` of these parts behind `prefix`, and that itself.
void add_texts(const std::string& prefix, const std::vector<std::string>& parts, int most,
               std::vector<std::string>& texts) {
  size_t begin = texts.size();
  texts.push_back(prefix);
  for (int length = 1; length <= most; ++length) {
    const size_t end = texts.size();
    for (size_t i = begin; i < end; ++i)
      for (const std::string& part : parts) texts.push_back(texts[i] + part);
    begin = end;
  }
}

// Of a vocabulary with many tokens that begin alike, most of which are not walked one by one.
TEST(Matcher, MaskOfManyTokensIsWhatItAccepts) {
  std::vector<std::string> texts;
  add_texts("", {"a", "B", "1", " ", "\xC3\xA4", "\"", "\xE4", "\xB8\xAD"}, 3, texts);
  add_texts("(", {"a", "B"}, 7, texts);
  add_texts(")", {"a", "\xC3\xA4", "\xE4\xB8", "\xE4\xB8\xAD"}, 4, texts);
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  for (const char* text : {"", "true", "{\"", "ab"}) texts.emplace_back(text);
  const auto tokens = std::make_shared<const TokenTrie>(
      static_cast<int32_t>(texts.size()),
      [&](int32_t id) { return std::string_view(texts[static_cast<size_t>(id)]); });
  expect_exact_masks(tokens, 3, 12);
}

}  // namespace
}  // namespace nereid::text
