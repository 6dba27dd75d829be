// All CPU kernels of every op: against ref, whole against split, with different thread counts.
#include <map>

#include <gtest/gtest.h>

#include "kernels/open.h"
#include "kernels/testing/check.h"

namespace nereid::kernels {
namespace {

using testing::Coverage;
using testing::KernelId;

OpenedDevice& device_with(int num_threads) {
  static std::map<int, OpenedDevice> devices;
  if (!devices.contains(num_threads)) {
    StatusOr<OpenedDevice> opened = open_device("cpu", {.num_threads = num_threads});
    NEREID_CHECK(opened.ok());
    devices.emplace(num_threads, *std::move(opened));
  }
  return devices.at(num_threads);
}

class EveryKernel : public ::testing::TestWithParam<KernelId> {
 protected:
  void expect_ok(const StatusOr<Coverage>& coverage) {
    ASSERT_TRUE(coverage.ok()) << message(coverage.status());
    const DeviceInfo& info = device_with(2).device->info();
    if (coverage->num_run == 0)
      GTEST_SKIP() << "'" << GetParam().op << ":" << GetParam().name << "' cannot run on "
                   << info.name << ", whose best instruction set is " << name_of(info.isa);
    if (coverage->num_run < coverage->num_cases)
      RecordProperty("cases", fmt::format("{} of {}", coverage->num_run, coverage->num_cases));
  }
};

TEST_P(EveryKernel, MatchesRef) {
  // Products may skip the rounding of dequantised integers.
  const bool is_product = GetParam().op == "linear" || GetParam().op == "expert_linear";
  expect_ok(check_against_ref(device_with(2), GetParam(), {is_product ? 0x1p-9 : 0}));
}

TEST_P(EveryKernel, GivesTheSameBitsForAnyCut) {
  expect_ok(check_splits(device_with(2), GetParam()));
}

TEST_P(EveryKernel, GivesTheSameBitsForAnyNumberOfThreads) {
  expect_ok(check_same(device_with(5), device_with(2), GetParam()));
  // ref has one thread on any device: the test above suffices.
  if (GetParam().name != "ref") expect_ok(check_same(device_with(1), device_with(2), GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Cpu, EveryKernel,
                         ::testing::ValuesIn(testing::list_kernels(device_with(2))),
                         [](const ::testing::TestParamInfo<KernelId>& info) {
                           return info.param.op + "_" + info.param.name;
                         });

}  // namespace
}  // namespace nereid::kernels
