// Checkpoints that `nereid quantize` writes, run beside the float model that they are made of.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <fstream>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/rng.h"
#include "base/testing/source_dir.h"
#include "cli/commands/perplexity.h"
#include "cli/tools/calibrate.h"
#include "cli/tools/tools.h"
#include "convert/engine_cache.h"
#include "convert/new_directory.h"
#include "io/engine_file.h"
#include "text/tokenizer.h"

namespace nereid::cli {
namespace {

using testing::HasSubstr;

const std::string kRoot = source_dir();
const std::string kQuickstart = kRoot + "/models/quickstart";
constexpr kernels::WeightFormat kInt8Groups = {
    .scheme = kernels::Scheme::kInteger, .bits = 8, .group = 16};

class QuantizeTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/quantize.XXXXXX";
    dir_ = ::mkdtemp(name.data());
    out_ = dir_ / "out";
    device_ = kernels::open_device("cpu", {.num_threads = 2}).value();
    products_ = quant::ColumnProducts::create(device_.registry, *device_.device).value();
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  Status quantize(convert::QuantizeOptions options) {
    options.output_dir = out_;
    auto report = convert::quantize_checkpoint(options, pool_);
    if (report.ok()) report_ = *report;
    return report.status();
  }
  // Statistics of made-up rows, whose columns differ in size by up to 30.
  static Status make_up(const std::map<std::string, quant::InputStatistics*>& wanted,
                        quant::ColumnProducts& products) {
    for (const auto& [name, statistics] : wanted) {
      const int64_t k = statistics->k(), rows = 2 * k;
      std::vector<BF16> numbers;
      for (int64_t i = 0; i < rows * k; ++i) {
        const auto bits = philox(7, static_cast<uint64_t>(i))[0];
        const float size = std::pow(30.0f, static_cast<float>(i % k * 7 % 16) / 15);
        numbers.push_back(to_bf16(size * (static_cast<float>(bits) * 0x1p-31f - 1)));
      }
      const View x = View::matrix(numbers.data(), DType::kBF16, rows, k);
      RETURN_IF_ERROR(statistics->keeps_drift() ? statistics->add_drift(x, x, products)
                                                : statistics->add(x, products));
    }
    return ok();
  }
  std::unique_ptr<Executor> open(const std::filesystem::path& dir) {
    ExecutorConfig config;
    config.num_threads = 2;
    config.max_batch_size = 1;
    config.kv_cache.max_tokens = 512;
    config.cache_dir = dir_ / "cache";
    auto executor = Executor::create(dir, config);
    EXPECT_TRUE(executor.ok()) << executor.status();
    return executor.ok() ? *std::move(executor) : nullptr;
  }
  // Of the next token, from that of the float model, in nats.
  double divergence(const std::filesystem::path& model, std::span<const TokenId> ids) {
    const auto ours = open(out_), floats = open(model);
    if (!ours || !floats) return NAN;
    const auto score = score_text(*ours, floats.get(), ids, {64, 64});
    EXPECT_TRUE(score.ok()) << score.status();
    return score.ok() ? score->divergence / static_cast<double>(score->num_scored) : NAN;
  }
  // The weights of an engine that is built from a directory.
  std::string weights(const std::filesystem::path& dir, convert::CompileOptions compile = {}) {
    convert::BuildOptions build;
    build.cache_dir = dir_ / "cache";
    build.compile = std::move(compile);
    const auto path = convert::ensure_engine(dir, device_.registry, device_.device->info(), build);
    EXPECT_TRUE(path.ok()) << path.status();
    if (!path.ok()) return "";
    const auto file = io::EngineFile::open(*path, io::Verify::kFull);
    return {reinterpret_cast<const char*>(file->blob().data()), file->blob().size()};
  }
  int run(std::vector<std::string> words) {
    words.insert(words.begin(), "quantize");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    testing::internal::CaptureStderr();
    testing::internal::CaptureStdout();
    const int code = quantize_main(static_cast<int>(argv.size()), argv.data());
    printed_ = testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr();
    return code;
  }

  std::filesystem::path dir_, out_;
  kernels::OpenedDevice device_;
  std::unique_ptr<quant::ColumnProducts> products_;
  ThreadPool pool_{2};
  convert::QuantizeReport report_;
  std::string printed_;
};

// Rounded plainly, an engine has the very bytes that a build from the float model rounds to.
TEST_F(QuantizeTest, PlainRoundingIsThatOfTheBuild) {
  kernels::WeightFormat zeros{
      .scheme = kernels::Scheme::kInteger, .bits = 4, .group = 32, .zeros = true};
  for (const char* family : {"llama", "qwen2", "phi3", "gemma2", "mixtral", "qwen3_moe", "gpt2"})
    for (const auto& format :
         {kernels::kInt8PerRow, kernels::kFp8PerRow, kernels::kInt8Both, kInt8Groups, zeros,
          kernels::WeightFormat{.scheme = kernels::Scheme::kInteger, .bits = 4, .group = 16}}) {
      const std::string model = kRoot + "/tests/models/" + family;
      const auto is = [&](std::string_view name) { return name == family; };
      const bool has_48_columns = is("phi3") || is("mixtral") || is("qwen3_moe") || is("gpt2");
      if (has_48_columns && format.group == 32) continue;
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

// Factors are taken out of norms, values and up projections, and the model computes the same: with
// fine integers it is as near to the float model as without factors.
TEST_F(QuantizeTest, FactorsChangeNothing) {
  std::vector<TokenId> ids;
  for (int32_t i = 0; i < 120; ++i) ids.push_back(3 + i * 37 % 500);
  for (const char* family : {"llama", "qwen2", "qwen3", "gemma", "gemma3", "phi3", "stablelm",
                             "cohere", "olmo2", "opt", "mistral", "starcoder2"}) {
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
  options.statistics_bytes = 1;  // each layer by itself
  options.collect = [&](const auto& wanted) { return (*calibration)->collect(wanted); };
  ASSERT_TRUE(quantize(options).ok());
  EXPECT_LT(divergence(kQuickstart, ids), 0.75 * plain);
  // What layers are calibrated together with makes no difference.
  const std::string by_layer = read_file(out_ / "model.safetensors").value();
  options.statistics_bytes = uint64_t{1} << 30;
  ASSERT_TRUE(quantize(options).ok());
  EXPECT_EQ(read_file(out_ / "model.safetensors").value(), by_layer);
  // Made up for is what this little text shows, so the same text is looked at.
  const double once = divergence(kQuickstart, seen);
  options.sequential = true;
  options.use_rounded = [&](const auto& weight, auto matrix, int64_t k) {
    return (*calibration)->use_rounded(weight, matrix, k);
  };
  ASSERT_TRUE(quantize(options).ok());
  EXPECT_EQ(report_.num_matrices, 42);
  EXPECT_LT(divergence(kQuickstart, seen), 0.97 * once);
}

TEST_F(QuantizeTest, ExcludedModulesStayAsTheyAre) {
  ASSERT_EQ(run({"--model_dir", kQuickstart, "--output_dir", out_.string(), "--qformat", "int4_wo",
                 "--awq_block_size", "64", "--exclude_modules", "*.down_proj", "model.layers.0.*"}),
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

// Values and down projections with 8 bits: the file says which they are, and the model is nearer.
TEST_F(QuantizeTest, ChosenModulesHaveEightBits) {
  std::vector<TokenId> ids;
  for (int32_t i = 0; i < 120; ++i) ids.push_back(3 + i * 37 % 500);
  ASSERT_TRUE(quantize({.model_dir = kQuickstart, .format = kernels::kInt4Groups}).ok());
  const double plain = divergence(kQuickstart, ids);
  ASSERT_EQ(run({"--model_dir", kQuickstart, "--output_dir", out_.string(), "--qformat", "int4_wo",
                 "--int8_modules", "*.v_proj", "*.down_proj"}),
            0)
      << printed_;
  EXPECT_THAT(printed_,
              HasSubstr("42 matrices as int4 in groups of 128 (12 of them int8), 1 left"));
  EXPECT_LT(divergence(kQuickstart, ids), 0.8 * plain);
  const auto config = read_json_file(out_ / "config.json");
  const auto& groups = config->at("quantization_config").at("config_groups");
  EXPECT_EQ(groups.at("group_0").at("weights").at("num_bits"), 4);
  EXPECT_EQ(groups.at("group_1").at("weights").at("num_bits"), 8);
  EXPECT_EQ(groups.at("group_1").at("targets").as_array().size(), 12u);
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
  refuses({"--model_dir", kQuickstart, "--qformat", "int4_awq", "--sequential"}, 1,
          "--sequential: allowed with int4_gptq");
  refuses({"--model_dir", kQuickstart, "--qformat", "fp8", "--int8_modules", "*.v_proj"}, 1,
          "--int8_modules: allowed with int4_wo");
  refuses({"--model_dir", kQuickstart, "--qformat", "fp8", "--damping", "0"}, 1, "--damping: 0");
  refuses({"--model_dir", kQuickstart, "--qformat", "fp8", "--kv_cache_dtype", "int8"}, 1,
          "--kv_cache_dtype");
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

// A run that ends after some layers, even while it writes, leaves no checkpoint; the next one does
// the rest, and the bytes are those of one run.
class ResumeTest : public QuantizeTest, public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    QuantizeTest::SetUp();
    options_.model_dir = kRoot + "/tests/models/llama";
    options_.format = {.scheme = kernels::Scheme::kInteger, .bits = 4, .group = 16};
    options_.statistics_bytes = 1;  // one layer
    options_.sequential = options_.error_feedback = GetParam();
    options_.search_scales = !GetParam();
    options_.collect = [this](const auto& wanted) -> Status {
      if (collected_ == allowed_) return unavailable("the power is gone");
      ++collected_;
      for (const auto& [name, statistics] : wanted) seen_ += name + " ";
      return make_up(wanted, *products_);
    };
    options_.use_rounded = [this](const std::string& weight, std::span<const BF16> matrix,
                                  int64_t) {
      rounded_[weight] = hash64(matrix.data(), matrix.size_bytes());
      return ok();
    };
  }
  Status run(int allowed) {
    collected_ = 0, allowed_ = allowed;
    rounded_.clear(), seen_.clear();
    return quantize(options_);
  }
  // In a process that SIGKILL ends when the text was computed `collected` times, or when so many
  // matrices were rounded one after the other. It has its own threads: a child has none of ours.
  void run_killed(int collected, int rounded) {
    const pid_t child = ::fork();
    ASSERT_NE(child, -1);
    if (child == 0) {
      const auto device = kernels::open_device("cpu", {.num_threads = 1}).value();
      const auto products = quant::ColumnProducts::create(device.registry, *device.device).value();
      ThreadPool pool(1);
      options_.collect = [&](const auto& wanted) {
        if (collected-- == 0) ::raise(SIGKILL);
        return make_up(wanted, *products);
      };
      options_.use_rounded = [&](const std::string&, std::span<const BF16>, int64_t) {
        if (rounded-- == 0) ::raise(SIGKILL);
        return ok();
      };
      options_.output_dir = out_;
      ::_exit(convert::quantize_checkpoint(options_, pool).ok() ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << status;
    EXPECT_EQ(WTERMSIG(status), SIGKILL);
  }
  std::string bytes(const char* name) { return read_file(out_ / name).value(); }
  std::filesystem::path partial() { return out_.string() + ".partial"; }

  convert::QuantizeOptions options_;
  int collected_ = 0, allowed_ = 0;
  std::string seen_;
  std::map<std::string, uint64_t> rounded_;
};

TEST_P(ResumeTest, GivesTheBytesOfOneRun) {
  ASSERT_TRUE(run(1000).ok());
  const int all = collected_;
  ASSERT_GT(all, 1);
  const std::string whole = bytes("model.safetensors"), config = bytes("config.json"), seen = seen_;
  const auto rounded = rounded_;
  for (int done = 1; done < all; ++done) {
    std::filesystem::remove_all(out_);
    EXPECT_THAT(run(done).message(), HasSubstr("the power is gone"));
    EXPECT_FALSE(std::filesystem::exists(out_));
    std::ofstream(partial() / "model.safetensors.part", std::ios::app) << "half a layer";
    ASSERT_TRUE(run(1000).ok());
    EXPECT_EQ(collected_, all - done);
    EXPECT_TRUE(seen.ends_with(seen_));
    EXPECT_EQ(rounded_, rounded);
    EXPECT_EQ(bytes("model.safetensors"), whole);
    EXPECT_EQ(bytes("config.json"), config);
    EXPECT_FALSE(std::filesystem::exists(partial()));
    for (const auto& entry : std::filesystem::directory_iterator(out_))
      EXPECT_THAT(entry.path().extension(), testing::Not(testing::AnyOf(".part", ".tmp")));
    EXPECT_FALSE(std::filesystem::exists(out_ / "progress.json"));
  }
}

// Killed before the first layer is written, behind every one, and between a layer's matrices on
// the disk and the record that counts them.
TEST_P(ResumeTest, GoesOnBehindAKilledProcess) {
  constexpr int kNever = 1000;
  ASSERT_TRUE(run(kNever).ok());
  const int all = collected_;
  const std::string whole = bytes("model.safetensors");
  const auto goes_on = [&](int done) {
    EXPECT_FALSE(std::filesystem::exists(out_));
    ASSERT_TRUE(run(kNever).ok());
    EXPECT_EQ(collected_, all - done);
    EXPECT_EQ(bytes("model.safetensors"), whole);
    std::filesystem::remove_all(out_);
  };
  std::filesystem::remove_all(out_);
  for (int done = 0; done < all; ++done) {
    SCOPED_TRACE(done);
    run_killed(done, kNever);
    goes_on(done);
  }
  if (!GetParam()) return;
  run_killed(kNever, 0);
  goes_on(0);
}

TEST_P(ResumeTest, OthersOrDamagedOnesBeginAnew) {
  ASSERT_TRUE(run(1000).ok());
  const int all = collected_;
  const std::string whole = bytes("model.safetensors");
  options_.calibration = "another text";
  ASSERT_FALSE(run(1).ok());
  options_.calibration.clear();
  ASSERT_TRUE(run(1000).ok());
  EXPECT_EQ(collected_, all);
  EXPECT_EQ(bytes("model.safetensors"), whole);
  for (const char* file : {"progress.json", "model.safetensors.part"}) {
    ASSERT_FALSE(run(1).ok());
    std::filesystem::resize_file(partial() / file, 100);
    ASSERT_TRUE(run(1000).ok()) << file;
    EXPECT_EQ(collected_, all) << file;
    EXPECT_EQ(bytes("model.safetensors"), whole) << file;
  }
}

TEST_P(ResumeTest, OneProcessWrites) {
  const auto other = convert::NewDirectory::resume(out_, [](std::string_view) { return true; });
  ASSERT_TRUE(other.ok());
  EXPECT_THAT(run(1000).message(), HasSubstr("another process writes"));
}

INSTANTIATE_TEST_SUITE_P(Quantize, ResumeTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Sequential" : "Factors"; });

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
