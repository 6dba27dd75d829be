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
    limits_.num_adapter_pages = 3, limits_.adapter_page_numbers = 32;
    pool_ = AdapterPool::create(kModules, limits_, *device_).value();
  }

  // Adapter 1 with a rank of 2 in each module, each in a page.
  static Step load() {
    Step step;
    step.adapter_loads = {{1, 2, 1}};
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
  EXPECT_EQ(AdapterPool::bytes(kModules, limits_),
            3 * 32 * sizeof(BF16) + 2 * 2 * sizeof(kernels::AdapterMatrix));
  // 8 * (4 + 2) + 2 * 2 and 8 * (4 + 3) numbers, each at a multiple of 32.
  EXPECT_EQ(adapter_numbers(kModules, std::vector<AdapterMatrix>{{0, 8, 1, 1}, {1, 8, 1}}), 128);
}

TEST_F(AdapterPoolTest, PagesHaveOneAdapter) {
  EXPECT_THAT(refusal_of([](Step& s) { s.adapter_loads[0].first_page = 2; }),
              HasSubstr("load of adapter 1: pages [2, 2 + 2) are not in [0, 3)"));
  EXPECT_THAT(refusal_of([](Step& s) { s.adapter_loads[0].first_page = -1; }),
              HasSubstr("pages [-1, -1 + 2)"));
  EXPECT_EQ(refusal(load()), "");
  Step rows;
  rows.rows = {{.adapter = 1}};
  EXPECT_EQ(refusal(rows), "");
  // Another one in the first page leaves it, one in the second does not.
  Step beside = load();
  beside.adapter_loads[0] = {0, 1, 0};
  beside.adapter_matrices.pop_back();
  beside.adapter_weights.resize(2 * (4 + 2));
  EXPECT_EQ(refusal(beside), "");
  EXPECT_EQ(refusal(rows), "");
  beside.adapter_loads[0].first_page = 2;
  beside.rows = rows.rows;
  EXPECT_THAT(refusal(beside), HasSubstr("adapter 1 of slot 0 is in no place"));
  EXPECT_EQ(refusal(rows), "") << "a refused step changes nothing";
  beside.rows = {};
  EXPECT_EQ(refusal(beside), "");
  EXPECT_THAT(refusal(rows), HasSubstr("adapter 1 of slot 0 is in no place"));
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
  EXPECT_THAT(refusal(step), HasSubstr("adapter 1 of slot 0 is in no place"));
  Step both = load();
  both.rows = step.rows;
  EXPECT_EQ(refusal(both), "");
  EXPECT_EQ(refusal(step), "");
}

}  // namespace
}  // namespace nereid::exec
