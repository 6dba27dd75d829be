// An adapter of every matrix of a tiny model of each family equals, up to rounding, the model with
// merged matrices (W + B A), and bit by bit the adapter on the model's TensorRT-LLM engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <list>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/testing/source_dir.h"
#include "convert/engine_cache.h"
#include "convert/trtllm_checkpoint.h"
#include "io/engine_file.h"
#include "io/safetensors.h"
#include "kernels/open.h"
#include "runtime/adapters/lora_module_names.h"
#include "runtime/model_instance.h"
#include "runtime/testing/exactness.h"
#include "runtime/testing/test_config.h"

namespace nereid::runtime::exactness {
namespace {

namespace fs = std::filesystem;

const fs::path kTinyFolders = fs::path(source_dir()) / "tests/models";
constexpr uint64_t kTask = 3;
constexpr int64_t kLayoutRank = 2;

// Models that the TensorRT-LLM layout cannot represent.
const std::set<std::string> kOnlyFolders = {};

std::vector<std::string> tiny_models() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kTinyFolders))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

// A matrix of the checkpoint with its adapter.
struct Changed {
  int64_t n = 0, k = 0;
  std::vector<float> a, b;  // [kLayoutRank, k], [n, kLayoutRank]
};

float draw_small(uint64_t i, float scale) {
  return to_float(to_bf16(static_cast<float>(static_cast<int64_t>(i * i * 2654435761u % 61) - 30) *
                          scale / 30));
}

class AdapterLayouts : public testing::TestWithParam<std::string> {
 protected:
  AdapterLayouts() {
    fs::remove_all(dir_);
    fs::create_directories(dir_ / "adapter");
  }
  ~AdapterLayouts() override { fs::remove_all(dir_); }

  ExecutorConfig config(bool with_adapter) const {
    ExecutorConfig c = test_config();
    c.num_threads = 1;
    c.kv_cache.max_tokens = 512;
    c.enable_lora = true;
    c.peft_cache.num_device_module_layers = 256;
    c.cache_dir = dir_ / "engines";
    if (with_adapter) c.lora_directories = {{kTask, dir_ / "adapter"}};
    return c;
  }

  // All adaptable matrices of a layer, but routers (discontinuous) and stacked experts
  // (merged_adapter_test.cc has these).
  void find_matrices() {
    const auto opened = kernels::open_device("cpu", {.num_threads = 1}).value();
    const auto build = build_options(model_, config(false), opened).value();
    const auto path =
        convert::ensure_engine(model_, opened.registry, opened.device->info(), build).value();
    uint64_t drawn = 0;
    const auto engine = io::EngineFile::open(path).value();
    for (const io::AdapterModule& m : engine.plan().modules) {
      if (m.of_tokens || !layer_of(m.source) || m.source.ends_with(".gate") ||
          m.source.ends_with("router") || m.source.ends_with("]"))
        continue;
      Changed& one = matrices_[m.source];
      if (one.n > 0) continue;
      one.n = m.num_source_rows(), one.k = m.k;
      for (int64_t i = 0; i < kLayoutRank * one.k; ++i) one.a.push_back(draw_small(++drawn, 0.25f));
      for (int64_t i = 0; i < kLayoutRank * one.n; ++i) one.b.push_back(draw_small(++drawn, 0.25f));
    }
    ASSERT_FALSE(matrices_.empty());
  }

  void write_adapter() const {
    std::vector<io::StoredTensor> tensors;
    const auto add = [&](const std::string& name, std::vector<int64_t> shape,
                         const std::vector<float>& numbers) {
      io::StoredTensor& t = tensors.emplace_back();
      t.name = "base_model.model." + name;
      t.dtype = "F32", t.type = DType::kF32, t.shape = std::move(shape);
      t.data = std::as_bytes(std::span(numbers));
    };
    for (const auto& [name, one] : matrices_) {
      add(name + ".lora_A.weight", {kLayoutRank, one.k}, one.a);
      add(name + ".lora_B.weight", {one.n, kLayoutRank}, one.b);
    }
    const json::object peft = {
        {"peft_type", "LORA"}, {"r", kLayoutRank}, {"lora_alpha", kLayoutRank}};
    std::ofstream(dir_ / "adapter/adapter_config.json") << json::serialize(peft);
    std::ofstream(dir_ / "adapter/adapter_model.safetensors", std::ios::binary)
        << io::serialize_safetensors(tensors);
  }

  // Some checkpoints lack the names' common prefix, or have a longer one.
  static bool is_called(std::string_view tensor, std::string_view name) {
    return tensor == name || name.ends_with("." + std::string(tensor)) ||
           tensor.ends_with("." + std::string(name));
  }
  // The model with W + B A in place of each W.
  void write_merged() const {
    fs::create_directories(dir_ / "merged");
    fs::copy_file(model_ / "config.json", dir_ / "merged/config.json");
    const auto file = io::TensorFile::open(model_ / "model.safetensors").value();
    std::vector<io::StoredTensor> tensors = file.tensors();
    std::list<std::vector<std::byte>> merged;
    size_t num_merged = 0;
    for (io::StoredTensor& t : tensors) {
      if (!t.name.ends_with(".weight") || t.name.starts_with("vision_model.")) continue;
      const auto found = std::ranges::find_if(
          matrices_, [&](const auto& one) { return is_called(t.name, one.first + ".weight"); });
      if (found == matrices_.end()) continue;
      ++num_merged;
      std::vector<std::byte>& bytes = merged.emplace_back(t.data.begin(), t.data.end());
      add_product(found->second, t, bytes);
      t.data = bytes;
    }
    ASSERT_EQ(num_merged, matrices_.size());
    std::ofstream(dir_ / "merged/model.safetensors", std::ios::binary)
        << io::serialize_safetensors(tensors);
  }
  void add_product(const Changed& one, const io::StoredTensor& t,
                   std::vector<std::byte>& bytes) const {
    ASSERT_EQ(t.type, DType::kBF16) << t.name;
    const bool is_turned = GetParam().starts_with("gpt2");  // Conv1D weights are [k, n]
    ASSERT_EQ(t.shape, is_turned ? (std::vector{one.k, one.n}) : (std::vector{one.n, one.k}));
    for (int64_t row = 0; row < one.n; ++row)
      for (int64_t col = 0; col < one.k; ++col) {
        float sum = 0;
        for (int64_t j = 0; j < kLayoutRank; ++j)
          sum += one.b[static_cast<size_t>(row * kLayoutRank + j)] *
                 one.a[static_cast<size_t>(j * one.k + col)];
        const auto at = static_cast<size_t>(is_turned ? col * one.n + row : row * one.k + col);
        BF16 x;
        std::memcpy(&x, &bytes[at * sizeof(x)], sizeof(x));
        x = to_bf16(to_float(x) + sum);
        std::memcpy(&bytes[at * sizeof(x)], &x, sizeof(x));
      }
  }

  // Context logits, and tokens sampled behind the prompt.
  Outcome run(const fs::path& model, bool with_adapter, bool uses_adapter) const {
    const auto executor = Executor::create(model, config(with_adapter));
    EXPECT_TRUE(executor.ok()) << executor.status();
    if (!executor.ok()) return {};
    Request r;
    for (int32_t i = 0; i < 21; ++i) r.input_token_ids.push_back(8 + (i * i + 3 * i) % 200);
    r.max_tokens = r.sampling.min_tokens.emplace(8);
    r.output.return_context_logits = r.output.return_log_probs = true;
    if (uses_adapter) r.lora = LoraConfig{.task_id = kTask};
    Client client;
    Outcome outcome = client.run(**executor, r);
    EXPECT_TRUE(outcome.status.ok()) << outcome.status;
    return outcome;
  }

  const fs::path model_ = kTinyFolders / GetParam();
  const fs::path dir_ = fs::path(testing::TempDir()) / ("nereid_layouts_" + GetParam());
  std::map<std::string, Changed> matrices_;
};

// Median of the positions' relative errors: with experts, a small difference can change the routing
// of a position.
float middle_error(const std::vector<float>& wanted, const std::vector<float>& got,
                   const std::vector<float>& without, size_t positions) {
  const size_t width = wanted.size() / positions;
  std::vector<float> errors;
  for (size_t p = 0; p < positions; ++p) {
    double wrong = 0, change = 0;
    for (size_t i = p * width; i < (p + 1) * width; ++i) {
      wrong += std::pow(double{got[i]} - wanted[i], 2);
      change += std::pow(double{without[i]} - wanted[i], 2);
    }
    errors.push_back(static_cast<float>(std::sqrt(wrong / change)));
  }
  std::ranges::nth_element(errors, errors.begin() + static_cast<ptrdiff_t>(positions / 2));
  return errors[positions / 2];
}

TEST_P(AdapterLayouts, AdaptersAreWhatTheirSumsAreInTheMatrices) {
  find_matrices();
  write_adapter();
  write_merged();
  const Outcome wanted = run(dir_ / "merged", false, false);
  const Outcome without = run(model_, true, false);
  const Outcome got = run(model_, true, true);
  ASSERT_EQ(got.context_logits.size(), wanted.context_logits.size());
  ASSERT_FALSE(got.context_logits.empty());
  EXPECT_LT(middle_error(wanted.context_logits, got.context_logits, without.context_logits, 21),
            0.1f);
  const auto converted = convert::convert_checkpoint(
      {.model_dir = model_, .output_dir = dir_ / "checkpoint", .ranks = {}});
  ASSERT_EQ(converted.ok(), !kOnlyFolders.contains(GetParam())) << converted.status();
  if (!converted.ok()) return;
  EXPECT_EQ(difference(got, run(dir_ / "checkpoint", true, true)), "");
}

std::string name_of_folder(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(Tiny, AdapterLayouts, testing::ValuesIn(tiny_models()), name_of_folder);

}  // namespace
}  // namespace nereid::runtime::exactness
