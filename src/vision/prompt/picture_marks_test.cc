// Marks of pictures in prompts, and their tokens.
#include "vision/prompt/picture_marks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "base/scratch_dir.h"
#include "text/testing/quickstart_tokenizer.h"

namespace nereid::vision {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const PictureMarks kLlava = {"<image>", "<image>", "<image>", "<image>", 9};
const PictureMarks kGemma = {"<start>", "\n<start><soft><end>\n", "<start>", "<soft>", 9};

TEST(PictureMarks, TokensAreRepeated) {
  std::vector<int32_t> ids = {1, 9, 2, 3, 9};
  const auto spans = place_pictures(kLlava, {{3, 3}, {2, 1}}, ids);
  ASSERT_TRUE(spans.ok()) << spans.status();
  EXPECT_THAT(ids, ElementsAre(1, 9, 9, 9, 2, 3, 9, 9));
  EXPECT_THAT(*spans, ElementsAre(TokenSpan{1, 3}, TokenSpan{6, 2}));
}

TEST(PictureMarks, RowsOfPixtralEndWithABreak) {
  PictureMarks pixtral = kLlava;
  pixtral.row_break_id = 7, pixtral.end_id = 8;
  std::vector<int32_t> ids = {1, 9, 2};
  const auto spans = place_pictures(pixtral, {{6, 3}}, ids);
  ASSERT_TRUE(spans.ok()) << spans.status();
  EXPECT_THAT(ids, ElementsAre(1, 9, 9, 9, 7, 9, 9, 9, 8, 2));
  EXPECT_THAT(*spans, ElementsAre(TokenSpan{1, 8}));
}

TEST(PictureMarks, AsManyTokensAsPictures) {
  std::vector<int32_t> ids = {1, 9, 9};
  EXPECT_THAT(message(place_pictures(kLlava, {{3, 3}}, ids).status()),
              HasSubstr("the prompt has '<image>' 2 times for 1 pictures"));
  EXPECT_THAT(ids, ElementsAre(1, 9, 9));
}

TEST(PictureMarks, MarkersAreReplaced) {
  EXPECT_EQ(with_shown_marks("a<start>b<start>", kGemma),
            "a\n<start><soft><end>\nb\n<start><soft><end>\n");
  EXPECT_EQ(with_shown_marks("a<image>", kLlava), "a<image>");
  EXPECT_TRUE(kGemma.is_in("x<start>"));
  EXPECT_TRUE(kGemma.is_in("<soft>x"));
  EXPECT_FALSE(kGemma.is_in("<image>"));
}

// The quick-start tokenizer with more tokens, beside a config.json.
StatusOr<PictureMarks> marks_with(const std::vector<std::string>& tokens, std::string_view config) {
  const ScratchDir dir = *ScratchDir::create();
  text::write_quickstart_tokenizer(dir.path(), tokens);
  if (!config.empty()) std::ofstream(dir.path() / "config.json") << config;
  const auto loaded = text::Tokenizer::load(dir.path());
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return find_marks(dir.path(), **loaded);
}

TEST(PictureMarks, ModelsAreKnownByTheirTokens) {
  const PictureMarks llava = *marks_with({"<image>"}, "");
  EXPECT_EQ(llava.id, 4096);
  EXPECT_EQ(llava.marker, "<image>");
  EXPECT_EQ(llava.in_text, "<image>");
  const PictureMarks qwen = *marks_with({"<|vision_start|>", "<|image_pad|>"}, "");
  EXPECT_EQ(qwen.id, 4097);
  EXPECT_EQ(qwen.shown, "<|image_pad|>");
  EXPECT_EQ(qwen.in_text, "<|vision_start|><|image_pad|><|vision_end|>");
  const PictureMarks gemma = *marks_with({"<image_soft_token>"}, "");
  EXPECT_EQ(gemma.marker, "<start_of_image>");
  EXPECT_EQ(gemma.shown, "\n\n<start_of_image><image_soft_token><end_of_image>\n\n");
  const PictureMarks pixtral = *marks_with({"[IMG]", "[IMG_BREAK]", "[IMG_END]"}, "");
  EXPECT_EQ(pixtral.row_break_id, 4097);
  EXPECT_EQ(pixtral.end_id, 4098);
  EXPECT_EQ(marks_with({}, "").status().code(), absl::StatusCode::kUnimplemented);
}

TEST(PictureMarks, TheConfigurationSaysWhichToken) {
  const PictureMarks own = *marks_with({"<image>", "<pic>"}, R"({"image_token_index": 4097})");
  EXPECT_EQ(own.token, "<pic>");
  EXPECT_EQ(own.shown, "<pic>");
  const PictureMarks built =
      *marks_with({"<image>", "<pic>"}, R"({"pretrained_config": {"image_token_id": 4097}})");
  EXPECT_EQ(built.id, 4097);
}

}  // namespace
}  // namespace nereid::vision
