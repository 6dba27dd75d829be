// DoRA on a small model with biases equals the model with modified matrices as in PEFT
// (peft/tuners/lora/dora.py: m * (W + s B A) / |W + s B A| by rows, biases unchanged), from a
// folder and from request tensors, alone and in a batch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <list>
#include <random>

#include "base/json.h"
#include "base/testing/source_dir.h"
#include "io/checkpoint.h"
#include "io/safetensors.h"
#include "runtime/testing/exactness.h"
#include "runtime/testing/test_config.h"

namespace nereid::runtime::exactness {
namespace {

using ::testing::HasSubstr;

const std::filesystem::path kBiasedModel =
    std::filesystem::path(source_dir()) / "tests/models/qwen2";
constexpr int32_t kRank = 4;
constexpr float kScale = 2;  // lora_alpha / r

// A safetensors file under construction.
class Tensors {
 public:
  void add(std::string name, std::vector<int64_t> shape, std::vector<float> numbers) {
    const std::vector<float>& kept = numbers_.emplace_back(std::move(numbers));
    io::StoredTensor tensor;
    tensor.name = std::move(name);
    tensor.dtype = "F32";
    tensor.type = DType::kF32;
    tensor.shape = std::move(shape);
    tensor.data = std::as_bytes(std::span(kept));
    tensors_.push_back(std::move(tensor));
  }
  void write(const std::filesystem::path& path) const {
    std::ofstream(path, std::ios::binary) << io::serialize_safetensors(tensors_);
  }

 private:
  std::list<std::vector<float>> numbers_;
  std::vector<io::StoredTensor> tensors_;
};

std::vector<float> floats_of(const io::StoredTensor& tensor) {
  std::vector<float> out;
  for (size_t i = 0; i < tensor.data.size(); i += sizeof(BF16)) {
    BF16 x;
    std::memcpy(&x, &tensor.data[i], sizeof(x));
    out.push_back(to_float(x));
  }
  return out;
}

void write_json(const std::filesystem::path& path, const json::object& object) {
  std::ofstream(path) << json::serialize(object);
}

// A model with matrices modified by an adapter, and the adapter.
class DoraTest : public testing::Test {
 protected:
  DoraTest() {
    std::filesystem::remove_all(top_);
    std::filesystem::create_directories(top_ / "adapter");
    std::filesystem::create_directories(top_ / "changed");
    std::filesystem::copy_file(kBiasedModel / "config.json", top_ / "changed/config.json");
    const io::TensorFile model = io::TensorFile::open(kBiasedModel / "model.safetensors").value();
    Tensors changed, adapter;
    for (const io::StoredTensor& tensor : model.tensors()) {
      std::vector<float> numbers = floats_of(tensor);
      if (tensor.name.ends_with("_proj.weight"))
        change(tensor.name.substr(0, tensor.name.size() - strlen(".weight")), tensor.shape, numbers,
               adapter);
      changed.add(tensor.name, tensor.shape, std::move(numbers));
    }
    changed.write(top_ / "changed/model.safetensors");
    adapter.write(top_ / "adapter/adapter_model.safetensors");
    write_config({{"use_dora", true}});
    pad_rows();
  }

  void write_config(json::object more) {
    more["peft_type"] = "LORA";
    more["r"] = kRank;
    more["lora_alpha"] = kScale * kRank;
    write_json(top_ / "adapter/adapter_config.json", more);
  }

  std::vector<float> noise(int64_t count, float size) {
    std::vector<float> out;
    for (int64_t i = 0; i < count; ++i) {
      const float x = static_cast<float>(random_() % 2001) / 1000 - 1;
      out.push_back(to_float(to_bf16(size * x)));
    }
    return out;
  }

  // Modifies W as PEFT does, and adds PEFT's tensors to `adapter`.
  void change(const std::string& module, const std::vector<int64_t>& shape, std::vector<float>& w,
              Tensors& adapter) {
    const int64_t n = shape[0], k = shape[1];
    const std::vector<float> a = noise(kRank * k, 0.2f), b = noise(n * kRank, 0.2f);
    std::vector<float> magnitudes, factors;
    for (int64_t i = 0; i < n; ++i) {
      float* const row = &w[static_cast<size_t>(i * k)];
      double own = 0, together = 0;
      for (int64_t c = 0; c < k; ++c) {
        own += double{row[c]} * row[c];
        for (int64_t j = 0; j < kRank; ++j)
          row[c] +=
              kScale * b[static_cast<size_t>(i * kRank + j)] * a[static_cast<size_t>(j * k + c)];
        together += double{row[c]} * row[c];
      }
      const double factor = 0.6 + 0.1 * static_cast<double>(i % 13);
      magnitudes.push_back(static_cast<float>(std::sqrt(own) * factor));
      factors.push_back(magnitudes.back() / static_cast<float>(std::sqrt(together)));
      for (int64_t c = 0; c < k; ++c) row[c] *= factors.back();
    }
    add_row(module, a, b, factors);
    const std::string name = "base_model.model." + module;
    adapter.add(name + ".lora_A.weight", {kRank, k}, a);
    adapter.add(name + ".lora_B.weight", {n, kRank}, b);
    adapter.add(name + ".lora_magnitude_vector", {n}, magnitudes);
  }

  void add_row(const std::string& module, const std::vector<float>& a, const std::vector<float>& b,
               const std::vector<float>& factors) {
    const std::pair<const char*, int32_t> ids[] = {
        {"q_proj", 1},    {"k_proj", 2},    {"v_proj", 3}, {"o_proj", 4},
        {"gate_proj", 5}, {"down_proj", 6}, {"up_proj", 7}};
    for (const auto& [name, id] : ids) {
      if (!module.ends_with(name)) continue;
      const int32_t layer = module[strlen("model.layers.")] - '0';
      tensors_.config.insert(tensors_.config.end(), {id, layer, kRank, 1});
    }
    std::vector<float>& row = rows_.emplace_back(a);
    for (const float x : b) row.push_back(kScale * x);
    row.insert(row.end(), factors.begin(), factors.end());
  }

  void pad_rows() {
    tensors_.columns = 4;
    size_t length = 0;
    for (const auto& row : rows_) length = std::max(length, row.size());
    for (auto& row : rows_) {
      row.resize(length);
      tensors_.weights.insert(tensors_.weights.end(), row.begin(), row.end());
    }
  }

  absl::StatusOr<std::unique_ptr<Executor>> open(const std::filesystem::path& model) const {
    ExecutorConfig config = test_config();
    config.num_threads = 1;
    config.kv_cache.max_tokens = 4096;
    config.cache_dir = top_ / "engines";
    if (model == kBiasedModel) {
      config.enable_lora = true;
      config.peft_cache.num_device_module_layers = 4 * 15;
      config.lora_directories.push_back({1, top_ / "adapter"});
    }
    return Executor::create(model, config);
  }

  static Request request(std::optional<LoraConfig> lora) {
    Request r;
    for (int32_t i = 0; i < 30; ++i) r.input_token_ids.push_back(5 + i * i % 400);
    r.max_tokens = 8;
    r.output.return_log_probs = true;
    r.output.return_context_logits = true;
    r.lora = std::move(lora);
    return r;
  }

  const std::filesystem::path top_ = std::filesystem::path(testing::TempDir()) / "nereid_dora_test";
  std::mt19937 random_{7};
  LoraConfig tensors_{.task_id = 2};
  std::vector<std::vector<float>> rows_;
};

// |expected - got| / |expected|.
double distance(const std::vector<float>& expected, const std::vector<float>& got) {
  EXPECT_EQ(expected.size(), got.size());
  double off = 0, all = 0;
  for (size_t i = 0; i < std::min(expected.size(), got.size()); ++i) {
    off += std::pow(double{expected[i]} - got[i], 2);
    all += std::pow(double{expected[i]}, 2);
  }
  return std::sqrt(off / all);
}

TEST_F(DoraTest, EqualsTheChangedModelAloneAndInABatch) {
  Client client;
  const auto changed = open(top_ / "changed"), adapted = open(kBiasedModel);
  ASSERT_TRUE(changed.ok()) << changed.status();
  ASSERT_TRUE(adapted.ok()) << adapted.status();
  const Request requests[] = {request(LoraConfig{.task_id = 1}), request(std::nullopt),
                              request(tensors_)};
  std::vector<Outcome> alone;
  for (const Request& r : requests) alone.push_back(client.run(**adapted, r));
  const Outcome expected = client.run(**changed, request(std::nullopt));
  ASSERT_FALSE(expected.context_logits.empty());
  // Weights of the modified model are rounded to bf16 (2^-9 relative); a GPU also rounds queries
  // and attention weights.
  const double allowed = tests_run_on_cpu() ? 0.02 : 0.03;
  EXPECT_LT(distance(expected.context_logits, alone[0].context_logits), allowed);
  EXPECT_LT(distance(expected.context_logits, alone[2].context_logits), allowed);
  EXPECT_GT(distance(expected.context_logits, alone[1].context_logits), 0.2);
  EXPECT_LT(distance(alone[0].context_logits, alone[2].context_logits), 0.01);
  std::vector<RequestId> ids;
  for (const Request& r : requests) ids.push_back(client.send(**adapted, r));
  for (size_t i = 0; i < ids.size(); ++i)
    EXPECT_EQ(difference(alone[i], client.wait(ids[i])), "") << i;
}

TEST_F(DoraTest, WhatDoesNotFitIsRefused) {
  write_config({{"use_dora", false}});
  EXPECT_THAT(open(kBiasedModel).status().ToString(),
              HasSubstr("has lora_magnitude_vector, but 'use_dora' is false"));
  write_config({{"use_dora", true}});
  const auto adapted = open(kBiasedModel);
  ASSERT_TRUE(adapted.ok()) << adapted.status();
  const auto refusal = [&](auto change) {
    LoraConfig lora = tensors_;
    change(lora);
    return (*adapted)->enqueue(request(std::move(lora)), [](Response) {}).status().ToString();
  };
  EXPECT_THAT(refusal([](LoraConfig& l) { l.config[3] = 2; }), HasSubstr("DoRA is 2, not 0 or 1"));
  EXPECT_THAT(refusal([](LoraConfig& l) { l.config[7] = 0; }), HasSubstr("the row has more"));
  EXPECT_THAT(refusal([](LoraConfig& l) { l.columns = 5; }),
              HasSubstr("5 columns, allowed are 3 and 4"));
}

}  // namespace
}  // namespace nereid::runtime::exactness
