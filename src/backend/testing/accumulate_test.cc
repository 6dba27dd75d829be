// A BLS model whose responses carry the whole text so far.
#include "backend/testing/backend_fixture.h"

namespace nereid::backend {
namespace {

class AccumulateTest : public BackendTest {
 protected:
  static void SetUpTestSuite() { start(server_, dir_, {{"accumulate_tokens", "True"}}); }
};

TEST_F(AccumulateTest, EachTextContainsTheOneBefore) {
  const auto whole =
      ask("tensorrt_llm_bls", kPrompt, 12, {bool_input("exclude_input_in_output", true)});
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  ASSERT_EQ(whole.texts.size(), 1u);
  const auto stream = ask("tensorrt_llm_bls", kPrompt, 12, {bool_input("stream", true)});
  ASSERT_TRUE(stream.status.ok()) << stream.status;
  ASSERT_GT(stream.texts.size(), 3u);
  for (size_t i = 1; i < stream.texts.size(); ++i) {
    EXPECT_TRUE(stream.texts[i].starts_with(stream.texts[i - 1])) << i;
  }
  EXPECT_EQ(stream.texts.back(), whole.joined());
  EXPECT_EQ(stream.num_finals, 1);
}

TEST_F(AccumulateTest, TheLastTextEndsWithTheStopWord) {
  const auto words = text_input("stop_words", {"ntelligence"});
  const auto whole =
      ask("tensorrt_llm_bls", kPrompt, 48, {words, bool_input("exclude_input_in_output", true)});
  const auto stream = ask("tensorrt_llm_bls", kPrompt, 48, {words, bool_input("stream", true)});
  ASSERT_TRUE(stream.status.ok()) << stream.status;
  ASSERT_GT(stream.texts.size(), 3u);
  EXPECT_THAT(stream.texts.back(), testing::EndsWith("ntelligence"));
  EXPECT_EQ(stream.texts.back(), whole.joined());
  EXPECT_EQ(stream.num_finals, 1);
}

TEST_F(AccumulateTest, TheEnsembleStillSendsPieces) {
  const auto whole = ask("ensemble", kPrompt, 12, {bool_input("exclude_input_in_output", true)});
  const auto stream = ask("ensemble", kPrompt, 12, {bool_input("stream", true)});
  ASSERT_GT(stream.texts.size(), 3u);
  EXPECT_EQ(stream.joined(), whole.joined());
}

}  // namespace
}  // namespace nereid::backend
