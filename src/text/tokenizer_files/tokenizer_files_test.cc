// Model directories in every layout, and files that are damaged or absurd.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/file.h"
#include "base/testing/source_dir.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::text {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

const fs::path kSeeds = fs::path(source_dir()) / "tests/fuzz/seeds";

class TokenizerFiles : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::path(testing::TempDir()) /
           testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  void write(const char* name, std::string_view text) {
    std::ofstream(dir_ / name, std::ios::binary) << text;
  }
  std::shared_ptr<const Tokenizer> load() {
    const auto result = Tokenizer::load(dir_);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : nullptr;
  }
  std::string error() {
    const auto result = Tokenizer::load(dir_);
    return result.ok() ? "" : std::string(message(result.status()));
  }

  fs::path dir_;
};

TEST_F(TokenizerFiles, NothingThereListsWhatIsLookedFor) {
  EXPECT_FALSE(Tokenizer::has_files(dir_));
  EXPECT_THAT(error(), HasSubstr("none of tokenizer.json tekken.json tokenizer.model"));
  write("vocab.json", "{}");  // needs merges.txt
  EXPECT_FALSE(Tokenizer::has_files(dir_));
}

TEST_F(TokenizerFiles, SentencePieceBpe) {
  fs::copy(kSeeds / "sentencepiece_bpe.bin", dir_ / "tokenizer.model");
  auto t = load();
  ASSERT_NE(t, nullptr);
  const int32_t bos = *t->token_id("<s>"), eos = *t->token_id("</s>");
  EXPECT_EQ(t->encode("the fox")->front(), bos);
  EXPECT_EQ(t->decode(*t->encode("the fox"), true), "the fox");
  EXPECT_EQ(t->decode(*t->encode("a<s>b", {.add_special_tokens = false}), false), "a<s> b");
  EXPECT_EQ(t->encode("a<s>b", {.add_special_tokens = false})->size(),
            t->encode("a", {.add_special_tokens = false})->size() +
                t->encode("b", {.add_special_tokens = false})->size() + 1);
  // No blank behind special tokens, and an end mark.
  write("tokenizer_config.json", R"({"legacy": false, "add_bos_token": false, "add_eos_token": true,
    "added_tokens_decoder": {"9000": {"content": "<new>", "special": true}}})");
  t = load();
  ASSERT_NE(t, nullptr);
  EXPECT_EQ(t->encode("x")->back(), eos);
  EXPECT_EQ(t->decode(*t->encode("a<s>b"), true), "ab");
  EXPECT_THAT(*t->encode("<new>", {.add_special_tokens = false}), ElementsAre(9000));
}

TEST_F(TokenizerFiles, T5HasExtraIdsAndAnEnd) {
  fs::copy(kSeeds / "sentencepiece_unigram.bin", dir_ / "spiece.model");
  const int32_t size = load()->vocab_size();
  write("tokenizer_config.json", R"({"tokenizer_class": "T5Tokenizer"})");
  const auto t = load();
  EXPECT_EQ(t->vocab_size(), size + 100);
  EXPECT_EQ(t->token_id("<extra_id_0>"), size + 99);
  EXPECT_EQ(t->encode("<extra_id_99>")->front(), size);
  EXPECT_EQ(t->encode("")->back(), *t->token_id("</s>"));
}

TEST_F(TokenizerFiles, TiktokenRanksGoByTheirName) {
  fs::copy(kSeeds / "tiktoken_ranks.txt", dir_ / "qwen.tiktoken");
  auto t = load();
  ASSERT_NE(t, nullptr);
  EXPECT_THAT(*t->encode("the the"), ElementsAre(*t->token_id("the"), *t->token_id("Ġthe")));
  EXPECT_TRUE(t->is_special(*t->token_id("<|im_start|>")));
  EXPECT_EQ(t->decode(*t->encode("the quick<|im_end|>"), true), "the quick");
  write("qwen.tiktoken", "YQ== 0\nYg==\n");
  EXPECT_THAT(error(), HasSubstr("line 2: 'Yg==': must be base64, a space and a rank"));
  write("qwen.tiktoken", "YQ== 0\nYQ== 1\n");
  EXPECT_THAT(error(), HasSubstr("line 2: token 1: is there twice"));
}

TEST_F(TokenizerFiles, TekkenPutsSpecialTokensFirst) {
  write("tekken.json", R"({"config": {"pattern": "\\p{L}+|\\s+", "default_vocab_size": 6,
    "default_num_special_tokens": 3}, "vocab": [{"rank": 0, "token_bytes": "YQ=="},
    {"rank": 1, "token_bytes": "Yg=="}, {"rank": 2, "token_bytes": "YWI="},
    {"rank": 3, "token_bytes": "IA=="}]})");
  const auto t = load();
  ASSERT_NE(t, nullptr);
  EXPECT_EQ(t->vocab_size(), 6);  // the last rank is cut off
  EXPECT_THAT(*t->encode("aba</s>"), ElementsAre(1, 5, 3, 2));
  EXPECT_EQ(t->decode(std::vector<int32_t>{0, 5, 4}, true), "abb");
  write("tekken.json", R"({"config": {"pattern": "a", "default_num_special_tokens": 0},
    "vocab": [{"rank": 1, "token_bytes": "YQ=="}]})");
  EXPECT_THAT(error(), HasSubstr("vocab[0].rank = 1: must be the entry's place in the list"));
}

TEST_F(TokenizerFiles, PairOfVocabAndMerges) {
  write("vocab.json", R"({"a": 0, "b": 1, "ab": 2, "Ġ": 3, "Ġab": 4})");
  write("merges.txt", "#version: 0.2\na b\n\xC4\xA0 ab\n");
  EXPECT_THAT(*load()->encode("ab ab"), ElementsAre(2, 4));
}

TEST_F(TokenizerFiles, ListOfWordPieces) {
  write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nhello\n##s\n");
  const auto t = load();
  EXPECT_THAT(*t->encode("Hellos x"), ElementsAre(2, 4, 5, 1, 3));
  EXPECT_EQ(t->decode(std::vector<int32_t>{4, 5, 4}, true), "hellos hello");
}

TEST_F(TokenizerFiles, SpecialTokensMapMakesTokensSpecial) {
  write("vocab.json", R"({"a": 0, "<e>": 1})");
  write("merges.txt", "");
  write("special_tokens_map.json", R"({"eos_token": {"content": "<e>"}})");
  const auto t = load();
  EXPECT_TRUE(t->is_special(1));
  EXPECT_THAT(*t->encode("a<e>"), ElementsAre(0, 1));
}

TEST_F(TokenizerFiles, DamagedAndAbsurdFilesAreRefused) {
  write("tokenizer.model", "\x01\x02 no model");
  EXPECT_THAT(error(), HasSubstr("are not a SentencePiece model"));
  const std::string model = *read_file(kSeeds / "sentencepiece_bpe.bin");
  for (size_t size = 0; size < model.size(); size += 7) {
    write("tokenizer.model", std::string_view(model).substr(0, size));
    static_cast<void>(error());  // an error or fewer pieces, but no crash
  }
  write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 4000000}, "merges": []}})");
  EXPECT_THAT(error(), HasSubstr("token id 4000000 in a vocabulary of 1 tokens"));
  write("tokenizer.json",
        R"({"model": {"type": "BPE", "vocab": {"a": 1000000000}, "merges": []}})");
  EXPECT_THAT(error(), HasSubstr("model.vocab.a = 1000000000: must be a token id"));
}

}  // namespace
}  // namespace nereid::text
