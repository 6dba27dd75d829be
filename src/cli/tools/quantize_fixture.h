// Quantises models into a temporary folder and runs the results.
#pragma once

#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>

#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "base/testing/source_dir.h"
#include "cli/commands/perplexity.h"
#include "cli/tools/calibrate.h"
#include "cli/tools/tools.h"
#include "convert/engine_cache.h"
#include "convert/quantize/quantize_checkpoint.h"
#include "io/engine_file.h"
#include "kernels/open.h"
#include "nereid/executor.h"

namespace nereid::cli {

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
  // Statistics of synthetic rows, whose columns differ in size by a factor of up to 30.
  static Status make_up(const std::map<std::string, quant::InputStatistics*>& wanted,
                        quant::ColumnProducts& products) {
    for (const auto& [name, statistics] : wanted) RETURN_IF_ERROR(make_up(*statistics, products));
    return ok();
  }
  static Status make_up(quant::InputStatistics& statistics, quant::ColumnProducts& products) {
    const int64_t k = statistics.k(), rows = 2 * k;
    std::vector<BF16> numbers;
    for (int64_t i = 0; i < rows * k; ++i) {
      const auto bits = philox(7, static_cast<uint64_t>(i))[0];
      const float size = std::pow(30.0f, static_cast<float>(i % k * 7 % 16) / 15);
      numbers.push_back(to_bf16(size * (static_cast<float>(bits) * 0x1p-31f - 1)));
    }
    const View x = View::matrix(numbers.data(), DType::kBF16, rows, k);
    return statistics.keeps_drift() ? statistics.add_drift(x, x, products)
                                    : statistics.add(x, products);
  }
  // A tiny model with a tokenizer of its own: each letter from "a" on is a token, from 3 on.
  std::filesystem::path with_tokenizer(const std::string& family) {
    const std::filesystem::path model = dir_ / family;
    std::filesystem::copy(source_dir() + "/tests/models/" + family, model);
    json::object vocab;
    for (int i = 0; i < 26; ++i) vocab[std::string(1, static_cast<char>('a' + i))] = 3 + i;
    const json::object tokenizer = {
        {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}}}};
    EXPECT_TRUE(write_file_atomic(model / "tokenizer.json", json::serialize(tokenizer)).ok());
    std::string text;
    for (uint64_t i = 0; i < 4000; ++i) {
      const auto drawn = philox(5, i);
      text += static_cast<char>('a' + (drawn[0] % 3 ? drawn[1] % 4 : drawn[1] % 26));
    }
    EXPECT_TRUE(write_file_atomic(dir_ / "text", text).ok());
    return model;
  }
  std::unique_ptr<Calibration> calibrate(const std::filesystem::path& model) {
    auto calibration = Calibration::open(model, {dir_ / "text", 40, 100}, device_);
    EXPECT_TRUE(calibration.ok()) << calibration.status();
    return calibration.ok() ? *std::move(calibration) : nullptr;
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
  // KL divergence of the next token from the float model's, in nats.
  double divergence(const std::filesystem::path& model, std::span<const TokenId> ids) {
    const auto ours = open(out_), floats = open(model);
    if (!ours || !floats) return NAN;
    const auto score = score_text(*ours, floats.get(), ids, {64, 64});
    EXPECT_TRUE(score.ok()) << score.status();
    return score.ok() ? score->divergence / static_cast<double>(score->num_scored) : NAN;
  }
  // The weights of an engine built from a directory.
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
    return run(quantize_main, "quantize", std::move(words));
  }
  int run(int (*tool)(int, char**), const char* name, std::vector<std::string> words) {
    words.insert(words.begin(), name);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    testing::internal::CaptureStderr();
    testing::internal::CaptureStdout();
    const int code = tool(static_cast<int>(argv.size()), argv.data());
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

}  // namespace nereid::cli
