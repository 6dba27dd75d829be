// Log-probabilities of prompts: the outputs of `num_prompt_log_probs`.
#include "backend/testing/feature_fixture.h"

namespace nereid::backend {
namespace {

class PromptLogProbsTest : public FeatureTest {
 protected:
  static Conversation score(const Ids& ids, int32_t num_top, bool streaming = false) {
    return Talk(server_, "tensorrt_llm",
                {ids_input("input_ids", ids),
                 int_input("input_lengths", static_cast<int32_t>(ids.size())),
                 int_input("request_output_len", 4), int_input("num_prompt_log_probs", num_top),
                 bool_input("streaming", streaming)})
        .wait();
  }
};

TEST_F(PromptLogProbsTest, OfAnAnswerAreThoseItWasGeneratedWith) {
  const Ids ids = prompt();
  const Conversation said = Talk(server_, "tensorrt_llm",
                                 {ids_input("input_ids", ids),
                                  int_input("input_lengths", static_cast<int32_t>(ids.size())),
                                  int_input("request_output_len", 8), int_input("end_id", -1),
                                  bool_input("return_log_probs", true)})
                                .wait();
  ASSERT_EQ(said.outputs.size(), 1u);
  const auto text = elements<int32_t>(said.outputs[0], "output_ids");
  const auto values = elements<float>(said.outputs[0], "output_log_probs");
  ASSERT_EQ(text.size(), ids.size() + 8);
  for (const bool streaming : {false, true}) {
    const Conversation c = score(text, 2, streaming);
    ASSERT_TRUE(c.status.ok()) << c.status;
    const auto& outputs = c.outputs.at(0);
    const auto count = static_cast<int64_t>(text.size()) - 1;
    EXPECT_EQ(shape_of(outputs, "prompt_log_probs"), (Shape{1, count}));
    EXPECT_EQ(shape_of(outputs, "prompt_top_log_probs"), (Shape{1, count, 2}));
    const auto scores = elements<float>(outputs, "prompt_log_probs");
    const auto ranks = elements<int32_t>(outputs, "prompt_log_prob_ranks");
    const auto top = elements<int32_t>(outputs, "prompt_top_log_prob_ids");
    for (size_t i = 0; i < 8; ++i) {
      const size_t at = ids.size() - 1 + i;
      EXPECT_NEAR(scores.at(at), values.at(i), 1e-5) << i;
      EXPECT_EQ(ranks.at(at), 1) << "greedy drew the likeliest";
      EXPECT_EQ(top.at(2 * at), text.at(at + 1));
    }
    for (size_t i = 1; i < c.outputs.size(); ++i)
      for (const Output& output : c.outputs[i]) EXPECT_NE(output.name, "prompt_log_probs");
  }
}

TEST_F(PromptLogProbsTest, Refusals) {
  EXPECT_THAT(std::string(message(score(prompt(), 33).status)),
              HasSubstr("input 'num_prompt_log_probs' is 33"));
}

}  // namespace
}  // namespace nereid::backend
