// Layouts of model directories, from the hub and from our tools: detection, and equal results.
#include <gmock/gmock.h>
#include <unistd.h>

#include <functional>

#include "base/file.h"
#include "base/json.h"
#include "base/test_gguf.h"
#include "base/testing/source_dir.h"
#include "convert/engine_dir.h"
#include "convert/inspect.h"
#include "convert/trtllm_checkpoint.h"
#include "io/engine_file.h"
#include "io/safetensors.h"
#include "io/test_torch_file.h"
#include "kernels/ref/ref.h"
#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::convert {
namespace {

using testing::HasSubstr;

const std::filesystem::path kRoot = source_dir();

class LayoutTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/layouts.XXXXXX";
    dir_ = ::mkdtemp(name.data());
    kernels::ref::add_kernels(registry_);
    cache_.cache_dir = dir_ / "cache";
    const auto file = io::TensorFile::open(kRoot / "tests/models/llama/model.safetensors");
    whole_ = read_file(file->path()).value();
    config_ = read_file(kRoot / "tests/models/llama/config.json").value();
    wanted_ = weights(kRoot / "tests/models/llama");
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  void write(const std::filesystem::path& path, std::string_view bytes) {
    std::filesystem::create_directories(path.parent_path());
    ASSERT_TRUE(write_file_atomic(path, bytes).ok());
  }
  void copy(const std::filesystem::path& from, const std::filesystem::path& to) {
    write(to, read_file(kRoot / from).value());
  }
  // A directory with config.json and weight files serialised by `serialize`.
  template <class Serialize>
  void sharded(const std::string& name, const std::string& index, const std::string& extension,
               const Serialize& serialize) {
    const auto tensors = io::parse_safetensors(std::as_bytes(std::span(whole_))).value();
    json::object map;
    for (size_t i = 0; i < 2; ++i) {
      const std::string file = fmt::format("model-0000{}-of-00002{}", i + 1, extension);
      const auto part = std::span(tensors).subspan(i * 5, i == 0 ? 5 : tensors.size() - 5);
      write(dir_ / name / file, serialize(part));
      for (const io::StoredTensor& tensor : part) map[tensor.name] = file;
    }
    write(dir_ / name / index, json::serialize(json::object{{"weight_map", map}}));
    write(dir_ / name / "config.json", config_);
  }
  std::string weights(const std::filesystem::path& path) {
    const auto built = ensure_engine(path, registry_, DeviceInfo{}, cache_);
    EXPECT_TRUE(built.ok()) << built.status();
    if (!built.ok()) return "";
    const auto file = io::EngineFile::open(*built, io::Verify::kFull);
    return {reinterpret_cast<const char*>(file->blob().data()), file->blob().size()};
  }
  // Its description without the path; checks that its weights are the model's.
  std::string description(const std::string& name) {
    const std::filesystem::path path = dir_ / name;
    EXPECT_TRUE(weights(path) == wanted_) << name;
    const auto text = describe_model(path);
    EXPECT_TRUE(text.ok()) << text.status();
    if (!text.ok()) return "";
    EXPECT_THAT(*text, testing::StartsWith(path.string() + " is "));
    return *text;
  }

  std::filesystem::path dir_;
  kernels::Registry registry_;
  BuildOptions cache_;
  std::string whole_, config_, wanted_;
};

TEST_F(LayoutTest, EightOfThem) {
  write(dir_ / "single/model.safetensors", whole_);
  write(dir_ / "single/config.json", config_);
  copy("models/quickstart/tokenizer.json", dir_ / "single/tokenizer.json");
  copy("models/quickstart/tokenizer_config.json", dir_ / "single/tokenizer_config.json");
  std::string text = description("single");
  EXPECT_THAT(text, HasSubstr("a Hugging Face directory: config.json has architectures (Llama"));
  EXPECT_THAT(text, HasSubstr("weights: model.safetensors\n"));
  EXPECT_THAT(text, HasSubstr("single/tokenizer.json\n"));
  EXPECT_THAT(text,
              HasSubstr("chat template: " + (dir_ / "single/tokenizer_config.json").string()));

  sharded("index", "model.safetensors.index.json", ".safetensors", io::serialize_safetensors);
  write(dir_ / "index/generation_config.json", R"({"eos_token_id": [7, 9]})");
  text = description("index");
  EXPECT_THAT(text, HasSubstr("weights: model.safetensors.index.json\ntokenizer: none\n"));
  EXPECT_THAT(text, HasSubstr("ends of text: "));
  EXPECT_THAT(read_facts(dir_ / "index")->end_ids, testing::ElementsAre(7, 9, 3));

  const auto tensors = io::parse_safetensors(std::as_bytes(std::span(whole_))).value();
  write(dir_ / "torch/pytorch_model.bin", io::testing_only::serialize_torch_file(tensors));
  write(dir_ / "torch/config.json", config_);
  copy("tests/fuzz/seeds/sentencepiece_bpe.bin", dir_ / "torch/tokenizer.model");
  text = description("torch");
  EXPECT_THAT(text, HasSubstr("weights: pytorch_model.bin\n"));
  EXPECT_THAT(text, HasSubstr("torch/tokenizer.model\nchat template: none\n"));
  EXPECT_TRUE(text::Tokenizer::load(dir_ / "torch").ok());

  sharded("torch_index", "pytorch_model.bin.index.json", ".bin",
          io::testing_only::serialize_torch_file);
  write(dir_ / "torch_index/chat_template.jinja", "{{ messages[0].content }}");
  text = description("torch_index");
  EXPECT_THAT(text, HasSubstr("weights: pytorch_model.bin.index.json\n"));
  EXPECT_THAT(text, HasSubstr("torch_index/chat_template.jinja\n"));

  ConvertOptions options;
  options.model_dir = dir_ / "single";
  options.output_dir = dir_ / "checkpoint";
  options.ranks = {.tp = 2, .moe_tp = -1};
  ASSERT_TRUE(convert_checkpoint(options).ok());
  text = description("checkpoint");
  EXPECT_THAT(text, HasSubstr("a TensorRT-LLM checkpoint: config.json has architecture (Llama"));
  EXPECT_THAT(text, HasSubstr("weights: rank0.safetensors to rank1.safetensors, merged\n"));
  EXPECT_THAT(text, HasSubstr("checkpoint/tokenizer.json\n"));

  EngineDirOptions build;
  build.checkpoint_dir = dir_ / "checkpoint";
  build.output_dir = dir_ / "engine";
  ASSERT_TRUE(build_engine_dir(build, registry_, DeviceInfo{}).ok());
  text = description("engine");
  EXPECT_THAT(text, HasSubstr("an engine directory: rank0.engine is there, config.json has "));
  EXPECT_THAT(text, HasSubstr("weights: rank0.engine to rank1.engine, merged\n"));
  EXPECT_THAT(text, HasSubstr("engine/tokenizer.json\n"));
  EXPECT_THAT(description("engine/rank0.engine"), HasSubstr("an engine file: it is no directory"));
}

TEST_F(LayoutTest, AFileOfGguf) {
  copy("tests/fuzz/seeds/gguf_byte_level.bin", dir_ / "tiny.gguf");
  EXPECT_EQ(text::Tokenizer::file_of(dir_ / "tiny.gguf"), dir_ / "tiny.gguf");
  const auto chat = text::load_chat_template(dir_ / "tiny.gguf");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->render({{"messages", {{{"content", "hi"}}}}}).value(), "<|end|>hi");
  const auto text = describe_model(dir_ / "tiny.gguf");
  EXPECT_THAT(std::string(message(text.status())),
              HasSubstr("tiny.gguf: field 'n_head': is missing"));
}

TEST_F(LayoutTest, WhatIsNoneIsNamed) {
  std::filesystem::create_directory(dir_ / "empty");
  EXPECT_THAT(std::string(message(describe_model(dir_ / "empty").status())),
              HasSubstr("empty/config.json"));
  write(dir_ / "engine/config.json", R"({"pretrained_config": {}, "build_config": {}})");
  EXPECT_THAT(std::string(message(describe_model(dir_ / "engine").status())),
              HasSubstr("belongs to an engine"));
}

// Every number of every family's config.json.
TEST_F(LayoutTest, AbsurdNumbersAreRefusedByTheirKey) {
  int num_refused = 0;
  for (const auto& model : std::filesystem::directory_iterator(kRoot / "tests/models")) {
    const json::object config = read_json_file(model.path() / "config.json")->as_object();
    for (const auto& [key, value] : config) {
      if (!value.is_number()) continue;
      for (const json::value& absurd : {json::value(1000000000), json::value(-1), json::value(0)}) {
        json::object changed = config;
        changed[key] = absurd;
        write(dir_ / "absurd/config.json", json::serialize(changed));
        const auto text = inspect(dir_ / "absurd", registry_, DeviceInfo{});
        if (text.ok()) continue;  // accepted value, or field not read by this family
        ++num_refused;
        EXPECT_THAT(std::string(message(text.status())), HasSubstr(std::string(key)))
            << model.path().filename() << ": " << absurd;
      }
    }
  }
  EXPECT_GT(num_refused, 500);
}

}  // namespace
}  // namespace nereid::convert
