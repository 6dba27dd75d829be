#include "front/openai/model_facts.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "base/test_gguf.h"
#include "base/testing/source_dir.h"

namespace nereid::front {
namespace {

TEST(ModelFacts, OfACheckpoint) {
  const ModelFacts facts = read_model_facts(source_dir() + "/models/quickstart");
  EXPECT_EQ(facts.format, "safetensors");
  EXPECT_EQ(facts.architecture, "llama");
  EXPECT_EQ(facts.quantization, "BF16");
  EXPECT_EQ(facts.num_layers, 6);
  EXPECT_EQ(facts.num_kv_heads, 2);
  EXPECT_EQ(facts.hidden_size, 256);
  EXPECT_GT(facts.num_parameters, 1'000'000);
  EXPECT_GT(facts.num_bytes, facts.num_parameters);
}

TEST(ModelFacts, OfAGgufFile) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / fmt::format("nereid-facts-{}.gguf", ::getpid());
  const json::object metadata = {{"general.architecture", "qwen2"},
                                 {"general.file_type", uint64_t{15}},
                                 {"qwen2.block_count", uint64_t{24}}};
  ASSERT_TRUE(write_file_atomic(
                  path, testing_only::gguf_file(metadata, {{"t", 0, {2, 4}, std::string(32, 0)}}))
                  .ok());
  const ModelFacts facts = read_model_facts(path);
  std::filesystem::remove(path);
  EXPECT_EQ(facts.format, "gguf");
  EXPECT_EQ(facts.architecture, "qwen2");
  EXPECT_EQ(facts.quantization, "Q4_K_M");
  EXPECT_EQ(facts.num_layers, 24);
  EXPECT_EQ(facts.num_parameters, 8);
}

TEST(ModelFacts, OfNothing) {
  const ModelFacts facts = read_model_facts("/nowhere");
  EXPECT_EQ(facts.architecture, "");
  EXPECT_EQ(facts.num_bytes, 0);
}

}  // namespace
}  // namespace nereid::front
