// The pictures of a conversation.
#include "front/openai/pictures/picture_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nereid::front {
namespace {

using ::testing::ElementsAre;

const vision::PictureMarks kLlava = {"<image>", "<image>", "<image>", "<image>", 9};
const vision::PictureMarks kGemma = {"<start>", "\n<start><soft><end>\n", "<start>", "<soft>", 9};

json::object context_of(std::string_view messages) { return {{"messages", *parse_json(messages)}}; }

TEST(PicturePrompt, TextsWithMarksAreRefused) {
  const auto has = [](std::string_view messages, const vision::PictureMarks& marks) {
    return check_no_marks(context_of(messages), marks).has_value();
  };
  EXPECT_TRUE(has(R"([{"role": "user", "content": "see <image> here"}])", kLlava));
  EXPECT_TRUE(has(R"([{"content": [{"type": "text", "text": "<image>"}]}])", kLlava));
  EXPECT_TRUE(has(R"([{"tool_calls": [{"function": {"arguments": {"<image>": 1}}}]}])", kLlava));
  EXPECT_TRUE(has(R"([{"content": "<soft>"}])", kGemma));
  EXPECT_TRUE(has(R"([{"content": "<start>"}])", kGemma));
  EXPECT_FALSE(has(R"([{"content": "<images> image"}, {"content": [{"type": "image"}]}])", kLlava));
}

TEST(PicturePrompt, PicturesOfKeptMessagesAreFoundInOrder) {
  const json::object context = context_of(
      R"([{"content": [{"type": "image", "picture": 2}, {"type": "text", "text": "x"}]},
          {"content": "text"}, {"content": [{"type": "image", "picture": 4}]}])");
  EXPECT_THAT(pictures_in(context), ElementsAre(2, 4));
  const json::object texts = with_marks_in_texts(context, kLlava);
  EXPECT_EQ(texts.at("messages").at(0).at("content"), "<image>\nx");
  EXPECT_EQ(texts.at("messages").at(1).at("content"), "text");
  EXPECT_EQ(texts.at("messages").at(2).at("content"), "<image>\n");
}

}  // namespace
}  // namespace nereid::front
