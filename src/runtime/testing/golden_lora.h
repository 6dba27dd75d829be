// Test only: adapters of the shipped model as folders and as request tensors, and the outputs of
// Hugging Face PEFT with them (tests/golden).
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/testing/source_dir.h"
#include "exec/step_message.h"
#include "io/checkpoint.h"
#include "runtime/testing/exactness.h"
#include "runtime/testing/test_config.h"

namespace nereid::runtime::exactness {

inline const std::filesystem::path kTree = source_dir();
inline const char* const kAdapters[] = {"upper", "thanks"};
inline constexpr uint64_t kUpper = 1, kUnknown = 77;
inline constexpr int kNumModules = 42;  // modules with adapter weights
// Module layers (rank 64, 256 + 768 columns and rows) of one adapter: 29 pages of rank 8, 8 pages
// per module layer.
inline constexpr int kAdapterLayers = 4, kAdapterPages = 29;

inline ExecutorConfig lora_config() {
  ExecutorConfig config = test_config();
  config.num_threads = 1;
  // Near ties depend on the order of summation: the same kernels on every CPU.
  if (tests_run_on_cpu()) config.isa = "avx2";
  config.kv_cache.max_tokens = 8192;
  config.enable_lora = true;
  config.peft_cache.num_device_module_layers = 4 * kAdapterLayers;
  config.cache_dir = std::filesystem::path(testing::TempDir()) / "nereid_exactness_test";
  return config;
}

inline ExecutorConfig with_directories() {
  ExecutorConfig config = lora_config();
  for (const char* name : kAdapters)
    config.lora_directories.push_back(
        {config.lora_directories.size() + 1, kTree / "tests/adapters" / name});
  return config;
}

struct LoraCase {
  Request request;
  std::vector<TokenId> greedy;  // the tokens that do not depend on rounding
};

inline std::vector<LoraCase> golden_cases() {
  std::vector<LoraCase> cases;
  const json::value golden = read_json_file(kTree / "tests/golden/lora.json").value();
  for (const json::value& v : golden.at("cases").as_array()) {
    LoraCase c;
    for (const json::value& id : v.at("prompt_ids").as_array())
      c.request.input_token_ids.push_back(id.to_number<TokenId>());
    for (const json::value& id : v.at("greedy_ids").as_array())
      c.greedy.push_back(id.to_number<TokenId>());
    c.greedy.resize(v.at("clear_steps").to_number<size_t>());
    c.request.max_tokens = static_cast<int32_t>(c.greedy.size());
    c.request.output.return_log_probs = true;
    c.request.lora =
        LoraConfig{.task_id = v.at("adapter").as_string() == "lora-upper" ? kUpper : kUpper + 1};
    cases.push_back(std::move(c));
  }
  return cases;
}

// A folder's adapter as request tensors, scale 2 folded in.
inline LoraConfig tensors_of(const char* name, uint64_t task_id) {
  const auto file =
      io::TensorFile::open(kTree / "tests/adapters" / name / "adapter_model.safetensors").value();
  const std::vector<std::pair<std::string, int32_t>> ids = {
      {"q_proj", 1},    {"k_proj", 2},    {"v_proj", 3}, {"o_proj", 4},
      {"gate_proj", 5}, {"down_proj", 6}, {"up_proj", 7}};
  std::vector<std::vector<float>> rows;
  LoraConfig lora{.task_id = task_id};
  const auto append = [&](const std::string& tensor, float scale) {
    for (const io::StoredTensor& t : file.tensors()) {
      if (t.name != tensor) continue;
      for (size_t i = 0; i < t.data.size(); i += sizeof(BF16)) {
        BF16 x;
        std::memcpy(&x, &t.data[i], sizeof(x));
        rows.back().push_back(scale * to_float(x));
      }
    }
  };
  for (int32_t layer = 0; layer < 6; ++layer)
    for (const auto& [module, id] : ids) {
      const auto prefix = fmt::format("base_model.model.model.layers.{}.{}.{}", layer,
                                      id < 5 ? "self_attn" : "mlp", module);
      rows.emplace_back();
      append(prefix + ".lora_A.weight", 1);
      append(prefix + ".lora_B.weight", 2);
      lora.config.insert(lora.config.end(), {id, layer, 8});
    }
  size_t length = 0;
  for (const auto& row : rows) length = std::max(length, row.size());
  for (auto& row : rows) {
    row.resize(length);
    lora.weights.insert(lora.weights.end(), row.begin(), row.end());
  }
  return lora;
}

inline void expect_counts_add_up(Executor& executor) {
  executor.drain(std::chrono::seconds(60));
  const ExecutorStats s = executor.stats();
  EXPECT_EQ(s.kv_blocks_free, s.kv_blocks_total);
  EXPECT_EQ(s.num_active, 0);
  EXPECT_EQ(s.num_waiting, 0);
}

inline std::unique_ptr<Executor> create(const ExecutorConfig& config) {
  auto executor = Executor::create(kTree / "models/quickstart", config);
  EXPECT_TRUE(executor.ok()) << executor.status();
  return executor.ok() ? *std::move(executor) : nullptr;
}

}  // namespace nereid::runtime::exactness
