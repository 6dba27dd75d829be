// Grouping of streamed tokens into whole characters.
#include "backend/tensorrtllm/whole_characters.h"
#include "base/testing/source_dir.h"

#include <gtest/gtest.h>

namespace nereid::backend {
namespace {

TEST(MissingBytes, KnowsWhereCharactersEnd) {
  EXPECT_EQ(missing_bytes(""), 0u);
  EXPECT_EQ(missing_bytes("abc"), 0u);
  EXPECT_EQ(missing_bytes("a\xC3"), 1u);
  EXPECT_EQ(missing_bytes("a\xC3\xA4"), 0u);
  EXPECT_EQ(missing_bytes("\xE2\x82"), 1u);
  EXPECT_EQ(missing_bytes("\xF0\x9F"), 2u);
  EXPECT_EQ(missing_bytes("\xF0\x9F\x98\x80"), 0u);
  EXPECT_EQ(missing_bytes("\xFF"), 0u);      // never part of UTF-8
  EXPECT_EQ(missing_bytes("\x80\x80"), 0u);  // continuation bytes without a lead
}

TEST(WholeCharacters, JoinedGroupsDecodeToTheWholeText) {
  const std::string dir = source_dir() + "/models/quickstart";
  auto tokenizer = text::Tokenizer::load(dir);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::string text = "Grüße 😀 漢字 naïve \xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x9A\x80!";
  auto ids = (*tokenizer)->encode(text, {.add_special_tokens = false});
  ASSERT_TRUE(ids.ok());
  WholeCharacters groups(*tokenizer);
  std::string joined;
  bool held_something = false;
  for (size_t i = 0; i < ids->size(); ++i) {
    const auto group = groups.push({(*ids)[i]}, i + 1 == ids->size());
    held_something = held_something || group.empty();
    joined += (*tokenizer)->decode(group, true);
  }
  EXPECT_EQ(joined, text);
  EXPECT_TRUE(held_something);  // else this test shows nothing
}

TEST(WholeCharacters, FinalReleasesAnUnfinishedCharacter) {
  auto tokenizer = text::Tokenizer::load(source_dir() + "/models/quickstart");
  ASSERT_TRUE(tokenizer.ok());
  auto ids = (*tokenizer)->encode("😀", {.add_special_tokens = false});
  ASSERT_GT(ids->size(), 1u);
  WholeCharacters groups(*tokenizer);
  EXPECT_TRUE(groups.push({ids->front()}, false).empty());
  EXPECT_EQ(groups.push({}, true).size(), 1u);
}

}  // namespace
}  // namespace nereid::backend
