// Encoder-decoder models in the two folders of the TensorRT-LLM layout.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "base/file.h"
#include "base/testing/source_dir.h"
#include "convert/engine_dir.h"
#include "convert/inspect.h"
#include "convert/trtllm_checkpoint.h"
#include "io/engine_file.h"
#include "io/safetensors.h"
#include "io/test_torch_file.h"
#include "kernels/ref/ref.h"
#include "models/family.h"

namespace nereid::convert {
namespace {

using models::Half;
using testing::HasSubstr;

const std::filesystem::path kEncoderModels = source_dir() + "/tests/encoder_models";
const char* const kEncoderNames[] = {"t5-relu", "t5-gated", "bart",   "mbart",
                                     "marian",  "pegasus",  "m2m100", "whisper"};

class HalvesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/halves.XXXXXX";
    dir_ = ::mkdtemp(name.data());
    kernels::ref::add_kernels(registry_);
    cache_.cache_dir = dir_ / "cache";
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  Status convert(const std::string& model, const models::Ranks& ranks = {},
                 const std::string& weights = "", bool implicit = false) {
    ConvertOptions options{.model_dir = kEncoderModels / model, .output_dir = dir_ / "ckpt"};
    options.ranks = ranks;
    options.weights = weights;
    options.implicit_positions = implicit;
    return convert_checkpoint(options).status();
  }
  Status build(const char* half) {
    EngineDirOptions options;
    options.checkpoint_dir = dir_ / "ckpt" / half;
    options.output_dir = dir_ / "engine" / half;
    options.build_config = {{"max_seq_len", 64}, {"max_encoder_input_len", 40}};
    return build_engine_dir(options, registry_, DeviceInfo{});
  }
  io::EngineFile open(const std::filesystem::path& path, Half half) {
    cache_.compile.half = half;
    const auto built = ensure_engine(path, registry_, DeviceInfo{}, cache_);
    EXPECT_TRUE(built.ok()) << built.status();
    auto file = io::EngineFile::open(*built, io::Verify::kFull);
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }
  std::string blob(const std::filesystem::path& path, Half half) {
    const io::EngineFile file = open(path, half);
    return {reinterpret_cast<const char*>(file.blob().data()), file.blob().size()};
  }
  // The engine's plan and weights: everything that its results depend on.
  std::string engine(const std::filesystem::path& path, Half half) {
    io::Plan plan = open(path, half).plan();
    plan.model.name = plan.model.source_dir = "";
    return json::serialize(io::plan_to_json(plan)) + blob(path, half);
  }
  void expect_same(const std::filesystem::path& a, const std::filesystem::path& b,
                   const std::string& what) {
    EXPECT_TRUE(engine(a, Half::kDecoder) == engine(b, Half::kDecoder)) << what;
    EXPECT_TRUE(engine(a, Half::kEncoder) == engine(b, Half::kEncoder)) << what;
  }
  json::object config(const char* half) {
    return read_json_file(dir_ / "ckpt" / half / "config.json").value().as_object();
  }
  void write_config(const char* half, const json::object& config) {
    ASSERT_TRUE(
        write_file_atomic(dir_ / "ckpt" / half / "config.json", json::serialize(config)).ok());
  }
  // Shapes of a rank's tensors, by name.
  std::map<std::string, std::string> shapes(const std::string& file) {
    std::map<std::string, std::string> out;
    const auto opened = io::TensorFile::open(dir_ / "ckpt" / file);
    EXPECT_TRUE(opened.ok()) << opened.status();
    for (const auto& tensor : opened->tensors()) out[tensor.name] = tensor.shape_text();
    return out;
  }
  std::string error() {
    cache_.compile.half = Half::kDecoder;
    return std::string(
        message(ensure_engine(dir_ / "ckpt", registry_, DeviceInfo{}, cache_).status()));
  }

  std::filesystem::path dir_;
  kernels::Registry registry_;
  BuildOptions cache_;
};

TEST_F(HalvesTest, BothFoldersMakeTheSameEnginesWhateverTheRanks) {
  for (const std::string name : kEncoderNames) {
    const std::filesystem::path model = kEncoderModels / name;
    const int32_t tp = name == "bart" || name == "whisper" ? 2 : name == "t5-gated" ? 3 : 1;
    for (const models::Ranks& ranks :
         {models::Ranks{}, models::Ranks{.tp = tp, .pp = 2, .moe_tp = -1}}) {
      const Status converted = convert(name, ranks);
      ASSERT_TRUE(converted.ok()) << name << ": " << converted;
      expect_same(dir_ / "ckpt", model, fmt::format("{} of {}", name, ranks.num_files()));
      EXPECT_TRUE(verify_model(dir_ / "ckpt/encoder").ok());
      EXPECT_TRUE(verify_model(dir_ / "ckpt/decoder").ok());
    }
  }
}

TEST_F(HalvesTest, EnginesOfBothFoldersAreServed) {
  for (const std::string name : {"t5-gated", "whisper", "bart"}) {
    for (const int32_t tp : {1, 2}) {
      if (tp == 2 && name == "t5-gated") continue;  // three heads
      ASSERT_TRUE(convert(name, {.tp = tp, .moe_tp = -1}).ok());
      for (const char* half : {"encoder", "decoder"}) {
        const Status built = build(half);
        ASSERT_TRUE(built.ok()) << built;
      }
      EXPECT_EQ(std::filesystem::exists(dir_ / "engine/encoder/rank1.engine"), tp == 2);
      const auto limits = read_engine_limits(dir_ / "engine");
      ASSERT_TRUE(limits.ok() && limits->has_value()) << limits.status();
      EXPECT_EQ((*limits)->max_encoder_input_len, 40);
      EXPECT_EQ(built_mapping(dir_ / "engine")->tp, tp);
      EXPECT_TRUE(verify_model(dir_ / "engine").ok()) << verify_model(dir_ / "engine");
      EXPECT_TRUE(verify_model(dir_ / "engine/encoder").ok());
      const std::string decoder = engine(dir_ / "engine", Half::kDecoder);
      const std::string encoder = engine(dir_ / "engine/encoder", Half::kEncoder);
      EXPECT_TRUE(encoder == engine(kEncoderModels / name, Half::kEncoder)) << name << tp;
      cache_.compile.max_positions = 64;
      EXPECT_TRUE(decoder == engine(kEncoderModels / name, Half::kDecoder)) << name << tp;
      cache_.compile.max_positions = 0;
      std::filesystem::remove_all(dir_ / "engine");
    }
  }
}

// Names and shapes as TensorRT-LLM's converters write them.
TEST_F(HalvesTest, NamesAreThoseOfTensorRtLlm) {
  ASSERT_TRUE(convert("t5-gated").ok());
  auto encoder = shapes("encoder/rank0.safetensors"), decoder = shapes("decoder/rank0.safetensors");
  const json::object e = config("encoder"), d = config("decoder");
  EXPECT_EQ(e.at("architecture"), "EncoderModel");
  EXPECT_EQ(d.at("architecture"), "DecoderModel");
  EXPECT_EQ(d.at("model_type"), "t5");
  EXPECT_EQ(d.at("mlp_type"), 1);
  EXPECT_EQ(d.at("layernorm_type"), 1);
  EXPECT_EQ(d.at("relative_attention"), true);
  const std::string table = fmt::format("[{}, {}]", d.at("num_attention_heads").as_int64(),
                                        d.at("num_buckets").as_int64());
  EXPECT_EQ(decoder["rel_attn_table"], table);
  EXPECT_EQ(encoder.count("rel_attn_table"), 0u);
  EXPECT_EQ(decoder["transformer.layers.1.self_attention.rel_attn_table"], table);
  EXPECT_EQ(encoder["transformer.layers.0.attention.rel_attn_table"], table);
  for (const char* tensor :
       {"attention.qkv.weight", "attention.dense.weight", "attention_layernorm.weight",
        "mlp.fc.weight", "mlp.gate.weight", "mlp.proj.weight", "mlp_layernorm.weight"})
    EXPECT_EQ(encoder.count(fmt::format("transformer.layers.0.{}", tensor)), 1u) << tensor;
  for (const char* tensor : {"self_attention.qkv.weight", "self_attention_layernorm.weight",
                             "cross_attention.qkv.weight", "cross_attention.dense.weight",
                             "cross_attention_layernorm.weight"})
    EXPECT_EQ(decoder.count(fmt::format("transformer.layers.0.{}", tensor)), 1u) << tensor;
  EXPECT_EQ(encoder.count("transformer.vocab_embedding.weight"), 1u);
  EXPECT_EQ(encoder.count("transformer.ln_f.weight"), 1u);

  ASSERT_TRUE(convert("t5-gated", {}, "", true).ok());
  EXPECT_EQ(shapes("decoder/rank0.safetensors").count("rel_attn_table"), 0u);
  EXPECT_EQ(config("decoder").at("use_implicit_relative_attention"), true);
  expect_same(dir_ / "ckpt", kEncoderModels / "t5-gated", "implicit");

  ASSERT_TRUE(convert("whisper").ok());
  encoder = shapes("encoder/rank0.safetensors"), decoder = shapes("decoder/rank0.safetensors");
  EXPECT_EQ(config("encoder").at("architecture"), "WhisperEncoder");
  const auto hidden = config("encoder").at("hidden_size").as_int64();
  const auto bins = config("encoder").at("n_mels").as_int64();
  EXPECT_EQ(encoder["transformer.conv1.weight"], fmt::format("[{}, {}, 3, 1]", hidden, bins));
  EXPECT_EQ(encoder["transformer.conv2.weight"], fmt::format("[{}, {}, 3, 1]", hidden, hidden));
  // Keys without a bias: zeros.
  EXPECT_EQ(decoder["transformer.layers.0.cross_attention.qkv.bias"],
            fmt::format("[{}]", 3 * hidden));
}

// Without fields that TensorRT-LLM's converters do not write.
TEST_F(HalvesTest, CheckpointsOfTensorRtLlmAreRead) {
  for (const std::string name : {"t5-relu", "bart", "mbart", "whisper"}) {
    ASSERT_TRUE(convert(name).ok());
    json::object e = config("encoder"), d = config("decoder");
    d.erase("tie_word_embeddings");
    if (name == "t5-relu" || name == "whisper") d.erase("has_lm_head_bias");
    if (name == "bart" || name == "mbart") {
      d["model_type"] = e["model_type"] = "bart";
      d["norm_epsilon"] = e["norm_epsilon"] = false;
    }
    if (name == "whisper") {
      d["ffn_hidden_size"] = d["intermediate_size"];
      for (const char* field :
           {"norm_epsilon", "head_size", "q_scaling", "layernorm_type", "model_type"})
        e.erase(field);
      d.erase("intermediate_size");
    }
    write_config("encoder", e);
    write_config("decoder", d);
    for (const char* half : {"encoder", "decoder"}) {
      const auto read = models::read_model(dir_ / "ckpt" / half);
      ASSERT_TRUE(read.ok()) << name << ": " << read.status();
      const auto opened = models::open_checkpoint(*read, dir_ / "ckpt" / half);
      ASSERT_TRUE(opened.ok()) << name << ": " << opened.status();
      const Status checked =
          models::check_tensors(read->graph, *opened, read->traits, read->family->ignores);
      EXPECT_TRUE(checked.ok()) << name << ": " << checked;
    }
    expect_same(dir_ / "ckpt", kEncoderModels / name, name);
  }
}

TEST_F(HalvesTest, WeightOnlyIntegersAreTakenOver) {
  for (const char* weights : {"int8", "int4", "fp8_rowwise"}) {
    for (const std::string name : {"t5-gated", "whisper"}) {
      ASSERT_TRUE(convert(name, {}, weights).ok()) << name << weights;
      for (const Half half : {Half::kDecoder, Half::kEncoder}) {
        const io::EngineFile file = open(dir_ / "ckpt", half);
        const auto has_codes = [](const io::PlanWeight& w) { return !w.format.is_float(); };
        EXPECT_GT(std::ranges::count_if(file.plan().weights, has_codes), 8) << name << weights;
      }
    }
  }
}

// The tensors of a model under OpenAI's names, in a file as torch.save() of OpenAI's writes it.
std::string openai_file(const std::filesystem::path& model,
                        const std::vector<std::pair<std::string, int64_t>>& dims) {
  namespace torch = io::testing_only;
  constexpr std::pair<std::string_view, std::string_view> kOpenAiNames[] = {
      {".layers.", ".blocks."},
      {"encoder_attn_layer_norm", "cross_attn_ln"},
      {"self_attn_layer_norm", "attn_ln"},
      {"final_layer_norm", "mlp_ln"},
      {"encoder_attn", "cross_attn"},
      {"self_attn", "attn"},
      {"q_proj", "query"},
      {"k_proj", "key"},
      {"v_proj", "value"},
      {"out_proj", "out"},
      {"fc1", "mlp.0"},
      {"fc2", "mlp.2"},
      {"encoder.layer_norm", "encoder.ln_post"},
      {"decoder.layer_norm", "decoder.ln"},
      {"embed_tokens", "token_embedding"},
      {"embed_positions.weight", "positional_embedding"}};
  const auto file = io::TensorFile::open(model / "model.safetensors");
  std::vector<std::pair<std::string, std::string>> files = {{"a/data.pkl", ""}};
  std::string tensors, numbers;
  for (const io::StoredTensor& tensor : file->tensors()) {
    if (!tensor.name.starts_with("model.")) continue;  // a copy of the embedding
    std::string name = tensor.name.substr(std::string_view("model.").size());
    for (const auto& [ours, theirs] : kOpenAiNames)
      if (const size_t at = name.find(ours); at != name.npos) name.replace(at, ours.size(), theirs);
    const std::string storage = std::to_string(files.size() - 1);
    tensors += torch::pickled_tensor(name, torch::storage_type_of(tensor), storage, 0, tensor.shape,
                                     torch::strides_of(tensor.shape));
    files.emplace_back(
        "a/data/" + storage,
        std::string(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size()));
  }
  for (const auto& [name, value] : dims) numbers += torch::text(name) + torch::integer(value);
  files[0].second = std::string("\x80\x02}(", 4) + torch::text("dims") + "}(" + numbers + "u" +
                    torch::text("model_state_dict") + "}(" + tensors + "uu.";
  return torch::zip_of(files);
}

TEST_F(HalvesTest, FilesOfOpenAiAreThatModel) {
  const std::filesystem::path model = kEncoderModels / "whisper";
  const json::object c = read_json_file(model / "config.json")->as_object();
  const auto size = [&](const char* key) { return c.at(key).as_int64(); };
  const std::vector<std::pair<std::string, int64_t>> dims = {
      {"n_mels", size("num_mel_bins")},
      {"n_vocab", size("vocab_size")},
      {"n_audio_ctx", size("max_source_positions")},
      {"n_audio_state", size("d_model")},
      {"n_audio_head", size("encoder_attention_heads")},
      {"n_audio_layer", size("encoder_layers")},
      {"n_text_ctx", size("max_target_positions")},
      {"n_text_state", size("d_model")},
      {"n_text_head", size("decoder_attention_heads")},
      {"n_text_layer", size("decoder_layers")}};
  const std::filesystem::path folder = dir_ / "assets", file = folder / "tiny.pt";
  std::filesystem::create_directories(folder);
  ASSERT_TRUE(write_file_atomic(file, openai_file(model, dims)).ok());
  EXPECT_TRUE(check_is_model(folder).ok());
  for (const Half half : {Half::kDecoder, Half::kEncoder}) {
    EXPECT_TRUE(blob(folder, half) == blob(model, half));
    EXPECT_TRUE(blob(file, half) == blob(model, half));
  }
  ASSERT_TRUE(
      convert_checkpoint({.model_dir = file, .output_dir = dir_ / "ckpt", .dtype = "bfloat16"})
          .ok());
  expect_same(dir_ / "ckpt", folder, "converted");

  auto bad = dims;
  bad.back().second = 0;
  ASSERT_TRUE(write_file_atomic(file, openai_file(model, bad)).ok());
  EXPECT_THAT(std::string(message(models::read_model(file).status())),
              HasSubstr("tiny.pt: dims: field 'n_text_layer': 0 is not an integer in [1"));
  bad.pop_back();
  ASSERT_TRUE(write_file_atomic(file, openai_file(model, bad)).ok());
  EXPECT_THAT(std::string(message(models::read_model(file).status())),
              HasSubstr("field 'n_text_layer': is missing"));
}

// T5 is published as pytorch_model.bin alone.
TEST_F(HalvesTest, PyTorchFilesAreTheSameModel) {
  for (const char* name : {"t5-relu", "bart", "whisper"}) {
    const std::filesystem::path copy = dir_ / name;
    std::filesystem::create_directories(copy);
    std::filesystem::copy_file(kEncoderModels / name / "config.json", copy / "config.json");
    const auto file = io::TensorFile::open(kEncoderModels / name / "model.safetensors");
    ASSERT_TRUE(file.ok()) << file.status();
    // PyTorch saves the copies of the shared embedding, too.
    std::vector<io::StoredTensor> tensors = file->tensors();
    const size_t count = tensors.size();
    for (size_t i = 0; i < count; ++i)
      for (const auto& [shared, copies] :
           {std::pair<std::string, std::vector<const char*>>(
                "shared.weight", {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}),
            {"model.shared.weight",
             {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"}}}) {
        if (tensors[i].name != shared) continue;
        for (const char* other : copies) {
          if (std::ranges::find(tensors, other, &io::StoredTensor::name) != tensors.end()) continue;
          tensors.push_back(tensors[i]);
          tensors.back().name = other;
        }
      }
    const std::span<const io::StoredTensor> all(tensors);
    const size_t half = all.size() / 2;
    ASSERT_TRUE(
        write_file_atomic(copy / "pytorch_model.bin", io::testing_only::serialize_torch_file(all))
            .ok());
    expect_same(copy, kEncoderModels / name, name);
    std::filesystem::remove(copy / "pytorch_model.bin");
    json::object map;
    for (size_t i = 0; i < all.size(); ++i) map[all[i].name] = i < half ? "a.bin" : "b.bin";
    for (const auto& [part, part_of] :
         {std::pair("a.bin", all.first(half)), std::pair("b.bin", all.subspan(half))})
      ASSERT_TRUE(
          write_file_atomic(copy / part, io::testing_only::serialize_torch_file(part_of)).ok());
    ASSERT_TRUE(write_file_atomic(copy / "pytorch_model.bin.index.json",
                                  json::serialize(json::object{{"weight_map", map}}))
                    .ok());
    expect_same(copy, kEncoderModels / name, name);
  }
}

TEST_F(HalvesTest, FaultsAreNamed) {
  ASSERT_TRUE(convert("t5-relu").ok());
  const auto refusal = [&](const char* half, const char* field, json::value value) {
    const json::object good = config(half);
    json::object bad = good;
    bad[field] = std::move(value);
    write_config(half, bad);
    const std::string text = error();
    write_config(half, good);
    return text;
  };
  EXPECT_EQ(error(), "");
  EXPECT_THAT(refusal("decoder", "model_type", "pix2struct"),
              HasSubstr("field 'model_type': 'pix2struct' is not one of t5"));
  EXPECT_THAT(refusal("decoder", "skip_cross_kv", true), HasSubstr("skip_cross_kv"));
  EXPECT_THAT(refusal("decoder", "q_scaling", 1), HasSubstr("q_scaling"));
  EXPECT_THAT(refusal("encoder", "hidden_size", 64), HasSubstr("hidden_size"));
  EXPECT_THAT(refusal("encoder", "intermediate_size", 8), HasSubstr("other half's"));
  EXPECT_THAT(refusal("encoder", "layernorm_position", 1), HasSubstr("layernorm_position"));
  EXPECT_THAT(refusal("decoder", "has_mlp_bias", true), HasSubstr("has_mlp_bias"));
  EXPECT_THAT(refusal("decoder", "num_hidden_layers", -1), HasSubstr("num_hidden_layers"));
  EXPECT_THAT(refusal("decoder", "num_hidden_layers", 7), HasSubstr("missing"));
  EXPECT_THAT(refusal("encoder", "architecture", "LlamaForCausalLM"), HasSubstr("no half"));
  EXPECT_THAT(std::string(message(convert("t5-relu", {.tp = 7, .moe_tp = -1}))),
              HasSubstr("tp_size: 7 does not divide"));
  std::filesystem::remove(dir_ / "ckpt/encoder/config.json");
  EXPECT_THAT(std::string(message(models::read_model(dir_ / "ckpt/decoder").status())),
              HasSubstr("lie side by side"));
  EngineDirOptions options;
  options.checkpoint_dir = kEncoderModels / "bart";
  options.output_dir = dir_ / "engine";
  EXPECT_THAT(std::string(build_engine_dir(options, registry_, DeviceInfo{}).message()),
              HasSubstr("convert_checkpoint makes a checkpoint of two folders"));
}

}  // namespace
}  // namespace nereid::convert
