// Plans interpreted call by call with the reference kernels: against golden outputs, and with each
// optional pass on and off.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>

#include "base/file.h"
#include "base/json.h"
#include "base/testing/source_dir.h"
#include "convert/engine_cache.h"
#include "convert/engine_dir.h"
#include "convert/gguf_fixture.h"
#include "convert/interpreter_fixture.h"
#include "convert/trtllm_checkpoint.h"
#include "io/engine_file.h"
#include "io/safetensors.h"
#include "kernels/ref/ref.h"
#include "models/family.h"

namespace nereid::convert {
namespace {

const std::string kSourceRoot = source_dir();

class ForwardTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/forward.XXXXXX";
    dir_ = ::mkdtemp(name.data());
    kernels::ref::add_kernels(registry_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  io::EngineFile engine(const std::string& model, std::vector<std::string> disabled = {}) {
    return engine_of(kSourceRoot + model, std::move(disabled));
  }
  io::EngineFile engine_of(const std::filesystem::path& model,
                           std::vector<std::string> disabled = {}) {
    BuildOptions options;
    options.cache_dir = dir_;
    options.compile.disabled_passes = std::move(disabled);
    const auto path = ensure_engine(model, registry_, DeviceInfo{}, options);
    EXPECT_TRUE(path.ok()) << path.status();
    auto file = io::EngineFile::open(path.value());
    EXPECT_TRUE(file.ok()) << file.status();
    return std::move(file).value();
  }

  std::filesystem::path dir_;
  kernels::Registry registry_;
};

// All models with golden outputs.
std::vector<std::string> tiny_models() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kSourceRoot + "/tests/models"))
    names.push_back(entry.path().filename().string());
  EXPECT_FALSE(names.empty());
  return names;
}

std::vector<int32_t> ids(const json::value& list) {
  std::vector<int32_t> out;
  for (const json::value& id : list.as_array()) out.push_back(id.to_number<int32_t>());
  return out;
}

float worst_difference(const std::vector<float>& logits, const io::StoredTensor& golden) {
  EXPECT_EQ(golden.data.size(), logits.size() * 4);
  std::vector<float> wanted(logits.size());
  std::memcpy(wanted.data(), golden.data.data(), golden.data.size());
  float worst = 0;
  for (size_t i = 0; i < logits.size(); ++i)
    worst = std::max(worst, std::abs(logits[i] - wanted[i]));
  return worst;
}

// Greedy ids of all cases, logits of their first and last steps; tolerance: activations rounded to
// bf16 before each product.
void expect_golden(const io::EngineFile& engine, const std::string& name, bool with_logits = true) {
  const auto golden = read_json_file(kSourceRoot + "/tests/golden/arch/" + name + ".json");
  const auto logits =
      io::TensorFile::open(kSourceRoot + "/tests/golden/arch/" + name + ".safetensors");
  ASSERT_TRUE(golden.ok() && logits.ok());
  size_t index = 0;
  for (const json::value& item : golden->at("cases").as_array()) {
    const std::vector<int32_t> greedy = ids(item.at("greedy_ids"));
    Interpreter interpreter(engine);
    std::vector<float> out = interpreter.run(ids(item.at("prompt_ids")));
    for (size_t step = 0; step < greedy.size(); ++step) {
      const auto best = std::max_element(out.begin(), out.end()) - out.begin();
      ASSERT_EQ(best, greedy[step]) << name << " case " << index << " step " << step;
      const std::string key = fmt::format("logits.{}.{}", index, step);
      for (const io::StoredTensor& tensor : logits->tensors()) {
        if (tensor.name != key || !with_logits) continue;
        EXPECT_LT(worst_difference(out, tensor), 0.25f) << name << ' ' << key;
      }
      if (step + 1 < greedy.size()) out = interpreter.run({greedy[step]});
    }
    ++index;
  }
}

TEST_F(ForwardTest, TinyModelsEqualTheirGoldens) {
  // Rounding may change the selection of an expert: larger differences of logits.
  for (const std::string& name : tiny_models())
    expect_golden(engine("/tests/models/" + name), name,
                  name != "mixtral" && name != "deepseek_v3");
}

// Converted for two ranks, built, merged on load: golden ids.
TEST_F(ForwardTest, EnginesOfTwoRanksGiveTheGoldenIds) {
  for (const std::string& name : tiny_models()) {
    ConvertOptions convert{.model_dir = kSourceRoot + "/tests/models/" + name,
                           .output_dir = dir_ / "ranks"};
    const models::Traits traits = models::read_model(convert.model_dir)->traits;
    // Some models have three heads; one of these has an MLP width that is not divisible by 3.
    convert.ranks.tp = traits.num_heads % 2 == 0 ? 2 : traits.intermediate_size % 3 == 0 ? 3 : 1;
    convert.ranks.pp = convert.ranks.tp == 1 ? 2 : 1;
    convert.ranks.moe_tp = -1;
    const auto converted = convert_checkpoint(convert);
    ASSERT_TRUE(converted.ok()) << name << ": " << converted.status();
    const EngineDirOptions build{.checkpoint_dir = dir_ / "ranks", .output_dir = dir_ / "engines"};
    const Status built = build_engine_dir(build, registry_, DeviceInfo{});
    ASSERT_TRUE(built.ok()) << name << ": " << built;
    ASSERT_TRUE(std::filesystem::exists(dir_ / "engines/rank1.engine")) << name;
    expect_golden(engine_of(dir_ / "engines"), name, false);
  }
}

// Concatenates tensors by rows.
io::StoredTensor stack(std::string name, const std::vector<io::StoredTensor>& parts,
                       std::vector<std::byte>& bytes) {
  io::StoredTensor all = parts[0];
  all.name = std::move(name);
  all.shape[0] = 0;
  for (const io::StoredTensor& part : parts) {
    all.shape[0] += part.shape[0];
    bytes.insert(bytes.end(), part.data.begin(), part.data.end());
  }
  all.data = bytes;
  return all;
}

// The rows of one head of 16.
io::StoredTensor head_of(const io::StoredTensor& tensor, size_t head) {
  io::StoredTensor rows = tensor;
  const size_t row_bytes = tensor.data.size() / static_cast<size_t>(tensor.shape[0]);
  rows.shape[0] = 16;
  rows.data = tensor.data.subspan(head * 16 * row_bytes, 16 * row_bytes);
  return rows;
}

using Renames = std::vector<std::pair<std::string, std::string>>;

// The tiny Llama (four query heads, two key heads) as stored by a family with fused heads.
template <class Fuse>
void write_sibling(const std::filesystem::path& dir, json::object changes, const Renames& renames,
                   const std::string& fused_name, Fuse fuse) {
  const std::string source = kSourceRoot + "/tests/models/llama";
  json::object config = read_json_file(source + "/config.json")->as_object();
  for (const auto& [key, value] : changes) config[key] = value;
  const auto file = io::TensorFile::open(source + "/model.safetensors");
  ASSERT_TRUE(file.ok());
  std::map<std::string, io::StoredTensor> named;
  for (const io::StoredTensor& tensor : file->tensors()) named[tensor.name] = tensor;
  std::deque<std::vector<std::byte>> bytes;
  std::vector<io::StoredTensor> tensors;
  for (const auto& [name, tensor] : named) {
    if (name.ends_with("k_proj.weight") || name.ends_with("v_proj.weight")) continue;
    if (const size_t at = name.find("self_attn.q_proj"); at != std::string::npos) {
      const std::string layer = name.substr(0, at) + "self_attn.";
      tensors.push_back(
          stack(name.substr(0, at) + fused_name,
                fuse(tensor, named[layer + "k_proj.weight"], named[layer + "v_proj.weight"]),
                bytes.emplace_back()));
      continue;
    }
    tensors.push_back(tensor);
    for (const auto& [from, to] : renames)
      if (const size_t at = name.find(from); at != std::string::npos)
        tensors.back().name = std::string(name).replace(at, from.size(), to);
  }
  std::filesystem::create_directories(dir);
  ASSERT_TRUE(write_file_atomic(dir / "config.json", json::serialize(config)).ok());
  ASSERT_TRUE(
      write_file_atomic(dir / "model.safetensors", io::serialize_safetensors(tensors)).ok());
}

// Families equal to Llama under other names: same weights, same bits.
TEST_F(ForwardTest, SiblingsOfLlamaEqualIt) {
  using Tensor = io::StoredTensor;
  const std::vector<int32_t> prompt = {187, 338, 457, 31, 139};
  const std::vector<float> wanted = Interpreter(engine("/tests/models/llama")).run(prompt);
  const auto expect_same = [&](const std::filesystem::path& dir) {
    EXPECT_EQ(Interpreter(engine_of(dir)).run(prompt), wanted) << dir;
  };
  // By key heads: its query heads, its key, its value.
  write_sibling(dir_ / "internlm2",
                {{"architectures", {"InternLM2ForCausalLM"}},
                 {"bias", false},
                 {"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}},
                {{"embed_tokens", "tok_embeddings"},
                 {"lm_head", "output"},
                 {"self_attn.o_proj", "attention.wo"},
                 {"input_layernorm", "attention_norm"},
                 {"post_attention_layernorm", "ffn_norm"},
                 {"mlp.gate_proj", "feed_forward.w1"},
                 {"mlp.up_proj", "feed_forward.w3"},
                 {"mlp.down_proj", "feed_forward.w2"}},
                "attention.wqkv.weight", [](const Tensor& q, const Tensor& k, const Tensor& v) {
                  return std::vector{head_of(q, 0), head_of(q, 1), head_of(k, 0), head_of(v, 0),
                                     head_of(q, 2), head_of(q, 3), head_of(k, 1), head_of(v, 1)};
                });
  expect_same(dir_ / "internlm2");
  // As many key heads as query heads: each repeated twice.
  write_sibling(dir_ / "baichuan",
                {{"architectures", {"BaichuanForCausalLM"}}, {"num_key_value_heads", nullptr}}, {},
                "self_attn.W_pack.weight", [](const Tensor& q, const Tensor& k, const Tensor& v) {
                  return std::vector{q,
                                     head_of(k, 0),
                                     head_of(k, 0),
                                     head_of(k, 1),
                                     head_of(k, 1),
                                     head_of(v, 0),
                                     head_of(v, 0),
                                     head_of(v, 1),
                                     head_of(v, 1)};
                });
  expect_same(dir_ / "baichuan");
  // Their GGUF files have Llama's tensors.
  const auto model = models::read_model(kSourceRoot + "/tests/models/llama");
  const auto checkpoint = models::open_checkpoint(*model, kSourceRoot + "/tests/models/llama");
  for (const std::string architecture : {"internlm2", "baichuan"}) {
    json::object keys = {{"general.architecture", architecture}};
    for (const auto& [key, value] : std::map<std::string, unsigned>{{"context_length", 512},
                                                                    {"embedding_length", 64},
                                                                    {"block_count", 2},
                                                                    {"feed_forward_length", 64},
                                                                    {"attention.head_count", 4},
                                                                    {"attention.head_count_kv", 2}})
      keys[fmt::format("{}.{}", architecture, key)] = value;
    keys[architecture + ".attention.layer_norm_rms_epsilon"] = 1e-5;
    const std::filesystem::path path = dir_ / (architecture + ".gguf");
    const auto tensors = GgufModelWriter(*model, *checkpoint, {.permutes = true}).blobs();
    ASSERT_TRUE(write_file_atomic(path, testing_only::gguf_file(keys, tensors)).ok());
    expect_same(path);
  }
}

// A tiny MoE in the layout of transformers 5: per layer one tensor of all experts' gates and ups,
// one of their downs; `transposed`: transposed.
void write_fused(const std::filesystem::path& dir, const std::string& name, bool transposed) {
  const std::string source = kSourceRoot + "/tests/models/" + name;
  const auto file = io::TensorFile::open(source + "/model.safetensors");
  ASSERT_TRUE(file.ok());
  std::map<std::string, io::StoredTensor> named;
  for (const io::StoredTensor& tensor : file->tensors()) {
    std::string renamed = tensor.name;
    for (const auto& [from, to] : Renames{{"block_sparse_moe.gate.", "mlp.router."},
                                          {"block_sparse_moe.", "mlp."},
                                          {"w1.weight", "gate_proj.weight"},
                                          {"w2.weight", "down_proj.weight"},
                                          {"w3.weight", "up_proj.weight"}})
      if (const size_t at = renamed.find(from); at != std::string::npos)
        renamed.replace(at, from.size(), to);
    named[renamed] = tensor;
    named[renamed].name = renamed;
  }
  std::map<std::string, io::StoredTensor> out;
  std::map<std::string, std::vector<std::byte>> bytes;
  // Appends a bf16 matrix to the experts' tensor.
  const auto add = [&](const std::string& name_of_all, const std::vector<io::StoredTensor>& parts) {
    std::vector<std::byte> whole;
    const io::StoredTensor one = stack(name_of_all, parts, whole);
    const int64_t n = one.shape[0], k = one.shape[1];
    io::StoredTensor& all = out.emplace(name_of_all, one).first->second;
    if (all.shape.size() == 2) all.shape = {0, transposed ? k : n, transposed ? n : k};
    ++all.shape[0];
    std::vector<std::byte>& into = bytes[name_of_all];
    for (int64_t i = 0; i < n * k; ++i) {
      const int64_t from = 2 * (transposed ? i % n * k + i / n : i);
      into.insert(into.end(), whole.begin() + from, whole.begin() + from + 2);
    }
  };
  for (const auto& [key, tensor] : named) {
    const size_t at = key.find(".experts.");
    if (at == std::string::npos) {
      out[key] = tensor;
    } else if (key.ends_with(".down_proj.weight")) {
      add(key.substr(0, at) + ".experts.down_proj", {tensor});
    } else if (key.ends_with(".gate_proj.weight")) {
      const std::string up = key.substr(0, key.size() - 16) + "up_proj.weight";
      add(key.substr(0, at) + ".experts.gate_up_proj", {tensor, named[up]});
    }
  }
  std::vector<io::StoredTensor> tensors;
  for (auto& [key, tensor] : out) {
    if (bytes.contains(key)) tensor.data = bytes[key];
    tensors.push_back(tensor);
  }
  std::filesystem::create_directories(dir);
  std::filesystem::copy(source + "/config.json", dir);
  ASSERT_TRUE(
      write_file_atomic(dir / "model.safetensors", io::serialize_safetensors(tensors)).ok());
}

TEST_F(ForwardTest, FusedExpertsAreThoseOfEach) {
  const std::vector<int32_t> prompt = {187, 338, 457, 31, 139};
  for (const std::string name : {"mixtral", "phimoe", "qwen2_moe", "deepseek_v2"}) {
    const std::vector<float> wanted = Interpreter(engine("/tests/models/" + name)).run(prompt);
    for (const bool transposed : {false, true}) {
      const std::filesystem::path dir = dir_ / fmt::format("{}-{}", name, transposed);
      write_fused(dir, name, transposed);
      EXPECT_EQ(Interpreter(engine_of(dir)).run(prompt), wanted) << dir;
    }
  }
}

// Tensors that transformers 5 only calls otherwise in memory.
TEST_F(ForwardTest, NamesInMemoryAreRead) {
  const Renames granite = {
      {"block_sparse_moe.router.layer.", "block_sparse_moe.router."},
      {"block_sparse_moe.input_linear.weight", "block_sparse_moe.experts.gate_up_proj"},
      {"block_sparse_moe.output_linear.weight", "block_sparse_moe.experts.down_proj"}};
  const std::pair<std::string, Renames> rows[] = {
      {"granitemoe", granite},
      {"granitemoeshared", granite},
      {"ernie4_5_moe", {{"mlp.moe_statics.", "mlp.gate.moe_statics."}}},
      {"exaone_moe", {{"mlp.e_score_correction_bias", "mlp.gate.e_score_correction_bias"}}}};
  const std::vector<int32_t> prompt = {187, 338, 457, 31, 139};
  for (const auto& [name, renames] : rows) {
    const std::string source = kSourceRoot + "/tests/models/" + name;
    const auto file = io::TensorFile::open(source + "/model.safetensors");
    ASSERT_TRUE(file.ok());
    std::vector<io::StoredTensor> tensors = file->tensors();
    size_t num_renamed = 0;
    for (io::StoredTensor& tensor : tensors)
      for (const auto& [from, to] : renames)
        if (const size_t at = tensor.name.find(from); at != std::string::npos) {
          tensor.name.replace(at, from.size(), to);
          ++num_renamed;
        }
    EXPECT_GE(num_renamed, renames.size()) << name;
    const std::filesystem::path dir = dir_ / ("held-" + name);
    std::filesystem::create_directories(dir);
    std::filesystem::copy(source + "/config.json", dir);
    ASSERT_TRUE(
        write_file_atomic(dir / "model.safetensors", io::serialize_safetensors(tensors)).ok());
    EXPECT_EQ(Interpreter(engine_of(dir)).run(prompt),
              Interpreter(engine("/tests/models/" + name)).run(prompt))
        << name;
  }
}

// Granite's mixtures without experts are Granite whose MLP has the names of the shared expert.
TEST_F(ForwardTest, GraniteWithoutExpertsIsGranite) {
  const std::string source = kSourceRoot + "/tests/models/granite";
  const auto file = io::TensorFile::open(source + "/model.safetensors");
  ASSERT_TRUE(file.ok());
  std::map<std::string, io::StoredTensor> named;
  for (const io::StoredTensor& tensor : file->tensors()) named[tensor.name] = tensor;
  std::map<std::string, std::vector<std::byte>> bytes;
  std::vector<io::StoredTensor> tensors;
  for (auto& [name, tensor] : named) {
    const size_t at = name.find("mlp.");
    if (at == std::string::npos) {
      tensors.push_back(tensor);
    } else if (name.ends_with("down_proj.weight")) {
      tensors.push_back(tensor);
      tensors.back().name = name.substr(0, at) + "shared_mlp.output_linear.weight";
    } else if (name.ends_with("gate_proj.weight")) {
      const std::string both = name.substr(0, at) + "shared_mlp.input_linear.weight";
      tensors.push_back(
          stack(both, {tensor, named[name.substr(0, at) + "mlp.up_proj.weight"]}, bytes[both]));
    }
  }
  const std::vector<int32_t> prompt = {187, 338, 457, 31, 139};
  const std::vector<float> wanted = Interpreter(engine("/tests/models/granite")).run(prompt);
  const auto run = [&](const std::string& architecture, const json::object& fields) {
    const std::filesystem::path dir =
        dir_ /
        fmt::format("{}-{}", architecture, std::hash<std::string>()(json::serialize(fields)));
    std::filesystem::create_directories(dir);
    json::object config = read_json_file(source + "/config.json")->as_object();
    config["architectures"] = json::array{json::string(architecture)};
    config["intermediate_size"] = 16;  // of experts, which are not there
    config["shared_intermediate_size"] = 64;
    config["num_local_experts"] = config["num_experts_per_tok"] = 0;
    for (const auto& [key, value] : fields) config[key] = value;
    EXPECT_TRUE(write_file_atomic(dir / "config.json", json::serialize(config)).ok());
    EXPECT_TRUE(
        write_file_atomic(dir / "model.safetensors", io::serialize_safetensors(tensors)).ok());
    return Interpreter(engine_of(dir)).run(prompt);
  };
  EXPECT_EQ(run("GraniteMoeSharedForCausalLM", {}), wanted);
  json::object attention = {{"layer_types", {"attention", "attention"}}};
  EXPECT_NE(run("GraniteMoeHybridForCausalLM", attention), wanted);  // no RoPE
  attention["position_embedding_type"] = "rope";
  EXPECT_EQ(run("GraniteMoeHybridForCausalLM", attention), wanted);
}

TEST_F(ForwardTest, QuickStartFollowsItsGolden) {
  const io::EngineFile file = engine("/models/quickstart");
  const auto golden = read_json_file(kSourceRoot + "/tests/golden/target.json");
  ASSERT_TRUE(golden.ok());
  const json::value& item = golden->at("cases").at(0);
  const std::vector<int32_t> greedy = ids(item.at("greedy_ids"));
  const auto steps = std::min<int64_t>(item.at("clear_steps").as_int64(), 8);
  Interpreter interpreter(file);
  std::vector<float> out = interpreter.run(ids(item.at("prompt_ids")));
  for (int64_t step = 0; step < steps; ++step) {
    EXPECT_EQ(std::max_element(out.begin(), out.end()) - out.begin(), greedy[step]);
    out = interpreter.run({greedy[step]});
  }
}

TEST_F(ForwardTest, OptionalPassesDoNotChangeABit) {
  const std::vector<int32_t> prompt = {187, 338, 457, 31, 139};
  for (const std::string& name : tiny_models()) {
    SCOPED_TRACE(name);
    const std::string model = "/tests/models/" + name;
    const io::EngineFile all = engine(model);
    Interpreter reference(all);
    const std::vector<float> first = reference.run(prompt), second = reference.run({7});
    std::vector<std::vector<std::string>> switched_off(1);  // [0]: all of them
    for (const graph::Pass& pass : graph::passes()) {
      if (pass.required) continue;
      switched_off[0].emplace_back(pass.name);
      switched_off.push_back({std::string(pass.name)});
    }
    for (const std::vector<std::string>& disabled : switched_off) {
      const io::EngineFile file = engine(model, disabled);
      Interpreter interpreter(file);
      EXPECT_EQ(interpreter.run(prompt), first) << model << " without " << disabled[0];
      EXPECT_EQ(interpreter.run({7}), second) << model << " without " << disabled[0];
    }
  }
}

}  // namespace
}  // namespace nereid::convert
