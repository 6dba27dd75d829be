// Repositories written for older versions of the TensorRT-LLM backend.
#include "backend/testing/backend_fixture.h"
#include "base/testing/source_dir.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::backend {
namespace {

// Repositories of v0.7 to v0.13: log-probabilities, logits and the batch index go through the
// postprocessing model, which needs the first two; no model has stop words as text.
void make_old(const fs::path& dir) {
  const fs::path llm = dir / "tensorrt_llm", post = dir / "postprocessing", all = dir / "ensemble";
  for (const fs::path& model : {llm, all}) {
    for (const char* later : {"\"sequence_index\"", "\"stop_strings\""}) drop_lines(model, later);
  }
  for (const fs::path& model : {dir / "preprocessing", all}) drop_lines(model, "\"STOP_STRINGS\"");
  edit_config(
      llm, "name: \"request_output_len\" data_type: TYPE_INT32 dims: [ 1 ] reshape: { shape: [ ] }",
      "name: \"request_output_len\" data_type: TYPE_INT32 dims: [ -1 ]");
  edit_config(post, "dims: [ -1 ] }\n]\noutput [", R"(dims: [ -1 ] },
  { name: "CUM_LOG_PROBS" data_type: TYPE_FP32 dims: [ -1 ] },
  { name: "OUTPUT_LOG_PROBS" data_type: TYPE_FP32 dims: [ -1, -1 ] },
  { name: "CONTEXT_LOGITS" data_type: TYPE_FP32 dims: [ -1, -1 ] optional: true },
  { name: "GENERATION_LOGITS" data_type: TYPE_FP32 dims: [ -1, -1, -1 ] optional: true },
  { name: "BATCH_INDEX" data_type: TYPE_INT32 dims: [ 1 ] optional: true }
]
output [
  { name: "OUT_CUM_LOG_PROBS" data_type: TYPE_FP32 dims: [ -1 ] },
  { name: "OUT_OUTPUT_LOG_PROBS" data_type: TYPE_FP32 dims: [ -1, -1 ] },
  { name: "OUT_CONTEXT_LOGITS" data_type: TYPE_FP32 dims: [ -1, -1 ] },
  { name: "OUT_GENERATION_LOGITS" data_type: TYPE_FP32 dims: [ -1, -1, -1 ] },
  { name: "OUT_BATCH_INDEX" data_type: TYPE_INT32 dims: [ 1 ] },)");
  std::string maps = "output_map { key: \"OUTPUT\" value: \"text_output\" }";
  for (const auto& [name, tensor] : {std::pair{"cum_log_probs", "CUM_LOG_PROBS"},
                                     {"output_log_probs", "OUTPUT_LOG_PROBS"},
                                     {"context_logits", "CONTEXT_LOGITS"},
                                     {"generation_logits", "GENERATION_LOGITS"},
                                     {"batch_index", "BATCH_INDEX"}}) {
    edit_config(all, fmt::format("output_map {{ key: \"{0}\" value: \"{0}\" }}", name),
                fmt::format("output_map {{ key: \"{}\" value: \"_{}\" }}", name, tensor));
    maps += fmt::format("\n      input_map {{ key: \"{0}\" value: \"_{0}\" }}", tensor);
    maps += fmt::format("\n      output_map {{ key: \"OUT_{}\" value: \"{}\" }}", tensor, name);
  }
  edit_config(all, "output_map { key: \"OUTPUT\" value: \"text_output\" }", maps);
}

class OldRepositoryTest : public BackendTest {
 protected:
  static void SetUpTestSuite() { start(server_, dir_, {}, make_old); }
};

TEST_F(OldRepositoryTest, PostprocessingPassesOnWhatItIsGiven) {
  for (const char* model : {"ensemble", "tensorrt_llm_bls"}) {
    const auto got = ask(
        model, kPrompt, 4,
        {bool_input("return_log_probs", true), int_input("end_id", -1),
         bool_input("return_context_logits", true), bool_input("return_generation_logits", true)});
    ASSERT_TRUE(got.status.ok()) << model << got.status;
    const auto& outputs = got.outputs.at(0);
    const auto each = elements<float>(outputs, "output_log_probs");
    ASSERT_EQ(each.size(), 4u) << model;
    EXPECT_NEAR(elements<float>(outputs, "cum_log_probs").at(0),
                each[0] + each[1] + each[2] + each[3], 1e-4);
    const Shape logits = shape_of(outputs, "generation_logits");
    ASSERT_EQ(logits.size(), 4u) << model;
    EXPECT_EQ(logits[2], 4);
    EXPECT_EQ(shape_of(outputs, "context_logits"), (Shape{1, 5, logits[3]}));
  }
}

// Outputs that clients of these versions received without asking for them.
TEST_F(OldRepositoryTest, ZerosStandForTheRest) {
  for (const char* model : {"ensemble", "tensorrt_llm_bls"}) {
    for (const bool stream : {false, true}) {
      const auto got = ask(model, kPrompt, 4, {bool_input("stream", stream)});
      ASSERT_TRUE(got.status.ok()) << model << got.status;
      for (const auto& outputs : got.outputs) {
        EXPECT_EQ(elements<float>(outputs, "cum_log_probs"), std::vector<float>(1));
        EXPECT_EQ(shape_of(outputs, "cum_log_probs"), (Shape{1, 1}));
        EXPECT_EQ(elements<float>(outputs, "output_log_probs"), std::vector<float>(5));
        EXPECT_EQ(shape_of(outputs, "context_logits"), (Shape{1, 1, 1}));
        EXPECT_EQ(shape_of(outputs, "generation_logits"), (Shape{1, 1, 1, 1}));
      }
      EXPECT_EQ(elements<int32_t>(got.outputs.at(0), "batch_index"), std::vector<int32_t>(1));
    }
  }
}

TEST_F(OldRepositoryTest, ANumberIsOneNumber) {
  Talk talk(
      server_, "tensorrt_llm",
      {make_output("input_ids", {1, 2}, std::vector<int32_t>{5, 6}), int_input("input_lengths", 2),
       make_output("request_output_len", {1, 2}, std::vector<int32_t>{3, 3})});
  EXPECT_EQ(message(talk.wait().status), "Invalid size for tensor request_output_len");
}

TEST_F(OldRepositoryTest, TheBlsEndsStreamsAtTextThatTheModelDoesNotLookAt) {
  const auto words = text_input("stop_words", {"zqzq", "ntelligence"});
  const auto whole =
      ask("tensorrt_llm_bls", kPrompt, 48, {words, bool_input("exclude_input_in_output", true)});
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  ASSERT_THAT(whole.joined(), testing::EndsWith("ntelligence"));
  const std::string aborts = "vllm:request_success_total{engine=\"0\",finished_reason=\"abort\"";
  const double before = metric(metrics_page(server_), aborts);
  // Repeated: a single cancel may come after the stream has ended.
  for (int i = 0; i < 20 && metric(metrics_page(server_), aborts) == before; ++i) {
    const auto got = ask("tensorrt_llm_bls", kPrompt, 1500,
                         {words, bool_input("stream", true), int_input("end_id", -1)});
    ASSERT_TRUE(got.status.ok()) << got.status;
    EXPECT_EQ(got.joined(), whole.joined());
    EXPECT_GT(got.texts.size(), 1u);
    EXPECT_EQ(got.num_finals, 1);
  }
  EXPECT_GT(metric(metrics_page(server_), aborts), before);
}

TEST_F(OldRepositoryTest, EachSequenceEndsAtItsOwnStopWord) {
  const auto got = ask("tensorrt_llm_bls", kPrompt, 64,
                       {text_input("stop_words", {"e"}), bool_input("stream", true),
                        int_input("num_return_sequences", 2), float_input("temperature", 3.0f),
                        float_input("top_p", 1.0f), int_input("end_id", -1)});
  ASSERT_TRUE(got.status.ok()) << got.status;
  size_t num_ended = 0;
  for (const auto& text : got.texts) num_ended += text.find('e') != std::string::npos;
  EXPECT_LE(num_ended, 2u);
  EXPECT_GE(num_ended, 1u);
  for (const auto& text : got.texts) {
    EXPECT_TRUE(text.find('e') == std::string::npos || text.find('e') + 1 == text.size()) << text;
  }
}

// v0.5.0 and v0.6.1 have unsigned counts, and the types differ between the models.
class UnsignedTest : public BackendTest {
 protected:
  static void SetUpTestSuite() {
    start(server_, dir_, {}, [](const fs::path& dir) {
      make_old(dir);
      const auto retype = [&](const char* model, const std::string& name, const char* type) {
        const std::string begin = "name: \"" + name + "\" data_type: TYPE_";
        edit_config(dir / model, begin + "INT32", begin + type);
      };
      retype("ensemble", "max_tokens", "UINT32");
      retype("ensemble", "end_id", "UINT32");
      retype("preprocessing", "REQUEST_OUTPUT_LEN", "UINT32");
      retype("preprocessing", "END_ID", "UINT32");
      retype("preprocessing", "OUT_END_ID", "UINT32");
      retype("tensorrt_llm", "request_output_len", "UINT32");
      retype("tensorrt_llm", "end_id", "UINT32");
      retype("postprocessing", "BATCH_INDEX", "UINT32");
      retype("postprocessing", "OUT_BATCH_INDEX", "INT64");
      retype("tensorrt_llm", "batch_index", "UINT32");
      retype("ensemble", "batch_index", "INT64");
    });
  }
};

TEST_F(UnsignedTest, EnsemblesGetTheTypesThatTheirModelsDeclare) {
  Output max_tokens = int_input("max_tokens", 6);
  max_tokens.datatype = TRITONSERVER_TYPE_UINT32;
  const auto got =
      Talk(server_, "ensemble", {text_input("text_input", {kPrompt}), max_tokens}).wait();
  ASSERT_TRUE(got.status.ok()) << got.status;
  EXPECT_THAT(got.joined(), testing::StartsWith(kPrompt));
  EXPECT_EQ(elements<int64_t>(got.outputs.at(0), "batch_index"), std::vector<int64_t>(1));
}

// v0.7: preprocessing has no END_ID and PAD_ID; the BLS passes them to the generating model.
class BlsOfV07Test : public BackendTest {
 protected:
  static void SetUpTestSuite() {
    start(server_, dir_, {}, [](const fs::path& dir) {
      make_old(dir);
      fs::remove_all(dir / "ensemble");
      for (const char* line : {"END_ID\"", "PAD_ID\""}) drop_lines(dir / "preprocessing", line);
      edit_config(dir / "preprocessing", "},\n]", "}\n]");
    });
  }
};

TEST_F(BlsOfV07Test, EndIdsReachTheGeneratingModel) {
  const auto tokenizer = *text::Tokenizer::load(source_dir() + "/models/quickstart");
  const auto asked = [](int32_t end_id) {
    const auto got = ask("tensorrt_llm_bls", kPrompt, 8,
                         {int_input("end_id", end_id), int_input("pad_id", end_id)});
    EXPECT_TRUE(got.status.ok()) << got.status;
    return got.joined();
  };
  const std::string whole = asked(-1);
  const auto ids = *tokenizer->encode(whole);
  const size_t num_given = tokenizer->encode(kPrompt)->size();
  ASSERT_GT(ids.size(), num_given + 3);
  const std::string begin = asked(ids[num_given + 3]);
  EXPECT_THAT(whole, testing::StartsWith(begin));
  EXPECT_LT(begin.size(), whole.size());
}

// The repositories of v0.9 to v0.19 reshape such inputs of the BLS from [ 1 ] to [ ].
class ReshapedBlsTest : public BackendTest {
 protected:
  static void SetUpTestSuite() {
    start(server_, dir_, {}, [](const fs::path& dir) {
      const std::string kWanted =
          "{ name: \"return_perf_metrics\" data_type: TYPE_BOOL dims: [ 1 ] ";
      const std::string kStatistics =
          "{ name: \"return_kv_cache_reuse_stats\" data_type: TYPE_BOOL dims: [ 1 ] ";
      edit_config(dir / "tensorrt_llm_bls", kWanted,
                  kStatistics + "optional: true },\n  " + kWanted);
      edit_config(dir / "tensorrt_llm", kWanted,
                  kStatistics + "reshape: { shape: [ ] } optional: true },\n  " + kWanted);
      for (const char* input :
           {"return_log_probs\" data_type: TYPE_BOOL",
            "return_context_logits\" data_type: TYPE_BOOL",
            "return_generation_logits\" data_type: TYPE_BOOL",
            "return_kv_cache_reuse_stats\" data_type: TYPE_BOOL",
            "return_perf_metrics\" data_type: TYPE_BOOL",
            "num_return_sequences\" data_type: TYPE_INT32", "lora_task_id\" data_type: TYPE_UINT64",
            "use_draft_logits\" data_type: TYPE_BOOL"}) {
        const std::string begin = std::string("name: \"") + input + " dims: [ 1 ] ";
        edit_config(dir / "tensorrt_llm_bls", begin, begin + "reshape: { shape: [ ] } ");
      }
    });
  }
};

TEST_F(ReshapedBlsTest, EveryOutputCanBeAskedFor) {
  const std::vector<Output> wishes = {
      bool_input("return_log_probs", true), bool_input("return_context_logits", true),
      bool_input("return_generation_logits", true), bool_input("return_kv_cache_reuse_stats", true),
      bool_input("return_perf_metrics", true)};
  for (const bool stream : {false, true}) {
    std::vector<Output> inputs = wishes;
    inputs.push_back(bool_input("stream", stream));
    inputs.push_back(int_input("end_id", -1));
    const auto got = ask("tensorrt_llm_bls", kPrompt, 4, inputs);
    ASSERT_TRUE(got.status.ok()) << got.status;
    const auto& first = got.outputs.at(0);
    const auto& last = got.outputs.back();
    EXPECT_EQ(elements<float>(last, "output_log_probs").size(), 4u);
    EXPECT_EQ(elements<float>(last, "cum_log_probs").size(), 1u);
    EXPECT_EQ(shape_of(first, "context_logits").size(), 3u);
    EXPECT_EQ(shape_of(last, "generation_logits").size(), 4u);
    EXPECT_EQ(elements<int32_t>(last, "kv_cache_alloc_total_blocks").size(), 1u);
    EXPECT_EQ(elements<int64_t>(last, "first_token_time_ns").size(), 1u);
  }
  const auto two = ask("tensorrt_llm_bls", kPrompt, 4,
                       {int_input("num_return_sequences", 2), bool_input("return_log_probs", true),
                        float_input("temperature", 2.0f), float_input("top_p", 1.0f)});
  ASSERT_TRUE(two.status.ok()) << two.status;
  EXPECT_EQ(two.texts.size(), 2u);
}

TEST_F(ReshapedBlsTest, EachItemOfABatchIsAskedForItself) {
  const auto got =
      Talk(server_, "tensorrt_llm_bls",
           {make_output("text_input", {2, 1}, std::vector<std::string>{kPrompt, "Hello"}),
            make_output("max_tokens", {2, 1}, std::vector<int32_t>{4, 6}),
            make_output("end_id", {2, 1}, std::vector<int32_t>{-1, -1}),
            {"return_log_probs", TRITONSERVER_TYPE_BOOL, {2, 1}, std::string("\0\1", 2)}})
          .wait();
  ASSERT_TRUE(got.status.ok()) << got.status;
  ASSERT_EQ(got.outputs.size(), 2u);
  for (const auto& outputs : got.outputs) {
    const auto index = elements<int32_t>(outputs, "batch_index").at(0);
    EXPECT_EQ(elements<float>(outputs, "output_log_probs").size(), index == 0 ? 0u : 6u);
  }
}

// The model set without SEQUENCE_LENGTH and with its own names for log-probabilities.
class GptTest : public BackendTest {
 protected:
  static void SetUpTestSuite() {
    start(server_, dir_, {}, [](const fs::path& dir) {
      for (const auto& entry : fs::directory_iterator(dir)) fs::remove_all(entry);
      const std::string model = source_dir() + "/models/quickstart";
      write_repository(dir, {{"engine_dir", model}, {"tokenizer_dir", model}}, "gpt");
      edit_config(dir / "tensorrt_llm", "parameters { key: \"gpt_model_type\"",
                  "parameters { key: \"max_tokens_in_paged_kv_cache\" value { string_value: "
                  "\"8192\" } }\nparameters { key: \"cache_dir\" value { string_value: \"" +
                      (dir / ".cache").string() + "\" } }\nparameters { key: \"gpt_model_type\"");
      drop_lines(dir / "tensorrt_llm", "\"sequence_length\"");
      for (const char* name : {"postprocessing", "ensemble"}) {
        drop_lines(dir / name, "SEQUENCE_LENGTH");
      }
      edit_config(dir / "postprocessing", "dims: [ -1, -1 ] },", "dims: [ -1, -1 ] }");
    });
  }
};

TEST_F(GptTest, TextComesOutWithoutLengths) {
  const auto got = ask("ensemble", kPrompt, 8);
  ASSERT_TRUE(got.status.ok()) << got.status;
  EXPECT_THAT(got.joined(), testing::StartsWith(kPrompt));
  EXPECT_GT(got.joined().size(), std::string_view(kPrompt).size());
}

TEST_F(GptTest, LogProbsHaveTheirOldNames) {
  const auto asked = [&](std::vector<Output> more) {
    more.push_back(make_output("input_ids", {1, 3}, std::vector<int32_t>{5, 6, 7}));
    more.push_back(int_input("input_lengths", 3));
    more.push_back(int_input("request_output_len", 4));
    const auto got = Talk(server_, "tensorrt_llm", std::move(more)).wait();
    EXPECT_TRUE(got.status.ok()) << got.status;
    return elements<float>(got.outputs.at(0), "log_probs");
  };
  EXPECT_EQ(asked({bool_input("output_log_probs", true)}).size(), 4u);
  EXPECT_TRUE(asked({}).empty());
}

}  // namespace
}  // namespace nereid::backend
