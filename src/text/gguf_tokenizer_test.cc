// Tokenizers in GGUF files, which gguf-py 0.17 wrote (tests/fuzz/seeds), and what is wrong with
// others.
#include <gmock/gmock.h>

#include "base/gguf.h"
#include "base/testing/source_dir.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace nereid::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

json::object metadata_of(const std::string& seed) {
  return *read_gguf_metadata(source_dir() + "/tests/fuzz/seeds/" + seed);
}

std::string gguf_refusal(const std::string& seed, const std::string& key,
                         const json::value& value) {
  json::object metadata = metadata_of(seed);
  metadata[key] = value;
  const auto tokenizer = Tokenizer::from_gguf(metadata);
  return tokenizer.ok() ? "accepted" : std::string(message(tokenizer.status()));
}

TEST(GgufTokenizer, PiecesWithScores) {
  const auto tokenizer = Tokenizer::from_gguf(metadata_of("gguf_pieces.bin"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto ids = (*tokenizer)->encode("the quick!");
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_THAT(*ids, ElementsAre(1, 265, 259, 266, 267, 268, 269, 270, 3 + '!'));
  EXPECT_EQ((*tokenizer)->decode(*ids, true), "the quick!");
  EXPECT_TRUE((*tokenizer)->is_special(2));
}

TEST(GgufTokenizer, ByteLevelMerges) {
  const auto tokenizer = Tokenizer::from_gguf(metadata_of("gguf_byte_level.bin"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto ids = (*tokenizer)->encode("the the<|end|>");
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_THAT(*ids, ElementsAre(1, 6, 7, 8));
  EXPECT_EQ((*tokenizer)->decode(*ids, true), "the the");
}

TEST(GgufTokenizer, WhatIsWrongIsNamed) {
  const std::string pieces = "gguf_pieces.bin", bytes = "gguf_byte_level.bin";
  const std::string key = "tokenizer.ggml.";
  EXPECT_THAT(gguf_refusal(pieces, key + "model", "wpm"), HasSubstr("must be one of llama, gpt2"));
  EXPECT_THAT(gguf_refusal(pieces, key + "scores", {1.0}), HasSubstr("as long as the tokens"));
  EXPECT_THAT(gguf_refusal(pieces, key + "tokens", 5), HasSubstr("tokenizer.ggml.tokens"));
  EXPECT_THAT(gguf_refusal(bytes, key + "pre", "chatglm"),
              HasSubstr("must be one of gpt-2, llama-bpe, qwen2"));
  EXPECT_THAT(gguf_refusal(bytes, key + "eos_token_id", 99), HasSubstr("the id of a token"));
  EXPECT_THAT(gguf_refusal(bytes, key + "merges", {"x y"}), HasSubstr("merges"));
  EXPECT_THAT(gguf_refusal(bytes, key + "token_type", {9, 9}), HasSubstr("token_type"));
}

}  // namespace
}  // namespace nereid::text
