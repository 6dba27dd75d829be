// Regular expressions, GBNF, and masks against a matcher's accept().
#include "text/grammar/grammar.h"

#include <gmock/gmock.h>

#include <random>
#include <tuple>

#include "text/grammar/gbnf.h"
#include "text/grammar/grammar_test_util.h"
#include "text/grammar/network.h"

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
  expect_texts(regex, "a{x|{b}|[\\w-.]{2}", {"a{x", "{b}", "a-", ".-"}, {"a+", "b", "+."});
  expect_texts(regex, "", {""}, {"a"});
}

TEST(Grammar, RefusesWhatRegularExpressionsCannotSay) {
  const auto regex = GrammarKind::kRegex;
  for (const char* bad : {"(", ")", "[a", "a**", "*a", "a{2,1}", "(?=a)", "\\1", "\\b", "a^b",
                          "a$b", "[b-a]", "(^a)", "a{99999}", "\\", "[^\\s\\S]", "a++", "a{,2}"})
    EXPECT_THAT(refusal(regex, bad), HasSubstr("regular expression")) << bad;
  EXPECT_THAT(refusal(regex, "((a{1000}){1000}){1000}"), HasSubstr("500000 states"));
  EXPECT_THAT(refusal(regex, std::string(100, '(') + std::string(100, ')')),
              HasSubstr("64 groups"));
  EXPECT_THAT(refusal(regex, std::string(kMaxGrammarBytes + 1, 'a')),
              HasSubstr("1048576 are allowed"));
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
  EXPECT_EQ(matcher.accept("aa").code(), absl::StatusCode::kInvalidArgument);
}

// Nested repetitions of the empty text.
TEST(Grammar, CountsWhatRepetitionsOfNothingTake) {
  const std::string nothing = "(((){3000}){3000}){3000}";
  EXPECT_THAT(refusal(GrammarKind::kRegex, nothing), HasSubstr("more than 500000 states"));
  EXPECT_THAT(refusal(GrammarKind::kJsonSchema,
                      R"({"type": "string", "pattern": ")" + nothing + R"(", "minLength": 1})"),
              HasSubstr("more than 10000000 steps"));
  EXPECT_THAT(refusal(GrammarKind::kEbnf, "root ::= (((\"\"){3000}){3000}){3000}"),
              HasSubstr("more than 500000 states"));
}

// Rules each of which is found nullable in a pass of its own.
TEST(Grammar, CountsWhatRulesThatReferToEachOtherTake) {
  std::string grammar = "root ::= r0\n";
  for (int i = 0; i < 5000; ++i)
    grammar += fmt::format("r{} ::= \"\" | r{}\n", i, (i + 1) % 5000 == 0 ? 4999 : i + 1);
  EXPECT_THAT(refusal(GrammarKind::kEbnf, grammar), HasSubstr("left recursion"));
  grammar = "root ::= a0\n";
  for (int i = 1; i < 4000; ++i) grammar += fmt::format("b{} ::= b{} b{}\n", i, i - 1, i - 1);
  for (int i = 0; i < 4000; ++i) grammar += fmt::format("a{} ::= b3999 a{}\n", i, i + 1);
  grammar += "a4000 ::= \"x\"\nb0 ::= \"\"\n";
  EXPECT_THAT(refusal(GrammarKind::kEbnf, grammar), HasSubstr("more than 10000000 steps"));
}

TEST(Grammar, ListsOfManyTextsAreTrees) {
  std::vector<std::string> texts;
  std::string list = R"({"enum": [)";
  for (int i = 0; i < 12'000; ++i) {
    texts.push_back(fmt::format("item-{:05}-{:08x}", i, i * 2654435761u));
    list += fmt::format(R"({}"{}")", i > 0 ? ", " : "", texts.back());
  }
  for (const auto& [kind, text, mark] : {std::tuple(GrammarKind::kEbnf, choice_gbnf(texts), ""),
                                         std::tuple(GrammarKind::kJsonSchema, list + "]}", "\"")}) {
    WorkLimit work(WorkLimit::kMost / 2);
    auto network = Grammar::parse(kind, text, work);
    ASSERT_TRUE(network.ok()) << network.status();
    EXPECT_LT(network->states.size(), 200'000u) << "the first parts are shared";
    const auto grammar = Grammar::of(*std::move(network), test_tokens());
    Matcher matcher(grammar);
    StepBudget effort{.steps = 200'000, .waits = false};
    std::vector<uint32_t> mask(16);
    ASSERT_TRUE(matcher.accept(mark, effort).ok());
    for (const char& c : texts[7777]) {
      ASSERT_TRUE(matcher.fill_mask(mask, {}, effort).ok());
      ASSERT_TRUE(matcher.accept({&c, 1}, effort).ok());
    }
    ASSERT_TRUE(matcher.accept(mark, effort).ok());
    EXPECT_TRUE(matcher.may_end());
    EXPECT_FALSE(matches(grammar, mark + texts[7] + "x" + mark));
  }
  for (int i = 12'000; i < 100'000; ++i) texts.push_back(fmt::format("item-{:05}", i));
  EXPECT_THAT(refusal(GrammarKind::kEbnf, choice_gbnf(texts)),
              HasSubstr("bytes; 1048576 are allowed"));
}

TEST(Grammar, TextsOfAListMayBeginAlike) {
  expect_texts(GrammarKind::kRegex, "ab|abc|abc|b|ab(c|)d|", {"", "ab", "abc", "b", "abd", "abcd"},
               {"a", "abcdd", "bc"});
  expect_texts(GrammarKind::kRegex, "(ab|a|abc){2,3}c", {"aac", "abac", "ababcc", "abcabcabcc"},
               {"ac", "abab", "abcc"});
}

// A repeated expression has one rule where its copies would need many edges.
TEST(Grammar, ExpressionsThatMayShareHaveOneRule) {
  const ExprPtr letter = one_of(CharSet::all()), word = sequence({letter, letter});
  for (const auto& [part, count, is_shared] :
       {std::tuple(letter, 3000, false), std::tuple(shareable(letter), 3000, true),
        std::tuple(shareable(letter), 3, false), std::tuple(shareable(word), 2000, true)}) {
    const Rules rules = {sequence({repeat(part, 1, count), literal("."), optional(part)})};
    WorkLimit work;
    const Network network = make_network(rules, work).value();
    EXPECT_EQ(network.starts.size(), is_shared ? 2u : 1u) << count;
    size_t num_edges = 0;
    for (const NetworkState& state : network.states)
      num_edges += state.bytes.size() + state.free.size();
    if (count > 1000) {
      EXPECT_EQ(num_edges < 10'000, is_shared) << count;
    }
    const auto grammar = Grammar::of(network, test_tokens());
    const std::string one(part->kind == Expr::Kind::kSequence ? 2 : 1, 'x');
    std::string most;
    for (int i = 0; i < count; ++i) most += one;
    EXPECT_TRUE(matches(grammar, one + ".") && matches(grammar, most + "." + one));
    EXPECT_FALSE(matches(grammar, ".") || matches(grammar, most + one + "."));
    EXPECT_FALSE(matches(grammar, one + "." + one + one));
  }
}

TEST(Grammar, WhatNeverEndsIsDropped) {
  WorkLimit work;
  Rules rules = {choice({call(1), sequence({literal("a"), optional(call(2))}), call(3)}),
                 sequence({literal("b"), call(1)}),
                 sequence({literal("c"), choice({call(1), call(2)})}),
                 sequence({literal("d"), choice({call(3), literal("e")})})};
  EXPECT_TRUE(drop_endless(rules, work).value());
  const auto grammar = Grammar::of(make_network(rules, work).value(), test_tokens());
  EXPECT_TRUE(matches(grammar, "a") && matches(grammar, "de") && matches(grammar, "dde"));
  for (const char* dead : {"b", "ac", "ab"}) {
    Matcher matcher(grammar);
    EXPECT_FALSE(matcher.accept(dead).ok()) << dead;
  }
  Rules none = {sequence({literal("a"), call(1)}), sequence({literal("b"), call(0)})};
  EXPECT_FALSE(drop_endless(none, work).value());
  Rules appended = {call(1), literal("x")};
  EXPECT_EQ(append_rules(appended, {sequence({literal("y"), call_of_some(1)}), literal("z")}), 2);
  appended[0] = call(2);
  EXPECT_TRUE(drop_endless(appended, work).value());
  EXPECT_TRUE(matches(Grammar::of(make_network(appended, work).value(), test_tokens()), "yz"));
}

// Alternatives whose state sets grow with the text.
constexpr const char* kManyPlaces = "([ab]*a[ab]{400}|[ab]*ab[ab]{400}|[ab]*bb[ab]{400})";

TEST(Matcher, WalksNoTextAgain) {
  // A large account reduces the caches.
  const auto account = std::make_shared<GrammarMemory>(int64_t{1} << 30);
  WorkLimit work;
  const auto grammar = Grammar::of(Grammar::parse(GrammarKind::kRegex, kManyPlaces, work).value(),
                                   test_tokens(), account);
  Matcher matcher(grammar), other(grammar);
  ASSERT_TRUE(other.accept("ba").ok());
  std::mt19937 random(1);
  int64_t most = 0, most_bytes = 0;
  for (int i = 0; i < 1500; ++i) {
    StepBudget effort;
    ASSERT_TRUE(matcher.accept(random() % 2 == 0 ? "a" : "b", effort).ok());
    most = std::max(most, StepBudget::kMost - effort.steps);
    most_bytes = std::max(most_bytes, grammar->bytes());
  }
  EXPECT_LT(most, 50'000) << "of one step to a set of some thousand states";
  EXPECT_LT(most_bytes, int64_t{6} << 20);
  EXPECT_EQ(*account, (int64_t{1} << 30) + grammar->bytes());
  std::vector<uint32_t> mask(16);
  StepBudget effort;
  ASSERT_TRUE(other.fill_mask(mask, {}, effort).ok());
  EXPECT_TRUE(mask['a' / 32] >> ('a' % 32) & 1);
  EXPECT_FALSE(other.may_end());
}

TEST(Matcher, GoesOnFromNestedCallsWhenTheGrammarForgets) {
  const auto account = std::make_shared<GrammarMemory>(int64_t{1} << 30);
  WorkLimit work;
  const auto grammar = Grammar::of(
      Grammar::parse(GrammarKind::kEbnf,
                     "root ::= \"(\" root \")\" | \"[\" root \"]\" | [ab]* \"a\" [ab]{400}", work)
          .value(),
      test_tokens(), account);
  std::mt19937 random(1);
  std::string text, closing;
  for (int i = 0; i < 1000; ++i) {
    const bool round = random() % 2 == 0;
    text += round ? '(' : '[';
    closing.insert(closing.begin(), round ? ')' : ']');
  }
  for (int i = 0; i < 1000; ++i) text += random() % 2 == 0 ? 'a' : 'b';
  text[text.size() - 401] = 'a';
  EXPECT_TRUE(matches(grammar, text + closing));
  std::swap(closing[998], closing[999]);
  EXPECT_EQ(matches(grammar, text + closing), closing[998] == closing[999]);
}

// At each depth the text does not say yet which of three calls it is in: 3^depth stacks.
TEST(Matcher, ChoicesThatStayOpenAddUp) {
  const auto grammar = test_grammar(GrammarKind::kEbnf, R"(
root ::= call "."
call ::= "(" call ")a" | "(" call ")b" | "(" other ")a" | "x"
other ::= "(" call ")c" | "(" other ")a" | "x")");
  constexpr int kDepth = 40;
  std::string good(kDepth, '('), bad = good;
  good += "x", bad += "x";
  for (int i = 0; i < kDepth; ++i) {
    good += i % 3 == 0 ? ")b" : ")a";
    bad += i == kDepth - 1 ? ")c" : ")a";
  }
  EXPECT_TRUE(matches(grammar, good + "."));
  EXPECT_FALSE(matches(grammar, bad + "."));
  EXPECT_FALSE(matches(grammar, good + ")a."));
  Matcher matcher(grammar);
  ASSERT_TRUE(matcher.accept(good).ok());
  std::vector<uint32_t> mask((static_cast<size_t>(test_tokens()->vocab_size()) + 31) / 32);
  ASSERT_TRUE(matcher.fill_mask(mask, {}).ok());
  for (int32_t id = 0; id < 256; ++id)
    EXPECT_EQ((mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0, id == '.') << id;
}

// Objects inside each other that may each have one of several required members.
TEST(Matcher, RequiredMembersOfNestedObjectsAddUp) {
  const auto grammar = test_grammar(GrammarKind::kJsonSchema, R"({
    "$ref": "#/$defs/company", "$defs": {"company": {"type": "object", "additionalProperties": false,
      "properties": {"owners": {"type": "array", "items": {"oneOf": [{"$ref": "#/$defs/company"},
        {"type": "object", "required": ["person"], "properties": {
          "owners": {"type": "array", "items": {"$ref": "#/$defs/company"}}, "person": {"type": "string"}}}]}},
        "name": {"type": "string"}, "number": {"type": "string"}, "place": {"type": "string"}},
      "anyOf": [{"required": ["name"]}, {"required": ["number"]}, {"required": ["place"]}]}}})");
  constexpr int kDepth = 20;
  std::string text;
  for (int i = 0; i < kDepth; ++i) text += R"({"owners":[)";
  text += R"({"name":"a"})";
  for (int i = 1; i < kDepth; ++i) text += i % 2 == 0 ? R"(],"place":"b"})" : R"(],"number":"c"})";
  EXPECT_TRUE(matches(grammar, text + R"(],"place":"b"})"));
  EXPECT_FALSE(matches(grammar, text + R"(],"person":"b"})")) << "the outermost is a company";
  EXPECT_FALSE(matches(grammar, text + "]}")) << "nothing that is required";
}

TEST(Matcher, StopsWhereTheEffortDoesNotSuffice) {
  const auto grammar = test_grammar(GrammarKind::kRegex, "([a-f]?){60}x");
  Matcher matcher(grammar);
  std::vector<uint32_t> mask(16), expected(16);
  for (int round = 0; round < 2; ++round) {
    StepBudget little{.steps = 100, .waits = false};
    const bool is_known = round == 1;
    EXPECT_EQ(matcher.fill_mask(mask, {}, little).ok(), is_known);
    EXPECT_EQ(matcher.accept("ab", little).ok(), is_known);
    if (is_known) break;
    EXPECT_EQ(matcher.accept("ab", little).code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(matcher.forced(9, little), "");
    ASSERT_TRUE(matcher.fill_mask(mask, {}).ok());
    Matcher ahead = matcher;
    ASSERT_TRUE(ahead.accept("ab").ok());
  }
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

// Along random texts, every token's bit equals accept() of its bytes.
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

// `prefix` and its extensions by up to `most` of these parts.
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

// A vocabulary with many tokens of common prefixes, most of which are not visited one by one.
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
