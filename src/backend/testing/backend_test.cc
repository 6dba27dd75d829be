// Models ensemble and tensorrt_llm_bls over the quick-start model, through the C API.
#include "backend/testing/backend_fixture.h"
#include "base/testing/source_dir.h"

namespace nereid::backend {
namespace {

TEST_F(BackendTest, GoldenTextsComeOut) {
  const auto golden = read_json_file(source_dir() + "/tests/golden/target.json");
  ASSERT_TRUE(golden.ok()) << golden.status();
  int checked = 0;
  for (const auto& item : golden->as_object().at("cases").as_array()) {
    const auto& c = item.as_object();
    if (c.at("kind").as_string() != "raw" || !c.at("end_index").is_null()) continue;
    if (c.at("clear_steps").as_int64() < 48 || ++checked > 3) continue;
    const std::string prompt(c.at("prompt").as_string()), text(c.at("text").as_string());
    for (const char* model : {"ensemble", "tensorrt_llm_bls"}) {
      const auto got = ask(model, prompt, 48, {bool_input("exclude_input_in_output", true)});
      EXPECT_TRUE(got.status.ok()) << got.status;
      EXPECT_EQ(got.joined(), text) << model;
      EXPECT_EQ(got.texts.size(), 1u);
      const auto streamed = ask(model, prompt, 48, {bool_input("stream", true)});
      EXPECT_EQ(streamed.joined(), text) << model << " streamed";
      EXPECT_GT(streamed.texts.size(), 20u);
    }
  }
  EXPECT_GT(checked, 0);
}

TEST_F(BackendTest, ThePromptIsPartOfTheTextByDefault) {
  const auto got = ask("ensemble", kPrompt, 4);
  ASSERT_TRUE(got.status.ok()) << got.status;
  EXPECT_THAT(got.joined(), testing::StartsWith(kPrompt));
}

TEST_F(BackendTest, StopWordsEndTheTextHoweverTheyAreTokenised) {
  // "of artificial" is tokenised differently at the start of a text than inside a sentence.
  for (const char* model : {"ensemble", "tensorrt_llm_bls"}) {
    for (const bool stream : {false, true}) {
      const auto got = ask(model, kPrompt, 48,
                           {text_input("stop_words", {"ntelligence"}), bool_input("stream", stream),
                            bool_input("exclude_input_in_output", true)});
      ASSERT_TRUE(got.status.ok()) << got.status;
      EXPECT_THAT(got.joined(), testing::EndsWith("ntelligence")) << model;
    }
  }
}

TEST_F(BackendTest, HoldsTheTextToItsGuide) {
  const int32_t end_id = 3;
  for (const char* model : {"ensemble", "tensorrt_llm_bls"}) {
    const auto got =
        ask(model, kPrompt, 48,
            {text_input("guided_decoding_guide_type", {"regex"}),
             text_input("guided_decoding_guide", {"(yes|no) or [a-c]{3}"}),
             int_input("end_id", end_id), bool_input("exclude_input_in_output", true)});
    ASSERT_TRUE(got.status.ok()) << got.status;
    EXPECT_THAT(got.joined(), testing::ContainsRegex("^(yes|no) or [abc][abc][abc]$")) << model;
  }
}

TEST_F(BackendTest, AccumulatesOnlyWhenAsked) {
  const auto got = ask("tensorrt_llm_bls", kPrompt, 6, {bool_input("stream", true)});
  ASSERT_GE(got.texts.size(), 3u);
  EXPECT_FALSE(got.texts[2].starts_with(got.texts[1]));
}

TEST_F(BackendTest, SamplingIsSeeded) {
  const auto sample = [&](uint64_t seed) {
    return ask("ensemble", "Once", 16,
               {float_input("temperature", 5.0f),
                float_input("top_p", 1.0f),
                {"random_seed",
                 TRITONSERVER_TYPE_UINT64,
                 {1, 1},
                 std::string(reinterpret_cast<const char*>(&seed), sizeof(seed))}})
        .joined();
  };
  EXPECT_EQ(sample(1), sample(1));
  EXPECT_NE(sample(1), sample(2));
}

TEST_F(BackendTest, CountsAndPerfMetricsOnRequest) {
  for (const char* model : {"ensemble", "tensorrt_llm_bls"}) {
    const auto got = ask(
        model, kPrompt, 5,
        {bool_input("return_num_input_tokens", true), bool_input("return_num_output_tokens", true),
         bool_input("return_perf_metrics", true)});
    ASSERT_TRUE(got.status.ok()) << got.status;
    std::map<std::string, std::string> by_name;
    for (const auto& output : got.outputs.back()) by_name[output.name] = output.bytes;
    int32_t count = 0;
    ASSERT_EQ(by_name["num_input_tokens"].size(), sizeof(count));
    std::memcpy(&count, by_name["num_input_tokens"].data(), sizeof(count));
    EXPECT_EQ(count, 5);
    std::memcpy(&count, by_name["num_output_tokens"].data(), sizeof(count));
    EXPECT_EQ(count, 5);
    EXPECT_EQ(by_name["first_token_time_ns"].size(), 8u);
  }
}

TEST_F(BackendTest, RefusesByName) {
  const auto error = [&](const char* model, std::vector<Output> more, int32_t tokens = 4) {
    return std::string(message(ask(model, kPrompt, tokens, std::move(more)).status));
  };
  for (const char* model : {"ensemble", "tensorrt_llm_bls"}) {
    EXPECT_EQ(error(model, {float_input("repetition_penalty", 1.0f)}), "");
    EXPECT_THAT(error(model, {int_input("beam_width", 4)}),
                HasSubstr("Requested beam width 4 is larger than configured max beam width 1"));
    EXPECT_THAT(error(model, {text_input("guided_decoding_guide_type", {"yaml"})}),
                HasSubstr("input 'guided_decoding_guide_type' is 'yaml', expected json"));
    EXPECT_THAT(error(model, {text_input("guided_decoding_guide_type", {"json_schema"}),
                              text_input("guided_decoding_guide", {"{\"not\": {}}"})}),
                HasSubstr("guided_decoding: schema: '': no value is of this schema"));
    EXPECT_THAT(error(model, {{"lora_task_id",
                               TRITONSERVER_TYPE_UINT64,
                               {1, 1},
                               std::string("\1\0\0\0\0\0\0\0", 8)}}),
                HasSubstr("lora_task_id"));
    // Errors name tensor, value and range, in whichever model reads the tensor.
    const std::pair<Output, const char*> wrong[] = {
        {float_input("repetition_penalty", 0.0f),
         "input 'repetition_penalty' is 0, expected greater than 0"},
        {float_input("min_p", 1.5f), "input 'min_p' is 1.5, expected a value in [0, 1]"},
        {float_input("top_p", 1.5f), "input 'runtime_top_p' is 1.5"},
        {int_input("top_k", -1), "input 'runtime_top_k' is -1"},
        {int_input("num_return_sequences", 0), "input 'num_return_sequences' is 0"},
        {float_input("presence_penalty", NAN),
         "input 'presence_penalty' is nan, expected a finite"},
        {int_input("num_top_log_probs", 40), "input 'num_top_log_probs' is 40"},
        {float_input("priority", 2.0f), "input 'priority' is 2, expected a value in [0, 1]"},
        {int_input("end_id", 1 << 30), "EndId (1073741824) is not within acceptable range"},
    };
    for (const auto& [input, text] : wrong) {
      EXPECT_THAT(error(model, {input}), HasSubstr(text)) << model;
    }
    EXPECT_EQ(error(model, {text_input("bad_words", {""})}), "");
    EXPECT_NE(error(model, {}, 0), "");
    std::string long_prompt;
    for (int i = 0; i < 4000; ++i) long_prompt += " word";
    const auto too_long = ask(model, long_prompt, 4);
    EXPECT_EQ(too_long.status.code(), absl::StatusCode::kInvalidArgument) << too_long.status;
    EXPECT_THAT(std::string(message(too_long.status)), testing::ContainsRegex("4[0-9]{3}"));
    EXPECT_NE(error(model, {float_input("temperature", -1.0f)}), "");
  }
}

TEST_F(BackendTest, RefusesWhatComesLater) {
  const auto error = [&](const char* model, Output more) {
    return std::string(message(ask(model, kPrompt, 4, {std::move(more)}).status));
  };
  const Output one_id{"prompt_table_extra_id",
                      TRITONSERVER_TYPE_UINT64,
                      {1, 1},
                      std::string("\1\0\0\0\0\0\0\0", 8)};
  // Decoder-only models ignore the decoder's prompt.
  EXPECT_EQ(error("ensemble", text_input("decoder_text_input", {"x"})), "");
  EXPECT_THAT(error("ensemble", one_id), HasSubstr("'PROMPT_TABLE_EXTRA_ID' is not supported"));
  const char* bls = "tensorrt_llm_bls";
  EXPECT_EQ(error(bls, text_input("decoder_text_input", {"x"})), "");
  EXPECT_THAT(error(bls, text_input("image_url_input", {"x"})),
              HasSubstr("'IMAGE_URL' and 'IMAGE_BYTES': the model takes no pictures"));
  EXPECT_THAT(error("ensemble", text_input("image_url_input", {"x"})),
              HasSubstr("the model takes no pictures"));
  EXPECT_THAT(error(bls, one_id), HasSubstr("'prompt_table_extra_id' is not supported"));
  EXPECT_THAT(error(bls, int_input("num_draft_tokens", 3)),
              HasSubstr("cannot perform speculative decoding without draft model"));
  EXPECT_THAT(error(bls, bool_input("use_draft_logits", true)), HasSubstr("use_draft_logits"));
  EXPECT_EQ(error(bls, int_input("num_draft_tokens", 0)), "");
}

TEST_F(BackendTest, DecoderPromptsAreIgnored) {
  const auto got = Talk(server_, "tensorrt_llm",
                        {make_output("input_ids", {1, 3}, std::vector<int32_t>{5, 6, 7}),
                         int_input("input_lengths", 3), int_input("request_output_len", 2),
                         make_output("decoder_input_ids", {1, 1}, std::vector<int32_t>{1}),
                         int_input("decoder_input_lengths", 1)})
                       .wait();
  EXPECT_TRUE(got.status.ok()) << got.status;
}

// Repeated: a single cancel may come after the stream has ended.
TEST_F(BackendTest, CancelEndsAStream) {
  for (const char* model : {"ensemble", "tensorrt_llm_bls"}) {
    size_t num_texts = 1500;
    for (int i = 0; i < 20 && num_texts >= 1400; ++i) {
      Talk talk(server_, model,
                {text_input("text_input", {kPrompt}), int_input("max_tokens", 1500),
                 int_input("end_id", -1), bool_input("stream", true)});
      talk.wait_for_text();
      talk.cancel();
      const auto got = talk.wait();
      EXPECT_EQ(got.num_finals, 1);
      num_texts = got.texts.size();
    }
    EXPECT_LT(num_texts, 1400u) << model;
  }
}

// Requests of `model` that the server has counted as successes.
int64_t num_successes(TRITONSERVER_Server* server, const char* model) {
  TRITONSERVER_Message* message = nullptr;
  EXPECT_TRUE(take(TRITONSERVER_ServerModelStatistics(server, model, -1, &message)).ok());
  const char* text = nullptr;
  size_t size = 0;
  TRITONSERVER_MessageSerializeToJson(message, &text, &size);
  const auto all = parse_json({text, size});
  TRITONSERVER_MessageDelete(message);
  return all->at_pointer("/model_stats/0/inference_stats/success/count").to_number<int64_t>();
}

TEST_F(BackendTest, TheLastResponseComesAfterTheStatistics) {
  // A separate server: requests that other tests cancelled may still end in the shared one.
  TRITONSERVER_Server* server = nullptr;
  fs::path dir;
  start(server, dir, {});
  for (const char* model : {"ensemble", "tensorrt_llm_bls"}) {
    for (const bool stream : {false, true}) {
      const char* const counted[] = {model, "preprocessing", "tensorrt_llm"};
      std::vector<int64_t> before, at_end;
      for (const char* name : counted) before.push_back(num_successes(server, name));
      std::mutex mutex;
      std::condition_variable changed;
      bool over = false;
      auto call = InferCall::start(server, model, "test", 0,
                                   {text_input("text_input", {kPrompt}), int_input("max_tokens", 4),
                                    bool_input("stream", stream)},
                                   [&](Reply reply) {
                                     if (!reply.is_final) return;
                                     std::lock_guard lock(mutex);
                                     for (const char* name : counted)
                                       at_end.push_back(num_successes(server, name));
                                     over = true;
                                     changed.notify_all();
                                   });
      ASSERT_TRUE(call.ok()) << call.status();
      std::unique_lock lock(mutex);
      ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return over; }));
      for (auto& count : before) ++count;
      EXPECT_EQ(at_end, before) << model << (stream ? ", streamed" : "");
    }
  }
  stop(server, dir);
}

TEST_F(BackendTest, TheConfigurationShowsWhatItLeavesOpen) {
  const auto shown = [](TRITONSERVER_Server* server) {
    TRITONSERVER_Message* message = nullptr;
    EXPECT_TRUE(take(TRITONSERVER_ServerModelConfig(server, "tensorrt_llm", -1, 1, &message)).ok());
    const char* text = nullptr;
    size_t size = 0;
    TRITONSERVER_MessageSerializeToJson(message, &text, &size);
    const auto config = parse_json({text, size});
    TRITONSERVER_MessageDelete(message);
    return std::string(config->at_pointer("/parameters/max_seq_len/string_value").as_string());
  };
  const auto model = read_json_file(source_dir() + "/models/quickstart/config.json");
  EXPECT_EQ(shown(server_),
            std::to_string(model->at("max_position_embeddings").to_number<int64_t>()));
  TRITONSERVER_Server* server = nullptr;
  fs::path dir;
  start(server, dir, {{"max_seq_len", "100"}});
  EXPECT_EQ(shown(server), "100");
  stop(server, dir);
}

TEST_F(BackendTest, MetricsAreThere) {
  ask("ensemble", kPrompt, 4);
  const std::string text = metrics_page(server_);
  EXPECT_THAT(text, HasSubstr("nv_trt_llm_request_metrics{model=\"tensorrt_llm\",request_type="
                              "\"active\",version=\"1\"}"));
  EXPECT_THAT(text, HasSubstr("nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"tokens_"
                              "per\",model=\"tensorrt_llm\",version=\"1\"} 32"));
  EXPECT_THAT(text, HasSubstr("nv_llm_input_token_len_count"));
  const std::string labels = "{engine=\"0\",model_name=\"tensorrt_llm\",version=\"1\"}";
  EXPECT_THAT(text, HasSubstr("vllm:time_to_first_token_seconds_count" + labels));
  EXPECT_THAT(text, HasSubstr("vllm:kv_cache_usage_perc" + labels));
  EXPECT_THAT(text, HasSubstr("vllm:request_success_total{engine=\"0\",finished_reason=\"length\","
                              "model_name=\"tensorrt_llm\",version=\"1\"}"));
  // Counts include other tests of this process.
  EXPECT_THAT(text, testing::ContainsRegex("vllm:inter_token_latency_seconds_count[^\n]* [1-9]"));
  EXPECT_THAT(text, testing::ContainsRegex("vllm:request_generation_tokens_sum[^\n]* [1-9]"));
}

}  // namespace
}  // namespace nereid::backend
