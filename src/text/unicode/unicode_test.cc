// Classes, normal forms, clusters and scripts on characters that tell the rules apart.
#include <gtest/gtest.h>

#include "text/unicode/chars.h"
#include "text/unicode/classes.h"
#include "text/unicode/normalize.h"
#include "text/unicode/scripts.h"
#include "text/unicode/utf8.h"

namespace nereid::text {
namespace {

TEST(Classes, FollowGeneralCategories) {
  EXPECT_EQ(char_class(U'a'), kLetter | kLower);
  EXPECT_EQ(char_class(U'A'), kLetter | kUpper);
  EXPECT_EQ(char_class(0x1C5), kLetter | kUpper);  // title case
  EXPECT_EQ(char_class(0x4E2D), kLetter);
  EXPECT_EQ(char_class(0x301), kMark);
  EXPECT_EQ(char_class(0xBD), kNumber);
  EXPECT_EQ(char_class(0x3000), kSpace);
  EXPECT_EQ(char_class(U'\n'), kControl | kSpace);
  EXPECT_EQ(char_class(U'!'), kPunct);
  EXPECT_EQ(char_class(U'$'), 0);
  EXPECT_EQ(char_class(0x10FFFF), kControl);
}

TEST(Classes, WordCharacters) {
  for (const char32_t c : {U'_', U'a', U'7', U'\u0301', U'\u2160', U'\u24B6', U'\u200D'}) {
    EXPECT_TRUE(is_word(c)) << static_cast<uint32_t>(c);
  }
  for (const char32_t c : {U'-', U' ', U'\u00BD', U'\u2190'}) {
    EXPECT_FALSE(is_word(c)) << static_cast<uint32_t>(c);
  }
}

std::string form_of(NormalForm form, std::string text) {
  EXPECT_TRUE(normalize_unicode(form, text).ok());
  return text;
}

TEST(Normalize, Forms) {
  EXPECT_EQ(form_of(NormalForm::kNfc, "e\u0301 x"), "\u00e9 x");
  EXPECT_EQ(form_of(NormalForm::kNfd, "a\u00e9"), "ae\u0301");
  EXPECT_EQ(form_of(NormalForm::kNfkc, "\ufb01\u00bd"), "fi1\u20442");
  EXPECT_EQ(form_of(NormalForm::kNfkd, "\u00e9\uff21"), "e\u0301A");
  EXPECT_EQ(form_of(NormalForm::kNfc, "a\u0327\u0301"), "\u00e1\u0327");
  EXPECT_EQ(form_of(NormalForm::kNfc, "\u1100\u1161\u11a8"), "\uac01");
  EXPECT_EQ(form_of(NormalForm::kNfc, "\u304b\u3099"), "\u304c");  // both in ranges of their own
  EXPECT_EQ(form_of(NormalForm::kNfc, "\uac00\u11a8"), "\uac01");
  EXPECT_EQ(form_of(NormalForm::kNfc, std::string("a\0e\u0301", 5)), std::string("a\0\u00e9", 4));
}

TEST(Normalize, LowerCaseOfOneCharacter) {
  std::string out;
  for (const char32_t c : {U'\u00C4', U'\u0130', U'\u03A3', U'\u00DF'}) append_lower_case(out, c);
  EXPECT_EQ(out, "\u00e4i\u0307\u03c3\u00df");
}

TEST(Normalize, GraphemeClusters) {
  EXPECT_EQ(grapheme_length("ab"), 1u);
  EXPECT_EQ(grapheme_length("e\u0301x"), 3u);
  EXPECT_EQ(grapheme_length("\r\nx"), 2u);
  EXPECT_EQ(grapheme_length("\U0001F469\u200D\U0001F467x"), 11u);
}

TEST(Scripts, KnowsNamesAndCharacters) {
  EXPECT_TRUE(is_script_name("Han"));
  EXPECT_FALSE(is_script_name("L"));
  EXPECT_EQ(script_of(U'a'), script_of(0xE9));
  EXPECT_NE(script_of(U'a'), script_of(0x3B1));
  EXPECT_EQ(script_of(0x3042), script_of(0x4E2D));  // kana count as Han
  EXPECT_EQ(script_of(0x30FC), script_of(0x30AB));
  EXPECT_EQ(script_of(U' '), kAnyScript);
  EXPECT_EQ(script_of(0x10FFFF), kAnyScript);
}

TEST(Utf8, LastCharacter) {
  EXPECT_EQ(utf8_last("ab").code, U'b');
  EXPECT_EQ(utf8_last("a\u4e2d").code, 0x4E2Du);
  EXPECT_EQ(utf8_last("a\u4e2d").offset, 1u);
}

}  // namespace
}  // namespace nereid::text
