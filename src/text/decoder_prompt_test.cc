#include "text/decoder_prompt.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include "base/file.h"

namespace nereid::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Words "a" and "b", behind the language eng_Latn and in front of </s>, as NLLB's tokenizer.
constexpr char kTokenizer[] = R"({
  "added_tokens": [
    {"id": 0, "content": "<s>", "special": true}, {"id": 1, "content": "<pad>", "special": true},
    {"id": 2, "content": "</s>", "special": true}, {"id": 5, "content": "eng_Latn", "special": true},
    {"id": 6, "content": "fra_Latn", "special": true}, {"id": 7, "content": "__de__", "special": true}],
  "pre_tokenizer": {"type": "Whitespace"},
  "post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "eng_Latn", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
               {"SpecialToken": {"id": "</s>", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"eng_Latn": {"id": "eng_Latn", "ids": [5], "tokens": ["eng_Latn"]},
                       "</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}}},
  "model": {"type": "WordLevel", "unk_token": "a", "vocab": {"a": 3, "b": 4}}})";
constexpr char kRoles[] =
    R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": "<pad>"})";

class DecoderPromptsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/decoder_prompt.XXXXXX";
    dir_ = ::mkdtemp(name.data());
    write("tokenizer.json", kTokenizer);
    write("tokenizer_config.json", kRoles);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  void write(const char* name, const char* text) {
    ASSERT_TRUE(write_file_atomic(dir_ / name, text).ok());
  }
  DecoderPrompts load() {
    const auto tokenizer = Tokenizer::load(dir_);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *tokenizer;
    return DecoderPrompts::load(dir_, tokenizer_);
  }

  std::filesystem::path dir_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

TEST_F(DecoderPromptsTest, TokensOfEveryFile) {
  EXPECT_THAT(load().usual(), IsEmpty());
  write("config.json", R"({"decoder_start_token_id": 2, "forced_bos_token_id": null})");
  EXPECT_THAT(load().usual(), ElementsAre(2));
  write("generation_config.json", R"({"decoder_start_token_id": 1, "forced_bos_token_id": 6})");
  EXPECT_THAT(load().usual(), ElementsAre(2, 6));
  write("config.json",
        R"({"pretrained_config": {"decoder_start_token_id": 0}, "build_config": {}})");
  EXPECT_THAT(load().usual(), ElementsAre(0, 6));
  write("config.json", R"([1])");
  EXPECT_THAT(load().usual(), ElementsAre(1, 6));
}

TEST_F(DecoderPromptsTest, ForcedDecoderIds) {
  write("config.json", R"({"decoder_start_token_id": 2, "forced_decoder_ids": [[1, 7]]})");
  EXPECT_THAT(load().usual(), ElementsAre(2, 7));
  const auto forced = [&](const char* list) {
    const std::string text = std::string(R"({"forced_decoder_ids": )") + list + "}";
    write("generation_config.json", text.c_str());
    return load().usual();
  };
  EXPECT_THAT(forced("[[2, 4], [1, 3], [4, 5]]"), ElementsAre(2, 3, 4));
  EXPECT_THAT(forced("[[1, null], [2, 4]]"), ElementsAre(2));  // the first one is left to the model
  EXPECT_THAT(forced("[]"), ElementsAre(2));
  EXPECT_THAT(forced("null"), ElementsAre(2, 7));
  for (const char* list : {"5", "[[1]]", "[[1, -3]]", "[[1, 3], [1, 4]]", "[[1, 3.5]]"}) {
    EXPECT_THAT(forced(list), ElementsAre(2)) << list;
    EXPECT_THAT(std::string(message(read_forced_ids(dir_).status())),
                HasSubstr("field 'forced_decoder_ids' is "))
        << list;
  }
}

TEST_F(DecoderPromptsTest, LanguagesOfSourceAndTarget) {
  write("config.json", R"({"decoder_start_token_id": 2})");
  const DecoderPrompts prompts = load();
  EXPECT_THAT(*prompts.into("fra_Latn"), ElementsAre(2, 6));
  EXPECT_THAT(*prompts.into("de"), ElementsAre(2, 7));
  EXPECT_THAT(*prompts.with_second(4), ElementsAre(2, 4));
  std::vector<int32_t> ids = *tokenizer_->encode("a b");
  EXPECT_THAT(ids, ElementsAre(5, 3, 4, 2));
  EXPECT_TRUE(prompts.set_source("de", ids).ok());
  EXPECT_THAT(ids, ElementsAre(7, 3, 4, 2));
  ids = {3, 2, 5};  // mBART's order
  EXPECT_TRUE(prompts.set_source("fra_Latn", ids).ok());
  EXPECT_THAT(ids, ElementsAre(3, 2, 6));

  const auto error = [](const Status& status) { return std::string(message(status)); };
  EXPECT_THAT(error(prompts.into("a").status()), HasSubstr("'a' is no language of this model"));
  EXPECT_THAT(error(prompts.into("xx").status()), HasSubstr("'xx' is no language"));
  EXPECT_THAT(error(prompts.with_second(8).status()), HasSubstr("8 is not in a vocabulary of 8"));
  EXPECT_THAT(error(prompts.with_second(-1).status()), HasSubstr("-1 is not in"));
  std::vector<int32_t> bare = {3};
  EXPECT_THAT(error(prompts.set_source("de", bare)), HasSubstr("adds no language"));
  std::vector<int32_t> none;
  EXPECT_FALSE(prompts.set_source("de", none).ok());
}

TEST_F(DecoderPromptsTest, ADecoderThatStartsWithALanguage) {
  write("config.json", R"({"decoder_start_token_id": 6})");
  EXPECT_THAT(*load().into("de"), ElementsAre(7));
  write("config.json", "{}");
  EXPECT_THAT(std::string(message(load().into("de").status())),
              HasSubstr("no decoder_start_token_id"));
}

}  // namespace
}  // namespace nereid::text
