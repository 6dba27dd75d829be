// Every family's weights split among ranks and merged again.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <map>
#include <set>

#include "base/file.h"
#include "base/testing/source_dir.h"
#include "convert/engine_dir.h"
#include "convert/trtllm_checkpoint.h"
#include "io/engine_file.h"
#include "io/safetensors_writer.h"
#include "kernels/ref/ref.h"
#include "models/family.h"

namespace nereid::convert {
namespace {

using testing::HasSubstr;

const std::filesystem::path kTinyModels = source_dir() + "/tests/models";

std::vector<std::string> models_to_share() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kTinyModels))
    if (std::filesystem::exists(entry.path() / "model.safetensors"))
      names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

class RanksTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/ranks.XXXXXX";
    dir_ = ::mkdtemp(name.data());
    kernels::ref::add_kernels(registry_);
    cache_.cache_dir = dir_ / "cache";
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  Status convert(const std::filesystem::path& from, const std::string& to,
                 const models::Ranks& ranks = {}, const std::string& dtype = "auto") {
    ConvertOptions options;
    options.model_dir = from;
    options.output_dir = dir_ / to;
    options.dtype = dtype;
    options.ranks = ranks;
    return convert_checkpoint(options).status();
  }
  std::string refusal(const std::string& model, const models::Ranks& ranks) {
    return std::string(message(convert(kTinyModels / model, "refused", ranks)));
  }
  // The engine's plan and weights: everything that its results depend on.
  std::string engine(const std::filesystem::path& path) {
    const auto built = ensure_engine(path, registry_, DeviceInfo{}, cache_);
    EXPECT_TRUE(built.ok()) << built.status();
    const auto file = io::EngineFile::open(*built, io::Verify::kFull);
    io::Plan plan = file->plan();
    plan.model.name = plan.model.source_dir = "";
    plan.model.pictures = {}, plan.model.encoder_positions = 0;  // not in TensorRT-LLM's layout
    return json::serialize(io::plan_to_json(plan)) +
           std::string(reinterpret_cast<const char*>(file->blob().data()), file->blob().size());
  }
  std::string bytes(const std::string& path) { return read_file(dir_ / path).value_or(""); }
  json::value config(const std::string& name) {
    return read_json_file(dir_ / name / "config.json").value();
  }
  std::set<std::string> names_in(const std::string& path) {
    std::set<std::string> names;
    const auto file = io::TensorFile::open(dir_ / path);
    for (const auto& tensor : file->tensors()) names.insert(tensor.name);
    return names;
  }

  std::filesystem::path dir_;
  kernels::Registry registry_;
  BuildOptions cache_;
};

// Rank counts that a model's sizes allow: one partition for each model, all partitions for a few.
std::vector<models::Ranks> ways_to_share(const std::string& name, const models::Traits& t) {
  const auto fits = [&](int32_t tp) {
    return t.num_heads % tp == 0 && (t.num_kv_heads % tp == 0 || tp % t.num_kv_heads == 0) &&
           t.intermediate_size % tp == 0;
  };
  const int32_t tp = fits(2) ? 2 : fits(3) ? 3 : 1;
  std::vector<models::Ranks> ways = {{.tp = tp, .pp = 2, .parallel_embedding = true}};
  if (name == "llama" || name == "gpt2" || name == "mixtral" || name == "qwen3_moe") {
    ways.push_back({.tp = tp, .parallel_embedding = true, .embedding_dim = 1});
    if (fits(4)) ways.push_back({.tp = 4});  // more than KV heads
  }
  if (t.num_experts > 0) {
    ways.push_back({.tp = 2, .moe_tp = 1, .moe_ep = 2});
    ways.push_back({.tp = 4, .moe_tp = 2, .moe_ep = 2});
  }
  for (models::Ranks& ranks : ways)
    if (ranks.moe_tp * ranks.moe_ep != ranks.tp) ranks.moe_tp = ranks.moe_ep = -1;
  return ways;
}

TEST_F(RanksTest, EveryFamilyIsMergedToWhatItWas) {
  for (const std::string& name : models_to_share()) {
    const std::filesystem::path model = kTinyModels / name;
    const auto traits = models::read_model(model)->traits;
    const std::string wanted = engine(model);
    const Status one = convert(model, "one");
    ASSERT_TRUE(one.ok()) << name << ": " << one;
    EXPECT_TRUE(engine(dir_ / "one") == wanted) << name;
    for (const models::Ranks& ranks : ways_to_share(name, traits)) {
      const std::string what = fmt::format("{} tp {} pp {} moe_ep {} by {}", name, ranks.tp,
                                           ranks.pp, ranks.moe_ep, ranks.embedding_dim);
      const Status status = convert(model, "several", ranks);
      ASSERT_TRUE(status.ok()) << what << ": " << status;
      EXPECT_TRUE(engine(dir_ / "several") == wanted) << what;
      ASSERT_TRUE(convert(dir_ / "several", "merged").ok()) << what;
      EXPECT_TRUE(bytes("merged/rank0.safetensors") == bytes("one/rank0.safetensors")) << what;
      EXPECT_EQ(config("merged"), config("one")) << what;
    }
  }
}

// Rank 1 of 2 has the second half of heads, rows or columns; the writer's table is not used.
TEST_F(RanksTest, ARankHasItsShare) {
  ASSERT_TRUE(convert(kTinyModels / "llama", "two", {.tp = 2, .moe_tp = -1}).ok());
  const auto rank = io::TensorFile::open(dir_ / "two/rank1.safetensors");
  const auto whole = io::TensorFile::open(kTinyModels / "llama/model.safetensors");
  ASSERT_TRUE(rank.ok() && whole.ok()) << rank.status();
  const auto find = [](const io::TensorFile& file, std::string_view name) {
    return *std::ranges::find(file.tensors(), name, &io::StoredTensor::name);
  };
  const auto text = [](std::span<const std::byte> data) {
    return std::string(reinterpret_cast<const char*>(data.data()), data.size());
  };
  const auto second_half = [&](std::string_view name) {
    const auto data = find(*whole, fmt::format("model.layers.1.{}.weight", name)).data;
    return text(data.subspan(data.size() / 2));
  };
  const auto have = [&](std::string_view name) {
    return text(find(*rank, fmt::format("transformer.layers.1.{}.weight", name)).data);
  };
  EXPECT_EQ(have("attention.qkv"), second_half("self_attn.q_proj") +
                                       second_half("self_attn.k_proj") +
                                       second_half("self_attn.v_proj"));
  EXPECT_EQ(have("mlp.fc"), second_half("mlp.gate_proj"));
  EXPECT_EQ(have("mlp.gate"), second_half("mlp.up_proj"));
  const auto down = find(*whole, "model.layers.1.mlp.down_proj.weight");
  std::string columns;
  const size_t row = static_cast<size_t>(down.shape[1]) * 2;
  for (size_t i = 0; i < static_cast<size_t>(down.shape[0]); ++i)
    columns += text(down.data.subspan(i * row + row / 2, row / 2));
  EXPECT_EQ(have("mlp.proj"), columns);
  EXPECT_EQ(config("two").at("mapping").at("world_size"), 2);
  EXPECT_EQ(config("two").at("mapping").at("moe_tp_size"), 2);
}

// MLA by heads, each head's rows in Hugging Face's order.
TEST_F(RanksTest, ARankHasItsShareOfLatentAttention) {
  ASSERT_TRUE(convert(kTinyModels / "deepseek_v3", "two", {.tp = 2, .moe_tp = -1}).ok());
  const auto rank = io::TensorFile::open(dir_ / "two/rank1.safetensors");
  const auto whole = io::TensorFile::open(kTinyModels / "deepseek_v3/model.safetensors");
  ASSERT_TRUE(rank.ok() && whole.ok()) << rank.status();
  const auto find = [](const io::TensorFile& file, std::string_view name) {
    const auto tensor = std::ranges::find(file.tensors(), name, &io::StoredTensor::name)->data;
    return std::string(reinterpret_cast<const char*>(tensor.data()), tensor.size());
  };
  const auto have = [&](std::string_view name) {
    return find(*rank, fmt::format("transformer.layers.1.attention.{}", name));
  };
  const auto wanted = [&](std::string_view name) {
    return find(*whole, fmt::format("model.layers.1.self_attn.{}.weight", name));
  };
  const std::string queries = wanted("q_b_proj"), both = wanted("kv_b_proj");
  EXPECT_TRUE(have("q_b_proj") == queries.substr(queries.size() / 2));
  // Each head has 16 key rows and 16 value rows of 16 numbers; here the keys of all heads first.
  constexpr size_t kRow = 16 * 2, kHead = 32 * kRow;
  std::string keys, values, transposed;
  for (const size_t head : {2, 3}) {
    keys += both.substr(head * kHead, kHead / 2);
    values += both.substr(head * kHead + kHead / 2, kHead / 2);
    for (size_t col = 0; col < 16; ++col)
      for (size_t row = 0; row < 16; ++row)
        transposed += both.substr(head * kHead + row * kRow + col * 2, 2);
  }
  EXPECT_TRUE(have("kv_b_proj") == keys + values);
  EXPECT_TRUE(have("k_b_proj_trans") == transposed);
  EXPECT_TRUE(have("fused_a.weight") == wanted("q_a_proj") + wanted("kv_a_proj_with_mqa"));
}

// As written by converters of TensorRT-LLM: without Hugging Face's fields; older versions have a
// product of two matrices instead of the transposed keys.
TEST_F(RanksTest, DeepSeekOfTensorRtLlmIsRead) {
  for (const char* name : {"deepseek_v2", "deepseek_v3", "deepseek_v3-yarn"}) {
    ASSERT_TRUE(convert(kTinyModels / name, "two", {.tp = 2, .moe_tp = -1}).ok());
    json::object fields = config("two").as_object();
    EXPECT_EQ(fields.at("num_key_value_heads"), 1) << name;
    EXPECT_EQ(fields.at("head_size"), 16 + 8) << name;
    EXPECT_EQ(fields.at("moe").at("normalization_mode"), 3) << name;
    const json::value scoring = fields.at("scoring_func");  // a copy: fields grows
    fields["coring_func"] = scoring;                        // sic
    fields["hidden_act"] = "swiglu";
    fields["fp8_format"] = false;
    for (const char* key :
         {"scoring_func", "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size",
          "n_shared_experts", "routed_scaling_factor", "n_group", "topk_group", "norm_topk_prob"})
      EXPECT_EQ(fields.erase(key), 1u) << name << ": " << key;
    ASSERT_TRUE(write_file_atomic(dir_ / "two/config.json", json::serialize(fields)).ok());
    for (const char* file : {"two/rank0.safetensors", "two/rank1.safetensors"}) {
      const auto rank = io::TensorFile::open(dir_ / file);
      std::vector<io::StoredTensor> tensors = rank->tensors();
      for (io::StoredTensor& tensor : tensors)
        if (const size_t at = tensor.name.find("k_b_proj_trans"); at != std::string::npos)
          tensor.name.replace(at, std::string::npos, "fused_q_proj");
      ASSERT_TRUE(write_file_atomic(dir_ / file, io::serialize_safetensors(tensors)).ok());
    }
    EXPECT_TRUE(engine(dir_ / "two") == engine(kTinyModels / name)) << name;
    fields["moe"].as_object()["num_experts"] = 4;
    ASSERT_TRUE(write_file_atomic(dir_ / "two/config.json", json::serialize(fields)).ok());
    const auto built = ensure_engine(dir_ / "two", registry_, DeviceInfo{}, cache_);
    EXPECT_FALSE(built.ok()) << "not the family's usual number";
  }
}

// Same, without fields of the models' own files, and GPT-2 under another name.
TEST_F(RanksTest, GptAndMptOfTensorRtLlmAreRead) {
  for (const char* name : {"gpt2", "mpt-clip"}) {
    ASSERT_TRUE(convert(kTinyModels / name, "ours").ok());
    json::object fields = config("ours").as_object();
    for (const char* key : {"attn_config", "expansion_ratio", "no_bias", "d_model", "n_heads",
                            "n_ctx", "layer_norm_epsilon", "activation_function"})
      fields.erase(key);
    if (fields.at("architecture") == "GPT2LMHeadModel") fields["architecture"] = "GPTForCausalLM";
    ASSERT_TRUE(write_file_atomic(dir_ / "ours/config.json", json::serialize(fields)).ok());
    EXPECT_TRUE(models::read_model(dir_ / "ours")->traits ==
                models::read_model(kTinyModels / name)->traits)
        << name << ": " << json::serialize(fields);
  }
  json::object fields = config("ours").as_object();
  EXPECT_EQ(fields.at("clip_qkv"), 1.5);
  EXPECT_EQ(fields.at("alibi_bias_max"), 16.0);
  fields["architecture"] = "GPTForCausalLM";
  fields["gpt_variant"] = "jais";
  ASSERT_TRUE(write_file_atomic(dir_ / "ours/config.json", json::serialize(fields)).ok());
  EXPECT_THAT(std::string(message(models::read_model(dir_ / "ours").status())),
              HasSubstr("'gpt_variant': 'jais' is not one of gpt2"));
}

// TensorRT-LLM's Falcon: other field and norm names, key head count not given.
TEST_F(RanksTest, FalconOfTensorRtLlmIsRead) {
  for (const char* name : {"falcon", "falcon-groups", "falcon-in-turn", "falcon-alibi"}) {
    ASSERT_TRUE(convert(kTinyModels / name, "ours").ok());
    json::object fields = config("ours").as_object();
    for (const char* key : {"parallel_attn", "multi_query", "num_kv_heads", "alibi",
                            "layer_norm_epsilon", "ffn_hidden_size", "activation"})
      fields.erase(key);
    fields["architecture"] = "RWForCausalLM";
    ASSERT_TRUE(write_file_atomic(dir_ / "ours/config.json", json::serialize(fields)).ok());
    EXPECT_TRUE(engine(dir_ / "ours") == engine(kTinyModels / name)) << json::serialize(fields);
    const auto names = names_in("ours/rank0.safetensors");
    EXPECT_EQ(names.contains("transformer.layers.0.mlp_layernorm.weight"),
              name == std::string_view("falcon-groups"));
    EXPECT_EQ(
        names.contains("transformer.layers.0.post_layernorm.weight"),
        std::string_view(name).ends_with("in-turn") || name == std::string_view("falcon-alibi"));
  }
  ASSERT_TRUE(convert(kTinyModels / "gpt_neox", "neox").ok());
  EXPECT_TRUE(names_in("neox/rank0.safetensors")
                  .contains("transformer.layers.0.post_attention_layernorm.weight"));
}

// Falcon as first published.
TEST_F(RanksTest, RefinedWebIsFalconByOlderNames) {
  for (const char* name : {"falcon", "falcon-groups", "falcon-in-turn", "falcon-alibi"}) {
    json::object fields = read_json_file(kTinyModels / name / "config.json")->as_object();
    const bool is_newer = fields.at("new_decoder_architecture").as_bool();
    fields["architectures"] = json::array{"RWForCausalLM"};
    fields["model_type"] = is_newer ? "RefinedWeb" : "RefinedWebModel";
    for (const auto& [now, old] :
         {std::pair("num_hidden_layers", "n_layer"), std::pair("num_attention_heads", "n_head"),
          std::pair("num_kv_heads", "n_head_kv")}) {
      const json::value value = fields.at(now);
      fields.erase(now);
      if (!value.is_null()) fields[old] = value;
    }
    fields.erase("new_decoder_architecture");
    if (is_newer) fields.erase("multi_query");
    std::filesystem::remove_all(dir_ / "rw");
    std::filesystem::create_directory(dir_ / "rw");
    std::filesystem::copy(kTinyModels / name / "model.safetensors", dir_ / "rw");
    ASSERT_TRUE(write_file_atomic(dir_ / "rw/config.json", json::serialize(fields)).ok());
    EXPECT_TRUE(engine(dir_ / "rw") == engine(kTinyModels / name)) << json::serialize(fields);
    ASSERT_TRUE(convert(dir_ / "rw", "converted").ok());
    EXPECT_EQ(config("converted").at("architecture"), "FalconForCausalLM");
    EXPECT_TRUE(engine(dir_ / "converted") == engine(kTinyModels / name));
  }
}

// The source's type, float32 becoming float16; from the tensors if config.json has none.
TEST_F(RanksTest, TheTypeFollowsTheSource) {
  const auto source = io::TensorFile::open(kTinyModels / "llama/model.safetensors");
  std::vector<io::StoredTensor> tensors = source->tensors();
  std::deque<std::string> numbers;
  const auto chosen = [&](const json::value& said, bool in_f32) {
    std::filesystem::create_directories(dir_ / "typed");
    json::object fields = read_json_file(kTinyModels / "llama/config.json")->as_object();
    fields["torch_dtype"] = said;
    EXPECT_TRUE(write_file_atomic(dir_ / "typed/config.json", json::serialize(fields)).ok());
    std::vector<io::StoredTensor> written = tensors;
    for (io::StoredTensor& tensor : written) {
      if (!in_f32) continue;
      std::string& out = numbers.emplace_back();
      for (size_t at = 0; at < tensor.data.size(); at += 2)
        out += std::string(2, '\0') +
               std::string(reinterpret_cast<const char*>(tensor.data.data()) + at, 2);
      tensor.data = std::as_bytes(std::span(out));
      tensor.dtype = "F32", tensor.type = DType::kF32;
    }
    EXPECT_TRUE(
        write_file_atomic(dir_ / "typed/model.safetensors", io::serialize_safetensors(written))
            .ok());
    const Status status = convert(dir_ / "typed", "out");
    EXPECT_TRUE(status.ok()) << status;
    return std::string(config("out").at("dtype").as_string());
  };
  EXPECT_EQ(chosen("bfloat16", false), "bfloat16");
  EXPECT_EQ(chosen("float16", false), "float16");
  EXPECT_EQ(chosen("float32", true), "float16");
  EXPECT_EQ(chosen("bfloat16", true), "bfloat16");
  EXPECT_EQ(chosen(nullptr, true), "float16");
  EXPECT_EQ(chosen(nullptr, false), "bfloat16");
}

TEST_F(RanksTest, FilesHaveTheNamesOfTheLayout) {
  ASSERT_TRUE(convert(kTinyModels / "gpt2", "gpt2", {.tp = 3, .pp = 2, .moe_tp = -1}).ok());
  const auto first = names_in("gpt2/rank2.safetensors"), last = names_in("gpt2/rank5.safetensors");
  EXPECT_TRUE(first.contains("transformer.position_embedding.weight"));
  EXPECT_TRUE(first.contains("transformer.layers.0.attention.qkv.bias"));
  EXPECT_FALSE(first.contains("transformer.ln_f.weight"));
  EXPECT_TRUE(last.contains("transformer.layers.0.mlp.fc.weight")) << "counted from its stage";
  EXPECT_TRUE(last.contains("lm_head.weight")) << "no embedding in this stage";
  const auto head = io::TensorFile::open(dir_ / "gpt2/rank5.safetensors");
  for (const auto& tensor : head->tensors())
    if (tensor.name == "lm_head.weight") {
      EXPECT_EQ(tensor.shape_text(), "[171, 48]") << "512 and a row of zeros in three parts";
      const auto end = tensor.data.last(48 * 2);
      EXPECT_TRUE(std::ranges::all_of(end, [](std::byte b) { return b == std::byte{0}; }));
    }
  ASSERT_TRUE(convert(kTinyModels / "mixtral", "moe", {.tp = 2, .moe_tp = 1, .moe_ep = 2}).ok());
  const auto experts = io::TensorFile::open(dir_ / "moe/rank1.safetensors");
  for (const auto& tensor : experts->tensors()) {
    if (tensor.name.ends_with("mlp.fc.weight")) {
      EXPECT_EQ(tensor.shape_text(), "[2, 32, 48]");
    }
    if (tensor.name.ends_with("mlp.router.weight")) {
      EXPECT_EQ(tensor.dtype, "F32");
    }
  }
  EXPECT_TRUE(names_in("moe/rank0.safetensors").contains("transformer.layers.1.mlp.proj.weight"));
  ASSERT_TRUE(convert(kTinyModels / "gemma3", "gemma").ok());
  for (const char* name : {"post_layernorm", "pre_feedforward_layernorm",
                           "post_feedforward_layernorm", "attention.q_layernorm"})
    EXPECT_TRUE(names_in("gemma/rank0.safetensors")
                    .contains(fmt::format("transformer.layers.2.{}.weight", name)));
}

TEST_F(RanksTest, WiderTypesChangeNothing) {
  for (const char* model : {"gpt2", "qwen3_moe"}) {
    ASSERT_TRUE(convert(kTinyModels / model, "wide", {}, "float32").ok());
    EXPECT_TRUE(engine(dir_ / "wide") == engine(kTinyModels / model)) << model;
  }
  ASSERT_TRUE(convert(kTinyModels / "gpt2", "half", {}, "float16").ok());
  EXPECT_EQ(config("half").at("dtype"), "float16");
}

TEST_F(RanksTest, SizesThatCannotBeSharedAreNamed) {
  EXPECT_THAT(refusal("llama", {.tp = 3, .moe_tp = -1}), HasSubstr("tp_size: 3 does not divide"));
  EXPECT_THAT(refusal("llama", {.tp = 0}), HasSubstr("tp_size: 0 is not allowed"));
  EXPECT_THAT(refusal("llama", {.pp = 99}), HasSubstr("pp_size: 99 is more than the 2 layers"));
  EXPECT_THAT(refusal("llama", {.tp = 2, .moe_ep = 3}), HasSubstr("moe_ep_size: 3 does not"));
  EXPECT_THAT(refusal("mixtral", {.tp = 4, .moe_tp = 1, .moe_ep = 2}),
              HasSubstr("moe_tp_size: 1 times moe_ep_size 2 is not tp_size 4"));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "refused"));
  EXPECT_TRUE(std::filesystem::is_empty(dir_)) << "nothing is left behind";
}

TEST_F(RanksTest, DamagedRanksAreNamed) {
  ASSERT_TRUE(convert(kTinyModels / "llama", "two", {.tp = 2, .moe_tp = -1}).ok());
  const auto error = [&] {
    const auto built = ensure_engine(dir_ / "two", registry_, DeviceInfo{}, cache_);
    return std::string(message(built.status()));
  };
  const std::string good = bytes("two/rank1.safetensors");
  ASSERT_TRUE(
      write_file_atomic(dir_ / "two/rank1.safetensors", bytes("two/rank0.safetensors")).ok());
  EXPECT_THAT(error(), HasSubstr("rank1.safetensors: has the tensors of rank 0"));
  // Two swapped tensors; the first in order is named.
  const std::string first = bytes("two/rank0.safetensors");
  ASSERT_TRUE(write_file_atomic(dir_ / "two/rank0.safetensors", good).ok());
  EXPECT_THAT(error(), HasSubstr("rank0.safetensors: has the tensors of rank 1"));
  // Other programs' files have no rank.
  const auto tensors = io::TensorFile::open(dir_ / "two/rank0.safetensors");
  ASSERT_TRUE(tensors.ok());
  const std::string unnamed = io::serialize_safetensors(tensors->tensors());
  for (const char* name : {"two/rank0.safetensors", "two/rank1.safetensors"})
    ASSERT_TRUE(write_file_atomic(dir_ / name, unnamed).ok());
  EXPECT_THAT(error(), HasSubstr("rank1.safetensors: has the same tensors as "));
  ASSERT_TRUE(write_file_atomic(dir_ / "two/rank0.safetensors", first).ok());
  ASSERT_TRUE(write_file_atomic(dir_ / "two/rank1.safetensors", good.substr(0, 999)).ok());
  EXPECT_THAT(error(), HasSubstr("rank1.safetensors: header of"));
  std::filesystem::remove(dir_ / "two/rank1.safetensors");
  EXPECT_THAT(error(), HasSubstr("two/rank1.safetensors: is missing; config.json says that this "
                                 "is a TensorRT-LLM checkpoint of 2 ranks"));
  ASSERT_TRUE(convert(kTinyModels / "llama", "one").ok());
  std::filesystem::copy(dir_ / "one/rank0.safetensors", dir_ / "two/rank1.safetensors");
  EXPECT_THAT(error(), HasSubstr("rank1.safetensors: tensor 'transformer.layers.0."));
}

TEST_F(RanksTest, ADirectoryIsReplacedWholeOrNotAtAll) {
  ASSERT_TRUE(convert(kTinyModels / "llama", "out", {.tp = 2, .moe_tp = -1}).ok());
  const std::string first = bytes("out/rank1.safetensors");
  ASSERT_TRUE(convert(kTinyModels / "llama", "out", {.tp = 2, .moe_tp = -1}).ok());
  EXPECT_TRUE(bytes("out/rank1.safetensors") == first) << "the same again";
  ASSERT_TRUE(convert(kTinyModels / "llama", "out").ok());
  EXPECT_FALSE(std::filesystem::exists(dir_ / "out/rank1.safetensors"));
  ASSERT_TRUE(write_file_atomic(dir_ / "out/notes.txt", "mine").ok());
  EXPECT_THAT(std::string(message(convert(kTinyModels / "llama", "out"))),
              HasSubstr("has 'notes.txt', which would be lost"));
  EXPECT_EQ(bytes("out/notes.txt"), "mine");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_), {}), 1);
}

int64_t peak_kib() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6));
  return 0;
}

// 128 MiB of zeros, most of them in one tensor.
TEST_F(RanksTest, OnlyAPieceOfTheModelIsInMemory) {
  const std::filesystem::path model = dir_ / "large";
  std::filesystem::create_directory(model);
  json::object fields = read_json_file(kTinyModels / "gpt2/config.json")->as_object();
  fields["vocab_size"] = 699050;
  fields["n_layer"] = 1;
  ASSERT_TRUE(write_file_atomic(model / "config.json", json::serialize(fields)).ok());
  std::vector<io::TensorInfo> infos;
  const auto read = models::read_model(model);
  for (const graph::Weight& w : read->graph.weights) {
    io::TensorInfo info{w.parts[0].tensor, DType::kBF16, {w.is_vector ? w.k : w.n}};
    if (!w.is_vector) info.shape.push_back(w.k);
    if (w.parts[0].transposed) std::swap(info.shape[0], info.shape[1]);
    if (w.name != "head") infos.push_back(info);
  }
  auto writer = io::SafetensorsWriter::create(model / "model.safetensors", infos);
  ASSERT_TRUE(writer.ok());
  const std::vector<std::byte> zeros(size_t{1} << 20);
  for (const io::TensorInfo& info : infos)
    for (uint64_t rest = info.bytes(); rest > 0; rest -= std::min<uint64_t>(rest, zeros.size()))
      ASSERT_TRUE(
          writer->append(std::span(zeros).first(std::min<uint64_t>(rest, zeros.size()))).ok());
  ASSERT_TRUE(writer->finish().ok());
  std::ofstream("/proc/self/clear_refs") << "5";  // resets the peak
  const int64_t before = peak_kib();
  ASSERT_TRUE(convert(model, "two", {.tp = 3, .moe_tp = -1}).ok());
  EXPECT_LT(peak_kib() - before, 40 << 10);
}

}  // namespace
}  // namespace nereid::convert
