#include "base/gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/fake_gpus.h"

namespace nereid {
namespace {

using testing::HasSubstr;

TEST(Gpus, AreThoseOfTheDriverInItsOrder) {
  FakeGpus fake;
  std::vector<Gpu> gpus = visible_gpus();
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].uuid, kFakeH200);
  EXPECT_EQ(gpus[0].name, "NVIDIA H200");
  EXPECT_DOUBLE_EQ(gpus[0].capability, 9.0);
  EXPECT_EQ(gpus[1].uuid, kFakeA10);
  EXPECT_DOUBLE_EQ(gpus[1].capability, 8.6);
  EXPECT_EQ(gpu_uuid("cuda:1"), kFakeA10);
  EXPECT_EQ(gpu_uuid("cuda:2"), "");
  EXPECT_EQ(gpu_uuid("cpu"), "");
  fake.show("10");
  gpus = visible_gpus();
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].uuid, kFakeA10);
  fake.show("2");
  gpus = visible_gpus();
  ASSERT_EQ(gpus.size(), 1u);
  EXPECT_EQ(gpus[0].uuid, kFakeSlice);
}

TEST(Gpus, NoneWithoutDriverOrDevice) {
  EXPECT_TRUE(visible_gpus("no-such-driver.so").empty());
  EXPECT_TRUE(visible_gpus("libz.so.1").empty()) << "no driver";
  const FakeGpus fake("");
  EXPECT_TRUE(visible_gpus().empty());
}

TEST(Gpus, AreFoundByTheBeginningOfTheirUuid) {
  const FakeGpus fake("012");
  const auto gpus = visible_gpus();
  EXPECT_EQ(find_gpu(gpus, "GPU-0b").value_or(-1), 1);
  EXPECT_EQ(find_gpu(gpus, kFakeSlice).value_or(-1), 2);
  EXPECT_THAT(std::string(message(find_gpu(gpus, "GPU-0").status())),
              HasSubstr("the UUIDs of cuda:0 and cuda:1 begin so"));
  EXPECT_THAT(std::string(message(find_gpu(gpus, "GPU-77").status())),
              HasSubstr("device 'GPU-77' is not visible: cuda:0 is GPU-0a0a0a0a"));
  EXPECT_THAT(std::string(message(find_gpu({}, "GPU-77").status())),
              HasSubstr("the CUDA driver shows no GPU"));
  EXPECT_TRUE(is_gpu_uuid("MIG-1"));
  EXPECT_FALSE(is_gpu_uuid("cuda:0"));
}

}  // namespace
}  // namespace nereid
