// Checkpoints in the TensorRT-LLM layout with the codes of a quantised folder. An independent
// program in tests/quantized reads their numbers.
#include <cstring>

#include "base/json.h"
#include "cli/tools/calibrate.h"
#include "cli/tools/quantize_fixture.h"
#include "convert/trtllm_checkpoint.h"
#include "convert/weight_source.h"
#include "io/safetensors.h"
#include "models/family.h"

namespace nereid::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kModels = source_dir() + "/tests/models/";
const std::string kServed = source_dir() + "/models/quickstart";
const std::string kText = source_dir() + "/tests/quality/calibration.txt";

class RankExportTest : public QuantizeTest {
 protected:
  using Words = std::vector<std::string>;
  void make(const std::string& model, const std::string& to, Words more) {
    more.insert(more.begin(), {"--model_dir", model, "--output_dir", dir_ / to});
    ASSERT_EQ(run(more), 0) << printed_;
  }
  int convert(Words words) { return run(convert_checkpoint_main, "convert", std::move(words)); }
  json::object quantization(const std::string& of) {
    return read_json_file(dir_ / of / "config.json")->at("quantization").as_object();
  }
  std::vector<float> numbers(const std::string& file, const std::string& name) {
    const auto tensors = io::TensorFile::open(dir_ / file);
    for (const io::StoredTensor& tensor : tensors->tensors())
      if (tensor.name == name) {
        std::vector<float> out(tensor.data.size() / size_of(*tensor.type));
        for (size_t i = 0; i < out.size(); ++i) {
          BF16 half;
          std::memcpy(&half, tensor.data.data() + i * sizeof half, sizeof half);
          if (tensor.type == DType::kF32)
            std::memcpy(&out[i], tensor.data.data() + i * sizeof(float), sizeof(float));
          else
            out[i] = to_float(half);
        }
        return out;
      }
    ADD_FAILURE() << file << " has no " << name;
    return {};
  }
  // The largest result of layer 1's matrices for one calibration row: x^T x contains all products
  // of its numbers, and (w x)^2 = w (x^T x) w.
  static double largest_result(const std::filesystem::path& ranks,
                               const quant::InputStatistics& seen,
                               const std::vector<std::string>& names) {
    const auto model = models::read_model(ranks);
    const auto checkpoint = models::open_checkpoint(*model, ranks);
    const std::vector<double> products = seen.mean_products();
    const auto k = static_cast<size_t>(seen.k());
    std::vector<float> row(k);
    double most = 0;
    for (const std::string& name : names) {
      const auto& weight =
          *std::ranges::find(model->graph.weights, "layers.1." + name, &graph::Weight::name);
      for (int64_t n = 0; n < weight.n; ++n) {
        EXPECT_TRUE(convert::read_values(weight, *checkpoint, n * weight.k, row).ok());
        double square = 0;
        for (size_t i = 0; i < products.size(); ++i)
          square += products[i] * row[i / k] * row[i % k];
        most = std::max(most, square);
      }
    }
    return std::sqrt(most);
  }
};

// Engines from both kinds of folders have the same bytes.
TEST_F(RankExportTest, CodesAreThoseOfTheFolder) {
  const std::tuple<const char*, const char*, Words> kCases[] = {
      {"int8_wo", "W8A16", {}},
      {"int8_wo", "W8A16", {"--exclude_modules", "*.o_proj"}},
      {"w8a8", "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN", {"--quantize_lm_head"}},
      {"int4_wo", "W4A16_AWQ", {"--awq_block_size", "32", "--int8_modules", "none"}},
      {"int4_wo", "W4A16_AWQ", {"--awq_block_size", "128", "--int8_modules", "none"}},
      {"int4_wo",
       "W4A16_GPTQ",
       {"--awq_block_size", "16", "--int8_modules", "none", "--zero_point"}}};
  for (const auto& [format, algorithm, more] : kCases) {
    Words words = {"--qformat", format};
    words.insert(words.end(), more.begin(), more.end());
    make(kModels + "llama", "folder", words);
    words.insert(words.end(), {"--export_format", "tensorrt_llm", "--dtype", "bfloat16"});
    make(kModels + "llama", "ranks", words);
    EXPECT_EQ(quantization("ranks").at("quant_algo"), algorithm);
    EXPECT_TRUE(weights(dir_ / "ranks") == weights(dir_ / "folder")) << format << algorithm;
    EXPECT_FALSE(std::filesystem::exists(dir_ / "ranks.hf"));
    std::filesystem::remove_all(dir_ / "folder");
  }
}

TEST_F(RankExportTest, ConfigSaysWhatTheLayoutHas) {
  make(kModels + "llama", "x",
       {"--qformat", "int4_wo", "--awq_block_size", "32", "--exclude_modules", "*.1.mlp.down_proj",
        "--export_format", "tensorrt_llm"});
  json::object config = quantization("x");
  EXPECT_EQ(config.at("group_size"), 32);
  EXPECT_EQ(config.at("has_zero_point"), false);
  EXPECT_EQ(config.at("pre_quant_scale"), true);
  EXPECT_EQ(config.at("kv_cache_quant_algo"), nullptr);
  EXPECT_EQ(
      json::serialize(config.at("exclude_modules")),
      R"(["lm_head","router","transformer.vocab_embedding","transformer.layers.1.mlp.proj"])");
  EXPECT_FALSE(config.contains("weight_layout"));
  make(kModels + "llama", "x",
       {"--qformat", "int4_wo", "--zero_point", "--awq_block_size", "32", "--export_format",
        "tensorrt_llm"});
  config = quantization("x");
  EXPECT_EQ(config.at("has_zero_point"), true);
  EXPECT_EQ(config.at("pre_quant_scale"), false);
  EXPECT_EQ(config.at("weight_layout"), "row_major");
  make(kModels + "llama", "x", {"--qformat", "int4_wo", "--export_format", "tensorrt_llm"});
  EXPECT_EQ(quantization("x").at("quant_algo"), "W4A16");
}

// Grouped products add their biases themselves, so only one of several ranks may have them.
TEST_F(RankExportTest, RanksAreMergedToTheSameNumbers) {
  make(kModels + "gpt2", "folder",
       {"--qformat", "int4_wo", "--awq_block_size", "16", "--int8_modules", "none"});
  const auto written = [&](const std::string& from, const std::string& to, Words more) {
    more.insert(more.begin(), {"--model_dir", dir_ / from, "--output_dir", dir_ / to});
    EXPECT_EQ(convert(more), 0) << printed_;
  };
  const Words awq = {"--use_weight_only", "--weight_only_precision", "int4_awq"};
  written("folder", "one", awq);
  written("folder", "three", {awq[0], awq[1], awq[2], "--tp_size", "3", "--pp_size", "2"});
  const std::string bias = "transformer.layers.0.attention.dense.bias";
  EXPECT_THAT(numbers("three/rank1.safetensors", bias), testing::Each(0));
  EXPECT_EQ(numbers("three/rank0.safetensors", bias), numbers("one/rank0.safetensors", bias));
  for (const char* from : {"one", "three", "folder"})
    written(from, std::string(from) + "-floats", {"--dtype", "float32"});
  const auto file = [&](const char* of) {
    return read_file(dir_ / of / "rank0.safetensors").value();
  };
  EXPECT_TRUE(file("three-floats") == file("folder-floats"));
  EXPECT_TRUE(file("one-floats") == file("folder-floats"));
}

TEST_F(RankExportTest, StaticFactorsComeFromTheText) {
  const Words text = {"--calib_dataset", kText, "--calib_size", "1", "--calib_max_seq_length", "1"};
  Words words = {"--qformat", "fp8", "--kv_cache_dtype", "int8", "--export_format", "tensorrt_llm"};
  words.insert(words.end(), text.begin(), text.end());
  make(kServed, "x", words);
  // The rounded model's result on the only token.
  const std::filesystem::path ranks = dir_ / "x";
  auto calibration = Calibration::open(ranks, {kText, 1, 1}, device_, dir_ / "cache");
  ASSERT_TRUE(calibration.ok()) << calibration.status();
  quant::InputStatistics q(256, true), down(768, false);
  ASSERT_TRUE(
      (*calibration)->collect({{"layers.1.attn.q", &q}, {"layers.1.mlp.down", &down}}).ok());
  const auto factor = [&](const std::string& module) {
    return numbers("x/rank0.safetensors", "transformer.layers.1." + module).at(0);
  };
  EXPECT_FLOAT_EQ(factor("attention.qkv.activation_scaling_factor"),
                  std::ranges::max(q.largest_magnitudes()) / 448);
  EXPECT_FLOAT_EQ(factor("mlp.proj.activation_scaling_factor"),
                  std::ranges::max(down.largest_magnitudes()) / 448);
  const double most = largest_result(ranks, q, {"attn.q", "attn.k", "attn.v"});
  EXPECT_NEAR(factor("attention.kv_cache_scaling_factor"), most / 127, most / 127 * 0.02);
}

// Static factors of SmoothQuant's plugins, by which their scales are divided.
TEST_F(RankExportTest, StaticFactorsOfPlugins) {
  const Words words = {
      "--model_dir",  kServed, "--smoothquant",          "0.5", "--calib_dataset", kText,
      "--calib_size", "1",     "--calib_max_seq_length", "1"};
  const auto written = [&](const std::string& to, Words more) {
    more.insert(more.begin(), {"--output_dir", dir_ / to});
    more.insert(more.begin(), words.begin(), words.end());
    ASSERT_EQ(convert(more), 0) << printed_;
  };
  const auto factors = [&](const std::string& of, const std::string& module) {
    return numbers(of + "/rank0.safetensors", "transformer.layers.1." + module);
  };
  const auto factor = [&](const std::string& name) { return factors("x", name).at(0); };
  for (const bool by_rows : {false, true}) {
    const Words rows = by_rows ? Words{"--per_channel"} : Words{};
    written("x", rows);
    Words per_token = rows;
    per_token.emplace_back("--per_token");
    written("same", per_token);
    EXPECT_EQ(quantization("x").at("quant_algo"),
              by_rows ? "W8A8_SQ_PER_CHANNEL_PER_TENSOR_PLUGIN" : "W8A8_SQ_PER_TENSOR_PLUGIN");
    // The factor of the integers appears twice.
    for (const auto& [module, input] :
         {std::pair("attention.qkv.", "input_layernorm.scale_to_int"),
          std::pair("attention.dense.", "attention.quantization_scaling_factor"),
          std::pair("mlp.fc.", "post_layernorm.scale_to_int"),
          std::pair("mlp.gate.", "post_layernorm.scale_to_int"),
          std::pair("mlp.proj.", "mlp.quantization_scaling_factor")}) {
      const std::string stem = module;
      std::vector<float> scales = factors("x", stem + "per_channel_scale");
      for (float& scale : scales) scale *= factor(input) * factor(stem + "act_scale");
      EXPECT_THAT(scales, testing::Pointwise(testing::FloatEq(),
                                             factors("same", stem + "per_channel_scale")))
          << module;
    }
  }
  auto calibration = Calibration::open(dir_ / "x", {kText, 1, 1}, device_, dir_ / "cache");
  ASSERT_TRUE(calibration.ok()) << calibration.status();
  quant::InputStatistics q(256, true), o(256, true);
  ASSERT_TRUE((*calibration)->collect({{"layers.1.attn.q", &q}, {"layers.1.attn.out", &o}}).ok());
  const auto near = [&](const std::string& name, double value) {
    EXPECT_NEAR(factor(name) / value, 1, 0.02) << name;
  };
  near("input_layernorm.scale_to_int", 127 / std::ranges::max(q.largest_magnitudes()));
  near("attention.quantization_scaling_factor", 127 / std::ranges::max(o.largest_magnitudes()));
  near("attention.qkv.act_scale",
       largest_result(dir_ / "x", q, {"attn.q", "attn.k", "attn.v"}) / 127);
  near("attention.dense.act_scale", largest_result(dir_ / "x", o, {"attn.out"}) / 127);
}

TEST_F(RankExportTest, AnFp8CacheNeedsNoText) {
  ASSERT_EQ(convert({"--model_dir", kModels + "llama", "--output_dir", out_, "--fp8_kv_cache"}), 0);
  EXPECT_EQ(quantization("out").at("kv_cache_quant_algo"), "FP8");
  EXPECT_THAT(
      numbers("out/rank0.safetensors", "transformer.layers.0.attention.kv_cache_scaling_factor"),
      ElementsAre(1));
  ASSERT_EQ(convert({"--model_dir", kModels + "llama", "--output_dir", out_, "--int8_kv_cache"}),
            0);
  EXPECT_THAT(printed_, HasSubstr("no kv_cache_scaling_factor is written without"));
}

TEST_F(RankExportTest, SmoothQuantOfTheConverter) {
  const Words to = {"--model_dir", kServed, "--output_dir", out_, "--smoothquant", "0.5"};
  const Words text = {"--calib_dataset",        kText, "--calib_size", "1",
                      "--calib_max_seq_length", "32"};
  const auto with = [&](Words more, bool calibrates) {
    more.insert(more.begin(), to.begin(), to.end());
    if (calibrates) more.insert(more.end(), text.begin(), text.end());
    return convert(more);
  };
  ASSERT_EQ(with({"--per_token"}, true), 0) << printed_;
  EXPECT_EQ(quantization("out").at("quant_algo"), "W8A8_SQ_PER_TENSOR_PER_TOKEN_PLUGIN");
  EXPECT_EQ(quantization("out").at("smoothquant_val"), 0.5);
  EXPECT_EQ(
      numbers("out/rank0.safetensors", "transformer.layers.0.mlp.fc.per_channel_scale").size(), 1u);
  EXPECT_THAT(numbers("out/rank0.safetensors", "transformer.layers.0.post_layernorm.scale_to_int"),
              ElementsAre(1));
  ASSERT_EQ(with({"--per_token", "--per_channel"}, true), 0) << printed_;
  EXPECT_EQ(quantization("out").at("quant_algo"), "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN");
  EXPECT_TRUE(open(out_));
  EXPECT_EQ(with({"--per_token"}, false), 1);
  EXPECT_THAT(printed_, HasSubstr("--calib_dataset: is missing"));
  EXPECT_EQ(with({"--per_channel"}, false), 1);
  EXPECT_THAT(printed_, HasSubstr("--calib_dataset: is missing"));
}

TEST_F(RankExportTest, TheConverterFindsStaticFactors) {
  const auto with = [&](Words more) {
    more.insert(more.begin(), {"--model_dir", kServed, "--output_dir", out_, "--calib_dataset",
                               kText, "--calib_size", "1", "--calib_max_seq_length", "32"});
    ASSERT_EQ(convert(more), 0) << printed_;
  };
  const auto factor = [&](const std::string& name) {
    return numbers("out/rank0.safetensors", "transformer.layers.0." + name).at(0);
  };
  with({"--use_fp8", "--fp8_kv_cache"});
  EXPECT_EQ(quantization("out").at("quant_algo"), "FP8");
  const float fp8 = factor("mlp.fc.activation_scaling_factor");
  const float cache = factor("attention.kv_cache_scaling_factor");
  EXPECT_GT(fp8, 0);
  EXPECT_NE(cache, 1);
  with({"--use_smooth_quant", "--int8_kv_cache"});
  EXPECT_EQ(quantization("out").at("quant_algo"), "W8A8_SQ_PER_CHANNEL");
  EXPECT_GT(factor("mlp.fc.activation_scaling_factor"), 0);
  // Nearly the same keys and values, in steps of 1 / 127 of the largest instead of 1 / 448.
  EXPECT_NEAR(factor("attention.kv_cache_scaling_factor") / cache, 448.0 / 127, 0.4);
  // Scales of a plugin's input and result must be present.
  json::object config = read_json_file(out_ / "config.json")->as_object();
  config.at("quantization").as_object()["quant_algo"] = "W8A8_SQ_PER_TENSOR_PLUGIN";
  with({"--smoothquant", "0.5", "--per_token"});
  ASSERT_TRUE(write_file_atomic(out_ / "config.json", json::serialize(config)).ok());
  EXPECT_EQ(convert({"--model_dir", out_, "--output_dir", dir_ / "x"}), 1);
  EXPECT_THAT(printed_, HasSubstr("attention.qkv.act_scale', one F32, is missing"));
}

TEST_F(RankExportTest, FourBitsWithStaticFactors) {
  make(kServed, "folder", {"--qformat", "int4_wo", "--int8_modules", "none"});
  ASSERT_EQ(convert({"--model_dir", dir_ / "folder", "--output_dir", out_, "--use_weight_only",
                     "--weight_only_precision", "w4a8_awq", "--calib_dataset", kText,
                     "--calib_size", "1", "--calib_max_seq_length", "1"}),
            0)
      << printed_;
  EXPECT_EQ(quantization("out").at("quant_algo"), "W4A8_AWQ");
  EXPECT_TRUE(weights(out_) == weights(dir_ / "folder"));
  auto calibration = Calibration::open(out_, {kText, 1, 1}, device_, dir_ / "cache");
  ASSERT_TRUE(calibration.ok()) << calibration.status();
  quant::InputStatistics q(256, false);
  ASSERT_TRUE((*calibration)->collect({{"layers.1.attn.q", &q}}).ok());
  const auto of_qkv = [&](const std::string& part) {
    return numbers("out/rank0.safetensors", "transformer.layers.1.attention.qkv." + part);
  };
  EXPECT_THAT(of_qkv("activation_scaling_factor"),
              ElementsAre(testing::FloatEq(std::ranges::max(q.largest_magnitudes()) / 448)));
  EXPECT_THAT(of_qkv("weights_scaling_factor_2"),
              ElementsAre(testing::FloatEq(std::ranges::max(of_qkv("weights_scaling_factor")) *
                                           (8.0f / 448))));
}

// The tensors under the names of such layouts; tests/quantized checks both's numbers.
TEST_F(RankExportTest, FourBitsWithRoundedActivationsAreRead) {
  make(kModels + "llama", "ranks",
       {"--qformat", "int4_wo", "--awq_block_size", "32", "--export_format", "tensorrt_llm"});
  const auto wanted = weights(dir_ / "ranks");
  const auto say = [&](const char* algorithm) {
    json::object config = read_json_file(dir_ / "ranks/config.json")->as_object();
    config.at("quantization").as_object()["quant_algo"] = algorithm;
    ASSERT_TRUE(write_file_atomic(dir_ / "ranks/config.json", json::serialize(config)).ok());
  };
  const Words words = {"--model_dir", dir_ / "ranks", "--output_dir", out_};
  say("W4A8_AWQ");
  EXPECT_EQ(convert(words), 0);
  EXPECT_THAT(printed_, HasSubstr("quant_algo W4A8_AWQ: activations stay bf16"));
  EXPECT_TRUE(weights(dir_ / "ranks") == wanted);
  say("NVFP4");
  EXPECT_EQ(convert(words), 1);
  EXPECT_THAT(printed_, HasSubstr("is not a matrix of bytes for F8_E4M3 scales"));
}

TEST_F(RankExportTest, WhatTheLayoutCannotSayIsNamed) {
  const auto refuses = [&](Words words, const std::string& text) {
    words.insert(words.begin(), {"--model_dir", kServed, "--output_dir", out_, "--export_format",
                                 "tensorrt_llm", "--qformat"});
    EXPECT_EQ(run(words), 1) << printed_;
    EXPECT_THAT(printed_, HasSubstr(text));
    EXPECT_FALSE(std::filesystem::exists(out_));
  };
  refuses({"w4a8_awq"}, "allowed: fp8, int8_wo, int4_wo, int4_awq, int4_gptq, w8a8, int8_sq");
  refuses({"fp8"}, "--calib_dataset: is missing; --qformat fp8");
  refuses({"int4_awq", "--zero_point"}, "--zero_point: W4A16_AWQ has none");
  refuses({"int4_wo", "--int8_modules", "*.v_proj"}, "has one type for all; allowed with");
  refuses({"int4_wo", "--quantize_lm_head"}, "--quantize_lm_head: allowed with");
  refuses({"int8_wo", "--kv_cache_dtype", "int8"}, "--calib_dataset: is missing");
  refuses({"fp8", "--error_feedback", "--calib_dataset", kText}, "one scale for a matrix");
  refuses({"int8_wo", "--tp_size", "0"}, "tp_size: 0 is not allowed");
  refuses({"int8_wo", "--exclude_modules", "*.q_proj"}, "cannot store tensor");
  EXPECT_EQ(
      run({"--model_dir", kServed, "--output_dir", out_, "--qformat", "fp8", "--tp_size", "2"}), 1);
  EXPECT_THAT(printed_, HasSubstr("--tp_size: '2' is for --export_format tensorrt_llm"));
}

TEST_F(RankExportTest, TheConverterTakesOverWhatIsThere) {
  make(kModels + "llama", "awq",
       {"--qformat", "int4_wo", "--awq_block_size", "32", "--int8_modules", "none"});
  make(kModels + "llama", "rows", {"--qformat", "fp8"});
  const auto refuses = [&](const std::string& from, Words words, const std::string& text) {
    words.insert(words.begin(), {"--model_dir", from, "--output_dir", out_});
    EXPECT_EQ(convert(words), 1) << printed_;
    EXPECT_THAT(printed_, HasSubstr(text));
    EXPECT_FALSE(std::filesystem::exists(out_));
  };
  const Words awq = {"--use_weight_only", "--weight_only_precision", "int4_awq"};
  refuses(
      kModels + "llama", awq,
      "'int4_awq' takes over int4 in groups of 128 weights (quant_algo W4A16_AWQ), of which the "
      "model has none; `nereid quantize --qformat int4_awq --export_format tensorrt_llm`");
  refuses(dir_ / "awq", {awq[0], awq[1], awq[2], "--group_size", "64"},
          "group_size: 64, but the model has int4 in groups of 32");
  refuses(dir_ / "rows", awq, "cannot store tensor 'model.layers.0.self_attn.q_proj.weight'");
  refuses(dir_ / "rows", {"--use_fp8", "--calib_dataset", kText}, "tokenizer");
  refuses(dir_ / "awq", {"--per_group"}, "--per_group: allowed with --weight_only_precision");
  refuses(dir_ / "awq", {awq[0], awq[1], "w4a8_awq"}, "--calib_dataset: is missing");
  refuses(kModels + "llama", {awq[0], awq[1], "w4a8_awq"}, "of which the model has none");
  // Refused by the command line.
  EXPECT_EQ(convert({"--model_dir", dir_ / "awq", "--output_dir", out_, "--smoothquant", "7"}), 2);
  EXPECT_THAT(printed_, HasSubstr("argument --smoothquant: 7 is not in [0, 1]"));
  refuses(dir_ / "awq", {"--per_token"}, "--per_token: needs --smoothquant");
  refuses(dir_ / "awq", {"--use_fp8", "--use_fp8_rowwise"}, "cannot be combined with --use_fp8");
  ASSERT_EQ(convert({"--model_dir", dir_ / "rows", "--output_dir", out_, "--use_fp8_rowwise",
                     "--calib_dataset", "cnn_dailymail"}),
            0)
      << printed_;
  EXPECT_THAT(printed_, HasSubstr("--calib_dataset: without effect"));
  EXPECT_TRUE(weights(out_) == weights(dir_ / "rows"));
}

}  // namespace
}  // namespace nereid::cli
