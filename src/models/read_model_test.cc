// Data in several files or objects: end ids, text part of multimodal models.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/file.h"
#include "base/testing/source_dir.h"
#include "io/checkpoint.h"
#include "io/safetensors.h"
#include "models/family.h"

namespace nereid::models {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ReadModelTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/read_model.XXXXXX";
    dir_ = ::mkdtemp(name.data());
    config_ = read_json_file(llama_ / "config.json")->as_object();
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  StatusOr<Model> read(const json::object& config) {
    EXPECT_TRUE(write_file_atomic(dir_ / "config.json", json::serialize(config)).ok());
    return read_model(dir_);
  }

  const std::filesystem::path llama_ = source_dir() + "/tests/models/llama";
  std::filesystem::path dir_;
  json::object config_;
};

TEST_F(ReadModelTest, EndsOfTextAreThoseOfBothFiles) {
  config_["eos_token_id"] = {3, 9};
  EXPECT_THAT(read(config_)->graph.model.end_ids, ElementsAre(3, 9));
  const auto with = [&](std::string_view generation) {
    EXPECT_TRUE(write_file_atomic(dir_ / "generation_config.json", generation).ok());
    return read(config_)->graph.model.end_ids;
  };
  EXPECT_THAT(with(R"({"eos_token_id": [7, 9]})"), ElementsAre(7, 9, 3));
  EXPECT_THAT(with(R"({"eos_token_id": 5})"), ElementsAre(5, 3, 9));
  EXPECT_THAT(with(R"({"eos_token_id": null})"), ElementsAre(3, 9));
  config_.erase("eos_token_id");
  EXPECT_THAT(with(R"({"eos_token_id": 5})"), ElementsAre(5));
}

// Text part: fields of both objects, tensors in either prefix order, no image tensors.
TEST_F(ReadModelTest, TextPart) {
  json::object whole =
      read_json_file(source_dir() + "/tests/picture_models/mistral3/config.json")->get_object();
  whole.erase("text_config");
  whole["eos_token_id"] = 7;
  EXPECT_THAT(std::string(message(read(whole).status())), HasSubstr("'text_config': is missing"));
  whole["text_config"] = config_;
  whole["text_config"].as_object().erase("eos_token_id");
  const auto model = read(whole);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->family->architecture, "MistralForCausalLM");
  EXPECT_THAT(model->graph.model.end_ids, ElementsAre(7));
  json::object both = whole;
  both["text_config"].as_object()["eos_token_id"] = {9, 7};
  EXPECT_THAT(read(both)->graph.model.end_ids, ElementsAre(7, 9));
  const auto file = io::TensorFile::open(llama_ / "model.safetensors");
  ASSERT_TRUE(file.ok());
  for (const bool newer : {false, true}) {
    std::vector<io::StoredTensor> tensors = file->tensors();
    for (io::StoredTensor& tensor : tensors)
      if (!newer)
        tensor.name.insert(0, "language_model.");
      else if (tensor.name.starts_with("model."))
        tensor.name.insert(sizeof("model.") - 1, "language_model.");
    const std::string images = newer ? "model.vision_tower." : "vision_tower.";
    tensors.push_back(tensors.front());
    tensors.back().name = images + tensors.front().name;
    ASSERT_TRUE(
        write_file_atomic(dir_ / "model.safetensors", io::serialize_safetensors(tensors)).ok());
    const auto checkpoint = open_checkpoint(*model, dir_);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    const Status status =
        check_tensors(model->graph, *checkpoint, model->traits, model->family->ignores);
    EXPECT_TRUE(status.ok()) << status;
  }
}

}  // namespace
}  // namespace nereid::models
