// End to end in one process: convert, build, read; bit-identical to the Hugging Face directory;
// hostile and unsupported files are refused by name.
#include "convert/engine_dir.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "base/file.h"
#include "base/testing/source_dir.h"
#include "convert/inspect.h"
#include "convert/trtllm_checkpoint.h"
#include "io/engine_file.h"
#include "io/safetensors_writer.h"
#include "kernels/ref/ref.h"
#include "models/family.h"

namespace nereid::convert {
namespace {

using testing::HasSubstr;

const std::string kSourceDir = source_dir();
const char* const kModels[] = {"tests/models/llama", "tests/models/llama-rope-llama3",
                               "tests/models/llama-rope-yarn", "tests/models/mistral",
                               "models/quickstart"};

class EngineDirTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/engine_dir.XXXXXX";
    dir_ = ::mkdtemp(name.data());
    kernels::ref::add_kernels(registry_);
    cache_.cache_dir = dir_ / "cache";
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  void convert(const std::string& model, const std::string& dtype = "auto") {
    const auto report = convert_checkpoint(
        {.model_dir = kSourceDir + "/" + model, .output_dir = dir_ / "ckpt", .dtype = dtype});
    ASSERT_TRUE(report.ok()) << report.status();
  }
  Status build(json::object limits = {}) {
    EngineDirOptions options;
    options.checkpoint_dir = dir_ / "ckpt";
    options.output_dir = dir_ / "engine";
    options.build_config = std::move(limits);
    options.workers = workers_;
    return build_engine_dir(options, registry_, DeviceInfo{});
  }
  io::EngineFile open(const std::filesystem::path& path) {
    const auto engine = ensure_engine(path, registry_, DeviceInfo{}, cache_);
    EXPECT_TRUE(engine.ok()) << engine.status();
    auto file = io::EngineFile::open(*engine, io::Verify::kFull);
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }
  // Expects equal weights and plans, except for the model's path.
  static void expect_same(const io::EngineFile& a, const io::EngineFile& b, const char* what) {
    EXPECT_TRUE(std::ranges::equal(a.blob(), b.blob())) << what;
    io::Plan x = a.plan(), y = b.plan();
    x.model.name = y.model.name;
    x.model.source_dir = y.model.source_dir;
    EXPECT_EQ(json::serialize(io::plan_to_json(x)), json::serialize(io::plan_to_json(y))) << what;
  }
  // Error after replacing a field of the checkpoint's config.json.
  std::string refusal(const std::string& field, json::value value) {
    const std::filesystem::path path = dir_ / "ckpt/config.json";
    const json::value before = read_json_file(path).value();
    json::value config = before;
    if (const size_t slash = field.find('/'); slash != field.npos)
      config.at(field.substr(0, slash)).as_object()[field.substr(slash + 1)] = std::move(value);
    else
      config.as_object()[field] = std::move(value);
    EXPECT_TRUE(write_file_atomic(path, json::serialize(config)).ok());
    const auto engine = ensure_engine(dir_ / "ckpt", registry_, DeviceInfo{}, cache_);
    EXPECT_TRUE(write_file_atomic(path, json::serialize(before)).ok());
    return engine.ok() ? "accepted" : std::string(message(engine.status()));
  }
  json::object engine_config() {
    return read_json_file(dir_ / "engine/config.json").value().get_object();
  }

  std::filesystem::path dir_;
  int32_t workers_ = 1;
  kernels::Registry registry_;
  BuildOptions cache_;
};

TEST_F(EngineDirTest, EveryPathGivesTheSameEngine) {
  for (const char* model : kModels) {
    convert(model);
    ASSERT_TRUE(build().ok());
    const io::EngineFile direct = open(kSourceDir + "/" + model);
    expect_same(open(dir_ / "ckpt"), direct, model);
    expect_same(open(dir_ / "engine"), direct, model);
    std::filesystem::remove_all(dir_ / "ckpt");
    std::filesystem::remove_all(dir_ / "engine");
  }
}

TEST_F(EngineDirTest, WiderTypesChangeNothing) {
  convert("tests/models/llama", "float32");
  expect_same(open(dir_ / "ckpt"), open(kSourceDir + "/tests/models/llama"), "float32");
}

TEST_F(EngineDirTest, TheCheckpointIsInTheLayout) {
  convert("models/quickstart");
  const auto file = io::TensorFile::open(dir_ / "ckpt/rank0.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  std::map<std::string, std::string> shapes;
  for (const auto& tensor : file->tensors()) shapes[tensor.name] = tensor.shape_text();
  EXPECT_EQ(shapes["transformer.vocab_embedding.weight"], "[4096, 256]");
  EXPECT_EQ(shapes["transformer.layers.5.attention.qkv.weight"], "[512, 256]");
  EXPECT_EQ(shapes["transformer.layers.0.attention.dense.weight"], "[256, 256]");
  EXPECT_EQ(shapes["transformer.layers.0.mlp.fc.weight"], "[768, 256]");
  EXPECT_EQ(shapes["transformer.layers.0.mlp.proj.weight"], "[256, 768]");
  EXPECT_EQ(shapes["transformer.ln_f.weight"], "[256]");
  EXPECT_FALSE(shapes.contains("lm_head.weight"));  // tied
  EXPECT_TRUE(std::filesystem::exists(dir_ / "ckpt/tokenizer.json"));
  const auto text = read_file(dir_ / "ckpt/config.json");
  EXPECT_THAT(*text, HasSubstr("\n    \"architecture\": \"LlamaForCausalLM\",\n"));
  const json::value config = read_json_file(dir_ / "ckpt/config.json").value();
  EXPECT_EQ(config.at("dtype"), "bfloat16");
  EXPECT_EQ(config.at("head_size"), 64);
  EXPECT_EQ(config.at("norm_epsilon"), 1e-05);
  EXPECT_EQ(config.at("mapping").at("world_size"), 1);
}

TEST_F(EngineDirTest, AnUntiedHeadMayStandAlone) {
  convert("tests/models/llama");
  json::value config = read_json_file(dir_ / "ckpt/config.json").value();
  const bool tied = config.at("tie_word_embeddings").as_bool();
  config.as_object().erase("tie_word_embeddings");  // other converters omit it
  ASSERT_TRUE(write_file_atomic(dir_ / "ckpt/config.json", json::serialize(config)).ok());
  const auto model = models::read_model(dir_ / "ckpt");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->traits.tied_embedding, tied);
}

TEST_F(EngineDirTest, LimitsAreReadBack) {
  convert("tests/models/llama");
  ASSERT_TRUE(build({{"max_batch_size", 7},
                     {"max_num_tokens", 99},
                     {"max_seq_len", 48},
                     {"plugin_config", {{"use_paged_context_fmha", false}}}})
                  .ok());
  const auto limits = read_engine_limits(dir_ / "engine");
  ASSERT_TRUE(limits.ok() && *limits) << limits.status();
  EXPECT_EQ((*limits)->max_batch_size, 7);
  EXPECT_EQ((*limits)->max_num_tokens, 99);
  EXPECT_EQ((*limits)->max_beam_width, 1);
  EXPECT_FALSE((*limits)->paged_context);
  EXPECT_EQ(open(dir_ / "engine").plan().model.max_positions, 48);
  EXPECT_FALSE(*read_engine_limits(dir_ / "ckpt"));
  EXPECT_EQ(engine_config().at("pretrained_config").at("architecture"), "LlamaForCausalLM");
}

TEST_F(EngineDirTest, WhatCannotRunIsRefusedByName) {
  convert("tests/models/llama");
  EXPECT_THAT(refusal("mapping/tp_size", 2), HasSubstr("'world_size': 1 is not tp_size 2"));
  EXPECT_THAT(refusal("mapping/tp_size", 0), HasSubstr("'tp_size': 0 is not an integer in [1"));
  EXPECT_THAT(refusal("mapping/moe_ep_size", 3), HasSubstr("moe_ep_size: 3 does not divide"));
  EXPECT_THAT(refusal("mapping/world_size", "x"), HasSubstr("'world_size': \"x\" is not"));
  EXPECT_THAT(
      refusal("quantization/quant_algo", "W4A8_QSERVE"),
      HasSubstr("'quant_algo': 'W4A8_QSERVE' is not one of null, NO_QUANT, W8A16, W4A16, "));
  EXPECT_THAT(refusal("quantization/kv_cache_quant_algo", "NVFP4"),
              HasSubstr("'NVFP4' is not one of null, NO_QUANT, INT8, FP8"));
  EXPECT_THAT(refusal("quantization/weight_layout", "tiles"),
              HasSubstr("'tiles' is not row_major"));
  EXPECT_THAT(refusal("position_embedding_type", "alibi"), HasSubstr("'alibi' is not one of"));
  EXPECT_THAT(refusal("architecture", "MambaForCausalLM"), HasSubstr("'MambaForCausalLM'"));
  EXPECT_THAT(refusal("dtype", "fp4"), HasSubstr("'dtype': 'fp4'"));
  EXPECT_THAT(refusal("norm_epsilon", -1), HasSubstr("field 'norm_epsilon': -1"));
  EXPECT_THAT(refusal("num_key_value_heads", 3), HasSubstr("num_key_value_heads"));
  EXPECT_THAT(refusal("head_size", 2), HasSubstr("qkv.weight' has shape"));
  EXPECT_THAT(refusal("qk_layernorm", true), HasSubstr("'qk_layernorm': true is not supported"));
  EXPECT_THAT(refusal("moe", {{"num_experts", 4}}), HasSubstr("'num_experts': 4 is not supported"));
  EXPECT_THAT(refusal("mapping", json::array()), HasSubstr("'mapping': [] is not an object"));
}

TEST_F(EngineDirTest, ForeignTensorsAreRefused) {
  convert("tests/models/llama");
  const auto rewrite = [&](std::vector<io::StoredTensor> tensors) {
    EXPECT_TRUE(
        write_file_atomic(dir_ / "ckpt/rank0.safetensors", io::serialize_safetensors(tensors))
            .ok());
    const auto engine = ensure_engine(dir_ / "ckpt", registry_, DeviceInfo{}, cache_);
    return engine.ok() ? "accepted" : std::string(message(engine.status()));
  };
  const auto file = io::TensorFile::open(dir_ / "ckpt/rank0.safetensors");
  const std::vector<io::StoredTensor> good = file->tensors();
  std::vector<io::StoredTensor> tensors = good;
  tensors[2].name = "transformer.layers.0.mlp.fc.per_channel_scale";
  EXPECT_THAT(rewrite(tensors), HasSubstr("per_channel_scale' is not part of"));
  tensors[2].name = "transformer.layers.00.mlp.fc.weight";
  EXPECT_THAT(rewrite(tensors), HasSubstr("is not part of"));
  tensors = good;
  std::erase_if(tensors, [](const auto& t) { return t.name == "transformer.ln_f.weight"; });
  EXPECT_THAT(rewrite(tensors),
              HasSubstr("rank0.safetensors: tensor 'transformer.ln_f.weight' is missing"));
  tensors = good;
  for (io::StoredTensor& tensor : tensors)
    if (tensor.name.ends_with("attention.qkv.weight")) tensor.shape = {};
  EXPECT_NE(rewrite(tensors), "accepted");
  EXPECT_EQ(rewrite(good), "accepted");
  ASSERT_TRUE(write_file_atomic(dir_ / "ckpt/rank0.safetensors", "short").ok());
  EXPECT_FALSE(ensure_engine(dir_ / "ckpt", registry_, DeviceInfo{}, cache_).ok());
  std::filesystem::remove(dir_ / "ckpt/rank0.safetensors");
  const auto gone = ensure_engine(dir_ / "ckpt", registry_, DeviceInfo{}, cache_);
  EXPECT_THAT(std::string(message(gone.status())), HasSubstr("rank0.safetensors: is missing"));
}

TEST_F(EngineDirTest, DamagedEngineDirectoriesAreRefused) {
  convert("tests/models/llama");
  ASSERT_TRUE(build().ok());
  const auto refusal = [&](std::string_view config) {
    EXPECT_TRUE(write_file_atomic(dir_ / "engine/config.json", config).ok());
    return std::string(message(read_engine_limits(dir_ / "engine").status()));
  };
  EXPECT_THAT(refusal("{"), HasSubstr("line 1"));
  EXPECT_THAT(refusal("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal(R"({"pretrained_config": {}})"), HasSubstr("'build_config' is missing"));
  EXPECT_THAT(refusal(R"({"pretrained_config": {}, "build_config": {"max_batch_size": 0}})"),
              HasSubstr("'max_batch_size': 0 is not an integer in [1"));
  std::filesystem::remove(dir_ / "engine/rank0.engine");
  const auto engine = ensure_engine(dir_ / "engine", registry_, DeviceInfo{}, cache_);
  EXPECT_THAT(std::string(message(engine.status())), HasSubstr("engine"));
}

// Four ranks: one engine each; merged in one process they equal a single rank's engine.
TEST_F(EngineDirTest, SeveralRanksHaveAnEngineEach) {
  for (const char* model : {"tests/models/llama", "tests/models/qwen3_moe",
                            "tests/models/deepseek_v3", "models/quickstart"}) {
    ConvertOptions options{.model_dir = kSourceDir + "/" + model, .output_dir = dir_ / "ckpt"};
    options.ranks = {.tp = 2, .pp = 2, .moe_tp = -1, .moe_ep = -1};
    ASSERT_TRUE(convert_checkpoint(options).ok());
    workers_ = 3;
    ASSERT_TRUE(build({{"max_seq_len", 64}}).ok());
    EXPECT_TRUE(std::filesystem::exists(dir_ / "engine/rank3.engine"));
    EXPECT_EQ(engine_config().at("pretrained_config").at("mapping").at("world_size"), 4);
    EXPECT_TRUE(read_engine_limits(dir_ / "engine")->has_value());
    const io::EngineFile merged = open(dir_ / "engine");
    EXPECT_EQ(merged.plan().model.max_positions, 64);
    expect_same(open(dir_ / "engine/rank1.engine"), merged, model);
    cache_.compile.max_positions = 64;
    expect_same(merged, open(kSourceDir + "/" + model), model);
    EXPECT_TRUE(verify_model(dir_ / "engine").ok());
    // A build for one rank removes the others' files.
    convert(model);
    ASSERT_TRUE(build().ok());
    EXPECT_FALSE(std::filesystem::exists(dir_ / "engine/rank1.engine"));
    std::filesystem::remove_all(dir_ / "engine");
  }
}

TEST_F(EngineDirTest, DamagedEnginesOfRanksAreNamed) {
  ConvertOptions options{.model_dir = kSourceDir + "/tests/models/llama",
                         .output_dir = dir_ / "ckpt"};
  options.ranks = {.tp = 2};
  options.ranks.moe_tp = -1;
  ASSERT_TRUE(convert_checkpoint(options).ok());
  ASSERT_TRUE(build().ok());
  const auto error = [&] {
    const auto engine = ensure_engine(dir_ / "engine", registry_, DeviceInfo{}, cache_);
    return std::string(message(engine.status()));
  };
  const std::filesystem::path second = dir_ / "engine/rank1.engine";
  const std::string good = *read_file(second);
  std::string bad = good;
  bad[bad.size() - 9] ^= 1;
  ASSERT_TRUE(write_file_atomic(second, bad).ok());
  EXPECT_THAT(error(), HasSubstr("rank1.engine: tensors of rank 1 are damaged"));
  const auto file = io::EngineFile::open(second, io::Verify::kPlan);
  EXPECT_THAT(std::string(message(file->verify_weights())),
              HasSubstr("rank1.engine: tensors of rank 1 are damaged"));
  ASSERT_TRUE(write_file_atomic(second, good.substr(0, good.size() - 1)).ok());
  EXPECT_THAT(error(), HasSubstr("rank1.engine: "));
  std::filesystem::remove(second);
  EXPECT_THAT(error(), HasSubstr("rank1.engine: is missing; config.json says that this is an "
                                 "engine of 2 ranks"));
  ASSERT_TRUE(write_file_atomic(second, *read_file(dir_ / "engine/rank0.engine")).ok());
  EXPECT_THAT(error(), HasSubstr("rank1.engine: has the tensors of rank 0"));
  EXPECT_THAT(std::string(message(verify_model(dir_ / "engine"))),
              HasSubstr("rank1.engine: has the tensors of rank 0"));
  ASSERT_TRUE(write_file_atomic(second, good).ok());
  EXPECT_EQ(error(), "");
  const auto whole = io::EngineFile::open(second, io::Verify::kPlan);
  EXPECT_TRUE(whole->verify_weights().ok());
  EXPECT_EQ(whole->rank(), 1);
  options.model_dir = dir_ / "engine", options.output_dir = dir_ / "again";
  ASSERT_TRUE(convert_checkpoint(options).ok()) << "the checkpoint that it was made of";
  EXPECT_TRUE(read_file(dir_ / "again/rank1.safetensors").value() ==
              read_file(dir_ / "ckpt/rank1.safetensors").value());
}

TEST_F(EngineDirTest, ValuesThatATypeCannotHoldAreNamed) {
  std::filesystem::create_directories(dir_ / "hf");
  std::filesystem::copy(
      kSourceDir + "/tests/models/llama", dir_ / "hf",
      std::filesystem::copy_options::overwrite_existing | std::filesystem::copy_options::recursive);
  const auto file = io::TensorFile::open(dir_ / "hf/model.safetensors");
  std::vector<io::StoredTensor> tensors = file->tensors();
  std::string bytes(reinterpret_cast<const char*>(tensors[0].data.data()), tensors[0].data.size());
  bytes[6] = '\0', bytes[7] = '\x48';  // 131072 as bf16
  tensors[0].data = std::as_bytes(std::span(bytes));
  const std::string whole = io::serialize_safetensors(tensors);
  ASSERT_TRUE(write_file_atomic(dir_ / "hf/model.safetensors", whole).ok());
  const auto report = convert_checkpoint(
      {.model_dir = dir_ / "hf", .output_dir = dir_ / "ckpt", .dtype = "float16"});
  EXPECT_THAT(std::string(message(report.status())),
              HasSubstr("element 3 is 131072, which is out of f16"));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "ckpt/rank0.safetensors"));
  const auto same = convert_checkpoint({.model_dir = dir_ / "hf", .output_dir = dir_ / "hf"});
  EXPECT_THAT(std::string(message(same.status())), HasSubstr("output_dir"));
  const auto whole_prompts =
      convert_checkpoint({.model_dir = source_dir() + "/tests/picture_models/paligemma",
                          .output_dir = dir_ / "paligemma"});
  EXPECT_THAT(std::string(message(whole_prompts.status())),
              HasSubstr("the tokens of its prompts attend to one another"));
}

// Deep features and the row behind a picture's tokens are left out.
TEST_F(EngineDirTest, TheTextPartOfAModelOfPicturesIsStored) {
  for (const char* name : {"qwen3_vl", "llava_next", "llava_onevision"}) {
    const auto from = std::filesystem::path(source_dir()) / "tests/picture_models" / name;
    const auto report = convert_checkpoint({.model_dir = from, .output_dir = dir_ / "text" / name});
    ASSERT_TRUE(report.ok()) << report.status();
    const auto model = models::read_model(dir_ / "text" / name);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(model->traits.deep_layers, 0);
    EXPECT_FALSE(model->traits.row_end);
    const auto whole = models::read_model(from);
    ASSERT_TRUE(whole.ok()) << whole.status();
    EXPECT_TRUE(whole->traits.deep_layers > 0 || whole->traits.row_end);
  }
}

}  // namespace
}  // namespace nereid::convert
