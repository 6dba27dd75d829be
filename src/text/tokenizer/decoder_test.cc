// Every decoder: the text of all tokens, and pieces of a stream that join to it and are not late.
#include "text/tokenizer/decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

namespace nereid::text {
namespace {

using testing::ElementsAre;
using Tokens = std::vector<std::string>;

std::optional<Decoder> make(const char* spec) {
  const json::value value = *parse_json(spec);
  auto decoder = Decoder::from_json(JsonNode(value, "decoder"));
  EXPECT_TRUE(decoder.ok()) << decoder.status();
  if (!decoder.ok()) return std::nullopt;
  return *std::move(decoder);
}

// The text released by each token, and at the end.
Tokens pieces(const Decoder& decoder, const Tokens& tokens, bool continues = false) {
  Decoder::Stream stream(decoder, continues);
  Tokens out;
  for (const std::string& token : tokens) stream.push(token, out.emplace_back());
  stream.finish(out.emplace_back());
  return out;
}

std::string text(const char* spec, const Tokens& tokens, bool continues = false) {
  std::string joined;
  for (const std::string& piece : pieces(*make(spec), tokens, continues)) joined += piece;
  return joined;
}

constexpr const char* kLlama2 = R"({"type": "Sequence", "decoders": [
  {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
  {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";

TEST(Decoder, LlamaDropsOneSpaceOfTheWholeText) {
  EXPECT_EQ(text(kLlama2, {"▁▁a", "▁b"}), " a b");
  EXPECT_EQ(text(kLlama2, {"▁a", "▁b"}, /*continues=*/true), " a b");
  EXPECT_EQ(text(kLlama2, {"▁", "▁a"}), " a");
  EXPECT_THAT(pieces(*make(kLlama2), {"▁a", "b▁"}), ElementsAre("a", "b ", ""));
}

TEST(Decoder, ByteRunsAreTextOrReplacementCharacters) {
  const Tokens euro = {"<0xE2>", "<0x82>", "<0xAC>"};
  EXPECT_EQ(text(kLlama2, euro), "€");
  EXPECT_THAT(pieces(*make(kLlama2), {"<0xE2>", "<0x82>", "<0xAC>", "x"}),
              ElementsAre("", "", "", "€x", ""));
  EXPECT_EQ(text(kLlama2, {"<0xE2>", "<0x82>", "x"}), "\uFFFD\uFFFDx");
  EXPECT_EQ(text(kLlama2, {"<0x41>", "<0xFF>"}), "\uFFFD\uFFFD");  // all bytes of the run
  constexpr const char* kKeepValid = R"({"type": "ByteFallback", "keep_valid": true})";
  EXPECT_EQ(text(kKeepValid, {"<0x41>", "<0xFF>"}), "A\uFFFD");
  EXPECT_THAT(pieces(*make(kKeepValid), euro), ElementsAre("", "", "€", ""));
}

TEST(Decoder, MetaspaceAndWordPieceTreatTheFirstTokenDifferently) {
  constexpr const char* kMetaspace = R"({"type": "Metaspace", "replacement": "▁"})";
  EXPECT_EQ(text(kMetaspace, {"▁a", "▁b"}), "a b");
  EXPECT_EQ(text(kMetaspace, {"▁a", "▁b"}, true), " a b");
  EXPECT_EQ(text(R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"})", {"▁a"}),
            " a");
  constexpr const char* kWordPiece = R"({"type": "WordPiece", "cleanup": true})";
  EXPECT_EQ(text(kWordPiece, {"##a", "##b", "c", "."}), "##ab c.");
  EXPECT_EQ(text(kWordPiece, {"a"}, true), " a");
}

TEST(Decoder, SuffixesSpacesAndRepeats) {
  EXPECT_EQ(text(R"({"type": "BPEDecoder", "suffix": "</w>"})", {"a", "b</w>", "c</w>"}), "ab c");
  EXPECT_EQ(text("null", {"a", "", "b"}), "a  b");
  EXPECT_EQ(text("null", {"a"}, true), " a");
  constexpr const char* kCtc =
      R"({"type": "CTC", "pad_token": "<p>", "word_delimiter_token": "|", "cleanup": true})";
  EXPECT_EQ(text(kCtc, {"a", "a", "<p>", "a", "|", "b"}), "aa b");
}

TEST(Decoder, StripAndReplace) {
  constexpr const char* kStrip = R"({"type": "Strip", "content": "x", "start": 1, "stop": 2})";
  EXPECT_EQ(text(kStrip, {"xxaxxx", "xx", "b"}), "xaxb");
  EXPECT_EQ(
      text(R"({"type": "Replace", "pattern": {"Regex": "[0-9]+"}, "content": "#"})", {"a12b", "3"}),
      "a#b#");
  // Replacement across the parts of a joined token.
  constexpr const char* kJoined = R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
    {"type": "Replace", "pattern": {"String": "abc"}, "content": "!"}]})";
  EXPECT_THAT(pieces(*make(kJoined), {"xab", "cab", "ac", "ab"}),
              ElementsAre("x", "!", "abac", "", "ab"));
}

TEST(Decoder, CleanUpWaitsOnlyForBlanks) {
  auto decoder = make(R"({"type": "WordPiece", "cleanup": false})");
  decoder->add_clean_up();
  EXPECT_THAT(pieces(*decoder, {"it", "'", "s", "don", "##e", "."}).back(), "");
  std::string joined;
  for (const std::string& piece : pieces(*decoder, {"do", "n't", ",", "i", "'ve", "!"}))
    joined += piece;
  EXPECT_EQ(joined, "don't, i've!");
}

TEST(Decoder, BytesThatATokenAdds) {
  EXPECT_EQ(make(kLlama2)->continuation_bytes("▁a"), " a");
  EXPECT_EQ(make(kLlama2)->continuation_bytes("<0xE2>"), "\xE2");
  EXPECT_EQ(make(R"({"type": "WordPiece"})")->continuation_bytes("a"), " a");
  EXPECT_EQ(make(R"({"type": "WordPiece"})")->continuation_bytes("##a"), "a");
  EXPECT_EQ(make("null")->continuation_bytes("a"), " a");
}

}  // namespace
}  // namespace nereid::text
