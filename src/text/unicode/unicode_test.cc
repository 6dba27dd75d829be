// Classes, normal forms, clusters and scripts on characters that distinguish the rules.
#include <gtest/gtest.h>

#include "text/unicode/chars.h"
#include "text/unicode/classes.h"
#include "text/unicode/normalize.h"
#include "text/unicode/python.h"
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

TEST(Python, WholeCaseMappings) {
  EXPECT_EQ(python::upper("stra\u00dfe \ufb01 \u1f80 \u0149"), "STRASSE FI \u1f08\u0399 \u02bcN");
  EXPECT_EQ(python::lower("\u0130 \u039f\u03a3 \u03a3\u039f. \u03a3"),
            "i\u0307 \u03bf\u03c2 \u03c3\u03bf. \u03c3");
  EXPECT_EQ(python::title("\u00dfa o'neil \u01c6 \u4e2da"), "Ssa O'Neil \u01c5 \u4e2dA");
  EXPECT_EQ(python::capitalize("\ufb03XY \u03a3"), "Ffixy \u03c3");
}

TEST(Python, Properties) {
  EXPECT_TRUE(python::is_space(0x1F));
  EXPECT_FALSE(python::is_space(0x200B));
  EXPECT_TRUE(python::is_digit(0xB2));
  EXPECT_FALSE(python::is_decimal(0xB2));
  EXPECT_TRUE(python::is_numeric(0xBD));
  EXPECT_FALSE(python::is_alpha(0x2160));
  EXPECT_FALSE(python::is_upper(0x1C5));
  for (const char32_t c : {U' ', U'a', U'\u00e9', U'\u0301'}) EXPECT_TRUE(python::is_printable(c));
  for (const char32_t c : {0x7F, 0xA0, 0xAD, 0x200D, 0x2028, 0x378, 0xE000}) {
    EXPECT_FALSE(python::is_printable(c)) << static_cast<uint32_t>(c);
  }
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
