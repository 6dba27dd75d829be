// Weights added after the plan: an engine without weights is filled when loaded or refitted and
// then equals a built one; other weights keep the plan; pruned checkpoints.
#include "convert/refit.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/file.h"
#include "base/testing/source_dir.h"
#include "convert/engine_dir.h"
#include "convert/quantize/prune.h"
#include "convert/trtllm_checkpoint.h"
#include "io/engine_file.h"
#include "kernels/ref/ref.h"

namespace nereid::convert {
namespace {

using testing::HasSubstr;

class RefitTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/refit.XXXXXX";
    dir_ = ::mkdtemp(name.data());
    kernels::ref::add_kernels(registry_);
    cache_.cache_dir = dir_ / "cache";
    convert("llama", "whole");
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  void convert(const std::string& model, const std::string& to) {
    const std::string from = source_dir() + "/tests/models/" + model;
    const auto report = convert_checkpoint({.model_dir = from, .output_dir = dir_ / to});
    ASSERT_TRUE(report.ok()) << report.status();
  }
  Status build(const std::string& from, const std::string& to, bool strip,
               const CompileOptions& compile = {}) {
    EngineDirOptions options;
    options.compile = compile;
    options.checkpoint_dir = dir_ / from;
    options.output_dir = dir_ / to;
    options.build_config = {{"max_seq_len", 32}, {"use_strip_plan", strip}};
    options.strip_weights = strip;
    return build_engine_dir(options, registry_, DeviceInfo{});
  }
  Status refit(const std::string& from, const std::string& engine, const std::string& to) {
    return refit_engine_dir({dir_ / from, dir_ / engine, dir_ / to}, registry_, DeviceInfo{});
  }
  // Loads the engine.
  StatusOr<io::EngineFile> load(const std::string& engine) {
    ASSIGN_OR_RETURN(const auto path,
                     ensure_engine(dir_ / engine, registry_, DeviceInfo{}, cache_, &report_));
    return io::EngineFile::open(path, io::Verify::kFull);
  }
  static void expect_same(const StatusOr<io::EngineFile>& a, const StatusOr<io::EngineFile>& b) {
    ASSERT_TRUE(a.ok()) << a.status();
    ASSERT_TRUE(b.ok()) << b.status();
    EXPECT_TRUE(std::ranges::equal(a->blob(), b->blob()));
    io::Plan x = a->plan(), y = b->plan();
    x.model.source_dir = y.model.source_dir;
    x.model.name = y.model.name;
    EXPECT_EQ(json::serialize(io::plan_to_json(x)), json::serialize(io::plan_to_json(y)));
  }

  std::filesystem::path dir_;
  kernels::Registry registry_;
  BuildOptions cache_;
  BuildReport report_;
};

TEST_F(RefitTest, AnEngineWithoutWeightsIsFilledAtLoad) {
  ASSERT_TRUE(build("whole", "engine", false).ok());
  ASSERT_TRUE(build("whole", "stripped", true).ok());
  EXPECT_LT(std::filesystem::file_size(dir_ / "stripped/rank0.engine"), 65536u);
  const auto file = io::EngineFile::open(dir_ / "stripped/rank0.engine");
  EXPECT_THAT(std::string(message(file.status())), HasSubstr("has no weights"));
  expect_same(load("stripped"), load("engine"));
  ASSERT_TRUE(load("stripped").ok());
  EXPECT_FALSE(report_.built);  // from the cache
  EXPECT_EQ(read_facts(dir_ / "stripped")->max_positions, 32);
  std::filesystem::remove_all(dir_ / "whole");
  EXPECT_THAT(std::string(message(load("stripped").status())), HasSubstr("has no weights"));
}

// Products and output head of different types.
TEST_F(RefitTest, TypesOfWeightsAreThoseOfThePlan) {
  CompileOptions compile;
  ASSERT_TRUE(read_weight_formats("int4", "int8", "auto", compile).ok());
  ASSERT_TRUE(build("whole", "engine", false, compile).ok());
  ASSERT_TRUE(build("whole", "stripped", true, compile).ok());
  expect_same(load("stripped"), load("engine"));
}

TEST_F(RefitTest, OtherWeightsLeaveThePlanAsItIs) {
  ASSERT_TRUE(build("whole", "engine", false).ok());
  ASSERT_TRUE(build("whole", "stripped", true).ok());
  // The same model with one number changed in each matrix.
  std::filesystem::copy(dir_ / "whole", dir_ / "other");
  std::fstream data(dir_ / "other/rank0.safetensors",
                    std::ios::in | std::ios::out | std::ios::binary);
  data.seekp(-2, std::ios::end);
  data.write("\x80\x3f", 2);  // 1.0 in bf16
  data.close();
  ASSERT_TRUE(build("other", "wanted", false).ok());
  for (const char* engine : {"engine", "stripped"}) {
    const Status status = refit("other", engine, "out");
    ASSERT_TRUE(status.ok()) << status;
    expect_same(load("out"), load("wanted"));
    EXPECT_FALSE(std::ranges::equal(load("out")->blob(), load("engine")->blob()));
  }
  const json::value config = read_json_file(dir_ / "out/config.json").value();
  EXPECT_EQ(config.at("build_config").at("use_strip_plan"), false);
  EXPECT_EQ(config.at("build_config").at("max_seq_len"), 32);
  EXPECT_TRUE(std::filesystem::exists(dir_ / "out/tokenizer.json") ==
              std::filesystem::exists(dir_ / "engine/tokenizer.json"));
  ASSERT_TRUE(refit("other", "engine", "engine").ok());  // in place
  expect_same(load("engine"), load("wanted"));
}

TEST_F(RefitTest, EnginesOfSeveralRanksAreFilledByAsMany) {
  for (const char* model : {"llama", "mistral"}) {
    ConvertOptions options{.model_dir = source_dir() + "/tests/models/" + model,
                           .output_dir = dir_ / model};
    options.ranks = {.tp = 2};
    options.ranks.moe_tp = -1;
    ASSERT_TRUE(convert_checkpoint(options).ok());
  }
  ASSERT_TRUE(build("whole", "engine", false).ok());
  ASSERT_TRUE(build("llama", "stripped", true).ok());
  EXPECT_LT(std::filesystem::file_size(dir_ / "stripped/rank1.engine"), 65536u);
  expect_same(load("stripped"), load("engine"));
  const Status filled = refit("llama", "stripped", "out");
  ASSERT_TRUE(filled.ok()) << filled;
  EXPECT_TRUE(std::filesystem::exists(dir_ / "out/rank1.engine"));
  ASSERT_TRUE(prune_checkpoint({dir_ / "llama", dir_ / "pruned", true}).ok());
  ASSERT_TRUE(build("pruned", "of_pruned", true).ok());
  ASSERT_TRUE(refit("llama", "of_pruned", "of_pruned").ok());
  std::filesystem::rename(dir_ / "llama", dir_ / "elsewhere");
  expect_same(load("out"), load("engine"));
  expect_same(load("of_pruned"), load("engine"));
  EXPECT_THAT(
      std::string(message(refit("whole", "out", "out"))),
      HasSubstr("has other ranks than the engine; `nereid convert --tp_size 2 --pp_size 1`"));
  EXPECT_THAT(std::string(message(refit("mistral", "out", "out"))), HasSubstr("the engine has"));
}

TEST_F(RefitTest, AnotherModelIsRefusedByItsFirstWeight) {
  convert("mistral", "mistral");
  ASSERT_TRUE(build("whole", "engine", false).ok());
  EXPECT_THAT(std::string(message(refit("mistral", "engine", "out"))), HasSubstr("the engine has"));
  EXPECT_THAT(std::string(message(refit("whole", "whole", "out"))), HasSubstr("no rank0.engine"));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "out"));
}

TEST_F(RefitTest, APrunedCheckpointMakesEnginesThatAreFilledLater) {
  for (const bool all : {false, true}) {
    const auto pruned = prune_checkpoint({dir_ / "whole", dir_ / "pruned", all});
    ASSERT_TRUE(pruned.ok()) << pruned.status();
    EXPECT_GT(pruned->num_removed, 0u);
    EXPECT_EQ(pruned->bytes_after == 0, all);
    EXPECT_EQ(read_json_file(dir_ / "pruned/config.json")->at("is_pruned"), true);
    EXPECT_THAT(std::string(message(build("pruned", "stripped", false))), HasSubstr("is_pruned"));
    ASSERT_TRUE(build("pruned", "stripped", true).ok());
    EXPECT_THAT(std::string(message(load("stripped").status())), HasSubstr("is_pruned"));
    const Status filled = refit("whole", "stripped", "out");
    ASSERT_TRUE(filled.ok()) << filled;
    ASSERT_TRUE(build("whole", "engine", false).ok());
    expect_same(load("out"), load("engine"));
  }
  EXPECT_THAT(std::string(message(prune_checkpoint({dir_ / "whole", dir_ / "whole"}).status())),
              HasSubstr("is also"));
  const std::filesystem::path hf = source_dir() + "/tests/models/llama";
  EXPECT_THAT(std::string(message(prune_checkpoint({hf, dir_ / "p"}).status())),
              HasSubstr("convert it first"));
}

}  // namespace
}  // namespace nereid::convert
