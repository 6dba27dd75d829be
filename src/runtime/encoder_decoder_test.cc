// Encoder-decoder models on their tiny ones (tests/encoder_models): ids of Hugging Face
// transformers (tests/golden/encoder), and the same outcome however a request is run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <span>

#include "base/json.h"
#include "base/testing/source_dir.h"
#include "io/safetensors.h"
#include "runtime/testing/exactness.h"
#include "runtime/testing/test_config.h"

namespace nereid::runtime::exactness {
namespace {

using ::testing::HasSubstr;

const std::filesystem::path kSource = source_dir();

std::vector<TokenId> ids(const json::value& list) {
  std::vector<TokenId> out;
  for (const json::value& v : list.as_array()) out.push_back(v.to_number<TokenId>());
  return out;
}

struct Case {
  Request request;
  std::vector<TokenId> greedy;
};

// Audio features of the golden file, [1, bins, frames], as [frames, bins].
std::vector<float> golden_features(const std::string& model) {
  const auto file =
      io::TensorFile::open(kSource / "tests/golden/encoder" / (model + ".safetensors"));
  if (!file.ok()) return {};
  const auto tensor = std::ranges::find(file->tensors(), "input_features", &io::StoredTensor::name);
  if (tensor == file->tensors().end()) return {};
  const auto bins = static_cast<size_t>(tensor->shape[1]);
  const auto frames = static_cast<size_t>(tensor->shape[2]);
  const auto* const numbers = reinterpret_cast<const float*>(tensor->data.data());
  std::vector<float> out(bins * frames);
  for (size_t f = 0; f < frames; ++f)
    for (size_t b = 0; b < bins; ++b) out[f * bins + b] = numbers[b * frames + f];
  return out;
}

std::vector<Case> golden_cases(const std::string& model, const EncoderFacts& encoder) {
  const json::value golden =
      read_json_file(kSource / "tests/golden/encoder" / (model + ".json")).value();
  std::vector<Case> all;
  for (const json::value& v : golden.at("cases").as_array()) {
    Case& c = all.emplace_back();
    EncoderInput& input = c.request.encoder_input.emplace();
    if (encoder.feature_width > 0) {
      input.features = golden_features(model);
      c.request.input_token_ids = ids(v.at("prompt_ids"));
    } else {
      input.token_ids = ids(v.at("prompt_ids"));
      c.request.input_token_ids = {encoder.decoder_start_id};
    }
    c.greedy = ids(v.at("greedy_ids"));
    c.request.max_tokens = static_cast<int32_t>(c.greedy.size());
    c.request.output.return_log_probs = true;
  }
  return all;
}

ExecutorConfig encoder_config() {
  ExecutorConfig config = test_config();
  config.num_threads = 2;
  config.max_batch_size = 8;
  config.max_beam_width = 4;
  config.kv_cache.max_tokens = 2048;
  config.kv_cache.tokens_per_block = 16;
  config.cache_dir = std::filesystem::path(testing::TempDir()) / "nereid_encoder_test";
  return config;
}

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
  for (const Case& c : golden_cases(GetParam(), one->encoder()))
    EXPECT_EQ(difference(client.run(*one, c.request), client.run(**two, c.request)), "");
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
  EXPECT_THAT(
      error([](Request& r) { r.timestamp_rules = {.first = 9}, r.sampling.beam_width = 2; }),
      HasSubstr("timestamp_rules: not with beam_width 2"));
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
  EXPECT_THAT(error([](ExecutorConfig& c) { c.pipeline_parallel = 2; }),
              HasSubstr("pipeline_parallel: 2"));
  EXPECT_THAT(error([](ExecutorConfig& c) { c.enable_lora = true; }), HasSubstr("enable_lora"));
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
}

}  // namespace
}  // namespace nereid::runtime::exactness
