// Tensors of a checkpoint against those that its family reads.
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "models/models_fixture.h"
#include "models/weights.h"

namespace nereid::models {
namespace {

using testing::HasSubstr;

class TensorsTest : public ModelsTest {
 protected:
  // The error of a checkpoint made from the tiny model after `change`.
  template <class Change>
  std::string error_after(Change change) {
    const auto file = io::TensorFile::open(kSource + "/tests/models/llama/model.safetensors");
    std::vector<io::StoredTensor> tensors = file->tensors();
    change(tensors);
    EXPECT_TRUE(
        write_file_atomic(dir_ / "model.safetensors", io::serialize_safetensors(tensors)).ok());
    const auto model = read(config_);
    const auto checkpoint = io::Checkpoint::open(dir_);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    return std::string(
        message(check_tensors(model->graph, *checkpoint, model->traits, model->family->ignores)));
  }
};

// Published GPT-2 checkpoints omit the first part of all names and include attention masks.
TEST_F(TensorsTest, Gpt2WithoutPrefix) {
  const std::string source = kSource + "/tests/models/gpt2/";
  const auto file = io::TensorFile::open(source + "model.safetensors");
  ASSERT_TRUE(file.ok());
  std::vector<io::StoredTensor> tensors = file->tensors();
  for (io::StoredTensor& tensor : tensors) tensor.name.erase(0, sizeof("transformer.") - 1);
  tensors.push_back(tensors.front());
  tensors.back().name = "h.0.attn.bias";
  ASSERT_TRUE(
      write_file_atomic(dir_ / "model.safetensors", io::serialize_safetensors(tensors)).ok());
  const auto model = read(read_json_file(source + "config.json")->as_object());
  ASSERT_TRUE(model.ok()) << model.status();
  const auto checkpoint = open_checkpoint(*model, dir_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const Status status =
      check_tensors(model->graph, *checkpoint, model->traits, model->family->ignores);
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(TensorsTest, ExpertsAreOneWeight) {
  const auto model = read_model(kSource + "/tests/models/qwen3_moe");
  ASSERT_TRUE(model.ok()) << model.status();
  const auto checkpoint = io::Checkpoint::open(kSource + "/tests/models/qwen3_moe");
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_TRUE(check_tensors(model->graph, *checkpoint, model->traits, model->family->ignores).ok());
  int found = 0;
  for (const graph::Weight& w : model->graph.weights) {
    if (w.name != "layers.1.mlp.down") continue;
    ++found;
    EXPECT_EQ(w.experts, 4);
    EXPECT_EQ(w.n, 48);
    EXPECT_EQ(w.k, 16);
    ASSERT_EQ(w.parts.size(), 4u);
    EXPECT_EQ(w.parts[3].tensor, "model.layers.1.mlp.experts.3.down_proj.weight");
  }
  EXPECT_EQ(found, 1);
}

TEST_F(TensorsTest, MissingLeftoverAndWrongTensorsAreNamed) {
  using Tensors = std::vector<io::StoredTensor>;
  const auto named = [](Tensors& tensors, std::string_view name) -> io::StoredTensor& {
    return *std::find_if(tensors.begin(), tensors.end(),
                         [&](const io::StoredTensor& t) { return t.name == name; });
  };
  EXPECT_EQ(error_after([](Tensors&) {}), "");
  EXPECT_THAT(error_after([](Tensors& t) {
                std::erase_if(t, [](const auto& x) { return x.name == "model.norm.weight"; });
              }),
              HasSubstr("model.safetensors: tensor 'model.norm.weight' is missing"));
  EXPECT_THAT(error_after([&](Tensors& t) {
                t.push_back(named(t, "model.norm.weight"));
                t.back().name = "model.layers.2.input_layernorm.weight";
              }),
              HasSubstr("tensor 'model.layers.2.input_layernorm.weight' is not part of"));
  EXPECT_EQ(error_after([&](Tensors& t) {
              t.push_back(named(t, "model.norm.weight"));
              t.back().name = "model.layers.0.self_attn.rotary_emb.inv_freq";
            }),
            "");
  EXPECT_THAT(error_after([&](Tensors& t) {
                named(t, "lm_head.weight").shape = {64, 512};
              }),
              HasSubstr("'lm_head.weight' has shape [64, 512], config.json asks for [512, 64]"));
  EXPECT_THAT(error_after([&](Tensors& t) {
                io::StoredTensor& norm = named(t, "model.norm.weight");
                norm.dtype = "I16", norm.type.reset();
              }),
              HasSubstr("'model.norm.weight' has dtype I16, which cannot be read as a weight"));
}

}  // namespace
}  // namespace nereid::models
