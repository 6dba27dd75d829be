// The quick-start model's tokenizer and detokeniser against goldens of the reference library.
#include <gtest/gtest.h>

#include "base/testing/source_dir.h"
#include "text/detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::text {
namespace {

const std::filesystem::path kSourceDir = source_dir();

std::vector<int32_t> ids_of(const json::value& value) {
  std::vector<int32_t> ids;
  for (const json::value& id : value.as_array()) ids.push_back(id.to_number<int32_t>());
  return ids;
}

std::string text_of(const json::value& value) {
  return {value.as_string().data(), value.as_string().size()};
}

class TokenizerGolden : public testing::Test {
 protected:
  void SetUp() override {
    auto tokenizer = Tokenizer::load(kSourceDir / "models/quickstart");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *tokenizer;
    auto golden = read_json_file(kSourceDir / "tests/golden/tokenizer.json");
    ASSERT_TRUE(golden.ok()) << golden.status();
    golden_ = *golden;
    ASSERT_GE(cases().size(), 300u);
  }
  const json::array& cases() const { return golden_.at("cases").as_array(); }

  std::shared_ptr<const Tokenizer> tokenizer_;
  json::value golden_;
};

TEST_F(TokenizerGolden, EncodesExactly) {
  for (const json::value& c : cases()) {
    const std::string text = text_of(c.at("text"));
    const auto ids = tokenizer_->encode(text);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, ids_of(c.at("ids"))) << text;
    const auto as_text = tokenizer_->encode(text, {.parse_special = false});
    ASSERT_TRUE(as_text.ok());
    EXPECT_EQ(*as_text, ids_of(c.at("ids_special_as_text"))) << text;
  }
}

TEST_F(TokenizerGolden, DecodesExactly) {
  for (const json::value& c : cases()) {
    const std::vector<int32_t> ids = ids_of(c.at("ids"));
    EXPECT_EQ(tokenizer_->decode(ids, false), text_of(c.at("decoded")));
    EXPECT_EQ(tokenizer_->decode(ids, true), text_of(c.at("decoded_skip_special")));
  }
}

// Every prefix and every suffix of the goldens' ids: suffixes begin inside characters.
TEST_F(TokenizerGolden, DetokenizerPiecesJoinToTheWholeDecode) {
  for (const json::value& c : cases()) {
    const std::vector<int32_t> ids = ids_of(c.at("ids_special_as_text"));
    for (size_t begin = 0; begin < ids.size(); begin += 1 + ids.size() / 16) {
      const std::span<const int32_t> tail = std::span(ids).subspan(begin);
      Detokenizer detokenizer(tokenizer_, false);
      std::string joined;
      for (size_t i = 0; i < tail.size(); ++i) {
        const std::string piece = detokenizer.push(tail[i]);
        EXPECT_TRUE(is_valid_utf8(piece));
        joined += piece;
        Detokenizer prefix = detokenizer;
        EXPECT_EQ(joined + prefix.finish(), tokenizer_->decode(tail.first(i + 1), false));
      }
    }
  }
}

TEST_F(TokenizerGolden, DetokenizerSkipsSpecialTokens) {
  for (const json::value& c : cases()) {
    Detokenizer detokenizer(tokenizer_, true);
    std::string joined;
    for (const int32_t id : ids_of(c.at("ids"))) joined += detokenizer.push(id);
    joined += detokenizer.finish();
    EXPECT_EQ(joined, text_of(c.at("decoded_skip_special")));
  }
}

// Random ids give every kind of broken UTF-8.
TEST_F(TokenizerGolden, DetokenizerEqualsDecodeOnRandomIds) {
  uint64_t state = 7;
  std::vector<int32_t> ids;
  for (int i = 0; i < 3000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    ids.push_back(static_cast<int32_t>((state >> 33) % 300));  // mostly single bytes
  }
  Detokenizer detokenizer(tokenizer_, false);
  std::string joined;
  for (const int32_t id : ids) joined += detokenizer.push(id);
  EXPECT_EQ(joined + detokenizer.finish(), tokenizer_->decode(ids, false));
}

TEST_F(TokenizerGolden, RoundTripsEveryByteOfUtf8) {
  std::string text;
  for (char32_t code = 0; code < 0x3000; ++code) append_utf8(text, code);
  const auto ids = tokenizer_->encode(text);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(tokenizer_->decode(*ids, false), text);
}

TEST_F(TokenizerGolden, InvalidUtf8CountsAsReplacementCharacters) {
  EXPECT_EQ(*tokenizer_->encode("a\xFF\xE2\x82z"),
            *tokenizer_->encode("a\xEF\xBF\xBD\xEF\xBF\xBDz"));
}

// A mebibyte that is one word for the merge loop, or one run for the regular expression: quadratic
// work would not end within a test.
TEST_F(TokenizerGolden, LongRunsEncode) {
  constexpr size_t kSize = size_t{1} << 20;
  std::string mixed;
  while (mixed.size() < kSize) mixed += "a \n";
  for (const std::string& text :
       {std::string(kSize, 'a'), std::string(kSize, ' '), std::string(kSize - 1, '\n') + "x",
        std::string(kSize, '<'), std::string(kSize - 1, ' ') + "x", mixed}) {
    const auto ids = tokenizer_->encode(text);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(tokenizer_->decode(*ids, false), text);
  }
}

}  // namespace
}  // namespace nereid::text
