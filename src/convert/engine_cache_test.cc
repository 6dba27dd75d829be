// Who builds an engine, its path, log messages.
#include "convert/engine_cache.h"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>
#include <vector>

#include "convert/build_lock.h"
#include "convert/convert_fixture.h"
#include "convert/inspect.h"
#include "io/engine_file.h"

namespace nereid::convert {
namespace {

using testing::HasSubstr;

TEST_F(ConvertTest, ConcurrentBuildersAgree) {
  std::atomic<int> built = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&] {
        BuildReport report;
        const auto path = ensure_engine(dir_ / "model", registry_, DeviceInfo{}, options_, &report);
        EXPECT_TRUE(path.ok()) << path.status();
        built += report.built;
      });
  }
  EXPECT_EQ(built, 1);
}

TEST_F(ConvertTest, BuildersOfDifferentEnginesDoNotWaitForEachOther) {
  const std::filesystem::path engines = dir_ / "cache/engines";
  std::filesystem::create_directories(engines);
  ASSERT_TRUE(write_file_atomic(engines / "00c0ffee00c0ffee.engine.tmp.live", "x").ok());
  ASSERT_TRUE(write_file_atomic(engines / "00000000deadbeef.engine.tmp.dead", "x").ok());
  const BuildLock other(engines, "00c0ffee00c0ffee");
  ASSERT_TRUE(other.held());
  good();
  EXPECT_TRUE(report_.built);
  EXPECT_FALSE(BuildLock(engines, "00c0ffee00c0ffee", BuildLock::Wait::kNo).held());
  EXPECT_TRUE(BuildLock(engines, report_.key, BuildLock::Wait::kNo).held());
  EXPECT_TRUE(std::filesystem::exists(engines / "00c0ffee00c0ffee.engine.tmp.live"));
  EXPECT_FALSE(std::filesystem::exists(engines / "00000000deadbeef.engine.tmp.dead"));
}

TEST_F(ConvertTest, AnEngineIsUsedAsItIs) {
  const std::filesystem::path path = good();
  std::filesystem::create_directories(dir_ / "given");
  std::filesystem::copy(path, dir_ / "given/rank0.engine");
  for (const std::filesystem::path& given : {dir_ / "given", dir_ / "given/rank0.engine"}) {
    const auto used = ensure_engine(given, registry_, DeviceInfo{}, options_, &report_);
    ASSERT_TRUE(used.ok()) << used.status();
    EXPECT_EQ(*used, dir_ / "given/rank0.engine");
    EXPECT_FALSE(report_.built);
  }
  DeviceInfo gpu;
  gpu.kind = DeviceKind::kCuda;
  EXPECT_THAT(
      std::string(message(ensure_engine(dir_ / "given", registry_, gpu, options_).status())),
      HasSubstr("built for device cpu, not for cuda"));
  ASSERT_TRUE(write_file_atomic(dir_ / "given/rank0.engine", "junk").ok());
  EXPECT_THAT(std::string(message(ensure_engine(dir_ / "given", registry_, DeviceInfo{}).status())),
              HasSubstr("rank0.engine"));
}

TEST_F(ConvertTest, AnEngineForFewerInstructionsSaysThatItIsSlow) {
  const std::filesystem::path path = good();
  const auto log_on = [&](Isa isa) {
    DeviceInfo device;
    device.isa = isa;
    testing::internal::CaptureStdout();
    EXPECT_TRUE(ensure_engine(path, registry_, device).ok());
    return testing::internal::GetCapturedStdout();
  };
  EXPECT_EQ(log_on(Isa::kGeneric), "");
  EXPECT_THAT(log_on(Isa::kAvx2), HasSubstr("built for isa generic, so its kernels are slow here"));
}

TEST_F(ConvertTest, WithoutACacheTheEngineIsInMemory) {
  const std::vector<std::byte> wanted = blob(good());
  ASSERT_TRUE(write_file_atomic(dir_ / "file", "").ok());
  options_.cache_dir = dir_ / "file";
  testing::internal::CaptureStdout();
  const std::filesystem::path path = good();
  const std::string log = testing::internal::GetCapturedStdout();
  EXPECT_THAT(log, HasSubstr("/file/engines: Not a directory: the engine is built in memory"));
  EXPECT_THAT(log, HasSubstr("set NEREID_CACHE_DIR"));
  EXPECT_TRUE(report_.built);
  EXPECT_EQ(report_.bytes, std::filesystem::file_size(path));
  EXPECT_EQ(blob(path), wanted);
  const auto taken = take_engine(path);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_FALSE(std::filesystem::exists(path)) << "it is the opened file's alone";
  EXPECT_EQ(taken->build_key(), report_.key);
  EXPECT_EQ(taken->blob().size(), wanted.size());
  // A cached file is kept.
  options_.cache_dir = dir_ / "cache";
  const std::filesystem::path cached = good();
  EXPECT_TRUE(take_engine(cached).ok());
  EXPECT_TRUE(std::filesystem::exists(cached));
}

TEST_F(ConvertTest, InspectShowsEverySection) {
  const auto text = inspect(dir_ / "model", registry_, DeviceInfo{});
  ASSERT_TRUE(text.ok()) << text.status();
  for (const char* part : {"traits\n", "graph as built\n", "passes\n", "merge_qkv", "plan (",
                           "kernels\n", "memory\n", "kv cache", "layers.1.mlp.down"})
    EXPECT_THAT(*text, HasSubstr(part));
  const auto engine = inspect(good(), registry_, DeviceInfo{});
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_THAT(*engine, HasSubstr(report_.key));
  const PlanReport report =
      plan_report({io::EngineFile::open(good(), io::Verify::kPlan).value().plan()});
  const size_t calls = report.text.find("\nplan (value@arena");
  ASSERT_NE(calls, std::string::npos);
  EXPECT_THAT(*engine, HasSubstr(report.text.substr(0, calls))) << "the model and its device";
  EXPECT_THAT(*engine, HasSubstr(report.text.substr(calls) + "\nmemory\n"));
  EXPECT_EQ(report.graph, draw_plan(good(), registry_, DeviceInfo{}).value());
  EXPECT_EQ(plan_report({}).text, "");
  InspectOptions bad;
  bad.kv_cache_tokens = 0;
  EXPECT_FALSE(inspect(dir_ / "model", registry_, DeviceInfo{}, bad).ok());
}

TEST_F(ConvertTest, VerifyModel) {
  EXPECT_TRUE(verify_model(dir_ / "model").ok());
  const std::filesystem::path path = good();
  EXPECT_TRUE(verify_model(path).ok());
  std::string bytes = *read_file(path);
  bytes.back() ^= 1;
  ASSERT_TRUE(write_file_atomic(path, bytes).ok());
  EXPECT_THAT(std::string(message(verify_model(path))), HasSubstr("is damaged"));
}

}  // namespace
}  // namespace nereid::convert
