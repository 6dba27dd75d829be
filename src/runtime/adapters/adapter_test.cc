// Adapters from PEFT folders: parsing, refusals, slots and pages on the device.
#include "runtime/adapters/adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <list>

#include "base/json.h"
#include "io/safetensors.h"
#include "runtime/adapters/adapter_cache.h"
#include "runtime/adapters/adapter_slots.h"
#include "runtime/adapters/lora_module_names.h"

namespace nereid::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<io::AdapterModule> kTwoModules = {
    {"layers.0.attn.q", 3, 2, 0, false, "model.layers.0.self_attn.q_proj"},
    {"layers.0.mlp.up", 3, 1, 0, false, "model.layers.0.mlp.up_proj"}};

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

  // A tensor of the numbers first, first + 1, ...
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

// PEFT's rule: the first matching key of the file; '^' matches the whole name only.
TEST_F(PeftAdapterTest, PatternsWithACaretNameOneModule) {
  config_["alpha_pattern"] = {{"^mlp.up_proj", 20}, {"up_proj", 10}, {"mlp.up_proj", 30}};
  EXPECT_FLOAT_EQ(read().value()->matrices[1].scale, 2.5f);
  config_["alpha_pattern"] = {{"^model.layers.0.mlp.up_proj", 20}, {"up_proj", 10}};
  EXPECT_FLOAT_EQ(read().value()->matrices[1].scale, 5);
}

// The tensors of hf_lora_convert.py equal the directory's, with the scales in the second matrices.
TEST_F(PeftAdapterTest, ConvertedItIsTheSame) {
  config_["use_rslora"] = true;  // up_proj: 6 / sqrt(4)
  config_["lora_alpha"] = 6;
  const auto read_one = read().value();
  LoraConfig lora = convert_peft_adapter(dir_).value();
  EXPECT_THAT(lora.config, ElementsAre(1, 0, 2, 7, 0, 4));  // (module number, layer, rank)
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
              HasSubstr("'model.layers.0.mlp.strange' has no TensorRT-LLM module number"));
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
  EXPECT_THAT(refusal_with("alpha_pattern", {{"^", 3}}), HasSubstr("is a pattern"));
  EXPECT_THAT(refusal_with("rank_pattern", nullptr),
              HasSubstr("rank 4, but adapter_config.json says 2"));
}

TEST_F(PeftAdapterTest, TensorsMustFitTheModel) {
  EXPECT_THAT(read(3).status().ToString(),
              HasSubstr("up_proj': rank 4 is not in [1, 3] (max_adapter_size)"));
  add("model.layers.1.mlp.up_proj", "A", {2, 3}, 1);
  EXPECT_THAT(refusal(), HasSubstr("'model.layers.1.mlp.up_proj' has no lora_B"));
  add("model.layers.1.mlp.up_proj", "B", {1, 2}, 1);
  EXPECT_THAT(refusal(), HasSubstr("'model.layers.1.mlp.up_proj' cannot have an adapter"));
  tensors_.resize(4);
  tensors_[0].shape = {3, 2};
  EXPECT_THAT(refusal(), HasSubstr("A [3, 2] and B [2, 2] are not [rank, 3] and [2, rank]"));
  tensors_[0].shape = {2, 3};
  tensors_[0].name = "base_model.model.model.embed_tokens.lora_embedding_A";
  EXPECT_THAT(refusal(), HasSubstr("'model.embed_tokens' has no lora_B"));
  tensors_[0].name = "base_model.model.model.embed_tokens.lora_embedding_C";
  EXPECT_THAT(refusal(), HasSubstr("lora_embedding_C' does not belong to a LoRA adapter"));
  tensors_[0].name = "base_model.model.model.layers.0.mlp.experts.lora_A.weight";
  tensors_[1].name = "base_model.model.model.layers.0.mlp.experts.lora_B.weight";
  EXPECT_THAT(refusal(),
              HasSubstr("'model.layers.0.mlp.experts' cannot have an adapter in this model"));
  tensors_[1].name = "base_model.model.model.layers.0.self_attn.q_proj.weight";
  EXPECT_THAT(refusal(), HasSubstr("experts' cannot have an adapter"));
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
  cache.add_stats(stats);
  EXPECT_EQ(stats.num_held, 1);
  EXPECT_EQ(stats.bytes, static_cast<int64_t>(bytes));
  EXPECT_EQ(stats.num_hits, 2);
  EXPECT_EQ(stats.num_misses, 7);
  EXPECT_EQ(stats.num_evictions, 2);
}

// Faults of files are InvalidArgument with the cause.
TEST_F(PeftAdapterTest, BadFilesAreTheCallersFault) {
  namespace fs = std::filesystem;
  const auto tensors = dir_ / "adapter_model.safetensors", config = dir_ / "adapter_config.json";
  AdapterCache cache({kTwoModules, 8}, 1 << 20);
  const auto expect_refused = [&](std::string_view reason) {
    const Status status = cache.find({.task_id = 5, .folder = dir_, .root = dir_}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << reason;
    EXPECT_THAT(status.ToString(), HasSubstr(reason));
  };
  const auto write = [&] { ASSERT_TRUE(read().ok()); };
  write();
  const auto size = fs::file_size(tensors);
  for (const uintmax_t cut : {size - 1, size / 2, uintmax_t{9}, uintmax_t{0}}) {
    write();
    fs::resize_file(tensors, cut);
    expect_refused("adapter_model.safetensors: ");
  }
  for (const fs::path& file : {tensors, config}) {
    write();
    fs::remove(file);
    ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
    expect_refused(": is not a regular file");
    fs::remove(file);
    fs::create_directory(file);
    expect_refused(": is a directory");
    fs::remove(file);
    fs::create_symlink("/dev/zero", file);
    expect_refused("does not lie inside");
    fs::remove(file);
  }
  write();
  fs::resize_file(config, (size_t{4} << 20) + 1);
  expect_refused("larger than the limit of 4194304 bytes");
  write();
  const auto outside = fs::path(testing::TempDir()) / "nereid_outside.safetensors";
  fs::rename(tensors, outside);
  fs::create_symlink(outside, tensors);
  expect_refused("does not lie inside");
  EXPECT_TRUE(cache.find({.task_id = 6, .folder = dir_}).ok()) << "an operator's may be a link";
  fs::remove(tensors);
  write();
  EXPECT_TRUE(cache.find({.task_id = 5, .folder = dir_, .root = dir_.parent_path()}).ok());
}

TEST_F(PeftAdapterTest, OddNumbersAreRefused) {
  for (const json::value& r : {json::value(0), json::value(-1), json::value(json::array())})
    EXPECT_THAT(refusal_with("r", r), HasSubstr("'r'"));
  for (const double r : {2147483648.0, 1.5, 1e300})
    EXPECT_THAT(refusal_with("r", r), HasSubstr("rank 2, but adapter_config.json says"));
  for (const json::value& alpha : {json::value("NaN"), json::value(-6), json::value(nullptr)})
    EXPECT_THAT(refusal_with("lora_alpha", alpha), HasSubstr("'lora_alpha'"));
  EXPECT_THAT(refusal_with("lora_alpha", 1e300), HasSubstr("a scale of"));
}

// A tensor of a wrong shape is refused unread, so that a sparse file costs nothing.
TEST_F(PeftAdapterTest, ShapesAreLookedAtBeforeNumbers) {
  // 24 bytes as before, of an unsupported type.
  tensors_[0].dtype = "I8";
  tensors_[0].shape = {8, 3};
  EXPECT_THAT(refusal(), HasSubstr("A [8, 3] and B [2, 2] are not [rank, 3] and [2, rank]"));
}

TEST_F(PeftAdapterTest, AMatrixIsThereOnce) {
  tensors_[2].name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight";
  EXPECT_THAT(refusal(), HasSubstr("are for the same matrix"));
}

std::shared_ptr<const Adapter> of_pages(uint64_t key, int32_t num_pages) {
  Adapter a{.task_id = key, .key = key, .num_pages = num_pages};
  a.matrices = {{0, 1, 1.0f}};
  a.weights.resize(5);
  return std::make_shared<const Adapter>(std::move(a));
}

class AdapterPlacesTest : public testing::Test {
 protected:
  // The loads and moves for the running adapters, all steps.
  struct Done {
    std::vector<int32_t> moved_to, loaded_at;  // pages
    int num_steps = 0;
  };
  Done bring(AdapterSlots& places) const {
    Done done;
    exec::StepMessage step;
    while (places.advance(running_, step)) {
      for (const exec::AdapterMove& move : step.adapter_moves)
        done.moved_to.push_back(move.to_page);
      for (const exec::AdapterLoad& load : step.adapter_loads)
        done.loaded_at.push_back(load.first_page);
      ++done.num_steps;
      step.clear();
    }
    return done;
  }
  void run(RequestId id) { running_.push_back({id, id}); }
  std::vector<AdapterSlots::Use> running_;
};

// Free pages that are not consecutive are joined by moves.
TEST_F(AdapterPlacesTest, PagesMoveWhereTheyMust) {
  AdapterSlots places(8, 10, 100);
  for (const auto& [key, pages] : {std::pair(1, 3), std::pair(2, 2), std::pair(3, 3),
                                   std::pair(4, 2), std::pair(5, 4), std::pair(6, 1)})
    places.open(static_cast<RequestId>(key), of_pages(static_cast<uint64_t>(key), pages));
  for (RequestId id = 1; id <= 4; ++id) run(id);
  EXPECT_THAT(bring(places).loaded_at, ElementsAre(0, 3, 5, 8));
  EXPECT_EQ(places.slot_of(3), 2);
  AdapterStats stats;
  places.add_stats(stats);
  EXPECT_EQ(stats.num_pages, 10);
  EXPECT_EQ(stats.num_pages_used, 10);
  running_ = {{1, 1}, {3, 3}};  // [0, 3) and [5, 8): the other four pages are in two gaps
  run(5);
  const Done done = bring(places);
  EXPECT_THAT(done.moved_to, ElementsAre(3));
  EXPECT_THAT(done.loaded_at, ElementsAre(6));
  EXPECT_EQ(done.num_steps, 2) << "a step with moves has no loads";
  EXPECT_EQ(places.slot_of(1), 0);
  EXPECT_EQ(places.slot_of(3), 2);
  running_ = {{1, 1}, {5, 5}, {6, 6}};
  EXPECT_THAT(bring(places).loaded_at, ElementsAre(3));
  stats = {};
  places.add_stats(stats);
  EXPECT_EQ(stats.num_loads, 6);
}

// A step moves about as many numbers as it may load.
TEST_F(AdapterPlacesTest, AStepMovesABoundedNumber) {
  AdapterSlots places(8, 8, /*max_weights=*/5);
  for (RequestId id = 1; id <= 7; ++id) places.open(id, of_pages(id, 1));
  places.open(8, of_pages(8, 4));
  for (RequestId id = 1; id <= 7; ++id) run(id);
  EXPECT_EQ(bring(places).num_steps, 7);
  running_ = {{2, 2}, {4, 4}, {6, 6}};
  run(8);
  const Done done = bring(places);
  EXPECT_THAT(done.moved_to, ElementsAre(0, 1, 2));
  EXPECT_EQ(done.num_steps, 4);
}

TEST_F(AdapterPlacesTest, WeightsComeInParts) {
  AdapterSlots places(2, 2, /*max_weights=*/2);
  places.open(1, of_pages(1, 1));
  places.open(2, of_pages(2, 1));
  run(1);
  exec::StepMessage step;
  for (const int64_t first : {0, 2, 4}) {
    EXPECT_FALSE(places.is_loaded(1));
    step.clear();
    ASSERT_TRUE(places.advance(running_, step));
    ASSERT_EQ(step.adapter_loads.size(), 1u);
    EXPECT_EQ(step.adapter_loads[0].first_weight, first);
    EXPECT_EQ(step.adapter_weights.size(), first == 4 ? 1u : 2u);
    EXPECT_EQ(step.adapter_matrices.size(), 1u);
  }
  EXPECT_TRUE(places.is_loaded(1));
  step.clear();
  EXPECT_FALSE(places.advance(running_, step));
  // An adapter whose sequences have ended leaves its slot while loading.
  run(2);
  ASSERT_TRUE(places.advance(running_, step));
  running_.pop_back();
  step.clear();
  EXPECT_FALSE(places.advance(running_, step));
  EXPECT_FALSE(places.is_loaded(2));
  AdapterStats stats;
  places.add_stats(stats);
  EXPECT_EQ(stats.num_places_used, 1);
  EXPECT_EQ(stats.num_loads, 1);
}

TEST_F(AdapterPlacesTest, TheOneUsedLongestAgoGivesWay) {
  AdapterSlots places(2, 2, 100);
  for (uint64_t id = 1; id <= 3; ++id) places.open(id, of_pages(id, 1));
  EXPECT_EQ(places.slot_of(9), -1);  // no adapter
  const auto place = [&](RequestId id) {
    run(id);
    bring(places);
    running_.pop_back();
    return places.slot_of(id);
  };
  EXPECT_EQ(place(1), 0);
  EXPECT_EQ(place(2), 1);
  EXPECT_EQ(place(1), 0);
  run(2);
  EXPECT_EQ(place(3), 0);  // 2 is older but in use
  running_.clear();
  EXPECT_EQ(place(1), 1);
  places.forget();
  EXPECT_FALSE(places.is_loaded(1));
  EXPECT_EQ(place(1), 0);
  places.close(1);
  EXPECT_EQ(places.slot_of(1), -1);
  AdapterStats stats;
  places.add_stats(stats);
  EXPECT_EQ(stats.num_places, 2);
  EXPECT_EQ(stats.num_places_used, 1);
  EXPECT_EQ(stats.num_loads, 5);
}

// Rows of a merged matrix that the engine reorders, or splits into two weights.
TEST_F(PeftAdapterTest, RowsGoWhereTheEngineHasThem) {
  const std::string source = "model.layers.0.self_attn.query_key_value";
  const std::vector<io::AdapterModule> modules = {
      {"layers.0.attn.qkv", 3, 3, 0, false, source, 4, {{2, 1, 1}, {0, 2, 1}}},
      {"layers.0.attn.k", 3, 1, 0, false, source, 4, {{3, 1, 1}}}};
  tensors_.clear();
  add(source.substr(6), "A", {1, 3}, 1);
  add(source.substr(6), "B", {4, 1}, 10);
  for (io::StoredTensor& t : tensors_) t.name.insert(17, "model.");
  config_["r"] = 1, config_["lora_alpha"] = 1, config_["rank_pattern"] = nullptr;
  std::ofstream(dir_ / "adapter_config.json") << json::serialize(config_);
  std::ofstream(dir_ / "adapter_model.safetensors") << io::serialize_safetensors(tensors_);
  const auto adapter = read_peft_adapter({5, dir_}, {modules, 8});
  ASSERT_TRUE(adapter.ok()) << adapter.status();
  ASSERT_EQ((*adapter)->matrices.size(), 2u);
  std::vector<float> numbers;
  for (const BF16 x : (*adapter)->weights) numbers.push_back(to_float(x));
  EXPECT_THAT(numbers, ElementsAre(1, 2, 3, 12, 10, 11, 1, 2, 3, 13));
  EXPECT_THAT(read_peft_adapter({5, dir_}, {kTwoModules, 8}).status().ToString(),
              HasSubstr("query_key_value' cannot have an adapter in this model; 2 modules can, "
                        "among them q_proj, up_proj"));
}

}  // namespace
}  // namespace nereid::runtime
