// Adapters from PEFT folders: what is read, what is refused, and where they lie on the device.
#include "runtime/adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <list>

#include "base/json.h"
#include "io/safetensors.h"
#include "runtime/adapter_cache.h"
#include "runtime/adapter_places.h"
#include "runtime/lora_module_names.h"

namespace nereid::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<io::AdapterModule> kTwoModules = {{"model.layers.0.self_attn.q_proj", 3, 2, 0},
                                                    {"model.layers.0.mlp.up_proj", 3, 1, 0}};

class PeftAdapterTest : public testing::Test {
 protected:
  PeftAdapterTest() {
    std::filesystem::create_directories(dir_);
    add("model.layers.0.self_attn.q_proj", "A", {2, 3}, 1);
    add("model.layers.0.self_attn.q_proj", "B", {2, 2}, 10);
    add("model.layers.0.mlp.up_proj", "A", {4, 3}, 100);
    add("model.layers.0.mlp.up_proj", "B", {1, 4}, 1000);
    config_ = {{"peft_type", "LORA"},
               {"r", 2},
               {"lora_alpha", 6},
               {"bias", "none"},
               {"use_dora", false},
               {"modules_to_save", nullptr},
               {"rank_pattern", {{"up_proj", 4}}}};
  }

  // Numbers from `first` on.
  void add(const std::string& module, const std::string& which, std::vector<int64_t> shape,
           float first) {
    std::vector<float>& numbers = data_.emplace_back();
    for (int64_t i = 0; i < shape[0] * shape[1]; ++i)
      numbers.push_back(first + static_cast<float>(i));
    io::StoredTensor tensor;
    tensor.name = "base_model.model." + module + ".lora_" + which + ".weight";
    tensor.dtype = "F32";
    tensor.type = DType::kF32;
    tensor.shape = std::move(shape);
    tensor.data = std::as_bytes(std::span(numbers));
    tensors_.push_back(std::move(tensor));
  }

  StatusOr<std::shared_ptr<const Adapter>> read(int32_t max_rank = 8) {
    std::ofstream(dir_ / "adapter_config.json") << json::serialize(config_);
    std::ofstream(dir_ / "adapter_model.safetensors") << io::serialize_safetensors(tensors_);
    return read_peft_adapter({5, dir_}, {kTwoModules, max_rank});
  }
  std::string refusal() { return std::string(read().status().message()); }
  std::string refusal_with(std::string_view field, json::value value) {
    json::object before = config_;
    config_[field] = std::move(value);
    std::string text = refusal();
    config_ = std::move(before);
    return text;
  }

  const std::filesystem::path dir_ =
      std::filesystem::path(testing::TempDir()) / "nereid_peft_adapter_test";
  std::list<std::vector<float>> data_;
  std::vector<io::StoredTensor> tensors_;
  json::object config_;
};

TEST_F(PeftAdapterTest, IsReadByModuleWithTheSecondMatrixTurned) {
  const auto adapter = read().value();
  EXPECT_EQ(adapter->task_id, 5u);
  ASSERT_EQ(adapter->matrices.size(), 2u);
  EXPECT_EQ(adapter->matrices[0].module, 0);
  EXPECT_EQ(adapter->matrices[0].rank, 2);
  EXPECT_EQ(adapter->matrices[0].scale, 3.0f);
  EXPECT_EQ(adapter->matrices[1].rank, 4);
  EXPECT_EQ(adapter->matrices[1].scale, 1.5f);
  std::vector<float> first;
  for (int i = 0; i < 10; ++i) first.push_back(to_float(adapter->weights[i]));
  EXPECT_THAT(first, ElementsAre(1, 2, 3, 4, 5, 6, 10, 12, 11, 13));
  EXPECT_EQ(adapter->weights.size(), 10u + 16u);
}

TEST_F(PeftAdapterTest, ScalesFollowPatternsAndRankStabilisation) {
  config_["use_rslora"] = true;
  config_["alpha_pattern"] = {{"mlp.up_proj", 10}};
  const auto adapter = read().value();
  EXPECT_FLOAT_EQ(adapter->matrices[0].scale, 6 / std::sqrt(2.0f));
  EXPECT_FLOAT_EQ(adapter->matrices[1].scale, 5);
}

// The tensors of hf_lora_convert.py hold what the directory holds, the scales in the second
// matrices.
TEST_F(PeftAdapterTest, ConvertedItIsTheSame) {
  config_["use_rslora"] = true;  // up_proj: 6 / sqrt(4)
  config_["lora_alpha"] = 6;
  const auto read_one = read().value();
  LoraConfig lora = convert_peft_adapter(dir_).value();
  EXPECT_THAT(lora.config, ElementsAre(1, 0, 2, 7, 0, 4));  // by number and layer
  EXPECT_EQ(lora.weights.size(), 2u * 16u);
  const auto converted = adapter_of(lora, {kTwoModules, 8}).value();
  ASSERT_EQ(converted->matrices.size(), 2u);
  ASSERT_EQ(converted->weights.size(), read_one->weights.size());
  size_t at = 0;
  for (size_t m = 0; m < 2; ++m) {
    EXPECT_EQ(converted->matrices[m].module, read_one->matrices[m].module);
    EXPECT_EQ(converted->matrices[m].rank, read_one->matrices[m].rank);
    EXPECT_EQ(converted->matrices[m].scale, 1);
    const auto a = static_cast<size_t>(3 * read_one->matrices[m].rank);
    const size_t all = a + (m == 0 ? 4 : 4);
    for (size_t i = 0; i < all; ++i, ++at) {
      const float scale = i < a ? 1 : read_one->matrices[m].scale;
      EXPECT_NEAR(to_float(converted->weights[at]), to_float(read_one->weights[at]) * scale,
                  to_float(read_one->weights[at]) * scale / 128)
          << m << " " << i;
    }
  }
  config_["use_dora"] = true;
  EXPECT_FALSE(read().ok());
  EXPECT_THAT(convert_peft_adapter(dir_).status().ToString(),
              HasSubstr("the tensors depend on the model's weights"));
  config_["use_dora"] = false;
  tensors_[0].name = "base_model.model.model.layers.0.mlp.strange.lora_A.weight";
  tensors_[1].name = "base_model.model.model.layers.0.mlp.strange.lora_B.weight";
  EXPECT_FALSE(read().ok());
  EXPECT_THAT(convert_peft_adapter(dir_).status().ToString(),
              HasSubstr("'model.layers.0.mlp.strange' is none that TensorRT-LLM has a number for"));
}

TEST(LoraModuleNames, OfEveryFamily) {
  const auto id = [](std::string_view name) {
    const auto found = lora_module_of(name);
    return found ? found->id : -1;
  };
  EXPECT_EQ(lora_module_of("model.layers.12.mlp.up_proj"), (LoraModuleId{7, 12}));
  const std::string l = "model.layers.3.";
  EXPECT_EQ(id(l + "mlp.gate_proj"), 5);
  EXPECT_EQ(id(l + "mlp.down_proj"), 6);
  EXPECT_EQ(id(l + "mlp.gate_up_proj"), 18);
  EXPECT_EQ(id(l + "self_attn.qkv_proj"), 0);
  EXPECT_EQ(id(l + "self_attn.o_proj"), 4);
  EXPECT_EQ(id(l + "self_attn.dense"), 4);
  EXPECT_EQ(id(l + "block_sparse_moe.gate"), 16);
  EXPECT_EQ(id(l + "mlp.gate"), 16);
  EXPECT_EQ(id(l + "mlp.shared_expert.gate_proj"), 19);
  EXPECT_EQ(id(l + "mlp.shared_experts.down_proj"), 20);
  EXPECT_EQ(id(l + "mlp.shared_expert.up_proj"), 21);
  EXPECT_EQ(lora_module_of(l + "mlp.experts.0.up_proj"), (LoraModuleId{15, 3, 0}));
  EXPECT_EQ(lora_module_of(l + "mlp.experts.12.gate_proj"), (LoraModuleId{13, 3, 12}));
  EXPECT_EQ(lora_module_of(l + "block_sparse_moe.experts.7.w2"), (LoraModuleId{14, 3, 7}));
  EXPECT_EQ(lora_module_of(l + "mlp.experts.down_proj[5]"), (LoraModuleId{14, 3, 5}));
  EXPECT_EQ(lora_module_of(l + "mlp.experts.gate_up_proj[5][0::2]"), (LoraModuleId{13, 3, 5}));
  EXPECT_EQ(lora_module_of(l + "mlp.experts.gate_up_proj[5][1::2]"), (LoraModuleId{15, 3, 5}));
  EXPECT_EQ(id(l + "mlp.experts.gate_up_proj[5]"), -1);
  EXPECT_EQ(id(l + "mlp.experts.gate_up_proj"), -1);
  EXPECT_EQ(id(l + "mlp.experts.0.act"), -1);
  EXPECT_EQ(id(l + "mlp.experts.-1.w1"), -1);
  EXPECT_EQ(id(l + "mlp.shared_expert_gate"), -1);
  EXPECT_EQ(id("transformer.h.0.attn.c_attn"), 0);
  EXPECT_EQ(id("transformer.h.0.attn.c_proj"), 4);
  EXPECT_EQ(id("transformer.h.0.mlp.c_proj"), 6);
  EXPECT_EQ(id("transformer.blocks.0.ffn.up_proj"), 5);
  EXPECT_EQ(id("gpt_neox.layers.0.attention.dense"), 4);
  EXPECT_EQ(id("model.layers.0.feed_forward.w3"), 7);
  EXPECT_EQ(id("lm_head"), -1);
  EXPECT_EQ(id("model.embed_tokens"), -1);
  EXPECT_EQ(lora_module_name(7).value(), "mlp_gate");
  EXPECT_EQ(lora_module_id("attn_dense").value(), 4);
  for (const auto& [number, reason] :
       {std::pair(8, "module 8 (cross_attn_qkv): no model with cross-attention"),
        std::pair(17, "module 17 (mlp_router): no model with a router of blocks"),
        std::pair(22, "mamba_in_proj"), std::pair(99, "module 99 is not known"),
        std::pair(-1, "module -1 is not known")})
    EXPECT_THAT(lora_module_name(number).status().ToString(), HasSubstr(reason));
}

TEST_F(PeftAdapterTest, WhatElseChangesTheModelIsRefused) {
  EXPECT_THAT(refusal_with("use_dora", true),
              HasSubstr("has no lora_magnitude_vector, but 'use_dora' is true"));
  EXPECT_THAT(refusal_with("modules_to_save", {"lm_head"}),
              HasSubstr("'modules_to_save': [\"lm_head\"] is not supported"));
  EXPECT_THAT(refusal_with("ensure_weight_tying", true),
              HasSubstr("'ensure_weight_tying': true is not supported"));
  EXPECT_THAT(refusal_with("kasa_config", json::object{{"beta", 1}}),
              HasSubstr("'kasa_config': {\"beta\":1} is not supported"));
  EXPECT_THAT(refusal_with("init_lora_weights", "pissa_niter_16"),
              HasSubstr("'init_lora_weights': \"pissa_niter_16\" is not supported, since"));
  for (const json::value& plain : {json::value("gaussian"), json::value(true), json::value()}) {
    config_["init_lora_weights"] = plain;
    EXPECT_TRUE(read().ok());
  }
  config_.erase("init_lora_weights");
  EXPECT_THAT(refusal_with("bias", "all"), HasSubstr("'bias': \"all\" is not supported"));
  EXPECT_THAT(refusal_with("peft_type", "IA3"), HasSubstr("only \"LORA\" is"));
  EXPECT_THAT(refusal_with("lora_alpha", 0), HasSubstr("'lora_alpha': 0 is not positive"));
  EXPECT_THAT(refusal_with("r", "8"), HasSubstr("'r' is not a number"));
  EXPECT_THAT(refusal_with("alpha_pattern", {{".*q_proj", 3}}), HasSubstr("is a pattern"));
  EXPECT_THAT(refusal_with("rank_pattern", nullptr),
              HasSubstr("rank 4, but adapter_config.json says 2"));
}

TEST_F(PeftAdapterTest, TensorsMustFitTheModel) {
  EXPECT_THAT(read(3).status().ToString(),
              HasSubstr("up_proj': rank 4 is not in [1, 3] (max_adapter_size)"));
  add("model.layers.1.mlp.up_proj", "A", {2, 3}, 1);
  EXPECT_THAT(refusal(), HasSubstr("'model.layers.1.mlp.up_proj' has no lora_B"));
  add("model.layers.1.mlp.up_proj", "B", {1, 2}, 1);
  EXPECT_THAT(refusal(), HasSubstr("'model.layers.1.mlp.up_proj' is none that"));
  tensors_.resize(4);
  tensors_[0].shape = {3, 2};
  EXPECT_THAT(refusal(), HasSubstr("A [3, 2] and B [2, 2] are not [rank, 3] and [2, rank]"));
  tensors_[0].shape = {2, 3};
  tensors_[0].name = "base_model.model.model.embed_tokens.lora_embedding_A";
  EXPECT_THAT(refusal(), HasSubstr("'model.embed_tokens' has no lora_B"));
  tensors_[0].name = "base_model.model.model.embed_tokens.lora_embedding_C";
  EXPECT_THAT(refusal(), HasSubstr("lora_embedding_C' is none of a LoRA adapter"));
  tensors_[0].name = "base_model.model.model.layers.0.mlp.experts.lora_A.weight";
  tensors_[1].name = "base_model.model.model.layers.0.mlp.experts.lora_B.weight";
  EXPECT_THAT(refusal(), HasSubstr("'model.layers.0.mlp.experts' is none that this model's"));
  tensors_[1].name = "base_model.model.model.layers.0.self_attn.q_proj.weight";
  EXPECT_THAT(refusal(), HasSubstr("experts' is none"));
  tensors_.clear();
  EXPECT_THAT(refusal(), HasSubstr("holds no matrices"));
}

TEST_F(PeftAdapterTest, TheSameIdIsTakenOnce) {
  ASSERT_TRUE(read().ok());
  AdapterCache cache({kTwoModules, 8}, 1 << 20);
  EXPECT_TRUE(cache.load({5, dir_}).ok());
  EXPECT_THAT(cache.load({5, dir_}).ToString(), HasSubstr("task id 5 is taken"));
  EXPECT_TRUE(cache.find({.task_id = 5}).ok());
  AdapterCache small({kTwoModules, 8}, 10);
  EXPECT_THAT(small.load({5, dir_}).ToString(),
              HasSubstr("bytes of task id 5 do not fit beside 0 bytes"));
}

TEST_F(PeftAdapterTest, OneWithAFolderIsReadAgainAfterItGaveWay) {
  const size_t bytes = read().value()->bytes();
  AdapterCache cache({kTwoModules, 8}, 2 * bytes - 1);  // room for one
  EXPECT_THAT(cache.find({.task_id = 5}).status().ToString(), HasSubstr("task id 5 is not in"));
  auto first = cache.find({.task_id = 5, .folder = dir_}).value();
  EXPECT_EQ(cache.find({.task_id = 5}).value(), first);
  EXPECT_THAT(cache.find({.task_id = 6, .folder = dir_}).status().ToString(),
              HasSubstr("do not fit beside"));  // the first is in use
  const uint64_t key = first->key;
  first.reset();
  EXPECT_NE(cache.find({.task_id = 6, .folder = dir_}).value()->key, key);
  EXPECT_FALSE(cache.find({.task_id = 5}).ok());
  EXPECT_EQ(cache.find({.task_id = 5, .folder = dir_}).value()->key, key);
  EXPECT_FALSE(cache.find({.task_id = 7, .folder = dir_ / "nowhere"}).ok());
  EXPECT_TRUE(cache.find({.task_id = 5}).ok());
  AdapterStats stats;
  cache.tell(stats);
  EXPECT_EQ(stats.num_held, 1);
  EXPECT_EQ(stats.bytes, static_cast<int64_t>(bytes));
  EXPECT_EQ(stats.num_hits, 2);
  EXPECT_EQ(stats.num_misses, 7);
  EXPECT_EQ(stats.num_evictions, 2);
}

std::shared_ptr<const Adapter> of_pages(uint64_t key, int32_t num_pages) {
  Adapter a{.task_id = key, .key = key, .num_pages = num_pages};
  a.matrices = {{0, 1, 1.0f}};
  a.weights.resize(5);
  return std::make_shared<const Adapter>(std::move(a));
}

// [first page of each load, in order].
std::vector<int32_t> pages_loaded(const exec::Step& step) {
  std::vector<int32_t> pages;
  for (const exec::AdapterLoad& load : step.adapter_loads) pages.push_back(load.first_page);
  return pages;
}

// Free pages that do not lie side by side are brought together.
TEST(AdapterPlaces, PagesMoveWhereTheyMust) {
  AdapterPlaces places(8, 10);
  for (const auto& [key, pages] : {std::pair(1, 3), std::pair(2, 2), std::pair(3, 3),
                                   std::pair(4, 2), std::pair(5, 4), std::pair(6, 1)})
    places.open(static_cast<RequestId>(key), of_pages(static_cast<uint64_t>(key), pages));
  std::vector<uint64_t> running;
  exec::Step step;
  const auto place = [&](RequestId id) {
    step.clear();
    running.push_back(id);
    const auto runs = [&](uint64_t key) { return std::ranges::count(running, key) > 0; };
    return places.place_of(id, runs, step);
  };
  EXPECT_EQ(place(1), 0);
  EXPECT_EQ(place(2), 1);
  EXPECT_THAT(pages_loaded(step), ElementsAre(3));
  EXPECT_EQ(place(3), 2);
  EXPECT_EQ(place(4), 3);
  EXPECT_THAT(pages_loaded(step), ElementsAre(8));
  AdapterStats stats;
  places.tell(stats);
  EXPECT_EQ(stats.num_pages, 10);
  EXPECT_EQ(stats.num_pages_used, 10);
  running = {1, 3};  // [0, 3) and [5, 8): the other four are in two pieces
  EXPECT_EQ(place(5), 4);
  EXPECT_THAT(pages_loaded(step), ElementsAre(0, 3, 6));
  EXPECT_THAT(step.adapter_loads, testing::SizeIs(3));
  EXPECT_EQ(step.adapter_loads[1].adapter, 2);
  EXPECT_EQ(step.adapter_weights.size(), 15u);
  EXPECT_EQ(place(1), 0);
  EXPECT_TRUE(step.adapter_loads.empty());
  running = {1, 5};
  EXPECT_EQ(place(6), 1);
  EXPECT_THAT(pages_loaded(step), ElementsAre(3));
}

TEST(AdapterPlaces, TheOneUsedLongestAgoGivesWay) {
  AdapterPlaces places(2, 2);
  for (uint64_t id = 1; id <= 3; ++id) places.open(id, of_pages(id, 1));
  uint64_t running = 0;
  const auto is_running = [&](uint64_t key) { return key == running; };
  exec::Step step;
  const auto place = [&](RequestId id) {
    step.clear();
    return places.place_of(id, is_running, step);
  };
  EXPECT_EQ(place(9), -1);  // has none
  EXPECT_EQ(place(1), 0);
  EXPECT_EQ(step.adapter_loads.size(), 1u);
  EXPECT_EQ(place(2), 1);
  EXPECT_EQ(place(1), 0);
  EXPECT_TRUE(step.adapter_loads.empty());
  running = 2;
  EXPECT_EQ(place(3), 0);  // 2 is older and runs
  running = 0;
  EXPECT_EQ(place(1), 1);
  places.forget();
  EXPECT_EQ(place(1), 0);
  EXPECT_EQ(step.adapter_weights.size(), 5u);
  places.close(1);
  EXPECT_EQ(place(1), -1);
  AdapterStats stats;
  places.tell(stats);
  EXPECT_EQ(stats.num_places, 2);
  EXPECT_EQ(stats.num_places_used, 1);
  EXPECT_EQ(stats.num_loads, 5);
}

}  // namespace
}  // namespace nereid::runtime
