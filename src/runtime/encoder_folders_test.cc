// Encoder-decoder models from the two folders of the TensorRT-LLM layout, and with rounded weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>

#include "base/file.h"
#include "base/testing/test_device.h"
#include "convert/engine_dir.h"
#include "convert/trtllm_checkpoint.h"
#include "kernels/open.h"
#include "runtime/testing/encoder_golden.h"
#include "runtime/testing/exactness.h"

namespace nereid::runtime::exactness {
namespace {

using ::testing::HasSubstr;

class EncoderFolders : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/encoder_folders.XXXXXX";
    dir_ = ::mkdtemp(name.data());
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  void convert(const std::string& model, int32_t tp, const std::string& weights = "") {
    convert::ConvertOptions options;
    options.model_dir = kSource / "tests/encoder_models" / model;
    options.output_dir = dir_ / "ckpt";
    options.weights = weights;
    options.ranks = {.tp = tp, .moe_tp = -1};
    const auto report = convert::convert_checkpoint(options);
    ASSERT_TRUE(report.ok()) << report.status();
  }
  void build(const char* half) {
    const auto device = kernels::open_device(test_device(), {});
    ASSERT_TRUE(device.ok()) << device.status();
    convert::EngineDirOptions options;
    options.checkpoint_dir = dir_ / "ckpt" / half;
    options.output_dir = dir_ / "engines" / half;
    options.build_config = {{"max_batch_size", 8}, {"max_beam_width", 4}, {"max_num_tokens", 512}};
    options.compile.forced =
        kernels::invariant_kernels(device->registry, device->device->info().kind);
    const Status built =
        convert::build_engine_dir(options, device->registry, device->device->info());
    ASSERT_TRUE(built.ok()) << built;
  }
  std::unique_ptr<Executor> open(const std::filesystem::path& path, const ExecutorConfig& config) {
    auto executor = Executor::create(path, config);
    EXPECT_TRUE(executor.ok()) << executor.status();
    return executor.ok() ? *std::move(executor) : nullptr;
  }
  static std::vector<Outcome> run(Executor& executor, const std::string& model) {
    Client client;
    std::vector<Outcome> out;
    for (const Case& c : golden_cases(model, executor.encoder()))
      out.push_back(client.run(executor, c.request));
    return out;
  }

  std::filesystem::path dir_;
};

// Bit by bit what the Hugging Face folder gives.
TEST_F(EncoderFolders, CheckpointsAndEnginesGiveTheSameBits) {
  for (const std::string model : {"t5-gated", "bart", "mbart", "m2m100", "whisper"}) {
    const auto direct = open(kSource / "tests/encoder_models" / model, encoder_config());
    ASSERT_NE(direct, nullptr);
    const std::vector<Outcome> wanted = run(*direct, model);
    convert(model, 1);
    build("encoder");
    build("decoder");
    for (const char* folder : {"ckpt", "ckpt/decoder", "engines", "engines/decoder"}) {
      const auto executor = open(dir_ / folder, encoder_config());
      ASSERT_NE(executor, nullptr) << folder;
      const std::vector<Outcome> got = run(*executor, model);
      for (size_t i = 0; i < wanted.size(); ++i)
        EXPECT_EQ(difference(wanted[i], got[i]), "") << model << " of " << folder;
    }
    std::filesystem::remove_all(dir_ / "engines");
  }
}

TEST_F(EncoderFolders, EnginesOfTwoRanksGiveTheSameBits) {
  ExecutorConfig config = encoder_config();
  config.tp_invariant = true;
  const auto direct = open(kSource / "tests/encoder_models/bart", config);
  ASSERT_NE(direct, nullptr);
  const std::vector<Outcome> wanted = run(*direct, "bart");
  convert("bart", 2);
  build("encoder");
  build("decoder");
  for (const char* parallel : {"", "1"}) {
    if (*parallel) config.tensor_parallel = parallel;
    const auto executor = open(dir_ / "engines", config);
    ASSERT_NE(executor, nullptr);
    const std::vector<Outcome> got = run(*executor, "bart");
    for (size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_TRUE(got[i].status.ok()) << got[i].status;
      EXPECT_EQ(got[i].sequences[0][0].tokens, wanted[i].sequences[0][0].tokens);
      // On GPUs log-probabilities of merged engines differ in their last bits (seen on H200s).
      if (tests_run_on_cpu()) {
        EXPECT_EQ(difference(wanted[i], got[i]), "");
      }
    }
  }
}

TEST_F(EncoderFolders, HalvesThatDoNotFitAreRefused) {
  convert("bart", 1);
  build("encoder");
  convert("mbart", 1);
  build("decoder");
  const auto error = [&] {
    return std::string(Executor::create(dir_ / "engines", encoder_config()).status().message());
  };
  EXPECT_THAT(error(), HasSubstr("build both of one checkpoint"));
  std::filesystem::remove_all(dir_ / "engines/encoder");
  EXPECT_THAT(error(), HasSubstr("engines/encoder/rank0.engine: is missing"));
}

// Integers and fp8: the same bits however a request is run, and close to what the rounded numbers
// give as bf16.
TEST_F(EncoderFolders, RoundedWeightsAreExact) {
  for (const char* format : {"int8", "int4", "fp8", "w8a8"}) {
    for (const std::string model : {"t5-gated", "bart", "whisper"}) {
      ExecutorConfig config = encoder_config();
      config.weights = format;
      config.kv_cache.enable_block_reuse = false;
      const auto alone = open(kSource / "tests/encoder_models" / model, config);
      ASSERT_NE(alone, nullptr);
      const std::vector<Outcome> wanted = run(*alone, model);
      config.kv_cache.enable_block_reuse = true;
      config.max_num_tokens = 7;
      const auto together = open(kSource / "tests/encoder_models" / model, config);
      ASSERT_NE(together, nullptr);
      Client client;
      std::vector<RequestId> sent;
      for (int round = 0; round < 2; ++round)
        for (const Case& c : golden_cases(model, together->encoder()))
          sent.push_back(client.send(*together, c.request));
      for (size_t i = 0; i < sent.size(); ++i)
        EXPECT_EQ(difference(wanted[i % wanted.size()], client.wait(sent[i])), "")
            << model << ' ' << format;
    }
  }
}

TEST_F(EncoderFolders, IntegersGiveWhatTheirNumbersGive) {
  // Tolerance of log-probabilities: numbers are rounded to bf16, logits reach 16.
  constexpr float kTolerance = 0.25f;
  for (const char* weights : {"int8", "int4", "fp8_rowwise"}) {
    for (const std::string model : {"t5-gated", "bart", "whisper"}) {
      convert(model, 1, weights);
      ExecutorConfig config = encoder_config();
      const auto codes = open(dir_ / "ckpt", config);
      config.weights = "bf16";
      const auto numbers = open(dir_ / "ckpt", config);
      ASSERT_TRUE(codes && numbers);
      const std::vector<Outcome> got = run(*codes, model), wanted = run(*numbers, model);
      int64_t compared = 0;
      for (size_t i = 0; i < wanted.size(); ++i) {
        const Output &a = got[i].sequences[0][0], &b = wanted[i].sequences[0][0];
        for (size_t t = 0; t < a.tokens.size() && a.tokens[t] == b.tokens[t]; ++t, ++compared)
          ASSERT_NEAR(a.log_probs[t], b.log_probs[t], kTolerance) << model << ' ' << weights;
      }
      EXPECT_GT(compared, 60) << model << ' ' << weights;  // of 96
    }
  }
}

// forced_bos_token_id is the second token of the decoder's prompt.
TEST_F(EncoderFolders, ForcedFirstTokensAreInThePrompt) {
  const std::filesystem::path model = kSource / "tests/encoder_models/bart";
  std::filesystem::create_directories(dir_ / "forced");
  std::filesystem::copy_file(model / "model.safetensors", dir_ / "forced/model.safetensors");
  json::value config = read_json_file(model / "config.json").value();
  config.as_object()["forced_bos_token_id"] = 9;
  ASSERT_TRUE(write_file_atomic(dir_ / "forced/config.json", json::serialize(config)).ok());
  const auto executor = open(dir_ / "forced", encoder_config());
  ASSERT_NE(executor, nullptr);
  const TokenId start = executor->encoder().decoder_start_id;
  EXPECT_EQ(executor->encoder().decoder_prompt(), (std::vector<TokenId>{start, 9}));
  config.as_object()["forced_bos_token_id"] = 512;
  ASSERT_TRUE(write_file_atomic(dir_ / "forced/config.json", json::serialize(config)).ok());
  EXPECT_THAT(std::string(Executor::create(dir_ / "forced", encoder_config()).status().message()),
              HasSubstr("field 'forced_bos_token_id': 512"));
}

}  // namespace
}  // namespace nereid::runtime::exactness
