// Batches, option names, and requests that are stopped or fail, through the server and
// the real executor.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "backend/testing/feature_fixture.h"

namespace nereid::backend {
namespace {

TEST_F(FeatureTest, BatchesAreSplit) {
  const Ids a = prompt(), b = *tokenizer_->encode("Paris is the capital of");
  const size_t width = std::max(a.size(), b.size());
  Ids both = a;
  both.resize(width, 0);
  both.insert(both.end(), b.begin(), b.end());
  both.resize(2 * width, 0);
  const auto pair_of = [](const char* name, int32_t x, int32_t y) {
    return make_output(name, {2, 1}, Ids{x, y});
  };
  Talk talk(
      server_, "tensorrt_llm",
      {make_output("input_ids", {2, static_cast<int64_t>(width)}, both),
       pair_of("input_lengths", static_cast<int32_t>(a.size()), static_cast<int32_t>(b.size())),
       pair_of("request_output_len", 6, 9)});
  const auto got = talk.wait();
  ASSERT_TRUE(got.status.ok()) << got.status;
  ASSERT_EQ(got.outputs.size(), 2u);
  EXPECT_EQ(got.num_finals, 1);
  std::map<int32_t, Ids> rows;
  for (const auto& outputs : got.outputs) {
    EXPECT_EQ(shape_of(outputs, "batch_index"), (Shape{1, 1}));
    rows[elements<int32_t>(outputs, "batch_index").at(0)] =
        elements<int32_t>(outputs, "output_ids");
  }
  Ids first = a, second = b;
  for (const int32_t id : tokens_of(ask_ids(a, 6))) first.push_back(id);
  for (const int32_t id : tokens_of(ask_ids(b, 9))) second.push_back(id);
  EXPECT_EQ(rows[0], first);
  EXPECT_EQ(rows[1], second);
  for (const char* model : {"ensemble", "tensorrt_llm_bls"}) {
    Talk texts(server_, model,
               {make_output("text_input", {2, 1}, std::vector<std::string>{"One", "Two three"}),
                pair_of("max_tokens", 4, 4)});
    const auto answer = texts.wait();
    EXPECT_TRUE(answer.status.ok()) << model << answer.status;
    EXPECT_EQ(answer.texts.size(), 2u) << model;
  }
}

// Counts are of the prompt's blocks, whatever the length of the output; a partly filled block that
// matches counts as reused and takes a new one for its copy.
TEST_F(FeatureTest, PerfMetricsCountThePromptsBlocks) {
  Ids ids;
  for (int32_t i = 0; i < 100; ++i) ids.push_back(100 + i * 7);  // three and a half blocks
  const auto ask_blocks = [&](int32_t max_tokens, bool streaming) {
    const auto got = ask_ids(ids, max_tokens,
                             {bool_input("return_perf_metrics", true), int_input("end_id", -1),
                              bool_input("streaming", streaming)});
    EXPECT_TRUE(got.status.ok()) << got.status;
    std::vector<Ids> blocks;
    for (const auto& part : got.outputs) {
      EXPECT_EQ(elements<float>(part, "acceptance_rate"), std::vector<float>{0.0f});
      EXPECT_GT(elements<int64_t>(part, "first_token_time_ns").at(0), 0);
      blocks.push_back({elements<int32_t>(part, "kv_cache_alloc_new_blocks").at(0),
                        elements<int32_t>(part, "kv_cache_reused_blocks").at(0),
                        elements<int32_t>(part, "kv_cache_alloc_total_blocks").at(0)});
    }
    EXPECT_GT(elements<int64_t>(got.outputs.back(), "last_token_time_ns").at(0), 0);
    return blocks;
  };
  EXPECT_EQ(ask_blocks(4, false), (std::vector<Ids>{{4, 0, 4}}));
  EXPECT_EQ(ask_blocks(100, false), (std::vector<Ids>{{1, 4, 1}}));
  const auto streamed = ask_blocks(40, true);  // every response has the counts
  ASSERT_GT(streamed.size(), 20u);
  for (const Ids& blocks : streamed) EXPECT_EQ(blocks, (Ids{1, 4, 1}));
}

// Repeated: a single stop may come after the request has ended.
TEST_F(FeatureTest, StopRequestEndsByName) {
  const std::vector<Output> inputs = {ids_input("input_ids", prompt()),
                                      int_input("input_lengths", 5),
                                      int_input("request_output_len", 1500),
                                      int_input("end_id", -1), bool_input("streaming", true)};
  Conversation got;
  for (int i = 0; i < 20 && (i == 0 || got.outputs.size() >= 1400); ++i) {
    Talk talk(server_, "tensorrt_llm", inputs);
    talk.wait_for_outputs(1);
    Talk stop(server_, "tensorrt_llm", kStop);
    const auto stopped = stop.wait();
    EXPECT_TRUE(stopped.status.ok()) << stopped.status;
    EXPECT_TRUE(stopped.outputs.empty());
    got = talk.wait();
    EXPECT_TRUE(got.status.ok()) << got.status;
    ASSERT_FALSE(got.outputs.empty());
  }
  EXPECT_LT(got.outputs.size(), 1400u);
  EXPECT_EQ(elements<int32_t>(got.outputs.back(), "sequence_length"), Ids{0});
}

TEST_F(FeatureTest, WhatIsRefusedCountsAsFailed) {
  const auto num_failed = [] {
    return metric(metrics_page(server_),
                  "nv_inference_request_failure{model=\"tensorrt_llm\","
                  "reason=\"BACKEND\",version=\"1\"");
  };
  const double before = num_failed();
  EXPECT_TRUE(Talk(server_, "tensorrt_llm", kStop).wait().status.ok());
  EXPECT_EQ(num_failed(), before);
  const auto nameless = Talk(server_, "tensorrt_llm", kStop, "").wait();
  EXPECT_EQ(nameless.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(message(nameless.status), "Trying to stop a request but request ID is not provided");
  EXPECT_EQ(num_failed(), before + 1);
  EXPECT_EQ(ask_ids(prompt(), 4, {int_input("runtime_top_k", -1)}).status.code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(num_failed(), before + 2);
}

TEST_F(FeatureTest, OutputsAreCutToTheContext) {
  // The limit is 2048 positions: the output is cut instead of refused.
  const auto got = ask_ids(Ids(2040, 5), 100, {int_input("end_id", -1)});
  EXPECT_EQ(tokens_of(got).size(), 8u);
  EXPECT_EQ(tokens_of(ask_ids({-5, 1 << 30, 7}, 2)).size(), 2u);  // any id is accepted
  const auto timed = ask_ids(
      prompt(), 1500,
      {int_input("allotted_time_ms", 30), int_input("end_id", -1), float_input("priority", 1.0f)});
  EXPECT_TRUE(timed.status.ok()) << timed.status;
  EXPECT_LT(tokens_of(timed).size(), 1500u);
}

// The result has the prompt and no generated token.
TEST_F(FeatureTest, StopRequestEndsWhatDoesNotStream) {
  for (const bool excluded : {false, true}) {
    Ids ids(1500);
    for (int i = 0; i < 20 && ids.size() >= 1500; ++i) {  // the request may have ended by itself
      Talk talk(server_, "tensorrt_llm",
                {ids_input("input_ids", prompt()), int_input("input_lengths", 5),
                 int_input("request_output_len", 1500), int_input("end_id", -1),
                 bool_input("exclude_input_in_output", excluded)});
      while (!talk.is_over()) {
        const auto stopped = Talk(server_, "tensorrt_llm", kStop).wait();
        EXPECT_TRUE(stopped.status.ok()) << stopped.status;
      }
      const auto got = talk.wait();
      ASSERT_TRUE(got.status.ok()) << got.status;
      ASSERT_EQ(got.outputs.size(), 1u);
      ids = elements<int32_t>(got.outputs[0], "output_ids");
      EXPECT_EQ(elements<int32_t>(got.outputs[0], "sequence_length"),
                Ids{static_cast<int32_t>(ids.size())});
    }
    EXPECT_EQ(ids, excluded ? Ids() : prompt());
  }
}

// Two live requests with the same name: the newer stops, the older goes on.
TEST_F(FeatureTest, StopRequestMeansTheNewest) {
  const std::vector<Output> inputs = {ids_input("input_ids", prompt()),
                                      int_input("input_lengths", 5),
                                      int_input("request_output_len", 1500),
                                      int_input("end_id", -1), bool_input("streaming", true)};
  const auto stop = [] { EXPECT_TRUE(Talk(server_, "tensorrt_llm", kStop).wait().status.ok()); };
  const auto num_tokens = [](const Conversation& c) {
    size_t count = 0;
    for (const auto& outputs : c.outputs) count += elements<int32_t>(outputs, "output_ids").size();
    return count;
  };
  bool was_seen = false;
  for (int i = 0; i < 20 && !was_seen; ++i) {
    Talk older(server_, "tensorrt_llm", inputs);
    older.wait_for_outputs(1);
    Talk newer(server_, "tensorrt_llm", inputs);
    newer.wait_for_outputs(1);
    stop();
    const size_t of_newer = num_tokens(newer.wait());
    const bool went_on = older.wait_for_outputs(older.num_outputs() + 8);
    stop();
    const size_t of_older = num_tokens(older.wait());
    EXPECT_TRUE(went_on || of_older == 1500u) << of_older;  // or it had ended by itself
    was_seen = went_on && of_newer < 1500;
  }
  EXPECT_TRUE(was_seen);
}

TEST_F(FeatureTest, OtherNamesOfTheSame) {
  const std::vector<Output> hot = {float_input("temperature", 5.0f),
                                   float_input("runtime_top_p", 1.0f)};
  const auto drawn = [&](std::vector<Output> more, bool seeded = true) {
    more.insert(more.end(), hot.begin(), hot.end());
    if (seeded) more.push_back(seed_input(3));
    return generate(8, std::move(more));
  };
  auto seed = seed_input(3);
  seed.name = "seed";
  EXPECT_EQ(drawn({seed}, /*seeded=*/false), drawn({}));
  EXPECT_NE(drawn({}, /*seeded=*/false), drawn({}));
  const auto decay = float_input("runtime_top_p_decay", 1e-5f);
  EXPECT_NE(drawn({decay}), drawn({}));
  EXPECT_EQ(drawn({decay, float_input("runtime_top_k_min", 1.0f)}), drawn({}));
  const auto end = int_input("end_id", generate(4)[2]);
  EXPECT_EQ(generate(12, {end}).size(), 2u);
  EXPECT_EQ(generate(12, {end, int_input("min_tokens", 8)}),
            generate(12, {end, int_input("min_length", 8)}));
  EXPECT_GE(generate(12, {end, int_input("min_tokens", 8)}).size(), 8u);
}

TEST_F(FeatureTest, BeamsByOtherRules) {
  const auto beams = [](std::vector<Output> more) {
    more.push_back(int_input("beam_width", 3));
    const auto got = ask_ids(prompt(), 24, std::move(more));
    EXPECT_TRUE(got.status.ok()) << got.status;
    return rows_of(got.outputs.at(0));
  };
  const auto plain = beams({});
  EXPECT_NE(beams({float_input("beam_search_diversity_rate", 5.0f)}), plain);
  EXPECT_EQ(beams({float_input("beam_search_diversity_rate", 0.0f)}), plain);
  // An end token that comes early: the default stops at the first rows that have it.
  const std::vector<Output> ending = {int_input("end_id", plain[0][4]),
                                      float_input("len_penalty", 2.0f)};
  const auto stopping = [&](std::optional<bool> early) {
    auto more = ending;
    if (early) more.push_back(bool_input("early_stopping", *early));
    return beams(std::move(more));
  };
  EXPECT_EQ(stopping(true), stopping(std::nullopt));
  EXPECT_NE(stopping(false), stopping(true));
}

TEST_F(FeatureTest, DurationOfDecodedBlocks) {
  EXPECT_TRUE(ask_ids(prompt(), 2, {int_input("retention_decode_duration_ms", 50)}).status.ok());
  EXPECT_TRUE(ask_ids(prompt(), 2, {int_input("retention_decode_duration_ms", -1)}).status.ok());
  const auto never = ask_ids(prompt(), 2, {int_input("retention_decode_duration_ms", 0)});
  EXPECT_THAT(std::string(message(never.status)), HasSubstr("decode_duration: 0 ms"));
}

// A batch of two, the second of which has no allowed token behind its first.
TEST_F(FeatureTest, OneItemFailsAndTheOtherGoesOn) {
  const auto vocab = static_cast<size_t>(tokenizer_->vocab_size());
  std::vector<float> bias(2 * vocab, 0.0f);
  constexpr int32_t kOnly = 7;
  std::fill(bias.begin() + static_cast<ptrdiff_t>(vocab), bias.end(), -INFINITY);
  bias[vocab + kOnly] = 0;
  const auto got =
      Talk(server_, "tensorrt_llm",
           {make_output("input_ids", {2, 1}, Ids{5, 6}),
            make_output("input_lengths", {2, 1}, Ids{1, 1}),
            make_output("request_output_len", {2, 1}, Ids{40, 40}),
            make_output("end_id", {2, 1}, Ids{-1, -1}),
            make_output("bad_words_list", {2, 2, 2}, Ids{0, 0, -1, -1, kOnly, kOnly, 2, -1}),
            make_output("embedding_bias", {2, static_cast<int64_t>(vocab)}, bias)})
          .wait();
  EXPECT_THAT(std::string(message(got.status)), HasSubstr("Executor failed process requestId"));
  EXPECT_EQ(got.num_finals, 1);
  ASSERT_EQ(got.outputs.size(), 1u);
  EXPECT_EQ(elements<int32_t>(got.outputs[0], "batch_index"), Ids{0});
  EXPECT_EQ(elements<int32_t>(got.outputs[0], "output_ids").size(), 41u);
}

// The value of the family's first line with these label values; -1 = none.
double figure(const std::string& page, std::string_view family,
              std::initializer_list<std::string_view> labels) {
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    const bool matches =
        line.starts_with(family) && std::ranges::all_of(labels, [&](std::string_view label) {
          return line.find(fmt::format("\"{}\"", label)) != std::string::npos;
        });
    if (matches) return std::stod(line.substr(line.find("} ") + 2));
  }
  return -1;
}

// The prompt repeats itself, as greedy output soon does.
TEST_F(FeatureTest, GuessesChangeNoTokenAndAreCounted) {
  Ids ids;
  for (int32_t i = 0; i < 24; ++i) ids.push_back(100 + i % 6);
  const Ids plain = tokens_of(ask_ids(ids, 200, {int_input("end_id", -1)}));
  double num_tests = figure(metrics_page(server_), "vllm:spec_decode_num_drafts_total", {});
  for (const char* speculation : {"ngram", "auto"}) {
    TRITONSERVER_Server* server = nullptr;
    fs::path dir;
    start(server, dir, {{"speculation", speculation}});
    std::vector<Output> inputs = {ids_input("input_ids", ids),
                                  int_input("input_lengths", 24),
                                  int_input("request_output_len", 200),
                                  int_input("end_id", -1),
                                  bool_input("exclude_input_in_output", true),
                                  bool_input("return_perf_metrics", true)};
    const auto got = Talk(server, "tensorrt_llm", std::move(inputs)).wait();
    EXPECT_EQ(tokens_of(got), plain);
    if (got.outputs.empty()) return;
    const auto tested = elements<int32_t>(got.outputs[0], "total_draft_tokens").at(0);
    const auto accepted = elements<int32_t>(got.outputs[0], "total_accepted_draft_tokens").at(0);
    EXPECT_GE(tested, accepted);
    if (speculation == std::string_view("ngram")) {  // auto decides by measured costs
      EXPECT_GT(accepted, 50);
      EXPECT_GT(tested, accepted) << "at the end of the first repetition";
    }
    if (tested > 0) {
      EXPECT_EQ(elements<float>(got.outputs[0], "acceptance_rate").at(0),
                static_cast<float>(accepted) / static_cast<float>(tested));
    }
    // Metrics are published periodically.
    std::string page = metrics_page(server);
    const auto counted = [&](const char* result) {
      return figure(page, "nereid_draft_tokens_total", {"ngram", result});
    };
    // Counters with vLLM's names are shared by all models of this name.
    const auto new_tests = [&] {
      return figure(page, "vllm:spec_decode_num_drafts_total", {}) - num_tests;
    };
    const auto length = [&](std::string_view part) {
      return figure(page, fmt::format("nereid_accepted_draft_length_{}", part), {"ngram"});
    };
    const auto is_counted = [&] {
      return counted("accepted") == accepted && counted("rejected") == tested - accepted &&
             length("sum") == accepted && length("count") == new_tests();
    };
    for (int i = 0; i < 1000 && !is_counted(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      page = metrics_page(server);
    }
    EXPECT_EQ(counted("accepted"), accepted);
    EXPECT_EQ(counted("rejected"), tested - accepted);
    EXPECT_EQ(length("sum"), accepted);
    EXPECT_EQ(length("count"), new_tests());
    EXPECT_GE(figure(page, "vllm:spec_decode_num_accepted_tokens_total", {}), accepted);
    num_tests += new_tests();
    EXPECT_EQ(figure(page, "nereid_draft_tokens_total", {"request", "accepted"}), 0);
    stop(server, dir);
  }
}

// Eight draft tokens, the sixth of which is wrong.
TEST_F(FeatureTest, DraftsOfTheRequestAreTestedInItsFirstStep) {
  const Ids plain = generate(12);
  ASSERT_EQ(plain.size(), 12u);
  Ids drafts(plain.begin(), plain.begin() + 8);
  ++drafts[5];
  const std::vector<Output> inputs = {ids_input("draft_input_ids", drafts),
                                      bool_input("return_perf_metrics", true)};
  const auto got = ask_ids(prompt(), 12, inputs);
  EXPECT_EQ(tokens_of(got), plain);
  EXPECT_EQ(elements<int32_t>(got.outputs.at(0), "total_draft_tokens").at(0), 8);
  EXPECT_EQ(elements<int32_t>(got.outputs.at(0), "total_accepted_draft_tokens").at(0), 5);
  const auto beams =
      ask_ids(prompt(), 12, {ids_input("draft_input_ids", drafts), int_input("beam_width", 2)});
  EXPECT_THAT(beams.status.ToString(), HasSubstr("draft_token_ids: 8 ids are not allowed"));
  const auto foreign = ask_ids(prompt(), 12, {ids_input("draft_input_ids", {1 << 20})});
  EXPECT_THAT(foreign.status.ToString(), HasSubstr("draft_token_ids"));
}

TEST_F(FeatureTest, TensorsComeInOrder) {
  std::vector<Output> inputs = {make_output("input_ids", {2, 1}, Ids{5, 6})};
  for (const char* name : {"input_lengths", "request_output_len"}) {
    inputs.push_back(make_output(name, {2, 1}, Ids{1, 1}));
  }
  inputs.push_back(make_output("num_return_sequences", {2, 1}, Ids{2, 2}));
  for (const char* name : {"return_log_probs", "return_context_logits", "return_generation_logits",
                           "return_perf_metrics"}) {
    inputs.push_back({name, TRITONSERVER_TYPE_BOOL, {2, 1}, "\1\1"});
  }
  const auto got = Talk(server_, "tensorrt_llm", std::move(inputs)).wait();
  ASSERT_TRUE(got.status.ok()) << got.status;
  ASSERT_EQ(got.outputs.size(), 4u);
  int num_context = 0;
  for (const auto& outputs : got.outputs) {
    std::vector<std::string> names;
    for (const auto& output : outputs) names.push_back(output.name);
    // Rows are in the first response of each item.
    num_context += shape_of(outputs, "context_logits").at(1) > 0;
    EXPECT_THAT(names, testing::ElementsAre(
                           "output_ids", "sequence_length", "context_logits", "generation_logits",
                           "output_log_probs", "cum_log_probs", "batch_index", "sequence_index",
                           "kv_cache_alloc_new_blocks", "kv_cache_reused_blocks",
                           "kv_cache_alloc_total_blocks", "arrival_time_ns",
                           "first_scheduled_time_ns", "first_token_time_ns", "last_token_time_ns",
                           "acceptance_rate", "total_accepted_draft_tokens", "total_draft_tokens"));
  }
  EXPECT_EQ(num_context, 2);
}

}  // namespace
}  // namespace nereid::backend
