// Speculation with a draft model, run by the BLS: drafts change no text.
#include <algorithm>

#include "backend/testing/backend_fixture.h"
#include "base/testing/source_dir.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::backend {
namespace {

constexpr int32_t kTokens = 48;
constexpr char kDraftModel[] = "tensorrt_llm_draft";

// The draft model is the generating one with coarse weights, so that some drafts are wrong.
void make_draft_model(const fs::path& dir) {
  const fs::path draft = dir / kDraftModel;
  fs::copy(dir / "tensorrt_llm", draft, fs::copy_options::recursive);
  edit_config(draft, "name: \"tensorrt_llm\"", "name: \"tensorrt_llm_draft\"");
  edit_config(draft, "${weights}", "int4");
}

class DraftModelTest : public BackendTest {
 protected:
  // The draft model is the generating one with coarsely quantised weights, so that
  // some drafts are wrong.
  static void SetUpTestSuite() {
    start(server_, dir_, {{"tensorrt_llm_draft_model_name", kDraftModel}}, make_draft_model);
  }

  static Conversation say(int32_t num_drafts, std::vector<Output> more, int32_t tokens = kTokens) {
    more.push_back(int_input("num_draft_tokens", num_drafts));
    more.push_back(bool_input("return_perf_metrics", true));
    more.push_back(bool_input("return_num_input_tokens", true));
    more.push_back(bool_input("return_num_output_tokens", true));
    return ask("tensorrt_llm_bls", kPrompt, tokens, std::move(more));
  }
};

TEST_F(DraftModelTest, DraftsChangeNoText) {
  const Output seed{
      "random_seed", TRITONSERVER_TYPE_UINT64, {1, 1}, std::string("\7\0\0\0\0\0\0\0", 8)};
  const auto tokenizer = *text::Tokenizer::load(source_dir() + "/models/quickstart");
  const Ids prompt = *tokenizer->encode(kPrompt);
  const auto ids =
      Talk(server_, "tensorrt_llm",
           {make_output("input_ids", {1, static_cast<int64_t>(prompt.size())}, prompt),
            int_input("input_lengths", static_cast<int32_t>(prompt.size())),
            int_input("request_output_len", kTokens), bool_input("exclude_input_in_output", true)})
          .wait();
  const Ids said = elements<int32_t>(ids.outputs.at(0), "output_ids");
  ASSERT_FALSE(said.empty());
  // Outputs end at different lengths, by min_length.
  const int32_t often =
      *std::ranges::max_element(said, {}, [&](int32_t id) { return std::ranges::count(said, id); });
  const std::vector<Output> rows[] = {
      {},
      {bool_input("exclude_input_in_output", true)},
      {seed, int_input("top_k", 50), float_input("top_p", 0.95f)},
      {seed, int_input("top_k", 20), float_input("temperature", 1.3f)},
      {float_input("repetition_penalty", 1.2f), float_input("frequency_penalty", 0.3f)},
      {int_input("end_id", often)},
      {int_input("end_id", often), int_input("min_length", 3)},
      {int_input("end_id", often), int_input("min_length", 38)},
      {int_input("end_id", often), int_input("min_length", 24)},
      {text_input("bad_words", {" the"})},
      {text_input("stop_words", {" of"})}};
  int32_t tested = 0, accepted = 0;
  for (size_t row = 0; row < std::size(rows); ++row) {
    const auto plain = say(0, rows[row]);
    ASSERT_TRUE(plain.status.ok()) << plain.status;
    for (const int32_t num_drafts : {1, 4, 7}) {
      SCOPED_TRACE(testing::Message() << "row " << row << ", " << num_drafts << " drafts");
      const auto got = say(num_drafts, rows[row]);
      ASSERT_TRUE(got.status.ok()) << got.status;
      EXPECT_EQ(got.texts, plain.texts);
      EXPECT_EQ(got.num_finals, 1);
      for (const char* count : {"num_input_tokens", "num_output_tokens"}) {
        EXPECT_EQ(elements<int32_t>(got.outputs.at(0), count),
                  elements<int32_t>(plain.outputs.at(0), count))
            << count;
      }
      const auto of = [&](const char* name) {
        return elements<int32_t>(got.outputs.at(0), name).at(0);
      };
      tested += of("total_draft_tokens");
      accepted += of("total_accepted_draft_tokens");
      EXPECT_EQ(elements<float>(got.outputs.at(0), "acceptance_rate").at(0),
                static_cast<float>(of("total_accepted_draft_tokens")) /
                    static_cast<float>(of("total_draft_tokens")));
    }
  }
  EXPECT_GT(accepted, tested / 4);
  EXPECT_LT(accepted, tested) << "the draft model is never wrong, so nothing was taken back";
}

// Greedy outputs stay the same, and drafts of sampled requests are accepted more often than by
// equality of tokens.
TEST_F(DraftModelTest, DraftsWithTheirLogits) {
  const auto with_logits = [](std::vector<Output> inputs) {
    inputs.push_back(bool_input("use_draft_logits", true));
    return inputs;
  };
  const std::vector<Output> greedy[] = {
      {},
      {int_input("end_id", 11), int_input("min_length", 6)},
      {float_input("repetition_penalty", 1.2f), text_input("bad_words", {" the"})},
      {text_input("stop_words", {" of"})}};
  for (const auto& inputs : greedy) {
    const auto plain = say(0, inputs), got = say(4, with_logits(inputs));
    ASSERT_TRUE(got.status.ok()) << got.status;
    EXPECT_EQ(got.texts, plain.texts);
  }
  const auto held = [](const Conversation& c) {
    EXPECT_TRUE(c.status.ok()) << c.status;
    EXPECT_EQ(elements<int32_t>(c.outputs.at(0), "num_output_tokens").at(0), kTokens);
    return elements<int32_t>(c.outputs.at(0), "total_accepted_draft_tokens").at(0);
  };
  int32_t by_logits = 0, by_tokens = 0;
  for (char seed = 1; seed <= 6; ++seed) {
    const Output random{"random_seed",
                        TRITONSERVER_TYPE_UINT64,
                        {1, 1},
                        std::string(1, seed) + std::string(7, '\0')};
    const std::vector<Output> inputs = {random, int_input("top_k", 0), float_input("top_p", 1.0f),
                                        float_input("temperature", 1.5f),
                                        int_input("min_length", kTokens)};
    by_tokens += held(say(4, inputs));
    by_logits += held(say(4, with_logits(inputs)));
  }
  EXPECT_GT(by_logits, 20);
  EXPECT_GT(by_tokens, 0);
}

TEST_F(DraftModelTest, OneTokenNeedsNoDraft) {
  const auto got = say(4, {}, 1);
  ASSERT_TRUE(got.status.ok()) << got.status;
  EXPECT_EQ(got.texts, say(0, {}, 1).texts);
  EXPECT_EQ(elements<int32_t>(got.outputs.at(0), "total_draft_tokens").at(0), 0);
}

TEST_F(DraftModelTest, RefusesWhatPartsOfARequestCannotKeep) {
  const auto error = [&](int32_t num_drafts, Output more) {
    return std::string(message(say(num_drafts, {std::move(more)}).status));
  };
  const std::pair<Output, const char*> wrong[] = {
      {bool_input("stream", true), "streaming is not supported with speculative decoding"},
      {bool_input("return_context_logits", true), "context logits are not supported"},
      {bool_input("return_log_probs", true), "'return_log_probs' is not allowed"},
      {float_input("top_p_decay", 0.5f), "'top_p_decay' is not allowed"},
      {int_input("num_return_sequences", 2), "'num_return_sequences' is 2, only 1 is allowed"},
  };
  for (const auto& [input, text] : wrong) EXPECT_THAT(error(4, input), HasSubstr(text));
  EXPECT_THAT(error(-1, bool_input("stream", false)), HasSubstr("'num_draft_tokens' is -1"));
  EXPECT_EQ(error(4, bool_input("stream", false)), "");
  EXPECT_EQ(error(4, int_input("beam_width", 1)), "");
}

// A draft is cut to the number of tokens that the output still lacks.
TEST_F(DraftModelTest, AVeryLongDraftIsCut) {
  const auto got = say(1 << 30, {}, 9);
  ASSERT_TRUE(got.status.ok()) << got.status;
  EXPECT_EQ(got.texts, say(0, {}, 9).texts);
}

// Configurations of v0.9 to v0.13 have exclude_input_in_output as a parameter alone.
class OldDraftModelTest : public BackendTest {
 protected:
  static void start_old(const char* excludes_input) {
    start(server_, dir_,
          {{"tensorrt_llm_draft_model_name", kDraftModel},
           {"exclude_input_in_output", excludes_input}},
          [](const fs::path& dir) {
            fs::remove_all(dir / "ensemble");
            for (const char* model : {"tensorrt_llm", "tensorrt_llm_bls"})
              drop_lines(dir / model, "name: \"exclude_input_in_output\"");
            make_draft_model(dir);
          });
  }
  static void compare(bool excludes_input) {
    for (const bool with_logits : {false, true}) {
      const auto say = [&](int32_t num_drafts) {
        return ask(
            "tensorrt_llm_bls", kPrompt, kTokens,
            {int_input("num_draft_tokens", num_drafts), bool_input("return_perf_metrics", true),
             bool_input("use_draft_logits", with_logits && num_drafts > 0)});
      };
      const auto plain = say(0), got = say(4);
      ASSERT_TRUE(plain.status.ok()) << plain.status;
      ASSERT_TRUE(got.status.ok()) << got.status;
      EXPECT_EQ(got.texts, plain.texts);
      EXPECT_EQ(got.joined().starts_with(kPrompt), !excludes_input);
      EXPECT_GT(elements<int32_t>(got.outputs.at(0), "total_accepted_draft_tokens").at(0), 0);
    }
  }
};

class PromptLeftOutTest : public OldDraftModelTest {
 protected:
  static void SetUpTestSuite() { start_old("True"); }
};

TEST_F(PromptLeftOutTest, DraftsChangeNoText) { compare(true); }

class PromptRepeatedTest : public OldDraftModelTest {
 protected:
  static void SetUpTestSuite() { start_old("false"); }
};

TEST_F(PromptRepeatedTest, DraftsChangeNoText) { compare(false); }

}  // namespace
}  // namespace nereid::backend
