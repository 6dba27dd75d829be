// Tokenizers in GGUF files, written by gguf-py 0.17 (tests/fuzz/seeds), and damaged ones.
#include <gmock/gmock.h>

#include <set>
#include <utility>

#include "absl/strings/str_split.h"
#include "base/gguf.h"
#include "base/testing/source_dir.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer_files/gguf_words.h"

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

// User-defined tokens have spaces; unused vocabulary rows have a piece that no text contains.
TEST(GgufTokenizer, AddedAndUnusedPieces) {
  json::object metadata = metadata_of("gguf_pieces.bin");
  const auto add = [&](const char* text, int type) {
    metadata["tokenizer.ggml.tokens"].as_array().emplace_back(text);
    metadata["tokenizer.ggml.scores"].as_array().emplace_back(-1000.0);
    metadata["tokenizer.ggml.token_type"].as_array().emplace_back(type);
    return static_cast<int32_t>(metadata["tokenizer.ggml.tokens"].as_array().size()) - 1;
  };
  const int32_t spaces = add("   ", 4), unused = add("[PAD9]", 5);
  const auto tokenizer = Tokenizer::from_gguf(metadata);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto ids = (*tokenizer)->encode("the   quick");
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_THAT(*ids, testing::Contains(spaces));
  EXPECT_EQ((*tokenizer)->decode(*ids, true), "the   quick");
  EXPECT_THAT(*(*tokenizer)->encode("[PAD9]"), testing::Not(testing::Contains(unused)));
}

// T5's pieces: the segmentation of the highest sum, extra spaces dropped, an end mark.
TEST(GgufTokenizer, PiecesOfHighestSum) {
  const json::object metadata = {
      {"tokenizer.ggml.model", "t5"},
      {"tokenizer.ggml.tokens",
       {"<pad>", "</s>", "<unk>", "\u2581a", "b", "ab", "\u2581", "\u2581ab"}},
      {"tokenizer.ggml.scores", {0.0, 0.0, 0.0, -1.0, -1.5, -4.0, -3.0, -2.0}},
      {"tokenizer.ggml.token_type", {3, 3, 2, 1, 1, 1, 1, 1}},
      {"tokenizer.ggml.eos_token_id", 1},
      {"tokenizer.ggml.remove_extra_whitespaces", true}};
  const auto tokenizer = Tokenizer::from_gguf(metadata);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(*(*tokenizer)->encode("ab  ab"), ElementsAre(7, 7, 1));
  EXPECT_THAT(*(*tokenizer)->encode("abb x"), ElementsAre(7, 4, 6, 2, 1));
  json::object damaged = metadata;
  damaged["tokenizer.ggml.precompiled_charsmap"] = {1, 300};
  EXPECT_THAT(std::string(message(Tokenizer::from_gguf(damaged).status())),
              HasSubstr("must be a list of bytes"));
}

// BERT's pieces: the space mark at the start of a word, marks around the text.
TEST(GgufTokenizer, WordPieces) {
  const json::object metadata = {
      {"tokenizer.ggml.model", "bert"},
      {"tokenizer.ggml.tokens",
       {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u2581play", "ing", "\u2581the", "\u2581."}},
      {"tokenizer.ggml.token_type", {3, 3, 3, 3, 1, 1, 1, 1}},
      {"tokenizer.ggml.unknown_token_id", 1},
      {"tokenizer.ggml.cls_token_id", 2},
      {"tokenizer.ggml.seperator_token_id", 3}};
  const auto tokenizer = Tokenizer::from_gguf(metadata);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(*(*tokenizer)->encode("The playing."), ElementsAre(2, 6, 4, 5, 7, 3));
  EXPECT_THAT(*(*tokenizer)->encode("playx"), ElementsAre(2, 1, 3));
}

TEST(GgufTokenizer, ByteLevelMerges) {
  const auto tokenizer = Tokenizer::from_gguf(metadata_of("gguf_byte_level.bin"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto ids = (*tokenizer)->encode("the the<|end|>");
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_THAT(*ids, ElementsAre(1, 6, 7, 8));
  EXPECT_EQ((*tokenizer)->decode(*ids, true), "the the");
}

// The words of each pre-tokenizer: with a vocabulary of bytes and one token for each expected word,
// a word cut out whole is one token, any other is more.
TEST(GgufTokenizer, WordsOfEveryPreTokenizer) {
  struct Row {
    const char *pre, *text;
    std::vector<std::string> words;
  };
  const Row kRows[] = {
      {"gpt-2", "it's 2024!", {"it", "'s", " 2024", "!"}},
      {"starcoder", "x 2024", {"x", " ", "2", "0", "2", "4"}},
      {"smollm", "x 2024", {"x", " ", "2", "0", "2", "4"}},
      {"command-r", "x 20", {"x", " ", "2", "0"}},
      {"llama-bpe", "x 2024!\n", {"x", " ", "202", "4", "!\n"}},
      {"smaug-bpe", "2024", {"202", "4"}},
      {"qwen2", "x 20", {"x", " ", "2", "0"}},
      {"deepseek-r1-qwen", "I'M 20", {"I", "'M", " ", "2", "0"}},
      {"tekken", "HelloWorld 20", {"Hello", "World", " ", "2", "0"}},
      {"gpt-4o", "HelloWorld's 2024", {"Hello", "World's", " ", "202", "4"}},
      {"deepseek-llm", "a b\n20", {"a", " b", "\n", "20"}},
      {"deepseek-coder", "a b\n20", {"a", " b", "\n", "2", "0"}},
      {"deepseek-v3", "ab 2024?!", {"ab", " ", "202", "4", "?!"}},
      {"falcon", "a+b 2024", {"a", "+", "b", " ", "202", "4"}},
      {"default", "a+b 2024", {"a", "+", "b", " ", "202", "4"}},
      {"bloom", "a b,c", {"a", " b", ",", "c"}},
      {"viking", "a b20", {"a", " b", "2", "0"}},
      {"kimi-k2", "abc 2024", {"abc", " ", "202", "4"}},
      {"superbpe", "x 2024", {"x ", "2", "024"}},
  };
  for (const Row& row : kRows) {
    json::object metadata = metadata_of("gguf_byte_level.bin");
    json::array tokens, types, merges;
    for (int byte = 0; byte < 256; ++byte) {
      std::string letter;
      append_byte_letters(std::string(1, static_cast<char>(byte)), letter);
      tokens.push_back(json::string(letter)), types.push_back(1);
    }
    // Merges from the left make a word one token.
    std::set<std::string> known;
    for (const std::string& word : row.words) {
      std::string whole;
      for (const char byte : word) {
        std::string letter;
        append_byte_letters(std::string(1, byte), letter);
        const std::string left = std::exchange(whole, whole + letter);
        if (left.empty() || !known.insert(whole).second) continue;
        tokens.push_back(json::string(whole)), types.push_back(1);
        merges.push_back(json::string(left + " " + letter));
      }
    }
    const std::string key = "tokenizer.ggml.";
    metadata[key + "tokens"] = tokens, metadata[key + "token_type"] = types;
    metadata[key + "merges"] = merges, metadata[key + "pre"] = row.pre;
    metadata[key + "add_bos_token"] = false;
    for (const char* id : {"bos", "eos", "unknown", "padding"})
      metadata.erase(fmt::format("{}{}_token_id", key, id));
    const auto tokenizer = Tokenizer::from_gguf(metadata);
    ASSERT_TRUE(tokenizer.ok()) << row.pre << ": " << tokenizer.status();
    const auto ids = (*tokenizer)->encode(row.text);
    ASSERT_TRUE(ids.ok()) << row.pre << ": " << ids.status();
    std::vector<std::string> words;
    for (const int32_t id : *ids) words.emplace_back((*tokenizer)->token_bytes(id));
    EXPECT_EQ(words, row.words) << row.pre;
    EXPECT_EQ((*tokenizer)->decode(*ids, false), row.text);
  }
}

TEST(GgufTokenizer, EveryNameIsTaken) {
  const std::string names = gguf_words_names();
  size_t count = 0;
  for (const auto name : absl::StrSplit(names, ", ")) {
    json::object metadata = metadata_of("gguf_byte_level.bin");
    metadata["tokenizer.ggml.pre"] = std::string(name);
    const auto tokenizer = Tokenizer::from_gguf(metadata);
    EXPECT_TRUE(tokenizer.ok()) << name << ": " << tokenizer.status();
    ++count;
  }
  EXPECT_GT(count, 45u);
}

TEST(GgufTokenizer, WhatIsWrongIsNamed) {
  const std::string pieces = "gguf_pieces.bin", bytes = "gguf_byte_level.bin";
  const std::string key = "tokenizer.ggml.";
  EXPECT_THAT(gguf_refusal(pieces, key + "model", "wpm"),
              HasSubstr("must be one of llama, gpt2, t5, bert"));
  EXPECT_THAT(gguf_refusal(pieces, key + "scores", {1.0}), HasSubstr("as long as the tokens"));
  EXPECT_THAT(gguf_refusal(pieces, key + "tokens", 5), HasSubstr("tokenizer.ggml.tokens"));
  EXPECT_THAT(gguf_refusal(bytes, key + "pre", "chatglm"),
              HasSubstr("must be one of gpt-2, phi-2"));
  EXPECT_THAT(gguf_refusal(bytes, key + "eos_token_id", 99), HasSubstr("the id of a token"));
  EXPECT_THAT(gguf_refusal(bytes, key + "merges", {"x y"}), HasSubstr("merges"));
  EXPECT_THAT(gguf_refusal(bytes, key + "token_type", {9, 9}), HasSubstr("token_type"));
}

}  // namespace
}  // namespace nereid::text
