#include "kernels/open.h"
#include "base/testing/fake_gpus.h"
#include "base/testing/source_dir.h"

#include <gmock/gmock.h>

#include <cstdlib>

namespace nereid::kernels {
namespace {

using ::testing::HasSubstr;

std::string error_of(const StatusOr<OpenedDevice>& opened) {
  return std::string(message(opened.status()));
}

TEST(Open, CpuHasARefRowForEveryOp) {
  StatusOr<OpenedDevice> opened = open_device("cpu");
  ASSERT_TRUE(opened.ok()) << opened.status();
  const DeviceInfo& info = opened->device->info();
  EXPECT_TRUE(select(opened->registry.table<Embed>(), {}, info, {"embed:ref"}).ok());
  EXPECT_TRUE(select(opened->registry.table<Attention>(), {}, info, {"attention:ref"}).ok());
  EXPECT_TRUE(select(opened->registry.table<Sample>(), {}, info, {"sample:ref"}).ok());
}

TEST(Open, ForcedInstructionSetLimitsTheChoice) {
  StatusOr<OpenedDevice> opened = open_device("cpu", {.num_threads = 1, .isa = "generic"});
  ASSERT_TRUE(opened.ok()) << opened.status();
  Linear problem;
  problem.x = {nullptr, DType::kBF16, 1, 32, 32};
  problem.weight = {nullptr, WeightLayout::kPanel16, 16, 32};
  problem.out = {nullptr, DType::kF32, 1, 16, 16};
  const DeviceInfo& info = opened->device->info();
  const auto chosen = select(opened->registry.table<Linear>(), problem, info);
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ((*chosen)->name, "ref");
  const auto forced = select(opened->registry.table<Linear>(), problem, info, {"linear:avx512"});
  EXPECT_EQ(forced.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(message(forced.status())), HasSubstr("these can: ref"));
}

TEST(Open, RefusesUnknownNames) {
  EXPECT_THAT(error_of(open_device("tpu")), HasSubstr("allowed: auto, cpu, cuda:N"));
  EXPECT_THAT(error_of(open_device("cuda:")), HasSubstr("'cuda:'"));
  EXPECT_THAT(error_of(open_device("cuda:-1")), HasSubstr("'cuda:-1'"));
  EXPECT_THAT(error_of(open_device("cpu", {.isa = "mmx"})), HasSubstr("mmx"));
}

TEST(Open, CpusJoinAsThreads) {
  StatusOr<OpenedDevice> opened = open_device("cpu", {.num_threads = 1});
  ASSERT_TRUE(opened.ok()) << opened.status();
  const std::vector<const OpenedDevice*> two = {&*opened, &*opened};
  const auto ranks = join_devices(two, {.time_limit = std::chrono::seconds(1)});
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  ASSERT_EQ(ranks->size(), 2u);
  EXPECT_EQ((*ranks)[1]->rank(), 1);
  EXPECT_EQ((*ranks)[1]->size(), 2);
  EXPECT_EQ((*ranks)[1]->all_reduce_norm({}, *opened->device->create_stream().value()).code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(join_devices({}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Open, MissingCudaLibraryIsUnavailable) {
  setenv("NEREID_CUDA_LIBRARY", "/nonexistent/libnereid_cuda.so", 1);
  const StatusOr<OpenedDevice> opened = open_device("cuda:0");
  unsetenv("NEREID_CUDA_LIBRARY");
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(error_of(opened), HasSubstr("/nonexistent/libnereid_cuda.so"));
}

TEST(Open, AutoIsTheCpuWhereNoGpuCanBeUsed) {
  for (const std::string& library :
       {std::string("/nonexistent/libnereid_cuda.so"),
        build_dir() + "/test_plugins/nereid_other/libnereid_other_plugin.so"}) {
    setenv("NEREID_CUDA_LIBRARY", library.c_str(), 1);
    const StatusOr<OpenedDevice> opened = open_device("auto");
    unsetenv("NEREID_CUDA_LIBRARY");
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ(opened->device->info().id(), "cpu");
  }
  const StatusOr<OpenedDevice> named = open_device("auto", {.isa = "generic"});
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(name_of(named->device->info().isa), "generic");
}

TEST(Open, GpusHaveUuids) {
  const FakeGpus fake;
  setenv("NEREID_CUDA_LIBRARY", (build_dir() + "/test_plugins/libnereid_hanging_plugin.so").c_str(),
         1);  // has one GPU
  EXPECT_TRUE(open_device(kFakeH200).ok());
  EXPECT_TRUE(open_device("GPU-0a").ok());
  EXPECT_THAT(error_of(open_device(kFakeA10)), HasSubstr("device 'cuda:1' does not exist"));
  unsetenv("NEREID_CUDA_LIBRARY");
  EXPECT_THAT(error_of(open_device(kFakeSlice)),
              HasSubstr(std::string("is not visible: cuda:0 is ") + kFakeH200));
}

TEST(Open, CudaLibraryOfAnotherBuildIsRefused) {
  const std::string other = build_dir() + "/test_plugins/nereid_other/libnereid_other_plugin.so";
  setenv("NEREID_CUDA_LIBRARY", other.c_str(), 1);
  const StatusOr<OpenedDevice> opened = open_device("cuda:0");
  unsetenv("NEREID_CUDA_LIBRARY");
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(error_of(opened), HasSubstr(other + " has version " NEREID_VERSION
                                                  ", this program " NEREID_VERSION "+"));
  EXPECT_THAT(error_of(opened), HasSubstr("both must be of one build"));
}

}  // namespace
}  // namespace nereid::kernels
