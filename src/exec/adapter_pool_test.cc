// What messages may load into the pool of adapters.
#include "exec/adapter_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensor/cpu_device.h"

namespace nereid::exec {
namespace {

using ::testing::HasSubstr;

const std::vector<io::AdapterModule> kModules = {{"a", 4, 2, 0}, {"b", 4, 3, 2}};

class AdapterPoolTest : public testing::Test {
 protected:
  AdapterPoolTest() {
    limits_.num_adapters = 2, limits_.max_adapter_rank = 8, limits_.depth = 1;
    pool_ = AdapterPool::create(kModules, limits_, *device_).value();
  }

  // Adapter 1 with a rank of 2 in each module.
  static Step load() {
    Step step;
    step.adapter_loads = {{1, 2}};
    step.adapter_matrices = {{0, 2, 1.0f}, {1, 2, 1.0f}};
    step.adapter_weights.resize(2 * (4 + 2) + 2 * (4 + 3));
    return step;
  }
  std::string refusal(const Step& step) {
    std::vector<std::byte> message;
    encode(step, message);
    const StepView view = decode(message).value();
    const Status status = pool_.check(view);
    if (status.ok()) pool_.keep(view);
    return std::string(status.message());
  }
  template <class Change>
  std::string refusal_of(Change change) {
    Step step = load();
    change(step);
    return refusal(step);
  }

  RunnerLimits limits_;
  std::unique_ptr<Device> device_ = make_cpu_device({.num_threads = 1}).value();
  AdapterPool pool_;
};

TEST_F(AdapterPoolTest, TakesWhatFits) {
  EXPECT_EQ(refusal(load()), "");
  EXPECT_EQ(refusal(Step()), "");
  Step with_gain = load();
  with_gain.adapter_matrices[1].has_gain = 1;
  with_gain.adapter_weights.resize(with_gain.adapter_weights.size() + 2 * 3);
  EXPECT_EQ(refusal(with_gain), "");
  // 8 * (4 + 2) + 2 * 2 and 8 * (4 + 3) + 2 * 3 numbers, each at a multiple of 32.
  EXPECT_EQ(AdapterPool::bytes(kModules, limits_),
            2 * ((64 + 64) * sizeof(BF16) + 2 * sizeof(kernels::AdapterMatrix)));
}

TEST_F(AdapterPoolTest, RefusesWhatDoesNot) {
  EXPECT_THAT(refusal_of([](Step& s) { s.adapter_loads[0].adapter = 2; }),
              HasSubstr("load of adapter 2, which is not in [0, 2)"));
  EXPECT_THAT(refusal_of([](Step& s) { s.adapter_loads[0].num_matrices = 3; }),
              HasSubstr("3 matrices, 2 are left"));
  EXPECT_THAT(refusal_of([](Step& s) { s.adapter_loads[0].num_matrices = -1; }),
              HasSubstr("-1 matrices"));
  EXPECT_THAT(refusal_of([](Step& s) { s.adapter_loads[0].num_matrices = 1; }),
              HasSubstr("1 matrices and 14 weights belong to no adapter"));
  EXPECT_THAT(refusal_of([](Step& s) { s.adapter_matrices[1].module = 0; }),
              HasSubstr("module 0 is not in [1, 2)"));
  EXPECT_THAT(refusal_of([](Step& s) { s.adapter_matrices[1].module = 2; }),
              HasSubstr("module 2 is not in [1, 2)"));
  EXPECT_THAT(refusal_of([](Step& s) { s.adapter_matrices[0].rank = 9; }),
              HasSubstr("rank 9 is not in [1, 8]"));
  EXPECT_THAT(refusal_of([](Step& s) { s.adapter_matrices[0].scale = 1.0f / 0.0f; }),
              HasSubstr("the scale is not a number"));
  EXPECT_THAT(refusal_of([](Step& s) { s.adapter_matrices[0].has_gain = 2; }),
              HasSubstr("has_gain is 2, not 0 or 1"));
  EXPECT_THAT(refusal_of([](Step& s) { s.adapter_matrices[1].has_gain = 1; }),
              HasSubstr("14 weights are left for 20"));
  EXPECT_THAT(refusal_of([](Step& s) { s.adapter_weights.pop_back(); }),
              HasSubstr("13 weights are left for 14"));
}

TEST_F(AdapterPoolTest, ARowsAdapterMustBeThere) {
  Step step;
  step.rows = {{.adapter = 1}};
  EXPECT_THAT(refusal(step), HasSubstr("adapter 1 of slot 0 was never loaded"));
  Step both = load();
  both.rows = step.rows;
  EXPECT_EQ(refusal(both), "");
  EXPECT_EQ(refusal(step), "");
}

}  // namespace
}  // namespace nereid::exec
