// An engine's limits as the executor's defaults and bounds.
#include "runtime/engine_limits.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include "base/testing/source_dir.h"
#include "kernels/open.h"
#include "nereid/executor.h"

namespace nereid::runtime {
namespace {

using testing::HasSubstr;

class EngineLimitsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/engine_limits.XXXXXX";
    dir_ = ::mkdtemp(name.data());
    config_.num_threads = 1;
    config_.kv_cache.max_tokens = 1024;
    config_.max_batch_size = config_.max_beam_width = config_.max_num_tokens = 0;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  void build(json::object limits, bool strip_weights = false) {
    const auto opened = kernels::open_device("cpu", {.num_threads = 1});
    convert::EngineDirOptions options;
    options.checkpoint_dir = source_dir() + "/tests/models/llama";
    options.output_dir = dir_;
    options.compile.adapters = limits.contains("plugin_config");
    options.build_config = std::move(limits);
    options.strip_weights = strip_weights;
    const Status status =
        convert::build_engine_dir(options, opened->registry, opened->device->info());
    ASSERT_TRUE(status.ok()) << status;
  }
  std::unique_ptr<Executor> open() {
    auto executor = Executor::create(dir_, config_);
    EXPECT_TRUE(executor.ok()) << executor.status();
    return executor.ok() ? *std::move(executor) : nullptr;
  }
  static std::string refusal(Executor& executor, int32_t num_prompt, bool context_logits,
                             int32_t beams = 1) {
    Request request;
    request.input_token_ids.assign(static_cast<size_t>(num_prompt), 5);
    request.max_tokens = 1;
    request.output.return_context_logits = context_logits;
    request.sampling.beam_width = beams;
    const auto id = executor.enqueue(std::move(request));
    return id.ok() ? "" : std::string(id.status().message());
  }

  std::filesystem::path dir_;
  ExecutorConfig config_;
};

TEST_F(EngineLimitsTest, AreTheDefaults) {
  build({{"max_batch_size", 48}, {"max_num_tokens", 96}, {"max_beam_width", 3}});
  const auto executor = open();
  ASSERT_TRUE(executor);
  EXPECT_EQ(executor->stats().max_batch_size, 48) << "not the usual 32";
  EXPECT_EQ(refusal(*executor, 4, false, 3), "");
  EXPECT_THAT(refusal(*executor, 4, false, 4), HasSubstr("4"));
  ASSERT_TRUE(apply_engine_limits(dir_, config_).ok());
  EXPECT_EQ(config_.max_num_tokens, 96);
}

TEST_F(EngineLimitsTest, TheEngineSaysWhichDevice) {
  config_.device = "auto";
  ASSERT_TRUE(apply_engine_limits(source_dir() + "/tests/models/llama", config_).ok());
  EXPECT_EQ(config_.device, "auto") << "the first GPU, or the CPU";
  for (const bool strip_weights : {false, true}) {
    build({}, strip_weights);
    config_.device = "auto";
    ASSERT_TRUE(apply_engine_limits(dir_, config_).ok());
    EXPECT_EQ(config_.device, "cpu");
  }
  config_.device = "cuda:7";
  ASSERT_TRUE(apply_engine_limits(dir_, config_).ok());
  EXPECT_EQ(config_.device, "cuda:7") << "refused later, by name";
}

TEST_F(EngineLimitsTest, AdaptersHaveTheEnginesRank) {
  build({{"lora_config", {{"max_lora_rank", 16}}}, {"plugin_config", {{"lora_plugin", "auto"}}}});
  config_.enable_lora = true;
  ASSERT_TRUE(open());
  ASSERT_TRUE(apply_engine_limits(dir_, config_).ok());
  EXPECT_EQ(config_.peft_cache.max_adapter_size, 16) << "not the usual 64";
  config_.peft_cache.max_adapter_size = 8;
  ASSERT_TRUE(apply_engine_limits(dir_, config_).ok());
  EXPECT_EQ(config_.peft_cache.max_adapter_size, 8);
}

TEST_F(EngineLimitsTest, AreBounds) {
  build({{"max_batch_size", 4}, {"max_num_tokens", 64}});
  config_.max_batch_size = 100;
  config_.max_num_tokens = 16;
  const auto executor = open();
  ASSERT_TRUE(executor);
  EXPECT_EQ(executor->stats().max_batch_size, 4);
  ASSERT_TRUE(apply_engine_limits(dir_, config_).ok());
  EXPECT_EQ(config_.max_num_tokens, 16) << "less is taken";
  config_.max_beam_width = 2;
  EXPECT_THAT(std::string(message(Executor::create(dir_, config_).status())),
              HasSubstr("max_beam_width: 2 is more than the 1 that"));
}

TEST_F(EngineLimitsTest, ADirectoryOfWeightsHasTheUsualOnes) {
  ASSERT_TRUE(apply_engine_limits(source_dir() + "/tests/models/llama", config_).ok());
  EXPECT_EQ(config_.max_batch_size, 32);
  EXPECT_EQ(config_.max_beam_width, 1);
  EXPECT_EQ(config_.max_num_tokens, 2048);
}

TEST_F(EngineLimitsTest, LogitsOfPromptsOnlyWhereTheyAreGathered) {
  build({{"gather_context_logits", true}});
  EXPECT_EQ(refusal(*open(), 4, true), "");
  build({});
  const auto executor = open();
  EXPECT_THAT(refusal(*executor, 4, true), HasSubstr("built without gather_context_logits"));
  EXPECT_EQ(refusal(*executor, 4, false), "");
}

TEST_F(EngineLimitsTest, PromptTablesHaveSoManyRows) {
  constexpr int32_t kWidth = 64;  // of the model
  const auto refused = [this](size_t num_rows) {
    Request request;
    request.input_token_ids = {5, 6};
    request.max_tokens = 1;
    request.prompt_table = {std::vector<uint16_t>(num_rows * kWidth), kWidth, {}};
    const auto id = open()->enqueue(std::move(request));
    return id.ok() ? "" : std::string(id.status().message());
  };
  build({{"max_prompt_embedding_table_size", 3}});
  EXPECT_EQ(refused(3), "");
  EXPECT_THAT(refused(4), HasSubstr("4 rows are more than the max_prompt_embedding_table_size 3"));
  build({{"max_prompt_embedding_table_size", 0}});
  EXPECT_EQ(refused(4), "");
}

TEST_F(EngineLimitsTest, PromptsOnlyWhereBatchesArePadded) {
  build({{"max_input_len", 10}, {"plugin_config", {{"remove_input_padding", false}}}});
  const auto executor = open();
  EXPECT_EQ(refusal(*executor, 10, false), "");
  EXPECT_THAT(refusal(*executor, 11, false),
              HasSubstr("11 tokens are more than the max_input_len"));
  build({{"max_input_len", 10}, {"plugin_config", {{"remove_input_padding", true}}}});
  EXPECT_EQ(refusal(*open(), 11, false), "");
}

}  // namespace
}  // namespace nereid::runtime
