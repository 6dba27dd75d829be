// Encoder-decoder models on their tiny ones (tests/encoder_models): ids of Hugging Face
// transformers (tests/golden/encoder), and the same outcome however a request is run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/json.h"
#include "base/testing/test_device.h"
#include "runtime/testing/encoder_golden.h"
#include "runtime/testing/exactness.h"

namespace nereid::runtime::exactness {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Executor> open(const std::string& model, const ExecutorConfig& config) {
  auto executor = Executor::create(kSource / "tests/encoder_models" / model, config);
  EXPECT_TRUE(executor.ok()) << executor.status();
  return executor.ok() ? *std::move(executor) : nullptr;
}

class EncoderDecoder : public ::testing::TestWithParam<const char*> {};

TEST_P(EncoderDecoder, GreedyIdsEqualTransformers) {
  const auto executor = open(GetParam(), encoder_config());
  ASSERT_NE(executor, nullptr);
  Client client;
  const std::vector<Case> cases = golden_cases(GetParam(), executor->encoder());
  ASSERT_EQ(cases.size(), 4u);
  for (const Case& c : cases) {
    const Outcome got = client.run(*executor, c.request);
    ASSERT_TRUE(got.status.ok()) << got.status;
    EXPECT_EQ(got.sequences[0][0].tokens, c.greedy);
  }
}

TEST(EncoderDecoderTimestamps, TranscriptsEqualTransformers) {
  const auto executor = open("whisper", encoder_config());
  ASSERT_NE(executor, nullptr);
  const json::value golden = read_json_file(kSource / "tests/golden/encoder/whisper.json").value();
  Client client;
  int checked = 0;
  for (const json::value& v : golden.at("timestamps").as_array()) {
    Request request;
    request.encoder_input.emplace().features = golden_features("whisper");
    request.input_token_ids = ids(v.at("prompt_ids"));
    TimestampRules& rules = request.timestamp_rules.emplace();
    rules.first = v.at("first").to_number<int32_t>();
    rules.no_timestamps = v.at("no_timestamps").to_number<int32_t>();
    rules.end_of_text = v.at("end_of_text").to_number<int32_t>();
    if (v.at("max_initial").is_int64())
      rules.max_initial = v.at("max_initial").to_number<int32_t>();
    const std::vector<TokenId> wanted = ids(v.at("greedy_ids"));
    request.max_tokens = static_cast<int32_t>(wanted.size());
    const Outcome got = client.run(*executor, request);
    ASSERT_TRUE(got.status.ok()) << got.status;
    EXPECT_EQ(got.sequences[0][0].tokens, wanted);
    ++checked;
  }
  EXPECT_EQ(checked, 8);
}

// Beam search as transformers has it. Scores of goldens are f32; the engine rounds activations to
// bf16, so that closer hypotheses may change places.
TEST_P(EncoderDecoder, BeamsEqualTransformers) {
  constexpr double kTolerance = 0.06;
  const json::value golden =
      read_json_file(kSource / "tests/golden/encoder" / (std::string(GetParam()) + ".json"))
          .value();
  if (!golden.as_object().contains("beams")) return;  // of audio
  const auto executor = open(GetParam(), encoder_config());
  ASSERT_NE(executor, nullptr);
  Client client;
  for (const json::value& v : golden.at("beams").as_array()) {
    Request request;
    request.encoder_input.emplace().token_ids = ids(v.at("prompt_ids"));
    request.input_token_ids = {executor->encoder().decoder_start_id};
    request.max_tokens = v.at("max_new_tokens").to_number<int32_t>();
    request.end_ids = {3};
    request.output.return_log_probs = true;
    request.sampling.beam_width = v.at("num_beams").to_number<int32_t>();
    const double penalty = v.at("length_penalty").to_number<double>();
    request.sampling.length_penalty = static_cast<float>(penalty);
    request.sampling.early_stopping = v.at("early_stopping").as_bool() ? 1 : 0;
    const Outcome got = client.run(*executor, request);
    ASSERT_TRUE(got.status.ok()) << got.status;
    const json::array& sequences = v.at("sequences").as_array();
    ASSERT_EQ(got.sequences[0].size(), sequences.size());
    for (size_t b = 0; b < sequences.size(); ++b) {
      const Output& out = got.sequences[0][b];
      std::vector<TokenId> wanted = ids(sequences[b]);
      const double length =
          static_cast<double>(out.tokens.size()) + (out.reason == FinishReason::kEndId ? 1 : 0);
      const double score = *out.cum_log_prob / std::pow(length, penalty);
      if (wanted.back() == 3) wanted.pop_back();
      if (b == 0) {
        EXPECT_EQ(out.tokens, wanted);
      }
      if (out.tokens != wanted) continue;
      EXPECT_NEAR(score, v.at("scores").as_array()[b].to_number<double>(),
                  kTolerance * std::pow(length, 1 - penalty))
          << "beam " << b;
    }
  }
}

// The prompt of an alignment: the decoder's first tokens and the text that it gave.
Request alignment_of(const Case& c) {
  Request request = c.request;
  request.input_token_ids.insert(request.input_token_ids.end(), c.greedy.begin(), c.greedy.end());
  request.max_tokens = 1;
  request.output.num_prompt_log_probs = 0;
  request.output.alignment_heads = {{1, 0}, {0, 1}};
  return request;
}

// Weights and log-probabilities are f32 there; the engine rounds activations to bf16, GPUs also the
// values between fused ops.
TEST(EncoderDecoderAlignment, ScoresEqualTransformers) {
  const double kTolerance = tests_run_on_cpu() ? 0.01 : 0.02;
  const double kLogTolerance = tests_run_on_cpu() ? 0.125 : 0.25;
  const auto executor = open("whisper", encoder_config());
  ASSERT_NE(executor, nullptr);
  const auto golden =
      io::TensorFile::open(kSource / "tests/golden/encoder/whisper_alignment.safetensors");
  ASSERT_TRUE(golden.ok()) << golden.status();
  const auto values = [&](const std::string& name) {
    const auto tensor = std::ranges::find(golden->tensors(), name, &io::StoredTensor::name);
    EXPECT_NE(tensor, golden->tensors().end()) << name;
    const auto* const numbers = reinterpret_cast<const float*>(tensor->data.data());
    return std::vector<float>(numbers, numbers + tensor->data.size() / sizeof(float));
  };
  Client client;
  const std::vector<Case> cases = golden_cases("whisper", executor->encoder());
  for (size_t i = 0; i < cases.size(); ++i) {
    Request request = alignment_of(cases[i]);
    request.output.alignment_heads = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};
    const Outcome got = client.run(*executor, request);
    ASSERT_TRUE(got.status.ok()) << got.status;
    const std::vector<float> weights = values(fmt::format("weights.{}", i));
    ASSERT_EQ(got.attention_scores.size(), weights.size());
    constexpr size_t kPositions = 50;
    for (size_t row = 0; row < weights.size(); row += kPositions) {
      double sum = 0;
      for (size_t p = 0; p < kPositions; ++p) sum += std::exp(got.attention_scores[row + p]);
      for (size_t p = 0; p < kPositions; ++p)
        ASSERT_NEAR(std::exp(got.attention_scores[row + p]) / sum, weights[row + p], kTolerance)
            << "case " << i << " row " << row / kPositions << " position " << p;
    }
    const std::vector<float> log_probs = values(fmt::format("log_probs.{}", i));
    ASSERT_EQ(got.prompt_log_probs.size(), log_probs.size());
    for (size_t t = 0; t < log_probs.size(); ++t)
      EXPECT_NEAR(got.prompt_log_probs[t], log_probs[t], kLogTolerance) << t;
  }
}

// Asks for the encoder's output, and hides some of its positions from each of the decoder's.
Request masked(Request request, int32_t seed) {
  request.output.return_encoder_output = true;
  CrossAttentionMask& mask = request.cross_attention_mask.emplace();
  const EncoderInput& input = *request.encoder_input;
  mask.num_positions = input.features.empty() ? static_cast<int32_t>(input.token_ids.size()) : 50;
  for (int32_t i = 0; i < 11 * mask.num_positions; ++i)
    mask.attends.push_back((i * 7 + seed) % 5 < 3 ? 1 : 0);
  return request;
}

// Alone, in company, with equal inputs, with a small cache and small steps, by beams, streamed.
TEST_P(EncoderDecoder, OutcomesDoNotDependOnTheWay) {
  const auto alone = open(GetParam(), encoder_config());
  ASSERT_NE(alone, nullptr);
  Client client;
  std::vector<Request> requests;
  for (const Case& c : golden_cases(GetParam(), alone->encoder())) {
    requests.push_back(c.request);
    requests.push_back(c.request);
    requests.back().sampling.beam_width = 3;
    requests.push_back(c.request);
    requests.back().sampling.temperature = 3;
    requests.back().sampling.top_k = 50;
    requests.back().sampling.seed = 7;
    requests.push_back(alignment_of(c));
    requests.push_back(requests.back());
    requests.back().output.num_prompt_log_probs.reset();
    requests.back().sampling.beam_width = 2;
    requests.back().max_tokens = 4;
    requests.push_back(masked(c.request, 0));
    requests.push_back(masked(c.request, 1));
    requests.back().sampling.beam_width = 3;
    requests.push_back(masked(alignment_of(c), 2));
  }
  std::vector<Outcome> expected;
  for (const Request& request : requests) {
    ExecutorConfig fresh = encoder_config();
    fresh.kv_cache.enable_block_reuse = false;
    const auto executor = open(GetParam(), fresh);
    expected.push_back(client.run(*executor, request));
    ASSERT_TRUE(expected.back().status.ok()) << expected.back().status;
  }

  struct Way {
    const char* name;
    std::function<void(ExecutorConfig&)> set;
    bool streams = false;
  };
  const Way ways[] = {
      {"in company", [](ExecutorConfig&) {}},
      {"streamed", [](ExecutorConfig&) {}, true},
      {"one thread, no overlap",
       [](ExecutorConfig& c) {
         c.num_threads = 1;
         c.enable_overlap = false;
       }},
      {"decoder in chunks", [](ExecutorConfig& c) { c.max_num_tokens = 5; }},
      {"paused",
       [](ExecutorConfig& c) {
         c.kv_cache.max_tokens = 160;
         c.scheduler.capacity_policy = CapacityPolicy::kMaxUtilization;
       }},
      {"few results cached", [](ExecutorConfig& c) { c.kv_cache.cross_fraction = 0.01; }},
      {"n-gram drafts", [](ExecutorConfig& c) { c.speculation = "ngram"; }},
  };
  for (const Way& way : ways) {
    ExecutorConfig config = encoder_config();
    way.set(config);
    const auto executor = open(GetParam(), config);
    ASSERT_NE(executor, nullptr) << way.name;
    std::vector<RequestId> sent;
    std::vector<size_t> which;
    for (int round = 0; round < 2; ++round)
      for (size_t i = 0; i < requests.size(); ++i) {
        Request request = requests[i];
        request.streaming = way.streams;
        sent.push_back(client.send(*executor, request));
        which.push_back(i);
      }
    for (size_t i = 0; i < sent.size(); ++i)
      EXPECT_EQ(difference(expected[which[i]], client.wait(sent[i])), "")
          << way.name << ", request " << which[i];
  }
}

// Sums of tp_invariant do not depend on the number of ranks.
TEST_P(EncoderDecoder, TensorRanksGiveTheSameBits) {
  ExecutorConfig config = encoder_config();
  config.tp_invariant = true;
  const auto one = open(GetParam(), config);
  ASSERT_NE(one, nullptr);
  config.tensor_parallel = "2";
  auto two = Executor::create(kSource / "tests/encoder_models" / GetParam(), config);
  const std::string model = GetParam();
  if (model != "bart" && model != "whisper") {  // some layers have 3 heads
    EXPECT_THAT(std::string(two.status().message()), HasSubstr("3 units"));
    return;
  }
  ASSERT_TRUE(two.ok()) << two.status();
  Client client;
  Request aligned = alignment_of(golden_cases(GetParam(), one->encoder())[0]);
  EXPECT_THAT(std::string((*two)->enqueue(aligned).status().message()),
              HasSubstr("alignment_heads: only for encoder-decoder models on one device"));
  for (const Case& c : golden_cases(GetParam(), one->encoder()))
    for (const Request& request : {c.request, masked(c.request, 0)})
      EXPECT_EQ(difference(client.run(*one, request), client.run(**two, request)), "");
}

// Each stage runs the encoder for the cross attention of its own layers.
TEST_P(EncoderDecoder, StagesGiveTheSameBits) {
  const auto one = open(GetParam(), encoder_config());
  ASSERT_NE(one, nullptr);
  ExecutorConfig config = encoder_config();
  config.pipeline_parallel = 2;
  const auto two = open(GetParam(), config);
  ASSERT_NE(two, nullptr);
  Client client;
  std::vector<Outcome> expected;
  std::vector<RequestId> sent;
  for (const Case& c : golden_cases(GetParam(), one->encoder())) {
    expected.push_back(client.run(*one, c.request));
    const Outcome got = client.run(*two, c.request);
    EXPECT_EQ(difference(expected.back(), got), "");
    ASSERT_TRUE(got.status.ok()) << got.status;
    EXPECT_EQ(got.sequences[0][0].tokens, c.greedy);
  }
  for (const Case& c : golden_cases(GetParam(), one->encoder())) {
    expected.push_back(client.run(*one, masked(c.request, 3)));
    EXPECT_FALSE(expected.back().encoder_output.empty());
  }
  for (const Case& c : golden_cases(GetParam(), one->encoder()))
    sent.push_back(client.send(*two, c.request));
  for (const Case& c : golden_cases(GetParam(), one->encoder()))
    sent.push_back(client.send(*two, masked(c.request, 3)));
  for (size_t i = 0; i < sent.size(); ++i)
    EXPECT_EQ(difference(expected[i], client.wait(sent[i])), "") << i;
  config.device = "cpu";  // as many as stages
  config.pipeline_parallel = 9;
  EXPECT_THAT(std::string(Executor::create(kSource / "tests/encoder_models" / GetParam(), config)
                              .status()
                              .message()),
              HasSubstr("pp: 9 stages"));
}

TEST_P(EncoderDecoder, InputsAreChecked) {
  const auto executor = open(GetParam(), encoder_config());
  ASSERT_NE(executor, nullptr);
  const EncoderFacts encoder = executor->encoder();
  const Case good = golden_cases(GetParam(), encoder)[0];
  const auto error = [&](const std::function<void(Request&)>& edit) {
    Request request = good.request;
    edit(request);
    const auto id = executor->enqueue(request);
    return id.ok() ? "" : std::string(id.status().message());
  };
  EXPECT_THAT(error([](Request& r) { r.encoder_input.reset(); }), HasSubstr("encoder_input: req"));
  const bool takes_features = encoder.feature_width > 0;
  const auto fill = [&](Request& r, int32_t length) {
    if (takes_features)
      r.encoder_input->features.assign(static_cast<size_t>(2 * length * encoder.feature_width), 0);
    else
      r.encoder_input->token_ids.assign(static_cast<size_t>(length), 5);
  };
  EXPECT_THAT(error([&](Request& r) { fill(r, 0); }), HasSubstr("encoder_input."));
  EXPECT_THAT(error([&](Request& r) { fill(r, encoder.max_length + 1); }),
              HasSubstr("encoder_input."));
  EXPECT_THAT(error([&](Request& r) {
                if (takes_features)
                  r.encoder_input->features[7] = std::numeric_limits<float>::quiet_NaN();
                else
                  r.encoder_input->token_ids[0] = executor->vocab_size();
              }),
              HasSubstr("encoder_input."));
  EXPECT_THAT(error([&](Request& r) {
                if (takes_features)
                  r.encoder_input->token_ids = {1};
                else
                  r.encoder_input->features = {1};
              }),
              HasSubstr("the model's encoder takes"));
  EXPECT_THAT(error([&](Request& r) { r.timestamp_rules = {.first = executor->vocab_size()}; }),
              HasSubstr("timestamp_rules.first"));
  const auto aligned = [&](std::vector<AttentionHead> heads) {
    return error([&](Request& r) { r.output.alignment_heads = std::move(heads); });
  };
  EXPECT_THAT(aligned({{0, 0}, {9, 0}}), HasSubstr("alignment_heads[1].layer: 9 is not in [0, "));
  EXPECT_THAT(aligned({{-1, 0}}), HasSubstr("alignment_heads[0].layer: -1"));
  EXPECT_THAT(aligned({{0, 99}}), HasSubstr("alignment_heads[0].head: 99 is not in [0, "));
  EXPECT_THAT(aligned(std::vector<AttentionHead>(513)), HasSubstr("alignment_heads: 513 of them"));
  EXPECT_THAT(error([](Request& r) { r.suppressed_first_ids = {9}, r.sampling.min_tokens = 3; }),
              HasSubstr("suppressed_first_ids: not with min_tokens 3"));
  Client client;
  EXPECT_TRUE(client.run(*executor, good.request).status.ok());
}

INSTANTIATE_TEST_SUITE_P(Models, EncoderDecoder,
                         ::testing::Values("t5-relu", "t5-gated", "bart", "mbart", "marian",
                                           "pegasus", "m2m100", "whisper"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(EncoderDecoderOptions, WhatSuchModelsLackIsRefusedByName) {
  const auto error = [](const std::function<void(ExecutorConfig&)>& edit) {
    ExecutorConfig config = encoder_config();
    edit(config);
    const auto executor = Executor::create(kSource / "tests/encoder_models/t5-relu", config);
    return executor.ok() ? "" : std::string(executor.status().message());
  };
  EXPECT_THAT(error([](ExecutorConfig& c) { c.draft_model = kSource / "models/quickstart"; }),
              HasSubstr("draft_model: "));
}

TEST(EncoderDecoderOptions, ScoresCountAsLogits) {
  ExecutorConfig config = encoder_config();
  config.max_logits_bytes = 4096;
  const auto executor = open("whisper", config);
  ASSERT_NE(executor, nullptr);
  Request request = alignment_of(golden_cases("whisper", executor->encoder())[0]);
  EXPECT_THAT(std::string(executor->enqueue(request).status().message()),
              HasSubstr("bytes; at most 4096 are allowed (max_logits_bytes)"));
}

TEST(EncoderDecoderOptions, OtherModelsTakeNoEncoderInput) {
  ExecutorConfig config = encoder_config();
  auto executor = Executor::create(kSource / "tests/models/llama", config);
  ASSERT_TRUE(executor.ok()) << executor.status();
  EXPECT_EQ((*executor)->encoder().max_length, 0);
  Request request;
  request.input_token_ids = {5, 6};
  request.max_tokens = 2;
  request.encoder_input.emplace().token_ids = {1};
  EXPECT_THAT((*executor)->enqueue(request).status().message(), HasSubstr("has no encoder"));
  request.encoder_input.reset();
  request.output.alignment_heads = {{0, 0}};
  EXPECT_THAT((*executor)->enqueue(request).status().message(),
              HasSubstr("alignment_heads: only for encoder-decoder models on one device"));
}

}  // namespace
}  // namespace nereid::runtime::exactness
