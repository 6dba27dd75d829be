// Meta's Llama files compute the same as the Hugging Face directory with the same weights.
#include <gmock/gmock.h>
#include <unistd.h>

#include <deque>
#include <map>

#include "base/file.h"
#include "base/json.h"
#include "base/testing/source_dir.h"
#include "convert/engine_dir.h"
#include "convert/inspect.h"
#include "convert/trtllm_checkpoint.h"
#include "io/engine_file.h"
#include "io/test_torch_file.h"
#include "kernels/ref/ref.h"
#include "models/formats/meta.h"

namespace nereid::convert {
namespace {

using testing::HasSubstr;

const std::filesystem::path kLlama = source_dir() + "/tests/models/llama";

// A matrix of two-byte numbers, or a vector (one column).
struct Matrix {
  std::vector<int64_t> shape;
  std::vector<uint16_t> numbers;

  Matrix rows(int64_t first, int64_t count) const {
    const auto k = static_cast<int64_t>(numbers.size()) / shape[0];
    Matrix out{shape, {numbers.begin() + first * k, numbers.begin() + (first + count) * k}};
    out.shape[0] = count;
    return out;
  }
  Matrix columns(int64_t first, int64_t count) const {
    Matrix out{{shape[0], count}, {}};
    for (int64_t row = 0; row < shape[0]; ++row)
      for (int64_t col = first; col < first + count; ++col)
        out.numbers.push_back(numbers[static_cast<size_t>(row * shape[1] + col)]);
    return out;
  }
  // Interleaves the two halves of each head's rows, as Meta's rotary embedding requires.
  Matrix in_pairs(int64_t head) const {
    Matrix out{shape, {}};
    for (int64_t row = 0; row < shape[0]; ++row) {
      const int64_t in_head = row % head;
      const Matrix one = rows(row - in_head + in_head % 2 * (head / 2) + in_head / 2, 1);
      out.numbers.insert(out.numbers.end(), one.numbers.begin(), one.numbers.end());
    }
    return out;
  }
};

const std::pair<std::string_view, std::string_view> kNames[] = {
    {"model.embed_tokens", "tok_embeddings"},
    {"model.norm", "norm"},
    {"lm_head", "output"},
    {"model.layers", "layers"},
    {"input_layernorm", "attention_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"self_attn.q_proj", "attention.wq"},
    {"self_attn.k_proj", "attention.wk"},
    {"self_attn.v_proj", "attention.wv"},
    {"self_attn.o_proj", "attention.wo"},
    {"mlp.gate_proj", "feed_forward.w1"},
    {"mlp.up_proj", "feed_forward.w3"},
    {"mlp.down_proj", "feed_forward.w2"}};

std::string name_of_meta(std::string name) {
  for (const auto& [theirs, metas] : kNames)
    if (const size_t at = name.find(theirs); at != name.npos)
      name.replace(at, theirs.size(), metas);
  return name;
}

class MetaTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/meta.XXXXXX";
    dir_ = ::mkdtemp(name.data());
    kernels::ref::add_kernels(registry_);
    cache_.cache_dir = dir_ / "cache";
    const auto file = io::TensorFile::open(kLlama / "model.safetensors");
    for (const io::StoredTensor& tensor : file->tensors()) {
      const auto* numbers = reinterpret_cast<const uint16_t*>(tensor.data.data());
      Matrix matrix{tensor.shape, {numbers, numbers + tensor.data.size() / 2}};
      const std::string& own = tensor.name;
      const bool turns = own.find("q_proj") != own.npos || own.find("k_proj") != own.npos;
      matrices_[name_of_meta(own)] = turns ? matrix.in_pairs(16) : matrix;
    }
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  // Part `i` of `count` of a tensor.
  static Matrix share(const std::string& name, const Matrix& whole, int64_t i, int64_t count,
                      bool embed_columns) {
    if (name.ends_with("norm.weight")) return whole;
    const bool by_columns = name.find(".wo.") != name.npos || name.find(".w2.") != name.npos ||
                            (embed_columns && name == "tok_embeddings.weight");
    const int64_t size = whole.shape[by_columns ? 1 : 0] / count;
    return by_columns ? whole.columns(i * size, size) : whole.rows(i * size, size);
  }
  void write(const std::string& name, int64_t count, bool embed_columns) {
    std::filesystem::create_directories(dir_ / name);
    for (int64_t i = 0; i < count; ++i) {
      std::deque<Matrix> parts;
      std::vector<io::StoredTensor> tensors;
      for (const auto& [tensor, whole] : matrices_) {
        const Matrix& part = parts.emplace_back(share(tensor, whole, i, count, embed_columns));
        tensors.push_back({.name = tensor, .dtype = "BF16", .type = DType::kBF16});
        tensors.back().shape = part.shape;
        tensors.back().data = std::as_bytes(std::span(part.numbers));
      }
      tensors.push_back(tensors.front());
      tensors.back().name = "rope.freqs";
      const std::string file = models::meta_file_name(static_cast<int32_t>(i));
      ASSERT_TRUE(
          write_file_atomic(dir_ / name / file, io::testing_only::serialize_torch_file(tensors))
              .ok());
    }
    write_params(name, params_);
  }
  void write_params(const std::string& name, const json::object& params) {
    ASSERT_TRUE(write_file_atomic(dir_ / name / "params.json", json::serialize(params)).ok());
  }
  std::string weights(const std::filesystem::path& path) {
    const auto built = ensure_engine(path, registry_, DeviceInfo{}, cache_);
    EXPECT_TRUE(built.ok()) << built.status();
    if (!built.ok()) return "";
    const auto file = io::EngineFile::open(*built, io::Verify::kFull);
    return {reinterpret_cast<const char*>(file->blob().data()), file->blob().size()};
  }
  std::string refusal(const std::string& name) {
    return std::string(
        message(ensure_engine(dir_ / name, registry_, DeviceInfo{}, cache_).status()));
  }

  // Two thirds of 4 * 64 = 170 columns, rounded to 64.
  const json::object params_ = {
      {"dim", 64},         {"n_layers", 2},    {"n_heads", 4},      {"n_kv_heads", 2},
      {"norm_eps", 1e-5},  {"vocab_size", -1}, {"multiple_of", 64}, {"ffn_dim_multiplier", 0.3},
      {"max_seq_len", 512}};
  std::map<std::string, Matrix> matrices_;
  std::filesystem::path dir_;
  kernels::Registry registry_;
  BuildOptions cache_;
};

TEST_F(MetaTest, OneOrSeveralFilesAreTheSameModel) {
  const std::string wanted = weights(kLlama);
  write("one", 1, false);
  EXPECT_TRUE(weights(dir_ / "one") == wanted);
  EXPECT_THAT(describe_model(dir_ / "one").value(),
              HasSubstr("Meta's directory of a Llama: params.json and consolidated.00.pth are "
                        "there, config.json is not\nweights: consolidated.00.pth\n"));
  write("rows", 2, false);
  EXPECT_TRUE(weights(dir_ / "rows") == wanted);
  EXPECT_THAT(describe_model(dir_ / "rows").value(),
              HasSubstr("weights: consolidated.00.pth to consolidated.01.pth, merged\n"));
  write("columns", 2, true);
  EXPECT_TRUE(weights(dir_ / "columns") == wanted);
  EXPECT_TRUE(verify_model(dir_ / "columns").ok());
  const auto facts = read_facts(dir_ / "columns");
  EXPECT_EQ(facts->max_positions, 512);
  EXPECT_EQ(facts->bos_id, 1);
  EXPECT_THAT(facts->end_ids, testing::ElementsAre(2));
  // Converted for two ranks and built.
  ConvertOptions convert{.model_dir = dir_ / "columns", .output_dir = dir_ / "ranks"};
  convert.ranks = {.tp = 2, .moe_tp = -1};
  const auto converted = convert_checkpoint(convert);
  ASSERT_TRUE(converted.ok()) << converted.status();
  EXPECT_EQ(converted->dtype, "bfloat16");
  EXPECT_TRUE(weights(dir_ / "ranks") == wanted);
  const EngineDirOptions build{.checkpoint_dir = dir_ / "rows", .output_dir = dir_ / "engine"};
  ASSERT_TRUE(build_engine_dir(build, registry_, DeviceInfo{}).ok());
  EXPECT_FALSE(std::filesystem::exists(dir_ / "engine/rank1.engine"));
  EXPECT_TRUE(weights(dir_ / "engine") == wanted);
}

// Fields as in Meta's own files.
TEST_F(MetaTest, SizesFollowFromParams) {
  write("model", 1, false);
  const auto config_of = [&](json::object changes) {
    json::object params = params_;
    params.erase("max_seq_len");
    for (const auto& [key, value] : changes) params[key] = value;
    write_params("model", params);
    models::MetaShares shares;
    return models::read_meta_config(dir_ / "model", shares).value();
  };
  const json::object llama1 = config_of({{"norm_eps", 1e-6}});
  EXPECT_EQ(llama1.at("max_position_embeddings"), 2048);
  EXPECT_EQ(llama1.at("rope_theta"), 10000.0);
  EXPECT_EQ(llama1.at("rope_scaling"), nullptr);
  EXPECT_EQ(llama1.at("intermediate_size"), 64);
  EXPECT_EQ(config_of({}).at("max_position_embeddings"), 4096);
  EXPECT_EQ(config_of({{"rope_theta", 1e6}}).at("max_position_embeddings"), 16384);
  EXPECT_EQ(config_of({{"rope_theta", 5e5}}).at("max_position_embeddings"), 8192);
  const json::object stretched = config_of({{"rope_theta", 5e5}, {"use_scaled_rope", true}});
  EXPECT_EQ(stretched.at("max_position_embeddings"), 131072);
  EXPECT_EQ(stretched.at("rope_scaling").at("rope_type"), "llama3");
  EXPECT_EQ(stretched.at("rope_scaling").at("factor"), 32.0);
  EXPECT_EQ(config_of({{"hidden_dim", 96}}).at("intermediate_size"), 96);
  EXPECT_EQ(
      config_of({{"ffn_dim_multiplier", nullptr}, {"multiple_of", 16}}).at("intermediate_size"),
      176);
}

TEST_F(MetaTest, WhatIsWrongIsNamed) {
  write("model", 2, true);
  const auto with = [&](const char* key, json::value value) {
    json::object params = params_;
    params[key] = std::move(value);
    write_params("model", params);
    return refusal("model");
  };
  EXPECT_THAT(with("moe", json::object()), HasSubstr("params.json: field 'moe': is not known; "));
  EXPECT_THAT(with("dim", 100), HasSubstr("field 'dim': 100, but consolidated.00.pth has no "));
  EXPECT_THAT(with("n_heads", 3), HasSubstr("'n_heads': 3 cannot be shared by 2 files"));
  EXPECT_THAT(with("n_layers", -1), HasSubstr("'n_layers': -1 is not an integer in [1, 1024]"));
  EXPECT_THAT(with("vocab_size", 99), HasSubstr("'vocab_size': 99, but 'tok_embeddings.weight'"));
  EXPECT_THAT(with("hidden_dim", 63), HasSubstr("cannot be shared by 2 files"));
  EXPECT_THAT(with("hidden_dim", 128), HasSubstr("feed_forward.w1.weight@rank0' has shape [32, "));
  write("model", 2, true);
  std::filesystem::copy(dir_ / "model/consolidated.01.pth", dir_ / "model/consolidated.03.pth");
  EXPECT_THAT(refusal("model"), HasSubstr("consolidated.02.pth: is missing; consolidated.03.pth"));
  std::filesystem::remove(dir_ / "model/consolidated.03.pth");
  std::filesystem::copy(dir_ / "model/consolidated.00.pth", dir_ / "model/consolidated.01.pth",
                        std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(refusal("model"), HasSubstr("consolidated.01.pth: has the same tensors as"));
}

}  // namespace
}  // namespace nereid::convert
