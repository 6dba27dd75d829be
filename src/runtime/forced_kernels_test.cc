#include "runtime/forced_kernels.h"

#include <gmock/gmock.h>

namespace nereid::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

kernels::Registry registry_with_invariants() {
  kernels::Registry registry;
  registry.add<kernels::Norm>({{"cuda", DeviceKind::kCuda}});
  registry.add<kernels::Linear>(
      {{"ref", DeviceKind::kCpu}, {"hopper", DeviceKind::kCuda}, {"invariant", DeviceKind::kCuda}});
  registry.add<kernels::Attention>({{"cuda", DeviceKind::kCuda}, {"invariant", DeviceKind::kCuda}});
  return registry;
}

StatusOr<std::vector<std::string>> forced_on(DeviceKind kind, std::vector<std::string> forced,
                                             bool deterministic) {
  ExecutorConfig config;
  config.forced_kernels = std::move(forced);
  config.deterministic = deterministic;
  DeviceInfo device;
  device.kind = kind;
  return forced_kernels_of(config, registry_with_invariants(), device);
}

TEST(ForcedKernels, DeterministicTakesTheInvariantOnes) {
  EXPECT_THAT(*forced_on(DeviceKind::kCuda, {}, false), IsEmpty());
  EXPECT_THAT(*forced_on(DeviceKind::kCuda, {"norm:cuda"}, true),
              ElementsAre("norm:cuda", "linear:invariant", "attention:invariant"));
  EXPECT_THAT(*forced_on(DeviceKind::kCpu, {"linear:ref"}, true), ElementsAre("linear:ref"));
}

TEST(ForcedKernels, RefusesWhatIsNotDeterministic) {
  const auto refused = forced_on(DeviceKind::kCuda, {"linear:hopper"}, true);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(message(refused.status())),
              HasSubstr("deterministic: forced_kernels has 'linear:hopper', allowed is "
                        "'linear:invariant'"));
  EXPECT_TRUE(forced_on(DeviceKind::kCuda, {"linear:hopper"}, false).ok());
  EXPECT_FALSE(forced_on(DeviceKind::kCuda, {"linear:"}, false).ok());
  EXPECT_FALSE(forced_on(DeviceKind::kCuda, {"lines:hopper"}, false).ok());
}

}  // namespace
}  // namespace nereid::runtime
