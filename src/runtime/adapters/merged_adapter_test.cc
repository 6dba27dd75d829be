// Adapters of embeddings and experts on tiny models: a model with some rows zeroed, plus an adapter
// with these rows, equals the original model; and in batches, in chunks and with prefix hits a
// request gives bit for bit what it gives alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <list>

#include "base/json.h"
#include "base/testing/source_dir.h"
#include "io/safetensors.h"
#include "runtime/adapters/adapter.h"
#include "runtime/testing/exactness.h"
#include "runtime/testing/test_config.h"

namespace nereid::runtime::exactness {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr int64_t kHidden = 48, kInner = 16, kExperts = 4;  // of the mixtures
constexpr int64_t kDenseHidden = 64, kVocabulary = 512;
constexpr TokenId kFirstToken = 20;
constexpr int64_t kTokens = 8;  // with an adapted embedding
constexpr uint64_t kTask = 9;

// The model files "zeros", "merged" and "adapter".
class Merged {
 public:
  explicit Merged(const std::string& model)
      : model_(fs::path(source_dir()) / "tests/models" / model),
        dir_(fs::path(testing::TempDir()) / ("nereid_merged_" + model)) {
    fs::remove_all(dir_);
    fs::create_directories(dir_ / "adapter");
  }
  const fs::path& dir() const { return dir_; }

  static float draw(uint64_t i) {
    return static_cast<float>(static_cast<int64_t>(i * i * 2654435761u % 61) - 30) / 64;
  }

  // Sets a row of a checkpoint matrix [n, k], or of expert `e` in [experts, k, n], in "merged", and
  // the module's row in the adapter.
  void edit(const std::string& tensor, int64_t row, const std::vector<float>& numbers,
            int64_t e = -1) {
    edits_.push_back({tensor, row, e, numbers});
  }
  void add_tensor(const std::string& name, std::vector<int64_t> shape, std::vector<float> numbers) {
    data_.push_back(std::move(numbers));
    io::StoredTensor& t = adapter_.emplace_back();
    t.name = "base_model.model." + name;
    t.dtype = "F32", t.type = DType::kF32, t.shape = std::move(shape);
    t.data = std::as_bytes(std::span(data_.back()));
  }

  // A module of rank 2 whose rows differ from those of the next module.
  void add_module(const std::string& module, int64_t n, int64_t k) {
    std::vector<float> a, b(static_cast<size_t>(n * 2));
    for (int64_t j = 0; j < 2; ++j) {
      const int64_t row = j == 0 ? 1 + num_modules_ % 4 : n - 2;
      std::vector<float> numbers;
      for (int64_t c = 0; c < k; ++c) numbers.push_back(draw(++drawn_));
      edit(module + ".weight", row, numbers);
      a.insert(a.end(), numbers.begin(), numbers.end());
      b[static_cast<size_t>(row * 2 + j)] = 1;
    }
    add_tensor(module + ".lora_A.weight", {2, k}, a);
    add_tensor(module + ".lora_B.weight", {n, 2}, b);
    ++num_modules_;
  }

  // All experts' [n, k] in one module (target_parameters). `tensor_of(e, row)`: the checkpoint's
  // tensor and row; `swapped`: B reads the input.
  void add_stacked(const std::string& module, int64_t n, int64_t k, bool swapped,
                   const std::function<void(int64_t e, int64_t row, std::vector<float>)>& change) {
    constexpr int64_t kRank = 2, kAll = kRank * kExperts;
    const int64_t a_cols = swapped ? n : k, b_rows = swapped ? k : n;
    std::vector<float> a(static_cast<size_t>(kAll * a_cols)), b(static_cast<size_t>(b_rows * kAll));
    for (int64_t e = 0; e < kExperts; ++e)
      for (int64_t j = 0; j < kRank; ++j) {
        const int64_t row = j == 0 ? 1 : n - 2;
        std::vector<float> numbers;
        for (int64_t c = 0; c < k; ++c) numbers.push_back(draw(++drawn_));
        float* const own = &a[static_cast<size_t>((e * kRank + j) * a_cols)];
        const auto b_at = [&](int64_t r) -> float& {
          return b[static_cast<size_t>(r * kAll + j * kExperts + e)];
        };
        for (int64_t c = 0; c < k; ++c)
          (swapped ? b_at(c) : own[c]) = numbers[static_cast<size_t>(c)];
        (swapped ? own[row] : b_at(row)) = 1;
        change(e, row, numbers);
      }
    add_tensor(module + ".lora_A.weight", {kAll, a_cols}, a);
    add_tensor(module + ".lora_B.weight", {b_rows, kAll}, b);
  }

  void add_embedding(int64_t hidden) {
    std::vector<float> a(kTokens * kVocabulary), b(static_cast<size_t>(hidden * kTokens));
    for (int64_t j = 0; j < kTokens; ++j) {
      std::vector<float> numbers;
      for (int64_t c = 0; c < hidden; ++c) {
        numbers.push_back(draw(++drawn_));
        b[static_cast<size_t>(c * kTokens + j)] = numbers.back();
      }
      edit("model.embed_tokens.weight", kFirstToken + j, numbers);
      a[static_cast<size_t>(j * kVocabulary + kFirstToken + j)] = 1;
    }
    add_tensor("model.embed_tokens.lora_embedding_A", {kTokens, kVocabulary}, a);
    add_tensor("model.embed_tokens.lora_embedding_B", {hidden, kTokens}, b);
  }

  void write(json::object config) const {
    write_model(dir_ / "zeros", false);
    write_model(dir_ / "merged", true);
    config["peft_type"] = "LORA";
    std::ofstream(dir_ / "adapter/adapter_config.json") << json::serialize(config);
    std::ofstream(dir_ / "adapter/adapter_model.safetensors", std::ios::binary)
        << io::serialize_safetensors(adapter_);
  }

 private:
  struct Edit {
    std::string tensor;
    int64_t row = 0, expert = -1;
    std::vector<float> numbers;
  };

  void write_model(const fs::path& to, bool merged) const {
    fs::create_directories(to);
    fs::copy_file(model_ / "config.json", to / "config.json");
    const auto file = io::TensorFile::open(model_ / "model.safetensors").value();
    std::list<std::vector<std::byte>> changed;
    std::vector<io::StoredTensor> tensors = file.tensors();
    size_t num_edits = 0;
    for (io::StoredTensor& t : tensors) {
      std::vector<std::byte>& bytes = changed.emplace_back(t.data.begin(), t.data.end());
      for (const Edit& edit : edits_)
        if (edit.tensor == t.name) apply(edit, merged, t, bytes), ++num_edits;
      t.data = bytes;
    }
    ASSERT_EQ(num_edits, edits_.size());
    std::ofstream(to / "model.safetensors", std::ios::binary) << io::serialize_safetensors(tensors);
  }
  static void apply(const Edit& edit, bool merged, const io::StoredTensor& t,
                    std::vector<std::byte>& bytes) {
    ASSERT_EQ(t.type, DType::kBF16);
    const auto k = static_cast<int64_t>(edit.numbers.size());
    for (int64_t c = 0; c < k; ++c) {
      const int64_t at =
          edit.expert < 0 ? edit.row * k + c : (edit.expert * k + c) * t.shape[2] + edit.row;
      const BF16 x = to_bf16(merged ? edit.numbers[static_cast<size_t>(c)] : 0);
      std::memcpy(&bytes.at(static_cast<size_t>(at) * sizeof(x)), &x, sizeof(x));
    }
  }

  const fs::path model_, dir_;
  std::vector<Edit> edits_;
  std::list<std::vector<float>> data_;
  std::vector<io::StoredTensor> adapter_;
  uint64_t drawn_ = 0;
  int64_t num_modules_ = 0;
};

ExecutorConfig config_for(const Merged& files, bool with_adapter) {
  ExecutorConfig c = test_config();
  c.num_threads = 1;
  c.enable_overlap = false;
  c.kv_cache.enable_block_reuse = false;
  c.kv_cache.tokens_per_block = 16;
  c.kv_cache.max_tokens = 4096;
  c.enable_lora = true;
  c.peft_cache.num_device_module_layers = 256;
  c.cache_dir = files.dir() / "engines";
  if (with_adapter) c.lora_directories = {{kTask, files.dir() / "adapter"}};
  return c;
}

std::unique_ptr<Executor> open(const Merged& files, const char* model, ExecutorConfig config) {
  auto executor = Executor::create(files.dir() / model, config);
  EXPECT_TRUE(executor.ok()) << executor.status();
  return executor.ok() ? *std::move(executor) : nullptr;
}

std::vector<Request> requests(bool with_adapter) {
  std::vector<Request> all;
  for (const int32_t length : {5, 32, 40, 41}) {
    Request r;
    for (int32_t i = 0; i < length; ++i)
      r.input_token_ids.push_back(i % 3 == 1 ? kFirstToken + i % kTokens : 8 + (i * i + i) % 500);
    r.max_tokens = r.sampling.min_tokens.emplace(24);
    r.output.return_log_probs = true;
    r.output.return_context_logits = true;
    if (with_adapter) r.lora = LoraConfig{.task_id = kTask};
    all.push_back(r);
  }
  return all;
}

std::vector<Outcome> run_alone(Executor& executor, const std::vector<Request>& sent) {
  Client client;
  std::vector<Outcome> outcomes;
  for (const Request& r : sent) {
    outcomes.push_back(client.run(executor, r));
    EXPECT_TRUE(outcomes.back().status.ok()) << outcomes.back().status;
  }
  return outcomes;
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float most = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    most = std::max(most, std::fabs(a[i] - b[i]));
  return most;
}

// In a batch, in chunks, with prefix hits.
void expect_the_same_together(const Merged& files, const std::vector<Outcome>& alone) {
  ExecutorConfig config = config_for(files, true);
  config.num_threads = 2;
  config.enable_overlap = true;
  config.kv_cache.enable_block_reuse = true;
  const std::vector<Request> sent = requests(true);
  for (const int32_t tokens : {8192, 7}) {
    config.max_num_tokens = tokens;
    const auto executor = open(files, "zeros", config);
    ASSERT_TRUE(executor);
    Client client;
    for (int round = 0; round < 2; ++round) {
      std::vector<RequestId> ids;
      for (const bool wants_logits : {true, false})
        for (Request r : sent) {  // requests without context logits hit the prefix cache
          r.output.return_context_logits = wants_logits;
          ids.push_back(client.send(*executor, r));
          r.lora.reset();
          client.send(*executor, r);
        }
      for (size_t i = 0; i < ids.size(); ++i) {
        Outcome got = client.wait(ids[i]);
        const Outcome& expected = alone[i % alone.size()];
        if (i >= alone.size()) got.context_logits = expected.context_logits;
        EXPECT_EQ(difference(expected, got), "") << i << " in steps of " << tokens;
      }
    }
    executor->drain(std::chrono::seconds(60));
    EXPECT_GT(executor->stats().kv_blocks_reused, 0);
  }
}

// "zeros" with the adapter equals "merged" up to `tolerance`, and differs from "zeros".
void expect_merged(const Merged& files, float tolerance) {
  const auto merged = open(files, "merged", config_for(files, false));
  const auto zeros = open(files, "zeros", config_for(files, true));
  ASSERT_TRUE(merged && zeros);
  const std::vector<Outcome> wanted = run_alone(*merged, requests(false));
  const std::vector<Outcome> without = run_alone(*zeros, requests(false));
  const std::vector<Outcome> got = run_alone(*zeros, requests(true));
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_LE(largest_difference(wanted[i].context_logits, got[i].context_logits), tolerance);
    EXPECT_GT(largest_difference(wanted[i].context_logits, without[i].context_logits), 0.01f);
    if (tolerance == 0) {
      EXPECT_EQ(difference(wanted[i], got[i]), "") << i;
    }
  }
  expect_the_same_together(files, got);
}

TEST(MergedAdapter, OfTheEmbedding) {
  Merged files("llama");
  files.add_embedding(kDenseHidden);
  files.write({{"r", kTokens}, {"lora_alpha", kTokens}});
  expect_merged(files, 0);
}

// Gemma scales the embedding, and so the adapter's part.
TEST(MergedAdapter, OfAScaledEmbedding) {
  Merged files("gemma2");
  files.add_embedding(kDenseHidden);
  files.write({{"r", kTokens}, {"lora_alpha", kTokens}});
  const auto zeros = open(files, "zeros", config_for(files, true));
  const auto merged = open(files, "merged", config_for(files, false));
  ASSERT_TRUE(zeros && merged);
  // The tied head lacks the adapter's rows: only prompts are compared.
  Request r = requests(false)[1];
  r.max_tokens = r.sampling.min_tokens.emplace(1);
  Request with = r;
  with.lora = LoraConfig{.task_id = kTask};
  Client client;
  const std::vector<float> wanted = client.run(*merged, r).context_logits;
  const std::vector<float> got = client.run(*zeros, with).context_logits;
  ASSERT_EQ(wanted.size(), got.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const auto token = static_cast<TokenId>(i % kVocabulary);
    if (token < kFirstToken || token >= kFirstToken + kTokens) {
      ASSERT_EQ(got[i], wanted[i]) << i;
    }
  }
}

constexpr int64_t kQueries = 64;
constexpr float kRounding = 2e-3f;  // other order of summation, sometimes another bf16 number

TEST(MergedAdapter, OfEachExpert) {
  Merged files("mixtral");
  for (int e = 0; e < kExperts; ++e) {
    const std::string expert = fmt::format("model.layers.1.block_sparse_moe.experts.{}.", e);
    files.add_module(expert + "w1", kInner, kHidden);
    files.add_module(expert + "w3", kInner, kHidden);
    if (e != 2) files.add_module(expert + "w2", kHidden, kInner);
  }
  files.add_module("model.layers.0.self_attn.q_proj", kQueries, kHidden);
  files.add_embedding(kHidden);
  files.write({{"r", 2},
               {"lora_alpha", 2},
               {"rank_pattern", {{"embed_tokens", kTokens}}},
               {"alpha_pattern", {{"embed_tokens", kTokens}}}});
  expect_merged(files, kRounding);
}

// Both of PEFT's conventions for the side that reads the input.
TEST(MergedAdapter, OfAllExpertsInOneTensor) {
  for (const bool swapped : {false, true}) {
    Merged files("qwen3_moe");
    const std::string prefix = "model.layers.1.mlp.experts";
    files.add_stacked(
        prefix, 2 * kInner, kHidden, swapped,
        [&](int64_t e, int64_t row, std::vector<float> numbers) {
          files.edit(fmt::format("{}.{}.{}_proj.weight", prefix, e, row < kInner ? "gate" : "up"),
                     row % kInner, numbers);
        });
    files.add_stacked(prefix + ".base_layer", kHidden, kInner, swapped,
                      [&](int64_t e, int64_t row, std::vector<float> numbers) {
                        files.edit(fmt::format("{}.{}.down_proj.weight", prefix, e), row, numbers);
                      });
    files.write({{"r", 2},
                 {"lora_alpha", 2},
                 {"target_parameters", {"mlp.experts.down_proj", "mlp.experts.gate_up_proj"}}});
    expect_merged(files, kRounding);
  }
}

// Interleaved rows of gate and up, transposed tensors.
TEST(MergedAdapter, OfAllExpertsOfGptOss) {
  Merged files("gpt_oss");
  const std::string prefix = "model.layers.1.mlp.experts";
  const auto change = [&](const char* tensor) {
    return [&files, name = prefix + tensor](int64_t e, int64_t row, std::vector<float> numbers) {
      files.edit(name, row, numbers, e);
    };
  };
  files.add_stacked(prefix + ".base_layer", 2 * kInner, kHidden, false, change(".gate_up_proj"));
  files.add_stacked(prefix, kHidden, kInner, false, change(".down_proj"));
  files.write({{"r", 2},
               {"lora_alpha", 2},
               {"target_parameters", {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}}});
  expect_merged(files, kRounding);
}

// Tensors as of hf_lora_convert.py: the same adapter, from a request.
TEST(MergedAdapter, OfExpertsFromARequest) {
  Merged files("mixtral");
  for (int e = 0; e < kExperts; ++e) {
    const std::string expert = fmt::format("model.layers.0.block_sparse_moe.experts.{}.", e);
    files.add_module(expert + "w1", kInner, kHidden);
    files.add_module(expert + "w2", kHidden, kInner);
    files.add_module(expert + "w3", kInner, kHidden);
  }
  files.write({{"r", 2}, {"lora_alpha", 2}});
  const auto executor = open(files, "zeros", config_for(files, true));
  ASSERT_TRUE(executor);
  auto lora = convert_peft_adapter(files.dir() / "adapter");
  ASSERT_TRUE(lora.ok()) << lora.status();
  EXPECT_THAT(lora->config, testing::ElementsAre(13, 0, 2, 14, 0, 2, 15, 0, 2));
  lora->task_id = kTask + 1;
  Request named = requests(true)[1], brought = named;
  brought.lora = *lora;
  Client client;
  EXPECT_EQ(difference(client.run(*executor, named), client.run(*executor, brought)), "");
  const auto refusal = [&](auto change) {
    LoraConfig changed = *lora;
    changed.task_id = kTask + 2;
    change(changed);
    brought.lora = changed;
    return executor->enqueue(brought).status().ToString();
  };
  EXPECT_THAT(refusal([](LoraConfig& l) { l.config[2] = 3; }),
              HasSubstr("experts.0.w1' [16, 48] of rank 3 needs 768 weights, a row has 512"));
  EXPECT_THAT(refusal([](LoraConfig& l) { l.config[0] = 5; }),
              HasSubstr("the model has no module 5 (mlp_h_to_4h) in layer 0"));
}

// PEFT saves the embedding next to its adapter; a different embedding is refused.
TEST(MergedAdapter, CopiesOfTheModelsMatricesMustBeThose) {
  for (const bool own : {true, false}) {
    Merged files("llama");
    files.add_embedding(kDenseHidden);
    const auto file =
        io::TensorFile::open(fs::path(source_dir()) / "tests/models/llama/model.safetensors");
    std::vector<float> copy;
    for (const io::StoredTensor& t : file->tensors())
      for (size_t i = 0; t.name == "lm_head.weight" && i < t.data.size(); i += sizeof(BF16)) {
        BF16 x;
        std::memcpy(&x, &t.data[i], sizeof(x));
        copy.push_back(to_float(x));
      }
    ASSERT_EQ(copy.size(), static_cast<size_t>(kVocabulary * kDenseHidden));
    if (!own) copy.back() += 1;
    files.add_tensor("lm_head.weight", {kVocabulary, kDenseHidden}, copy);
    files.write({{"r", kTokens}, {"lora_alpha", kTokens}});
    const auto executor = Executor::create(files.dir() / "zeros", config_for(files, true));
    if (own) {
      EXPECT_TRUE(executor.ok()) << executor.status();
    } else {
      EXPECT_THAT(executor.status().ToString(),
                  HasSubstr("lm_head.weight' [512, 64] is not what the model has as 'lm_head'"));
    }
    EXPECT_THAT(convert_peft_adapter(files.dir() / "adapter").status().ToString(),
                HasSubstr("is a matrix of the model"));
  }
}

}  // namespace
}  // namespace nereid::runtime::exactness
