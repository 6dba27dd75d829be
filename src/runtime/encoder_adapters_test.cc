// Adapters of encoder-decoder models: some rows of each matrix are moved from the model to an
// adapter, with which the model gives the golden ids of the whole one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <list>

#include "runtime/testing/encoder_golden.h"
#include "runtime/testing/exactness.h"

namespace nereid::runtime::exactness {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kTask = 9;

class EncoderAdapters : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/encoder_adapters.XXXXXX";
    dir_ = ::mkdtemp(name.data());
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  static bool is_adapted(const io::StoredTensor& t) {
    if (t.shape.size() != 2 || t.type != DType::kBF16 || !t.name.ends_with(".weight")) return false;
    for (const char* part : {"ttention.", "attn.", "fc1", "fc2", "DenseReluDense"})
      if (t.name.find(part) != t.name.npos) return t.name.find("relative") == t.name.npos;
    return false;
  }

  // Writes "zeros" and "adapter" (rank 2, scale 1).
  void take_apart(const std::string& model) {
    const std::filesystem::path from = kSource / "tests/encoder_models" / model;
    for (const char* folder : {"zeros", "adapter"})
      std::filesystem::create_directories(dir_ / folder);
    std::filesystem::copy_file(from / "config.json", dir_ / "zeros/config.json");
    const auto file = io::TensorFile::open(from / "model.safetensors").value();
    std::vector<io::StoredTensor> tensors = file.tensors(), adapter;
    std::list<std::vector<BF16>> kept;
    const auto add = [&](const std::string& module, const char* end, std::vector<int64_t> shape,
                         std::vector<BF16> numbers) {
      kept.push_back(std::move(numbers));
      adapter.push_back({.name = fmt::format("base_model.model.{}.{}.weight", module, end),
                         .dtype = "BF16",
                         .type = DType::kBF16,
                         .shape = std::move(shape),
                         .data = std::as_bytes(std::span(kept.back()))});
    };
    for (io::StoredTensor& t : tensors) {
      if (!is_adapted(t)) continue;
      ++num_modules_;
      const auto n = static_cast<size_t>(t.shape[0]), k = static_cast<size_t>(t.shape[1]);
      std::vector<BF16>& numbers = kept.emplace_back(n * k);
      std::memcpy(numbers.data(), t.data.data(), t.data.size());
      std::vector<BF16> a(2 * k), b(2 * n, to_bf16(0));
      for (const size_t j : {0u, 1u}) {
        const size_t row = j == 0 ? 1 : n - 2;
        for (size_t c = 0; c < k; ++c)
          a[j * k + c] = std::exchange(numbers[row * k + c], to_bf16(0));
        b[row * 2 + j] = to_bf16(1);
      }
      t.data = std::as_bytes(std::span(numbers));
      const std::string module = t.name.substr(0, t.name.rfind('.'));
      add(module, "lora_A", {2, t.shape[1]}, std::move(a));
      add(module, "lora_B", {t.shape[0], 2}, std::move(b));
    }
    std::ofstream(dir_ / "zeros/model.safetensors", std::ios::binary)
        << io::serialize_safetensors(tensors);
    std::ofstream(dir_ / "adapter/adapter_model.safetensors", std::ios::binary)
        << io::serialize_safetensors(adapter);
    std::ofstream(dir_ / "adapter/adapter_config.json")
        << R"({"peft_type": "LORA", "r": 2, "lora_alpha": 2, "target_modules": "all-linear"})";
  }
  ExecutorConfig config() const {
    ExecutorConfig c = encoder_config();
    c.enable_lora = true;
    c.peft_cache.num_device_module_layers = 1024;
    c.lora_directories = {{kTask, dir_ / "adapter"}};
    return c;
  }

  std::filesystem::path dir_;
  int num_modules_ = 0;
};

TEST_F(EncoderAdapters, ModelAndAdapterGiveTheGoldenIds) {
  for (const std::string model : {"t5-gated", "bart", "whisper"}) {
    take_apart(model);
    EXPECT_GT(num_modules_, 20);
    const auto executor = Executor::create(dir_ / "zeros", config());
    ASSERT_TRUE(executor.ok()) << executor.status();
    Client client;
    std::vector<Request> requests;
    std::vector<Outcome> alone;
    for (Case c : golden_cases(model, (*executor)->encoder())) {
      requests.push_back(c.request);
      alone.push_back(client.run(**executor, c.request));
      c.request.lora = LoraConfig{.task_id = kTask};
      requests.push_back(c.request);
      alone.push_back(client.run(**executor, c.request));
      ASSERT_TRUE(alone.back().status.ok()) << alone.back().status;
      EXPECT_EQ(alone.back().sequences[0][0].tokens, c.greedy) << model;
      EXPECT_NE(alone[alone.size() - 2].sequences[0][0].tokens, c.greedy) << model;
    }
    // In company, in small steps, with and without encoder results of earlier requests.
    ExecutorConfig small = config();
    small.max_num_tokens = 16;
    const auto other = Executor::create(dir_ / "zeros", small);
    ASSERT_TRUE(other.ok()) << other.status();
    for (const auto& executor_of : {&*executor, &*other}) {
      std::vector<RequestId> sent;
      for (const Request& request : requests) sent.push_back(client.send(**executor_of, request));
      for (size_t i = 0; i < sent.size(); ++i)
        EXPECT_EQ(difference(alone[i], client.wait(sent[i])), "") << model << ' ' << i;
    }
    std::filesystem::remove_all(dir_ / "zeros");
    std::filesystem::remove_all(dir_ / "adapter");
  }
}

// Ranks of tensors and of stages, whose modules are parts of the encoder's and the decoder's.
TEST_F(EncoderAdapters, RanksGiveTheGoldenIds) {
  for (const std::string model : {"bart", "whisper"}) {
    take_apart(model);
    ExecutorConfig one = config();
    one.tp_invariant = true;
    const auto executor = Executor::create(dir_ / "zeros", one);
    ASSERT_TRUE(executor.ok()) << executor.status();
    Client client;
    for (const auto& [tp, pp] : {std::pair("2", 1), {"1", 2}, {"2", 2}}) {
      ExecutorConfig ranks = one;
      ranks.tensor_parallel = tp;
      ranks.pipeline_parallel = pp;
      const auto several = Executor::create(dir_ / "zeros", ranks);
      ASSERT_TRUE(several.ok()) << several.status();
      for (Case c : golden_cases(model, (*executor)->encoder())) {
        c.request.lora = LoraConfig{.task_id = kTask};
        const Outcome got = client.run(**several, c.request);
        ASSERT_TRUE(got.status.ok()) << got.status;
        EXPECT_EQ(got.sequences[0][0].tokens, c.greedy) << model << ' ' << tp << ' ' << pp;
        EXPECT_EQ(difference(client.run(**executor, c.request), got), "") << model;
      }
    }
    std::filesystem::remove_all(dir_ / "zeros");
    std::filesystem::remove_all(dir_ / "adapter");
  }
}

TEST_F(EncoderAdapters, WhatIsNotThereIsRefusedByName) {
  take_apart("bart");
  std::ofstream(dir_ / "adapter/adapter_config.json")
      << R"({"peft_type": "LORA", "r": 2, "lora_alpha": 2, "use_dora": true})";
  EXPECT_FALSE(Executor::create(dir_ / "zeros", config()).ok());
}

}  // namespace
}  // namespace nereid::runtime::exactness
