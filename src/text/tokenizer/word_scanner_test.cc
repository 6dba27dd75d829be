// The hand-written scanners against the equivalent regular expressions.
#include "text/tokenizer/word_scanner.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "text/unicode/utf8.h"

namespace nereid::text {
namespace {

// A pattern that is not recognised, but equivalent to `pattern`.
Regex regex_of(const std::string& pattern) {
  const auto regex = Regex::compile("(?:" + pattern + ")");
  EXPECT_TRUE(regex.ok()) << regex.status();
  return *regex;
}

std::string random_text(uint64_t seed) {
  static constexpr char32_t kCodes[] = {
      U'a',  U'b',  U'S',  U'T',   U'\'', U's',  U't', U'l',   U'L',  U'r',    U'e',   U'v', U'm',
      U'd',  U' ',  U' ',  U'\n',  U'\r', U'\t', U'1', U'2',   U'.',  U'/',    U'-',   0xE9, 0xC9,
      0x17F, 0x301, 0x2B0, 0x4E2D, 0x1C5, 0xBD,  0xA0, 0x3000, 0x660, 0x1F600, 0x20AC, 0};
  std::string text;
  for (uint64_t i = 0; i < 1 + seed % 23; ++i) {
    append_utf8(text, kCodes[philox(seed, i)[0] % std::size(kCodes)]);
  }
  return text;
}

void expect_equal(const std::string& pattern, int count) {
  const auto rule = word_rule_of(pattern);
  ASSERT_TRUE(rule.has_value());
  const Regex regex = regex_of(pattern);
  for (int i = 0; i < count; ++i) {
    const std::string text = random_text(static_cast<uint64_t>(i));
    std::vector<Span> wanted, words;
    EncodeWork work(text.size());
    ASSERT_TRUE(regex.find_all(text, wanted, work).ok());
    scan_words(*rule, text, 0, words);
    ASSERT_EQ(words.size(), wanted.size()) << text;
    std::vector<Span> some;
    for (size_t at = 0; at < text.size();)
      at = scan_some_words(*rule, text, at, 1 + static_cast<size_t>(i) % 3, some);
    EXPECT_EQ(some, words) << text;
    for (size_t k = 0; k < words.size(); ++k) {
      EXPECT_EQ(words[k].begin, wanted[k].begin) << text;
      EXPECT_EQ(words[k].end, wanted[k].end) << text;
    }
  }
}

const std::string kContractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const std::string kUpper = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])";
const std::string kLower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
const std::string kStart = R"([^\r\n\p{L}\p{N}]?)";
const std::string kSpaces = R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr int kTexts = 20000;

TEST(WordScanner, Gpt2) { expect_equal(kGpt2, kTexts); }

TEST(WordScanner, Cl100kAndQwen2) {
  const std::string head = kContractions + "|" + kStart + R"(\p{L}+|)";
  const std::string tail = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)" + kSpaces;
  expect_equal(head + R"(\p{N}{1,3})" + tail, kTexts);
  expect_equal(head + R"(\p{N})" + tail, kTexts);
}

TEST(WordScanner, O200kAndTekken) {
  const std::string tail = R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*)" + kSpaces;
  const auto words = [](const std::string& end) {
    return kStart + kUpper + "*" + kLower + "+" + end + "|" + kStart + kUpper + "+" + kLower + "*" +
           end + "|";
  };
  expect_equal(words(kContractions + "?") + R"(\p{N}{1,3})" + tail, kTexts);
  expect_equal(words("") + R"(\p{N})" + tail, kTexts);
}

// Runs of letters are read eight bytes at once: every ASCII byte at every position.
TEST(WordScanner, WhatEndsARunOfLetters) {
  const Regex regex = regex_of(kGpt2);
  for (size_t place = 0; place < 24; ++place)
    for (char c = 1; c > 0; ++c) {
      std::string text = "abcdZYXWmnopqrstUVwxyzAB";
      text[place] = c;
      std::vector<Span> wanted, words;
      EncodeWork work(text.size());
      ASSERT_TRUE(regex.find_all(text, wanted, work).ok());
      scan_words(*word_rule_of(kGpt2), text, 0, words);
      EXPECT_EQ(words, wanted) << text;
    }
}

TEST(WordScanner, OtherPatternsAreNotTaken) {
  EXPECT_FALSE(word_rule_of(R"(\p{L}+)").has_value());
  std::vector<Span> words;
  scan_words(WordRule::kWhitespace, " ab, c", 10, words);
  ASSERT_EQ(words.size(), 3u);
  EXPECT_EQ(words[1].begin, 13u);
}

}  // namespace
}  // namespace nereid::text
