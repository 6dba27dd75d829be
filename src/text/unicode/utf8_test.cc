// UTF-8 decoding at its borders, and streaming repair against whole repair for every split.
#include "text/unicode/utf8.h"

#include <gtest/gtest.h>

#include "text/unicode/chars.h"
#include "text/unicode/classes.h"

namespace nereid::text {
namespace {

TEST(Utf8, RepairsMaximalSubparts) {
  EXPECT_EQ(repair_utf8("plain \xC3\xA9"), "plain \xC3\xA9");
  EXPECT_EQ(repair_utf8("\xC0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD");                  // overlong
  EXPECT_EQ(repair_utf8("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // surrogate
  EXPECT_EQ(repair_utf8("\xF0\x9F\x98"
                        "a"),
            "\xEF\xBF\xBD"
            "a");                                          // cut short
  EXPECT_EQ(repair_utf8("\xF4\x90\x80\x80").size(), 12u);  // > U+10FFFF
  EXPECT_EQ(repair_utf8("\xE2\x82"), "\xEF\xBF\xBD");
}

TEST(Utf8, AppendAndStepAreInverse) {
  for (char32_t code : {U'\0', U'\x7F', U'\x80', U'\x7FF', U'\x800', U'\xD7FF', U'\xE000',
                        U'\xFFFF', U'\x10000', U'\x10FFFF'}) {
    std::string bytes;
    append_utf8(bytes, code);
    const Utf8Step step = utf8_step(bytes);
    EXPECT_EQ(step.kind, Utf8Step::kValid);
    EXPECT_EQ(step.code, code);
    EXPECT_EQ(step.length, bytes.size());
  }
  std::string bytes;
  append_utf8(bytes, 0xD800);
  EXPECT_EQ(bytes, kReplacement);
}

TEST(Utf8, StreamEqualsWholeForEverySplit) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xFF\xE2\x82\xF0\x9F\x98z\xF0\x9F";
  const std::string whole = repair_utf8(text);
  for (size_t i = 0; i <= text.size(); ++i) {
    for (size_t j = i; j <= text.size(); ++j) {
      Utf8Stream stream;
      std::string joined;
      for (const std::string& piece : {text.substr(0, i), text.substr(i, j - i), text.substr(j)}) {
        std::string out;
        stream.push(piece, out);
        EXPECT_TRUE(is_valid_utf8(out));
        joined += out;
      }
      stream.finish(joined);
      EXPECT_EQ(joined, whole) << i << " " << j;
    }
  }
}

TEST(Chars, ClassesAndCase) {
  EXPECT_TRUE(is_space(0x3000));
  EXPECT_FALSE(is_space(0x180E));
  EXPECT_FALSE(is_space(0x200B));
  EXPECT_EQ(to_upper(U'\xE9'), U'\xC9');
  EXPECT_EQ(to_lower(0x0416), char32_t{0x0436});
  EXPECT_TRUE(is_word(U'_'));
  EXPECT_TRUE(is_word(0x4E2D));
  EXPECT_FALSE(is_word(U'-'));
}

}  // namespace
}  // namespace nereid::text
