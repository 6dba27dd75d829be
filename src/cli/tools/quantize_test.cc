// Checkpoints written by `nereid quantize`, run beside their float model.
#include "base/json.h"
#include "cli/tools/quantize_fixture.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::cli {
namespace {

using testing::HasSubstr;

const std::string kRoot = source_dir();
const std::string kQuickstart = kRoot + "/models/quickstart";
constexpr kernels::WeightFormat kInt8Groups = {
    .scheme = kernels::Scheme::kInteger, .bits = 8, .group = 16};

// Plain rounding gives the same bytes as a build that rounds the float model.
TEST_F(QuantizeTest, PlainRoundingIsThatOfTheBuild) {
  kernels::WeightFormat zeros{
      .scheme = kernels::Scheme::kInteger, .bits = 4, .group = 32, .zeros = true};
  for (const char* family :
       {"llama", "qwen2", "phi3", "gemma2", "mixtral", "qwen3_moe", "gpt2", "gpt_oss", "qwen2_moe"})
    for (const auto& format :
         {kernels::kInt8PerRow, kernels::kFp8PerRow, kernels::kInt8Both, kInt8Groups, zeros,
          kernels::WeightFormat{.scheme = kernels::Scheme::kInteger, .bits = 4, .group = 16}}) {
      const std::string model = kRoot + "/tests/models/" + family;
      const auto is = [&](std::string_view name) { return name == family; };
      const bool has_48_columns = is("phi3") || is("mixtral") || is("qwen3_moe") || is("gpt2") ||
                                  is("gpt_oss") || is("qwen2_moe");
      if (has_48_columns && format.group == 32) continue;
      if (is("qwen2_moe") && format.group > 0) continue;  // 24 columns stay unrounded
      for (const bool head : {false, true}) {
        if (head && (is("qwen2") || is("gemma2") || is("gpt2"))) continue;
        const convert::QuantizeOptions options{
            .model_dir = model, .format = format, .quantize_head = head};
        ASSERT_TRUE(quantize(options).ok());
        convert::CompileOptions compile;
        compile.weights = format;
        compile.head = head ? options.head_format() : kernels::WeightFormat{};
        EXPECT_EQ(weights(out_), weights(model, compile)) << family << kernels::text_of(format);
      }
    }
}

// Factors are moved out of norms, values and up projections without changing the function: with
// fine integers the result is as near to the float model as without factors.
TEST_F(QuantizeTest, FactorsChangeNothing) {
  std::vector<TokenId> ids;
  for (int32_t i = 0; i < 120; ++i) ids.push_back(3 + i * 37 % 500);
  for (const char* family : {"llama", "qwen2", "qwen3", "gemma", "gemma3", "phi3", "stablelm",
                             "cohere", "olmo2", "opt", "mistral", "starcoder2", "mixtral", "phimoe",
                             "qwen2_moe", "olmoe", "deepseek_v3", "gpt_oss"}) {
    const std::string model = kRoot + "/tests/models/" + family;
    convert::QuantizeOptions options{.model_dir = model, .format = kInt8Groups};
    ASSERT_TRUE(quantize(options).ok()) << family;
    const double plain = divergence(model, ids);
    options.search_scales = true;
    options.collect = [&](const auto& wanted) { return make_up(wanted, *products_); };
    ASSERT_TRUE(quantize(options).ok()) << family;
    EXPECT_LT(divergence(model, ids), 30 * plain + 1e-6) << family << " plain " << plain;
    options.search_scales = false;
    options.smoothing = 0.5;
    ASSERT_TRUE(quantize(options).ok()) << family;
    EXPECT_LT(divergence(model, ids), 30 * plain + 1e-6) << family << " smoothed, plain " << plain;
  }
}

TEST_F(QuantizeTest, CalibrationMakesFourBitsBetter) {
  const std::string text = read_file(kRoot + "/tests/quality/held_out.txt").value();
  ASSERT_TRUE(
      write_file_atomic(dir_ / "calibration.txt", std::string_view(text).substr(0, 24000)).ok());
  auto calibration = Calibration::open(kQuickstart, {dir_ / "calibration.txt", 40, 128}, device_);
  ASSERT_TRUE(calibration.ok()) << calibration.status();
  std::vector<TokenId> ids, seen;
  {
    const auto tokenizer = text::Tokenizer::load(kQuickstart);
    seen = (*tokenizer)->encode(std::string_view(text).substr(0, 8000)).value();
    ids = (*tokenizer)->encode(std::string_view(text).substr(24000, 4000)).value();
  }
  convert::QuantizeOptions options{.model_dir = kQuickstart, .format = kernels::kInt4Groups};
  ASSERT_TRUE(quantize(options).ok());
  EXPECT_EQ(report_.num_matrices, 42);
  const double plain = divergence(kQuickstart, ids);
  options.error_feedback = true;
  options.collect = [&](const auto& wanted) { return (*calibration)->collect(wanted); };
  ASSERT_TRUE(quantize(options).ok());
  EXPECT_LT(divergence(kQuickstart, ids), 0.75 * plain);
  // The compensation is fitted to this small text, so the same text is measured.
  const double once = divergence(kQuickstart, seen);
  options.sequential = true;
  options.use_rounded = [&](const auto& weight, auto matrix, int64_t k) {
    return (*calibration)->use_rounded(weight, matrix, k);
  };
  ASSERT_TRUE(quantize(options).ok());
  EXPECT_EQ(report_.num_matrices, 42);
  EXPECT_LT(divergence(kQuickstart, seen), 0.97 * once);
}

// Which layers are calibrated together has no effect; earlier rounded layers have.
TEST_F(QuantizeTest, LayersAreCalibratedByThemselvesOrTogether) {
  const std::filesystem::path model = with_tokenizer("llama");
  const auto calibration = calibrate(model);
  ASSERT_TRUE(calibration);
  convert::QuantizeOptions options{.model_dir = model, .format = kInt8Groups};
  options.format.bits = 4;
  options.error_feedback = true;
  int collected = 0;  // times
  options.collect = [&](const auto& wanted) {
    ++collected;
    return calibration->collect(wanted);
  };
  std::vector<std::string> written;
  std::vector<int> times;
  const auto write = [&] {
    ASSERT_TRUE(quantize(options).ok());
    written.push_back(read_file(out_ / "model.safetensors").value());
    times.push_back(std::exchange(collected, 0));
  };
  options.statistics_bytes = 1;  // one layer at a time
  write();
  options.statistics_bytes = uint64_t{1} << 30;
  write();
  options.sequential = true;
  options.use_rounded = [&](const auto& weight, auto matrix, int64_t k) {
    return calibration->use_rounded(weight, matrix, k);
  };
  write();
  ASSERT_EQ(written.size(), 3);
  EXPECT_GT(times[0], times[1]);
  EXPECT_EQ(written[0], written[1]);
  EXPECT_NE(written[1], written[2]);
}

TEST_F(QuantizeTest, ExcludedModulesStayAsTheyAre) {
  ASSERT_EQ(run({"--model_dir", kQuickstart, "--output_dir", out_.string(), "--qformat", "int4_wo",
                 "--awq_block_size", "64", "--int8_modules", "none", "--exclude_modules",
                 "*.down_proj", "model.layers.0.*"}),
            0)
      << printed_;
  EXPECT_THAT(printed_, HasSubstr("30 matrices as int4 in groups of 64, 13 left as they are"));
  const auto file = io::TensorFile::open(out_ / "model.safetensors");
  const auto floats = io::TensorFile::open(kQuickstart + "/model.safetensors");
  ASSERT_TRUE(file.ok() && floats.ok());
  const auto find = [](const io::TensorFile& in, std::string_view name) {
    return std::ranges::find(in.tensors(), name, &io::StoredTensor::name);
  };
  const char* kept = "model.layers.3.mlp.down_proj.weight";
  ASSERT_NE(find(*file, kept), file->tensors().end());
  EXPECT_TRUE(std::ranges::equal(find(*file, kept)->data, find(*floats, kept)->data));
  EXPECT_EQ(find(*file, "model.layers.3.mlp.up_proj.weight"), file->tensors().end());
  EXPECT_NE(find(*file, "model.layers.3.mlp.up_proj.weight_packed"), file->tensors().end());
  const auto config = read_json_file(out_ / "config.json");
  const auto& ignored = config->at("quantization_config").at("ignore").as_array();
  EXPECT_NE(std::ranges::find(ignored, json::value("model.layers.3.mlp.down_proj")), ignored.end());
  EXPECT_TRUE(std::filesystem::exists(out_ / "tokenizer.json"));
}

// Values and down projections with 8 bits: recorded in the file, and nearer to the float model.
TEST_F(QuantizeTest, ChosenModulesHaveEightBits) {
  std::vector<TokenId> ids;
  for (int32_t i = 0; i < 120; ++i) ids.push_back(3 + i * 37 % 500);
  ASSERT_TRUE(quantize({.model_dir = kQuickstart, .format = kernels::kInt4Groups}).ok());
  const double plain = divergence(kQuickstart, ids);
  ASSERT_EQ(run({"--model_dir", kQuickstart, "--output_dir", out_.string(), "--qformat", "int4_wo",
                 "--int8_modules", "*.v_proj", "*.down_proj"}),
            0)
      << printed_;
  const std::string chosen = read_file(out_ / "model.safetensors").value();
  ASSERT_EQ(
      run({"--model_dir", kQuickstart, "--output_dir", out_.string(), "--qformat", "int4_wo"}), 0)
      << printed_;
  EXPECT_EQ(read_file(out_ / "model.safetensors").value(), chosen);  // the default
  EXPECT_THAT(printed_,
              HasSubstr("42 matrices as int4 in groups of 128 (12 of them int8), 1 left"));
  EXPECT_LT(divergence(kQuickstart, ids), 0.8 * plain);
  const auto config = read_json_file(out_ / "config.json");
  const auto& groups = config->at("quantization_config").at("config_groups");
  EXPECT_EQ(groups.at("group_0").at("weights").at("num_bits"), 4);
  EXPECT_EQ(groups.at("group_1").at("weights").at("num_bits"), 8);
  EXPECT_EQ(groups.at("group_1").at("targets").as_array().size(), 12u);
}

// The recipe of quantize.py's users: the checkpoint sets the server's cache type.
TEST_F(QuantizeTest, TheCheckpointAsksForACache) {
  for (const char* type : {"", "int8", "fp8"}) {
    std::vector<std::string> words = {"--model_dir",     kRoot + "/tests/models/llama",
                                      "--output_dir",    out_.string(),
                                      "--qformat",       "fp8",
                                      "--export_format", "hf"};
    if (*type) words.insert(words.end(), {"--kv_cache_dtype", type});
    ASSERT_EQ(run(words), 0) << printed_;
    const auto path = convert::ensure_engine(out_, device_.registry, device_.device->info(),
                                             convert::BuildOptions{.cache_dir = dir_ / "cache"});
    ASSERT_TRUE(path.ok()) << path.status();
    const auto engine = io::EngineFile::open(*path, io::Verify::kFull);
    ASSERT_TRUE(engine.ok()) << engine.status();
    const std::string_view wanted = !*type ? "bf16" : *type == 'i' ? "i8" : "f8e4m3";
    EXPECT_EQ(name_of(engine->plan().model.kv_dtype), wanted);
    std::filesystem::remove_all(out_);
  }
}

TEST_F(QuantizeTest, WhatIsWrongIsNamed) {
  const auto refuses = [&](std::vector<std::string> words, int code, const std::string& text) {
    words.insert(words.begin(), {"--output_dir", out_.string()});
    EXPECT_EQ(run(words), code) << printed_;
    EXPECT_THAT(printed_, HasSubstr(text));
    EXPECT_FALSE(std::filesystem::exists(out_));
  };
  refuses({"--qformat", "fp8"}, 1, "--model_dir: is missing");
  refuses({"--model_dir", kQuickstart}, 1, "--qformat: 'full_prec' is not supported; allowed: fp8");
  refuses({"--model_dir", kQuickstart, "--qformat", "int3"}, 2, "invalid choice: 'int3'");
  refuses({"--model_dir", kQuickstart, "--qformat", "int4_awq"}, 1, "--calib_dataset: is missing");
  refuses(
      {"--model_dir", kQuickstart, "--qformat", "int4_gptq", "--calib_dataset", "cnn_dailymail"}, 1,
      "'cnn_dailymail' is not a file");
  refuses({"--model_dir", kQuickstart, "--qformat", "int4_wo", "--awq_block_size", "24"}, 1,
          "--awq_block_size: 24 is not a multiple of 16");
  refuses({"--model_dir", kQuickstart, "--qformat", "fp8", "--zero_point"}, 1, "--zero_point");
  const std::string heads = kRoot + "/models/quickstart-medusa";
  refuses({"--model_dir", kQuickstart, "--qformat", "int8_wo", "--medusa_model_dir", kQuickstart},
          1, "--medusa_model_dir: " + kQuickstart + " holds no heads of that kind");
  refuses({"--model_dir", kQuickstart, "--qformat", "int8_wo", "--medusa_model_dir", heads,
           "--num_medusa_heads", "4"},
          1, "--num_medusa_heads: 4, but config.json of");
  refuses({"--model_dir", kQuickstart, "--qformat", "int8_wo", "--num_medusa_layers", "1"}, 1,
          "--num_medusa_layers: needs --medusa_model_dir");
  refuses({"--model_dir", kQuickstart, "--qformat", "int8_wo", "--medusa_model_dir", heads,
           "--quant_medusa_head"},
          1, "--quant_medusa_head");
  refuses({"--model_dir", kQuickstart, "--qformat", "int4_awq", "--sequential"}, 1,
          "--sequential: allowed with int4_gptq");
  refuses({"--model_dir", kQuickstart, "--qformat", "fp8", "--int8_modules", "*.v_proj"}, 1,
          "--int8_modules: allowed with int4_wo");
  refuses({"--model_dir", kQuickstart, "--qformat", "fp8", "--damping", "0"}, 1, "--damping: 0");
  refuses({"--model_dir", kQuickstart, "--qformat", "fp8", "--kv_cache_dtype", "nvfp4"}, 2,
          "argument --kv_cache_dtype: invalid choice: 'nvfp4' (choose from 'int8', 'fp8')");
  refuses({"--model_dir", kQuickstart, "--qformat", "fp8", "--device_map", "moon"}, 2,
          "argument --device_map: invalid choice: 'moon'");
  refuses({"--model_dir", kQuickstart, "--qformat", "fp8", "--decoder_type", "bert"}, 2,
          "argument --decoder_type: invalid choice: 'bert'");
  refuses({"--model_dir", kQuickstart, "--qformat", "int8_wo", "--quantize_lm_head"}, 1,
          "is also its embedding");
  refuses({"--model_dir", kQuickstart, "--qformat", "int8_wo", "--exclude_modules", "*"}, 1,
          "no matrix can be rounded");
  ASSERT_EQ(run({"--model_dir", kQuickstart, "--output_dir", out_.string(), "--qformat", "fp8"}), 0)
      << printed_;
  EXPECT_EQ(run({"--model_dir", out_.string(), "--output_dir", (dir_ / "b").string(), "--qformat",
                 "fp8"}),
            1);
  EXPECT_THAT(printed_, HasSubstr("is quantised already (compressed-tensors)"));
}

TEST(Patterns, StarsTakeAnyCharacters) {
  using convert::matches_pattern;
  EXPECT_TRUE(matches_pattern("*", ""));
  EXPECT_TRUE(matches_pattern("*.mlp.*_proj", "model.layers.0.mlp.down_proj"));
  EXPECT_TRUE(matches_pattern("lm_head", "lm_head"));
  EXPECT_TRUE(matches_pattern("a*b*c", "abxbc"));
  EXPECT_TRUE(matches_pattern("layer.?", "layer.7"));
  EXPECT_FALSE(matches_pattern("lm_head", "lm_head2"));
  EXPECT_FALSE(matches_pattern("*.mlp", "model.mlp.up"));
  EXPECT_FALSE(matches_pattern("", "a"));
}

}  // namespace
}  // namespace nereid::cli
