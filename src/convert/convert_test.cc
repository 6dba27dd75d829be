#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "convert/convert_fixture.h"
#include "convert/engine_key.h"
#include "convert/refit.h"
#include "io/engine_file.h"
#include "io/safetensors.h"
#include "io/test_torch_file.h"
#include "kernels/api/pack.h"
#include "kernels/ref/ref.h"

namespace nereid::convert {
namespace {

using testing::HasSubstr;

TEST_F(ConvertTest, BuiltOnceThenTakenFromTheCache) {
  const std::filesystem::path path = good();
  EXPECT_TRUE(report_.built);
  EXPECT_EQ(path.parent_path(), dir_ / "cache/engines");
  EXPECT_EQ(report_.bytes, std::filesystem::file_size(path));
  EXPECT_EQ(good(), path);
  EXPECT_FALSE(report_.built);
  options_.rebuild = true;
  EXPECT_EQ(good(), path);
  EXPECT_TRUE(report_.built);
}

TEST_F(ConvertTest, WeightsAreThoseOfTheCheckpoint) {
  const auto engine = io::EngineFile::open(good());
  const auto checkpoint = io::Checkpoint::open(dir_ / "model");
  for (size_t i = 0; i < engine->plan().weights.size(); ++i) {
    const io::PlanWeight& w = engine->plan().weights[i];
    if (w.name != "layers.1.attn.qkv") continue;
    std::vector<BF16> rows(static_cast<size_t>(w.n * w.k));
    ASSERT_TRUE(
        kernels::unpack_rows(engine->weight(static_cast<io::WeightId>(i)), 0, w.n, rows.data())
            .ok());
    size_t at = 0;
    for (const char* part : {"q_proj", "k_proj", "v_proj"}) {
      const auto* entry = checkpoint->find(fmt::format("model.layers.1.self_attn.{}.weight", part));
      const std::span<const std::byte> wanted = entry->tensor->data;
      ASSERT_EQ(std::memcmp(rows.data() + at, wanted.data(), wanted.size()), 0) << part;
      at += wanted.size() / 2;
    }
    return;
  }
  FAIL() << "no layers.1.attn.qkv";
}

// Expects rounding errors within half a step of the format.
void expect_rounded(const kernels::WeightView& got, const kernels::WeightView& wanted,
                    const std::string& name) {
  const bool fp8 = got.format.scheme == kernels::Scheme::kFloat8;
  for (int64_t row = 0; row < got.n; row += 7)
    for (int64_t col = 0; col < got.k; ++col) {
      const float x = kernels::weight_at(wanted, row, col);
      const float scale = std::abs(got.scales[kernels::group_index(
          got.layout, row, col / got.format.group_size(got.k), got.format.num_groups(got.k))]);
      const float steps = got.format.bits == 4 ? 1.001f : .501f;  // see kernels::quantize()
      const float step = fp8 ? 0x1p-10f * scale + 0x1.01p-4f * std::abs(x)
                             : steps * scale + 0x1p-8f * (std::abs(x) + scale);
      ASSERT_NEAR(kernels::weight_at(got, row, col), x, step) << name;
    }
}

// Rounded weights are close to the checkpoint's, have the size of their format and their own key;
// an engine file that is given must have the format.
TEST_F(ConvertTest, WeightsBecomeIntegersWhenTheBuildAsksForThem) {
  const auto plain = io::EngineFile::open(good());
  const std::string plain_key = report_.key;
  for (const std::string word : {"int8", "int4"}) {
    ASSERT_TRUE(read_weight_formats(word, "auto", "auto", options_.compile).ok());
    const std::filesystem::path path = good();
    EXPECT_NE(report_.key, plain_key);
    const auto engine = io::EngineFile::open(path, io::Verify::kFull);
    ASSERT_TRUE(engine.ok()) << engine.status();
    int num_rounded = 0;
    for (size_t i = 0; i < engine->plan().weights.size(); ++i) {
      const io::PlanWeight& w = engine->plan().weights[i];
      if (w.format.is_float()) continue;
      ++num_rounded;
      const bool is_head = &w == head_of(engine->plan());
      EXPECT_EQ(w.format, is_head ? kernels::kInt8PerRow : *options_.compile.weights);
      const auto id = static_cast<io::WeightId>(i);
      expect_rounded(engine->weight(id), plain->weight(id), w.name);
    }
    EXPECT_EQ(num_rounded, 9) << "four products in each of two layers, the head";
    // Used unchanged only if it matches the options.
    BuildOptions other;
    other.cache_dir = dir_ / "cache";
    other.compile.weights = options_.compile.weights;
    EXPECT_TRUE(ensure_engine(path, registry_, DeviceInfo{}, other).ok());
    ASSERT_TRUE(
        read_weight_formats(word == "int8" ? "int4" : "int8", "auto", "auto", other.compile).ok());
    const auto refused = ensure_engine(path, registry_, DeviceInfo{}, other);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(std::string(message(refused.status())), HasSubstr("was built without weights of"));
    ASSERT_TRUE(read_weight_formats(word, "bf16", "auto", other.compile).ok());
    const auto other_head = ensure_engine(path, registry_, DeviceInfo{}, other);
    ASSERT_FALSE(other_head.ok());
    EXPECT_THAT(std::string(message(other_head.status())),
                HasSubstr("was built with a head of int8, not of bf16"));
  }
  CompileOptions options;
  EXPECT_THAT(std::string(message(read_weight_formats("int3", "auto", "auto", options))),
              HasSubstr("weights: 'int3' is not one of auto, bf16, int8, int4, w8a8"));
  EXPECT_THAT(std::string(message(read_weight_formats("auto", "int3", "auto", options))),
              HasSubstr("head_weights: 'int3' is not one of auto, bf16, int8, int4, w8a8"));
}

TEST_F(ConvertTest, WeightsOfExpertsAreRoundedToo) {
  std::filesystem::remove_all(dir_ / "model");
  std::filesystem::copy(kSource + "/tests/models/mixtral", dir_ / "model");
  const auto plain = io::EngineFile::open(good());
  for (const std::string word : {"int8", "int4", "fp8"}) {
    ASSERT_TRUE(read_weight_formats(word, "auto", "auto", options_.compile).ok());
    const auto engine = io::EngineFile::open(good(), io::Verify::kFull);
    ASSERT_TRUE(engine.ok()) << engine.status();
    int num_rounded = 0;
    for (size_t i = 0; i < engine->plan().weights.size(); ++i) {
      const io::PlanWeight& w = engine->plan().weights[i];
      if (w.experts == 1) continue;
      num_rounded += w.format == *options_.compile.weights;
      const auto id = static_cast<io::WeightId>(i);
      for (int64_t e = 0; e < w.experts; ++e)
        expect_rounded(kernels::expert_of(engine->weight(id), e),
                       kernels::expert_of(plain->weight(id), e), w.name);
    }
    EXPECT_EQ(num_rounded, 4) << "gates with ups, and down, of two layers";
  }
}

TEST_F(ConvertTest, EverythingThatMattersChangesTheKey) {
  std::set<std::string> keys;
  const auto add = [&] {
    good();
    EXPECT_TRUE(keys.insert(report_.key).second) << "the same key again";
  };
  add();
  options_.compile.disabled_passes = {"merge_qkv"};
  add();
  options_.compile.disabled_passes = {"merge_gate_up"};
  add();
  options_.compile.disabled_passes = {};
  options_.compile.max_positions = 32;
  add();
  options_.compile.max_positions = 0;
  ASSERT_TRUE(
      write_file_atomic(dir_ / "model/generation_config.json", R"({"eos_token_id":5})").ok());
  add();
  change_tensors([&](io::StoredTensor& t) {
    if (t.name == "model.norm.weight")
      t.data = converted<BF16>(t, [](float x) { return to_bf16(x + 1); });
  });
  add();
}

// A second kernel of linear, at a share of the cost of ref.
template <int kPercent>
kernels::Registry with_twin() {
  kernels::Registry registry;
  kernels::ref::add_kernels(registry);
  auto twin = registry.table<kernels::Linear>()[0];
  twin.name = "twin";
  twin.cost = [](const kernels::Linear& p, const DeviceInfo& d) {
    kernels::Registry ref;
    kernels::ref::add_kernels(ref);
    return ref.table<kernels::Linear>()[0].cost(p, d) * kPercent / 100;
  };
  registry.add<kernels::Linear>({twin});
  return registry;
}

// An engine in the cache built by another compiler revision with the same version.
TEST_F(ConvertTest, WhatTheCompilerWouldDoIsInTheKey) {
  std::set<std::string> keys;
  const auto key_of = [&](const kernels::Registry& registry) {
    registry_ = registry;
    good();
    return report_.key;
  };
  const std::string dear = key_of(with_twin<200>()), cheap = key_of(with_twin<50>());
  EXPECT_NE(dear, cheap) << "another cost, another kernel";
  options_.compile.forced = {"linear:twin"};
  EXPECT_EQ(key_of(with_twin<200>()), cheap) << "the same plan";
  options_.compile.forced = {};
  const auto compiled = compile_model(dir_ / "model", registry_, DeviceInfo{}).value();
  const std::string key = engine_key(compiled, nullptr);
  EXPECT_EQ(engine_key(compiled, nullptr), key);
  const auto changed = [&](const std::function<void(Compiled&)>& change) {
    Compiled other = compiled;
    change(other);
    EXPECT_NE(engine_key(other, nullptr), key);
  };
  changed([](Compiled& c) { c.plan.weights[1].layout = kernels::WeightLayout::kPanel16; });
  changed([](Compiled& c) { c.plan.values[1].offset += 64; });
  changed([](Compiled& c) { std::swap(c.plan.calls[1], c.plan.calls[2]); });
  changed([](Compiled& c) { c.graph.weights[1].parts[0].tensor += "x"; });
}

TEST_F(ConvertTest, DamagedForeignAndTruncatedEnginesAreRebuilt) {
  const std::filesystem::path path = good();
  const std::string bytes = *read_file(path);
  std::string flipped = bytes;
  flipped[flipped.size() / 2] ^= 1;
  std::string header = bytes;
  header[70] ^= 1;
  for (const std::string& bad :
       {flipped, header, bytes.substr(0, bytes.size() / 2), std::string("hello"), std::string()}) {
    ASSERT_TRUE(write_file_atomic(path, bad).ok());
    EXPECT_EQ(good(), path);
    EXPECT_TRUE(report_.built);
    EXPECT_EQ(*read_file(path), bytes);
  }
  // A valid engine under another engine's name.
  options_.compile.disabled_passes = {"merge_qkv"};
  std::filesystem::copy(good(), path, std::filesystem::copy_options::overwrite_existing);
  options_.compile.disabled_passes = {};
  EXPECT_EQ(good(), path);
  EXPECT_TRUE(report_.built);
}

TEST_F(ConvertTest, DamagedCheckpointIsAClearError) {
  const std::filesystem::path file = dir_ / "model/model.safetensors";
  const std::string bytes = *read_file(file);
  ASSERT_TRUE(write_file_atomic(file, bytes.substr(0, bytes.size() - 10)).ok());
  EXPECT_THAT(error(), HasSubstr("model.safetensors: tensor 'model.norm.weight': ends at byte"));
  ASSERT_TRUE(write_file_atomic(file, bytes).ok());
  change_tensors([&](io::StoredTensor& t) {
    if (t.name == "model.layers.1.mlp.up_proj.weight")
      t.data = converted<BF16>(
          t, [n = 0](float x) mutable { return to_bf16(n++ == 77 ? std::nanf("") : x); });
  });
  EXPECT_THAT(error(),
              HasSubstr("'model.layers.1.mlp.up_proj.weight': element 77 is not a finite"));
  std::filesystem::remove(file);
  EXPECT_THAT(error(), HasSubstr("none of model.safetensors, "));
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "cache/engines") ||
              std::distance(std::filesystem::directory_iterator(dir_ / "cache/engines"), {}) == 1);
}

TEST_F(ConvertTest, ShardedCheckpointGivesTheSameWeights) {
  const std::vector<std::byte> whole = blob(good());
  const auto file = io::TensorFile::open(dir_ / "model/model.safetensors");
  std::vector<io::StoredTensor> shards[2];
  json::object map;
  for (size_t i = 0; i < file->tensors().size(); ++i) {
    shards[i % 2].push_back(file->tensors()[i]);
    map[file->tensors()[i].name] = fmt::format("part-{}.safetensors", i % 2);
  }
  for (int i = 0; i < 2; ++i)
    ASSERT_TRUE(write_file_atomic(dir_ / fmt::format("model/part-{}.safetensors", i),
                                  io::serialize_safetensors(shards[i]))
                    .ok());
  json::object index;
  index["weight_map"] = map;
  ASSERT_TRUE(
      write_file_atomic(dir_ / "model/model.safetensors.index.json", json::serialize(index)).ok());
  std::filesystem::remove(dir_ / "model/model.safetensors");
  EXPECT_EQ(blob(good()), whole);
  EXPECT_TRUE(report_.built);
}

TEST_F(ConvertTest, FilesOfPyTorchGiveTheSameWeights) {
  const std::vector<std::byte> whole = blob(good());
  const auto file = io::TensorFile::open(dir_ / "model/model.safetensors");
  const std::span<const io::StoredTensor> tensors = file->tensors();
  const std::string single = io::testing_only::serialize_torch_file(tensors);
  ASSERT_TRUE(write_file_atomic(dir_ / "model/pytorch_model.bin", single).ok());
  std::filesystem::remove(dir_ / "model/model.safetensors");
  EXPECT_EQ(blob(good()), whole);
  EXPECT_TRUE(report_.built);
  json::object map;
  for (size_t i = 0; i < tensors.size(); ++i)
    map[tensors[i].name] = i < 5 ? "part-1.bin" : "part-2.bin";
  for (const auto& [name, part] :
       {std::pair("part-1.bin", tensors.first(5)), std::pair("part-2.bin", tensors.subspan(5))})
    ASSERT_TRUE(
        write_file_atomic(dir_ / "model" / name, io::testing_only::serialize_torch_file(part))
            .ok());
  ASSERT_TRUE(write_file_atomic(dir_ / "model/pytorch_model.bin.index.json",
                                json::serialize(json::object{{"weight_map", map}}))
                  .ok());
  std::filesystem::remove(dir_ / "model/pytorch_model.bin");
  EXPECT_EQ(blob(good()), whole);
  ASSERT_TRUE(write_file_atomic(dir_ / "model/part-2.bin", single.substr(0, 5000)).ok());
  EXPECT_THAT(error(), HasSubstr("model/part-2.bin: is not a zip archive"));
}

TEST_F(ConvertTest, F32AndF16CheckpointsAreRounded) {
  const std::vector<std::byte> wanted = blob(good());
  change_tensors([&](io::StoredTensor& t) {
    t.data = converted<float>(t, [](float x) { return x; });
    t.dtype = "F32", t.type = DType::kF32;
  });
  EXPECT_EQ(blob(good()), wanted);
  // f16: 1, -2, the smallest subnormal, 0.333.
  change_tensors([&](io::StoredTensor& t) {
    if (t.name != "model.norm.weight") return;
    std::string& out = storage_.emplace_back();
    constexpr uint16_t kHalves[] = {0x3c00, 0xc000, 0x0001, 0x3555};
    for (size_t i = 0; i < 64; ++i) out.append(reinterpret_cast<const char*>(&kHalves[i % 4]), 2);
    t.data = std::as_bytes(std::span(out));
    t.dtype = "F16", t.type = DType::kF16;
  });
  const auto engine = io::EngineFile::open(good());
  for (size_t i = 0; i < engine->plan().weights.size(); ++i) {
    if (engine->plan().weights[i].name != "norm") continue;
    const auto* x = reinterpret_cast<const BF16*>(engine->weight(static_cast<int>(i)).data);
    EXPECT_EQ(to_float(x[0]), 1);
    EXPECT_EQ(to_float(x[1]), -2);
    EXPECT_EQ(to_float(x[2]), std::ldexp(1.0f, -24));
    EXPECT_EQ(x[3].bits, to_bf16(0.33325195f).bits);
  }
}

TEST_F(ConvertTest, RandomWeightsNeedNoCheckpointAndRepeat) {
  std::filesystem::remove(dir_ / "model/model.safetensors");
  options_.random_weights = true;
  const std::vector<std::byte> first = blob(good());
  options_.rebuild = true;
  EXPECT_EQ(blob(good()), first);
  const auto engine = io::EngineFile::open(report_.path);
  const auto* x = reinterpret_cast<const BF16*>(engine->weight(0).data);
  double sum = 0, squares = 0;
  const int64_t n = engine->plan().weights[0].n * engine->plan().weights[0].k;
  for (int64_t i = 0; i < n; ++i) sum += to_float(x[i]), squares += std::pow(to_float(x[i]), 2);
  EXPECT_NEAR(sum / n, 0, 0.01);
  EXPECT_NEAR(squares / n * 64, 1, 0.05);  // variance 1 / hidden
}

}  // namespace
}  // namespace nereid::convert
