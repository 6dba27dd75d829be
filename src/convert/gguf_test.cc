// Models in GGUF files compute what the directories that they were made of do.
#include <gmock/gmock.h>
#include <unistd.h>

#include <map>

#include "base/file.h"
#include "base/test_gguf.h"
#include "base/testing/source_dir.h"
#include "convert/engine_cache.h"
#include "convert/engine_dir.h"
#include "convert/trtllm_checkpoint.h"
#include "convert/weight_source.h"
#include "io/engine_file.h"
#include "kernels/ref/ref.h"
#include "models/family.h"

namespace nereid::convert {
namespace {

using namespace testing_only;
using testing::HasSubstr;

const std::filesystem::path kHfModels = source_dir() + "/tests/models";

// Our weight's word in such a file.
const std::map<std::string, std::string> kWords = {
    {"embed", "token_embd"},        {"positions", "position_embd"},
    {"norm", "output_norm"},        {"head", "output"},
    {"attn.norm", "attn_norm"},     {"attn.q", "attn_q"},
    {"attn.k", "attn_k"},           {"attn.v", "attn_v"},
    {"attn.qkv", "attn_qkv"},       {"attn.out", "attn_output"},
    {"mlp.norm", "ffn_norm"},       {"mlp.gate", "ffn_gate"},
    {"mlp.up", "ffn_up"},           {"mlp.down", "ffn_down"},
    {"mlp.router", "ffn_gate_inp"}, {"attn.q.norm", "attn_q_norm"},
    {"attn.k.norm", "attn_k_norm"}};

class GgufModelTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/gguf.XXXXXX";
    dir_ = ::mkdtemp(name.data());
    kernels::ref::add_kernels(registry_);
    cache_.cache_dir = dir_ / "cache";
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  // All weights of a model as bf16, in the order of the graph.
  std::vector<GgufBlob> blobs(const std::string& name, bool is_paired) {
    const auto model = models::read_model(kHfModels / name);
    const auto checkpoint = models::open_checkpoint(*model, kHfModels / name);
    const auto source = checkpoint_source(*checkpoint);
    std::vector<GgufBlob> out;
    for (const graph::Weight& w : model->graph.weights) {
      if (w.name == "head" && model->traits.tied_embedding) continue;
      const int64_t k = w.is_vector ? 1 : w.k, n = w.is_vector ? w.k : w.experts * w.n;
      std::vector<BF16> values(static_cast<size_t>(n * k));
      size_t at = 0;
      for (const graph::WeightPart& part : w.parts) {
        const auto count = static_cast<size_t>(part.size * k);
        EXPECT_TRUE(source->read(w, part, 0, std::span(values).subspan(at, count)).ok());
        at += count;
      }
      std::string word = w.name, prefix, kind = ".weight";
      if (word.starts_with("layers.")) {
        prefix = fmt::format("blk.{}.", word[7]);
        word = word.substr(9);
      }
      if (word.ends_with(".bias")) kind = ".bias", word.resize(word.size() - 5);
      GgufBlob blob{prefix + kWords.at(word) + (w.experts > 1 ? "_exps" : "") + kind, 30, {}, ""};
      // As convert_hf_to_gguf.py permutes: (head, half, i) to (head, i, half).
      const int64_t half =
          is_paired && (word == "attn.q" || word == "attn.k") ? model->traits.head_dim / 2 : 0;
      for (int64_t row = 0; row < n; ++row) {
        const int64_t i = half > 0 ? row % (2 * half) : 0;
        const int64_t from = half > 0 ? row - i + i % 2 * half + i / 2 : row;
        blob.bytes.append(reinterpret_cast<const char*>(&values[static_cast<size_t>(from * k)]),
                          static_cast<size_t>(2 * k));
      }
      blob.shape = w.is_vector     ? std::vector<int64_t>{n}
                   : w.experts > 1 ? std::vector<int64_t>{w.experts, w.n, k}
                                   : std::vector<int64_t>{n, k};
      out.push_back(std::move(blob));
    }
    return out;
  }
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
    }
    return out;
  }
  std::filesystem::path write(const std::string& bytes) {
    EXPECT_TRUE(write_file_atomic(dir_ / "model.gguf", bytes).ok());
    return dir_ / "model.gguf";
  }
  std::string weights_and_plan(const std::filesystem::path& path) {
    const auto built = ensure_engine(path, registry_, DeviceInfo{}, cache_);
    EXPECT_TRUE(built.ok()) << built.status();
    if (!built.ok()) return "";
    const auto file = io::EngineFile::open(*built, io::Verify::kFull);
    io::Plan plan = file->plan();
    plan.model.name = plan.model.source_dir = plan.model.architecture = "";
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

TEST_F(GgufModelTest, FamiliesComputeTheSame) {
  for (const auto& [name, architecture] : {std::pair<std::string, std::string>("llama", "llama"),
                                           {"mixtral", "llama"},
                                           {"qwen2", "qwen2"},
                                           {"qwen3", "qwen3"},
                                           {"gpt2", "gpt2"}}) {
    const bool is_paired = architecture == "llama";
    const auto path = write(gguf_file(metadata(name, architecture), blobs(name, is_paired)));
    EXPECT_TRUE(weights_and_plan(path) == weights_and_plan(kHfModels / name)) << name;
  }
}

TEST_F(GgufModelTest, BecomesACheckpoint) {
  const auto path = write(gguf_file(metadata("llama", "llama"), blobs("llama", true)));
  ConvertOptions options;
  options.model_dir = path;
  options.output_dir = dir_ / "ckpt";
  options.ranks = {.tp = 2, .moe_tp = -1};
  const auto report = convert_checkpoint(options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(weights_and_plan(dir_ / "ckpt") == weights_and_plan(kHfModels / "llama"));
  EXPECT_EQ(*tokenizer_dir(path), path);
}

// Blocks whose integers an engine can hold go there as they are, so that 8 bits stay 8 bits; the
// same file built for bf16 has the same numbers.
TEST_F(GgufModelTest, BlocksOfIntegersStayIntegers) {
  std::vector<GgufBlob> tensors = blobs("llama", true);
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
    const io::Weight& weight = ours->plan().weights[i];
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

TEST_F(GgufModelTest, WhatCannotRunIsNamed) {
  const json::object good = metadata("llama", "llama");
  std::vector<GgufBlob> tensors = blobs("llama", true);
  json::object bad = good;
  bad["general.architecture"] = "rwkv";
  EXPECT_THAT(refusal(gguf_file(bad, tensors)), HasSubstr("'rwkv' is not one of llama, qwen2"));
  bad = good;
  bad["llama.rope.scaling.type"] = "other";
  EXPECT_THAT(refusal(gguf_file(bad, tensors)), HasSubstr("is not one of none, linear, yarn"));
  bad = good;
  bad["llama.block_count"] = 0u;
  EXPECT_THAT(refusal(gguf_file(bad, tensors)), HasSubstr("model.gguf: field 'num_hidden_layers'"));
  std::vector<GgufBlob> other = tensors;
  other[2].type = 12;
  EXPECT_THAT(refusal(gguf_file(good, other)),
              HasSubstr("Q4_K [512, 64] has rows that are no whole blocks of 256"));
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
  other.back().shape[0] = int64_t{1} << 60;
  EXPECT_THAT(refusal(gguf_file(good, other)), HasSubstr("of the data, the file has"));
  const std::string file = gguf_file(good, tensors);
  EXPECT_THAT(refusal(file.substr(0, file.size() - 100)), HasSubstr("of the data, the file has"));
}

// Frequencies' divisors, as files of Llama 3.1 have them.
TEST_F(GgufModelTest, RotaryDivisors) {
  std::vector<GgufBlob> tensors = blobs("llama", true);
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
