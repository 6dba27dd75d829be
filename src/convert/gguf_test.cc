// Models in GGUF files compute the same as the directories they were converted from.
#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <memory>

#include "base/file.h"
#include "base/test_gguf.h"
#include "base/testing/source_dir.h"
#include "convert/engine_cache.h"
#include "convert/engine_dir.h"
#include "convert/gguf_families.h"
#include "convert/gguf_fixture.h"
#include "convert/trtllm_checkpoint.h"
#include "convert/weight_source.h"
#include "io/engine_file.h"
#include "io/safetensors.h"
#include "kernels/ref/ref.h"
#include "models/family.h"

namespace nereid::convert {
namespace {

using namespace testing_only;
using testing::HasSubstr;

const std::filesystem::path kHfModels = source_dir() + "/tests/models";

class GgufModelTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/gguf.XXXXXX";
    dir_ = ::mkdtemp(name.data());
    kernels::ref::add_kernels(registry_);
    cache_.cache_dir = dir_ / "cache";
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::vector<GgufBlob> blobs(const std::string& name, GgufWriterOptions options,
                              json::object* numbers = nullptr) {
    const auto model = models::read_model(kHfModels / name);
    const auto checkpoint = models::open_checkpoint(*model, kHfModels / name);
    const GgufModelWriter writer(*model, *checkpoint, std::move(options));
    if (numbers) *numbers = joined(*numbers, writer.numbers());
    return writer.blobs();
  }
  // `name` may be a path.
  json::object metadata(const std::string& name, const std::string& architecture) {
    const auto model = models::read_model(kHfModels / name);
    const models::Traits& t = model->traits;
    const auto number = [](int32_t value) { return json::value(static_cast<uint64_t>(value)); };
    const std::string a = architecture + ".";
    json::object out = {{"general.architecture", architecture},
                        {a + "context_length", number(t.max_positions)},
                        {a + "embedding_length", number(t.hidden_size)},
                        {a + "block_count", number(t.num_layers)},
                        {a + "feed_forward_length", number(t.intermediate_size)},
                        {a + "attention.head_count", number(t.num_heads)},
                        {a + "attention.head_count_kv", number(t.num_kv_heads)},
                        {a + "attention.key_length", number(t.head_dim)},
                        {a + "attention.layer_norm_rms_epsilon", double{t.norm_eps}},
                        {a + "attention.layer_norm_epsilon", double{t.norm_eps}},
                        {"tokenizer.ggml.eos_token_id", 3u},
                        {"tokenizer.ggml.padding_token_id", 1u}};
    if (model->graph.model.bos_id >= 0)
      out["tokenizer.ggml.bos_token_id"] = number(model->graph.model.bos_id);
    if (!t.ropes.empty()) out[a + "rope.freq_base"] = t.ropes[0].theta;
    if (t.num_experts > 0) {
      out[a + "expert_count"] = number(t.num_experts);
      out[a + "expert_used_count"] = number(t.experts_per_token);
      out[a + "expert_feed_forward_length"] = number(t.expert_intermediate_size);
      if (architecture == "qwen2moe")
        out[a + "expert_shared_feed_forward_length"] = number(t.shared_intermediate_size);
    }
    return out;
  }
  // The model's directory, or a copy whose config.json is limited to what GGUF can represent.
  std::filesystem::path directory_of(const Family& family) {
    const std::filesystem::path source = kHfModels / family.model, copy = dir_ / "directory";
    if (family.config.empty()) return source;
    std::filesystem::remove_all(copy);
    std::filesystem::copy(source, copy);
    json::object config = read_json_file(source / "config.json")->as_object();
    json::value* const text = config.if_contains("text_config");
    json::object& fields = text ? text->as_object() : config;
    for (const auto& [key, value] : family.config) {
      fields[key] = value;
      if (value.is_null()) fields.erase(key);
    }
    EXPECT_TRUE(write_file_atomic(copy / "config.json", json::serialize(config)).ok());
    return copy;
  }
  std::filesystem::path write(const std::string& bytes) {
    EXPECT_TRUE(write_file_atomic(dir_ / "model.gguf", bytes).ok());
    return dir_ / "model.gguf";
  }
  // The values of all experts' matrices, which have `format` in the engine.
  std::vector<float> numbers_of_experts(const std::filesystem::path& path,
                                        const kernels::WeightFormat& format) {
    std::vector<float> numbers;
    const auto built = ensure_engine(path, registry_, DeviceInfo{}, cache_);
    EXPECT_TRUE(built.ok()) << built.status();
    if (!built.ok()) return numbers;
    const auto engine = io::EngineFile::open(*built);
    EXPECT_TRUE(engine.ok()) << engine.status();
    for (size_t i = 0; i < engine->plan().weights.size(); ++i) {
      const kernels::WeightView view = engine->weight(static_cast<io::WeightId>(i));
      if (view.experts == 1 || view.format.is_float()) continue;
      EXPECT_EQ(view.format, format) << engine->plan().weights[i].name;
      for (int64_t e = 0; e < view.experts; ++e)
        for (int64_t at = 0; at < view.n * view.k; ++at)
          numbers.push_back(
              kernels::weight_at(kernels::expert_of(view, e), at / view.k, at % view.k));
    }
    return numbers;
  }
  std::string weights_and_plan(const std::filesystem::path& path) {
    const auto built = ensure_engine(path, registry_, DeviceInfo{}, cache_);
    EXPECT_TRUE(built.ok()) << built.status();
    if (!built.ok()) return "";
    const auto file = io::EngineFile::open(*built, io::Verify::kFull);
    io::Plan plan = file->plan();
    plan.model.name = plan.model.source_dir = plan.model.architecture = "";
    plan.model.pictures = {}, plan.model.encoder_positions = 0;  // not in such files
    return json::serialize(io::plan_to_json(plan)) +
           std::string(reinterpret_cast<const char*>(file->blob().data()), file->blob().size());
  }
  std::string refusal(const std::string& bytes) {
    const auto built = ensure_engine(write(bytes), registry_, DeviceInfo{}, cache_);
    return built.ok() ? "accepted" : std::string(message(built.status()));
  }

  std::filesystem::path dir_;
  kernels::Registry registry_;
  BuildOptions cache_;
};

// Adapters match the same modules; their rows have the order of the directory's matrices.
TEST_F(GgufModelTest, FamiliesComputeTheSame) {
  cache_.compile.adapters = true;
  for (const Family& family : all_families()) {
    SCOPED_TRACE(family.model + " as " + family.architecture);
    json::object keys = metadata(family.model, family.architecture);
    for (const auto& [key, value] : family.keys)
      keys[family.architecture + "." + std::string(std::string_view(key))] = value;
    std::vector<GgufBlob> tensors = blobs(family.model, family.options, &keys);
    tensors.insert(tensors.end(), family.tensors.begin(), family.tensors.end());
    const auto path = write(gguf_file(keys, tensors));
    EXPECT_TRUE(weights_and_plan(path) == weights_and_plan(directory_of(family)));
  }
}

// MTP layers count in `block_count` and are skipped, whatever their tensors; window patterns may
// have an entry for each.
TEST_F(GgufModelTest, LayersThatPredictFurtherTokensAreLeftOut) {
  for (const Family& family : newer_families()) {
    if (family.model != "glm4_moe" && family.model != "exaone_moe") continue;
    SCOPED_TRACE(family.model);
    const std::string a = family.architecture + ".";
    json::object keys = metadata(family.model, family.architecture);
    for (const auto& [key, value] : family.keys)
      keys[a + std::string(std::string_view(key))] = value;
    std::vector<GgufBlob> tensors = blobs(family.model, family.options);
    for (const char* word : {"nextn.eh_proj.weight", "nextn.enorm.weight", "attn_norm.weight"})
      tensors.push_back(floats(fmt::format("blk.3.{}", word), {1, 2}));
    keys[a + "block_count"] = 4u;
    keys[a + "nextn_predict_layers"] = 1u;
    if (family.model == "exaone_moe")
      keys[a + "attention.sliding_window_pattern"] = {true, false, true, false};
    EXPECT_TRUE(weights_and_plan(write(gguf_file(keys, tensors))) ==
                weights_and_plan(kHfModels / family.model));
    keys[a + "nextn_predict_layers"] = 4u;
    EXPECT_THAT(refusal(gguf_file(keys, tensors)),
                HasSubstr("nextn_predict_layers': 4 is not a whole number below"));
  }
}

// Published GPT-OSS: mxfp4 experts; element order differs between the two file formats.
TEST_F(GgufModelTest, ExpertsInMxfp4AreTheSame) {
  constexpr int64_t kHidden = 64, kWidth = 32, kExperts = 4, kLayers = 2, kBlock = 32;
  uint32_t state = 1;
  const auto next = [&state] { return (state = state * 1664525u + 1013904223u) >> 16; };
  std::vector<std::unique_ptr<std::string>> kept;
  std::vector<io::StoredTensor> stored;
  std::vector<GgufBlob> in_file;
  const auto keep = [&](const std::string& name, DType type, std::vector<int64_t> shape,
                        std::string bytes) {
    kept.push_back(std::make_unique<std::string>(std::move(bytes)));
    io::StoredTensor& out = stored.emplace_back();
    out.name = name, out.type = type, out.shape = std::move(shape);
    out.dtype = type == DType::kU8 ? "U8" : "BF16";
    out.data = std::as_bytes(std::span(*kept.back()));
  };
  const auto source = io::TensorFile::open(kHfModels / "gpt_oss" / "model.safetensors");
  ASSERT_TRUE(source.ok()) << source.status();
  for (const io::StoredTensor& tensor : source->tensors()) {
    if (tensor.name.find("experts.gate_up_proj") != std::string::npos &&
        !tensor.name.ends_with("_bias"))
      continue;
    if (tensor.name.ends_with("experts.down_proj")) continue;
    std::vector<int64_t> shape = tensor.shape;
    int64_t count = 1;
    for (int64_t& size : shape) {
      size = size == 48 ? kHidden : size;
      if (tensor.name.ends_with("gate_up_proj_bias") && &size == &shape.back()) size = 2 * kWidth;
      count *= size;
    }
    std::string bytes;
    for (int64_t i = 0; i < count; ++i) {
      const BF16 number = to_bf16(static_cast<float>(next() % 2048) / 1024.0f - 1);
      bytes.append(reinterpret_cast<const char*>(&number), 2);
    }
    keep(tensor.name, DType::kBF16, shape, bytes);
  }
  // Blocks [experts, rows, groups, 16], a pair per byte; GGUF: the first half of a group in the low
  // nibbles, after the scale.
  const auto add_experts = [&](const std::string& prefix, const std::string& name, int64_t rows,
                               int64_t cols, const std::vector<std::string>& words, int layer) {
    std::string blocks, scales;
    std::vector<std::string> files(words.size());
    for (int64_t row = 0; row < kExperts * rows; ++row)
      for (int64_t group = 0; group < cols / kBlock; ++group) {
        std::array<uint8_t, kBlock> codes{};
        for (uint8_t& code : codes) code = static_cast<uint8_t>(next() % 16);
        const auto scale = static_cast<char>(118 + next() % 8);
        std::string& file = files[static_cast<size_t>(row) % words.size()];
        scales += scale, file += scale;
        for (size_t i = 0; i < kBlock / 2; ++i) {
          blocks += static_cast<char>(codes[2 * i] | codes[2 * i + 1] << 4);
          file += static_cast<char>(codes[i] | codes[i + kBlock / 2] << 4);
        }
      }
    keep(prefix + name + "_blocks", DType::kU8, {kExperts, rows, cols / kBlock, kBlock / 2},
         std::move(blocks));
    keep(prefix + name + "_scales", DType::kU8, {kExperts, rows, cols / kBlock}, std::move(scales));
    for (size_t i = 0; i < words.size(); ++i)
      in_file.push_back({fmt::format("blk.{}.{}.weight", layer, words[i]),
                         39,
                         {kExperts, rows / std::ssize(words), cols},
                         files[i]});
  };
  for (int layer = 0; layer < kLayers; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.mlp.experts.", layer);
    add_experts(prefix, "gate_up_proj", 2 * kWidth, kHidden, {"ffn_gate_exps", "ffn_up_exps"},
                layer);
    add_experts(prefix, "down_proj", kHidden, kWidth, {"ffn_down_exps"}, layer);
  }
  const std::filesystem::path folder = dir_ / "gpt-oss";
  std::filesystem::create_directory(folder);
  json::object config = read_json_file(kHfModels / "gpt_oss" / "config.json")->as_object();
  config["hidden_size"] = kHidden;
  config["intermediate_size"] = kWidth;
  config["quantization_config"] = {{"quant_method", "mxfp4"}};
  ASSERT_TRUE(write_file_atomic(folder / "config.json", json::serialize(config)).ok());
  ASSERT_TRUE(
      write_file_atomic(folder / "model.safetensors", io::serialize_safetensors(stored)).ok());

  const auto model = models::read_model(folder);
  ASSERT_TRUE(model.ok()) << model.status();
  io::Checkpoint checkpoint = *io::Checkpoint::open(folder);
  std::vector<io::Checkpoint::Joined> left_out;
  for (const io::Checkpoint::Entry& entry : checkpoint.entries())
    if (entry.tensor->type == DType::kU8) left_out.push_back({{entry.tensor->name}, std::nullopt});
  ASSERT_TRUE(checkpoint.join(std::move(left_out)).ok());
  std::vector<GgufBlob> tensors = GgufModelWriter(*model, checkpoint, kPostNorm).blobs();
  tensors.insert(tensors.end(), in_file.begin(), in_file.end());
  json::object keys = metadata(folder, "gpt-oss");
  for (const auto& [key, value] : joined({{"attention.sliding_window", 32u}}, yarn_keys(4, 64)))
    keys["gpt-oss." + std::string(std::string_view(key))] = value;
  const std::string expected = weights_and_plan(folder);
  EXPECT_NE(expected, "");
  EXPECT_TRUE(weights_and_plan(write(gguf_file(keys, tensors))) == expected);

  // Without a kernel for MXFP4: integers that hold the same numbers.
  const std::vector<float> stored_numbers = numbers_of_experts(folder, kernels::kMxfp4);
  EXPECT_EQ(stored_numbers.size(), size_t{kLayers * kExperts * 3 * kHidden * kWidth});
  std::get<kernels::Table<kernels::ExpertLinear>>(registry_.tables)[0].can =
      [](const kernels::ExpertLinear& op, const DeviceInfo&) {
        return op.weight.format != kernels::kMxfp4;
      };
  EXPECT_EQ(numbers_of_experts(folder, kernels::kMxfp4Integers), stored_numbers);
}

TEST_F(GgufModelTest, BecomesACheckpoint) {
  const auto path = write(gguf_file(metadata("llama", "llama"), blobs("llama", kPermuted)));
  ConvertOptions options;
  options.model_dir = path;
  options.output_dir = dir_ / "ckpt";
  options.ranks = {.tp = 2, .moe_tp = -1};
  const auto report = convert_checkpoint(options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(weights_and_plan(dir_ / "ckpt") == weights_and_plan(kHfModels / "llama"));
  EXPECT_EQ(*tokenizer_dir(path), path);
}

// Integer blocks that an engine supports are copied unchanged: 8 bits stay 8 bits; the same file
// built for bf16 has the same numbers.
TEST_F(GgufModelTest, BlocksOfIntegersStayIntegers) {
  std::vector<GgufBlob> tensors = blobs("llama", kPermuted);
  for (GgufBlob& tensor : tensors) {
    if (tensor.shape.size() != 2) continue;
    const int64_t count = tensor.shape[0] * tensor.shape[1];
    tensor.type = 8, tensor.bytes.clear();
    for (int64_t block = 0; block < count / 32; ++block) {
      tensor.bytes += gguf_number(0x1000 + static_cast<uint64_t>(block % 512), 2);  // f16
      for (int64_t i = 0; i < 32; ++i)
        tensor.bytes += static_cast<char>((block * 31 + i * 37) % 256 - 128);
    }
  }
  const std::filesystem::path path = write(gguf_file(metadata("llama", "llama"), tensors));
  kernels::WeightFormat int8 = kernels::kInt8PerRow;
  int8.group = 32;
  const auto stored = ensure_engine(path, registry_, DeviceInfo{}, cache_);
  ASSERT_TRUE(stored.ok()) << stored.status();
  BuildOptions as_bf16 = cache_;
  as_bf16.compile.weights = kernels::WeightFormat{};
  const auto plain = ensure_engine(path, registry_, DeviceInfo{}, as_bf16);
  ASSERT_TRUE(plain.ok()) << plain.status();
  const auto ours = io::EngineFile::open(*stored, io::Verify::kFull);
  const auto floats = io::EngineFile::open(*plain, io::Verify::kFull);
  int num_integers = 0;
  for (size_t i = 0; i < ours->plan().weights.size(); ++i) {
    const io::PlanWeight& weight = ours->plan().weights[i];
    if (weight.format == kernels::WeightFormat{}) continue;
    ++num_integers;
    EXPECT_EQ(weight.format, int8) << weight.name;
    const auto a = ours->weight(static_cast<io::WeightId>(i));
    const auto b = floats->weight(static_cast<io::WeightId>(i));
    for (int64_t row = 0; row < a.n; ++row)
      for (int64_t col = 0; col < a.k; ++col)
        ASSERT_EQ(kernels::weight_at(a, row, col), kernels::weight_at(b, row, col))
            << weight.name << " " << row << " " << col;
  }
  EXPECT_EQ(num_integers, 2 * 4 + 1) << "qkv, output, gate and up, down of two layers, the head";
}

// A metadata key that changes results and has no config.json field is refused by name.
TEST_F(GgufModelTest, KeysThatAreNotKnownAreRefused) {
  const std::vector<GgufBlob> tensors = blobs("llama", kPermuted);
  const auto refused = [&](const std::string& key, const json::value& value) {
    json::object keys = metadata("llama", "llama");
    keys["llama." + key] = value;
    return refusal(gguf_file(keys, tensors));
  };
  EXPECT_THAT(refused("attention.temperature_scale", 0.5), HasSubstr("temperature_scale': 5E-1"));
  EXPECT_THAT(refused("rope.scaling.type", "longrope"), HasSubstr("'rope_factors_long.weight'"));
  EXPECT_THAT(refused("attention.causal", false), HasSubstr("attention.causal': false is not"));
  EXPECT_THAT(refused("logit_scale", 2.0), HasSubstr("field 'logit_scale'"));
  EXPECT_THAT(refused("final_logit_softcapping", 30.0), HasSubstr("'final_logit_softcapping'"));
  EXPECT_THAT(refused("rope.dimension_count", 6u), HasSubstr("field 'partial_rotary_factor'"));
  EXPECT_THAT(refused("attention.head_count", {4u, 2u}), HasSubstr("'num_attention_heads'"));
  EXPECT_EQ(refused("attention.head_count", {4u, 4u}), "accepted");
  EXPECT_EQ(refused("expert_weights_scale", 1.0), "accepted");
}

// Metadata keys of the newer families: invalid values are refused by name.
TEST_F(GgufModelTest, KeysOfNewerFamiliesAreChecked) {
  const auto refused = [&](const std::string& model, const std::string& key,
                           const json::value& value) {
    for (const Family& family : newer_families()) {
      if (family.model != model) continue;
      json::object keys = metadata(model, family.architecture);
      for (const auto& [name, number] : family.keys)
        keys[family.architecture + "." + std::string(std::string_view(name))] = number;
      const std::vector<GgufBlob> tensors = blobs(model, family.options, &keys);
      keys[key] = value;
      if (value.is_null()) keys.erase(key);
      return refusal(gguf_file(keys, tensors));
    }
    return std::string("no such family");
  };
  EXPECT_THAT(refused("glm4_moe", "glm4moe.expert_gating_func", 1u),
              HasSubstr("field 'scoring_func': \"softmax\" is not supported, only \"sigmoid\" is"));
  EXPECT_THAT(refused("minimax_m2", "minimax-m2.expert_gating_func", 4u),
              HasSubstr("expert_gating_func 4"));
  EXPECT_THAT(refused("minimax_m2", "minimax-m2.expert_weights_scale", 2.0),
              HasSubstr("expert_weights_scale"));
  EXPECT_THAT(refused("apertus", "xielu.alpha_p", nullptr),
              HasSubstr("key 'xielu.alpha_p': is missing"));
  EXPECT_THAT(refused("apertus", "xielu.alpha_n", {0.5}),
              HasSubstr("key 'xielu.alpha_n': 1 numbers for 2 layers"));
  EXPECT_THAT(refused("apertus", "xielu.alpha_n", "much"),
              HasSubstr("key 'xielu.alpha_n': \"much\" is not a number"));
  EXPECT_THAT(refused("apertus", "xielu.beta", 0.4), HasSubstr("only 0.5 is"));
  EXPECT_EQ(refused("apertus", "xielu.beta", nullptr), "accepted");
  EXPECT_THAT(refused("llama4", "llama4.interleave_moe_layer_step", 2u), HasSubstr("blk.0"));
  EXPECT_THAT(refused("ernie4_5_moe", "ernie4_5-moe.leading_dense_block_count", 2u),
              HasSubstr("blk.1"));
}

// Split files of one model, named by any part or by their directory.
TEST_F(GgufModelTest, PartsAreOneModel) {
  const std::vector<GgufBlob> tensors = blobs("llama", kPermuted);
  const std::filesystem::path folder = dir_ / "parts";
  std::filesystem::create_directory(folder);
  const auto part = [&](int number) {
    return folder / fmt::format("m-{:05}-of-00003.gguf", number);
  };
  const auto write_part = [&](unsigned number, unsigned count, unsigned all) {
    json::object keys = number == 1 ? metadata("llama", "llama") : json::object();
    keys["split.no"] = number - 1;
    keys["split.count"] = count;
    keys["split.tensors.count"] = all;
    const size_t first = (number - 1) * 7, last = number == 3 ? tensors.size() : number * 7;
    const std::vector<GgufBlob> some(tensors.begin() + static_cast<ptrdiff_t>(first),
                                     tensors.begin() + static_cast<ptrdiff_t>(last));
    EXPECT_TRUE(write_file_atomic(part(static_cast<int>(number)), gguf_file(keys, some)).ok());
  };
  const auto error = [&](const std::filesystem::path& path) {
    const auto model = models::read_model(path);
    return model.ok() ? "" : std::string(message(model.status()));
  };
  const auto all = static_cast<unsigned>(tensors.size());
  for (const unsigned number : {1u, 2u, 3u}) write_part(number, 3, all);
  const std::string expected = weights_and_plan(kHfModels / "llama");
  for (const auto& path : {part(1), part(3), folder})
    EXPECT_TRUE(weights_and_plan(path) == expected) << path;
  write_part(2, 4, all);
  EXPECT_THAT(error(part(1)), HasSubstr("00002-of-00003.gguf: key 'split.count': 4 is not 3"));
  write_part(2, 3, all + 1);
  EXPECT_THAT(error(folder), HasSubstr("key 'split.tensors.count'"));
  write_part(2, 3, all);
  std::filesystem::copy(part(3), part(2), std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(error(folder), HasSubstr("00002-of-00003.gguf: key 'split.no': 2 is not 1"));
  std::filesystem::remove(part(2));
  EXPECT_THAT(error(folder), HasSubstr("00002-of-00003.gguf: is missing; m-00001"));
  write_part(2, 3, all);
  std::filesystem::rename(part(1), folder / "alone.gguf");
  EXPECT_THAT(error(folder / "alone.gguf"), HasSubstr("key 'split.count': 3 is not 1"));
  EXPECT_THAT(error(folder), HasSubstr("several GGUF models: alone.gguf, m-00001-of-00003.gguf"));
}

TEST_F(GgufModelTest, WhatCannotRunIsNamed) {
  const json::object good = metadata("llama", "llama");
  std::vector<GgufBlob> tensors = blobs("llama", kPermuted);
  json::object bad = good;
  bad["general.architecture"] = "rwkv";
  EXPECT_THAT(refusal(gguf_file(bad, tensors)), HasSubstr("'rwkv' is not one of llama, mistral3"));
  bad = good;
  bad["llama.rope.scaling.type"] = "other";
  EXPECT_THAT(refusal(gguf_file(bad, tensors)), HasSubstr("is not one of none, linear, yarn"));
  bad = good;
  bad["llama.block_count"] = 0u;
  EXPECT_THAT(refusal(gguf_file(bad, tensors)), HasSubstr("model.gguf: field 'num_hidden_layers'"));
  std::vector<GgufBlob> other = tensors;
  other[2].type = 12;
  EXPECT_THAT(refusal(gguf_file(good, other)),
              HasSubstr("Q4_K [64, 64] has rows that are no whole blocks of 256"));
  other[2].type = 16;
  EXPECT_THAT(refusal(gguf_file(good, other)),
              HasSubstr("has dtype IQ2_XXS, which cannot be read as a weight"));
  other = tensors;
  other[2].type = 77;
  EXPECT_THAT(refusal(gguf_file(good, other)), HasSubstr("type 77 is not known"));
  other = tensors;
  other[2].shape[0] *= 2;
  EXPECT_THAT(refusal(gguf_file(good, other)), HasSubstr("overlaps tensor"));
  other = tensors;
  other.pop_back();
  EXPECT_THAT(refusal(gguf_file(good, other)), HasSubstr("is missing"));
  other = tensors;
  other[2].shape[0] = int64_t{1} << 60;
  EXPECT_THAT(refusal(gguf_file(good, other)), HasSubstr("of the data, the file has"));
  const std::string file = gguf_file(good, tensors);
  EXPECT_THAT(refusal(file.substr(0, file.size() - 100)), HasSubstr("of the data, the file has"));
}

// Frequency divisors as in files of Llama 3.1.
TEST_F(GgufModelTest, RotaryDivisors) {
  // Apertus's scaling as written by the converter; llama3's formula gives the same numbers.
  json::object keys = metadata("apertus", "apertus");
  std::vector<GgufBlob> stretched = blobs("apertus", {}, &keys);
  const auto formula = models::read_model(kHfModels / "apertus");
  const auto unscaled = [](double i, double dim) { return std::pow(1e4, -2 * i / dim); };
  const auto& expected = formula->graph.model.ropes[0].inverse_frequencies;
  std::vector<float> factors;
  for (size_t i = 0; i < expected.size(); ++i)
    factors.push_back(static_cast<float>(
        unscaled(static_cast<double>(i), 2.0 * static_cast<double>(expected.size())) /
        static_cast<double>(expected[i])));
  EXPECT_GT(factors.back(), 4);
  stretched.push_back(floats("rope_freqs.weight", factors));
  const auto apertus = models::read_model(write(gguf_file(keys, stretched)));
  ASSERT_TRUE(apertus.ok()) << apertus.status();
  const auto& read = apertus->graph.model.ropes[0];
  EXPECT_EQ(read.attention_factor, 1);
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_FLOAT_EQ(read.inverse_frequencies[i], expected[i]);

  std::vector<GgufBlob> tensors = blobs("llama", kPermuted);
  const int32_t half = models::read_model(kHfModels / "llama")->traits.head_dim / 2;
  std::string divisors;
  for (int32_t i = 0; i < half; ++i) {
    const float value = i < half / 2 ? 1 : 8;
    divisors.append(reinterpret_cast<const char*>(&value), 4);
  }
  tensors.push_back({"rope_freqs.weight", 0, {half}, divisors});
  const auto model = models::read_model(write(gguf_file(metadata("llama", "llama"), tensors)));
  ASSERT_TRUE(model.ok()) << model.status();
  const auto plain = models::read_model(kHfModels / "llama");
  const io::RopeTable &scaled = model->graph.model.ropes[0], &usual = plain->graph.model.ropes[0];
  EXPECT_EQ(scaled.attention_factor, 1);
  for (size_t i = 0; i < scaled.inverse_frequencies.size(); ++i)
    EXPECT_FLOAT_EQ(scaled.inverse_frequencies[i],
                    usual.inverse_frequencies[i] / (i < static_cast<size_t>(half) / 2 ? 1 : 8));
}

}  // namespace
}  // namespace nereid::convert
