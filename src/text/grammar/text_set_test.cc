// Sets of texts against all short texts of a few characters.
#include "text/grammar/text_set.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "text/grammar/grammar_test_util.h"
#include "text/grammar/regex_expr.h"

namespace nereid::text {
namespace {

TextSet set_of(std::string_view pattern, WorkLimit& work) {
  return TextSet::of(*regex_expr(pattern, {.anywhere = true, .assertions = true}).value(), work)
      .value();
}

// All texts of up to four characters.
std::vector<std::string> short_texts() {
  std::vector<std::string> texts = {""};
  for (size_t i = 0; i < texts.size(); ++i)
    if (texts[i].size() < 4)
      for (const char* c : {"a", "b", " "}) texts.push_back(texts[i] + c);
  return texts;
}

TEST(TextSet, JoinsAndCuts) {
  WorkLimit work;
  const std::vector<TextSet> sets = {TextSet::all(),
                                     TextSet::of_texts({}),
                                     TextSet::of_texts({"", "ab", "abab"}),
                                     TextSet::lengths(1, 2),
                                     TextSet::lengths(2, kUnbounded),
                                     set_of("^a", work),
                                     set_of("b$", work),
                                     set_of("^(ab)*$", work),
                                     set_of("\\ba", work),
                                     set_of("(^a$)|b", work),
                                     set_of("a\\B", work)};
  for (const TextSet& a : sets)
    for (const TextSet& b : sets) {
      const TextSet both = a.both(b, work).value(), either = a.either(b, work).value(),
                    without = a.without(b, work).value();
      for (const std::string& text : short_texts()) {
        const bool in_a = a.contains(text), in_b = b.contains(text);
        ASSERT_EQ(both.contains(text), in_a && in_b) << text;
        ASSERT_EQ(either.contains(text), in_a || in_b) << text;
        ASSERT_EQ(without.contains(text), in_a && !in_b) << text;
      }
    }
  EXPECT_TRUE(TextSet::of_texts({"a"}).without(set_of("^a", work), work)->empty());
}

TEST(TextSet, AssertionsHoldWhereTheyStand) {
  WorkLimit work;
  const auto word = [](char c) { return c == 'a' || c == 'b'; };
  const auto edge = [&](const std::string& text, size_t at) {
    return (at > 0 && word(text[at - 1])) != (at < text.size() && word(text[at]));
  };
  using Found = std::function<bool(const std::string& text, size_t at)>;
  const std::vector<std::pair<const char*, Found>> cases = {
      {"\\ba", [&](const auto& t, size_t at) { return t[at] == 'a' && edge(t, at); }},
      {"a\\b", [&](const auto& t, size_t at) { return t[at] == 'a' && edge(t, at + 1); }},
      {"\\Ba", [&](const auto& t, size_t at) { return t[at] == 'a' && !edge(t, at); }},
      {"a(\\B|$)",
       [&](const auto& t, size_t at) {
         return t[at] == 'a' && (at + 1 == t.size() || !edge(t, at + 1));
       }},
      {"(^|b)a",
       [&](const auto& t, size_t at) { return t[at] == 'a' && (at == 0 || t[at - 1] == 'b'); }}};
  for (const auto& [pattern, found] : cases) {
    const TextSet set = set_of(pattern, work);
    for (const std::string& text : short_texts()) {
      bool expected = false;
      for (size_t at = 0; at < text.size(); ++at) expected |= found(text, at);
      EXPECT_EQ(set.contains(text), expected) << pattern << " in '" << text << "'";
    }
  }
}

TEST(TextSet, LengthsAreThoseOfItsTexts) {
  using Lengths = std::pair<int32_t, int32_t>;
  WorkLimit work;
  EXPECT_EQ(TextSet::all().text_lengths(), Lengths(0, kUnbounded));
  EXPECT_EQ(TextSet::of_texts({"a", "bcd", "\xC3\xA4z"}).text_lengths(), Lengths(1, 3));
  EXPECT_EQ(set_of("^(a{2,5}|b)$", work).text_lengths(), Lengths(1, 5));
  EXPECT_EQ(set_of("^ab+$", work).text_lengths(), Lengths(2, kUnbounded));
  // A circle behind which nothing ends is none.
  EXPECT_EQ(set_of("^a+$", work).both(TextSet::lengths(0, 4), work)->text_lengths(), Lengths(1, 4));
  EXPECT_EQ(TextSet::of_texts({"abc"}).num_states_within(10), 4);
  EXPECT_EQ(TextSet::of_texts({"abc"}).num_states_within(1), 2);
  EXPECT_GE(TextSet::all().num_states_within(100), 101);
}

// As JSON: the rules of the set, through a grammar.
TEST(TextSet, JsonTextsAreThoseOfTheSet) {
  WorkLimit work;
  for (const char* pattern : {"^a", "^(ab|b)*$", "^[^a]?$", "b", "^( |a b){2}$"}) {
    const TextSet set = set_of(pattern, work);
    Rules rules = {nullptr};
    rules[0] = set.in_json(rules);
    const auto grammar = Grammar::of(make_network(rules, work).value(), test_tokens());
    for (const std::string& text : short_texts())
      EXPECT_EQ(matches(grammar, text), set.contains(text)) << pattern << " '" << text << "'";
  }
  Rules rules = {nullptr};
  rules[0] = TextSet::of_texts({"\"\\\n\x01\xC3\xA4"}).in_json(rules);
  const auto grammar = Grammar::of(make_network(rules, work).value(), test_tokens());
  EXPECT_TRUE(matches(grammar, "\\\"\\\\\\n\\u0001\xC3\xA4"));
  EXPECT_FALSE(matches(grammar, "\"\\\\\\n\\u0001\xC3\xA4"));
}

TEST(TextSet, WorkIsBounded) {
  WorkLimit work;
  const auto many = TextSet::of(*regex_expr("(a|b)*a(a|b){20}").value(), work);
  EXPECT_EQ(many.status().code(), absl::StatusCode::kInvalidArgument);
  WorkLimit little(100);
  EXPECT_FALSE(TextSet::all().both(TextSet::lengths(0, 5000), little).ok());
}

}  // namespace
}  // namespace nereid::text
