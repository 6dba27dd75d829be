#include "exec/step_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "exec/memory.h"
#include "io/test_plan.h"

namespace nereid::exec {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;

constexpr RunnerLimits kStepLimits{3, 8, 20, 10, 4};
constexpr int32_t kVocab = 100;

class StepDataTest : public ::testing::Test {
 protected:
  StatusOr<StepData> pack(const std::vector<StepRow>& rows) {
    return StepData::pack(rows, kStepLimits, kVocab, block_.data());
  }
  // The one error that packing gives.
  std::string error(const std::vector<StepRow>& rows) {
    const auto step = pack(rows);
    EXPECT_EQ(step.status().code(), absl::StatusCode::kInvalidArgument);
    return step.status().ToString();
  }
  static Ids ints(const int32_t* data, size_t count) { return Ids(data, data + count); }

  alignas(64) std::vector<std::byte> block_ =
      std::vector<std::byte>(StepData::max_bytes(kStepLimits));
  const Ids tokens_ = {7, 8, 9}, one_ = {kTokenOnDevice}, blocks_ = {5, 6, 7, 8, 9};
};

TEST_F(StepDataTest, PacksRows) {
  const auto step =
      pack({{2, 3, tokens_, blocks_, 1}, {0, 0, one_, blocks_, 0}, {1, 9, one_, blocks_, 1}});
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ(step->num_rows, 3);
  EXPECT_EQ(step->num_tokens, 5);
  EXPECT_EQ(step->num_logits, 2);
  EXPECT_EQ(step->max_length, 10);
  EXPECT_EQ(step->max_blocks, 3);
  EXPECT_EQ(step->num_positions, 6 + 1 + 10);
  EXPECT_LE(step->bytes, StepData::max_bytes(kStepLimits));
  const std::vector<std::byte> copy(block_.begin(), block_.end());
  std::fill(block_.begin(), block_.end(), std::byte{0xee});
  const StepData moved = step->at(block_.data(), copy.data());
  EXPECT_THAT(ints(moved.tokens, 5), ElementsAreArray(Ids{7, 8, 9, -1, -2}));
  EXPECT_THAT(ints(moved.positions, 5), ElementsAreArray(Ids{3, 4, 5, 0, 9}));
  EXPECT_THAT(ints(moved.row_of_token, 5), ElementsAreArray(Ids{0, 0, 0, 1, 2}));
  EXPECT_THAT(ints(moved.row_begin, 4), ElementsAreArray(Ids{0, 3, 4, 5}));
  EXPECT_THAT(ints(moved.logit_tokens, 2), ElementsAreArray(Ids{2, 4}));
  EXPECT_THAT(ints(moved.block_table, 9), ElementsAreArray(Ids{5, 6, 0, 5, 0, 0, 5, 6, 7}));
}

TEST_F(StepDataTest, RefusesWhatWouldReachOutside) {
  const Ids many(9, 1), bad_token = {1, kVocab}, early = {kTokenOnDevice, 3}, negative = {-2};
  const Ids bad_block = {1, 10}, minus = {-1};
  EXPECT_THAT(error({}), HasSubstr("0 rows"));
  EXPECT_THAT(error({{3, 0, tokens_, blocks_}}), HasSubstr("row 0: slot 3 is not in [0, 3)"));
  EXPECT_THAT(error({{-1, 0, tokens_, blocks_}}), HasSubstr("slot -1"));
  EXPECT_THAT(error({{0, 0, {}, blocks_}}), HasSubstr("no tokens"));
  EXPECT_THAT(error({{0, 18, tokens_, blocks_}}), HasSubstr("positions [18, 21)"));
  EXPECT_THAT(error({{0, -1, tokens_, blocks_}}), HasSubstr("positions [-1, 2)"));
  EXPECT_THAT(error({{0, 0, tokens_, blocks_}, {1, 0, bad_token, blocks_}}),
              HasSubstr("row 1: token 100"));
  EXPECT_THAT(error({{0, 0, early, blocks_}}), HasSubstr("token -1"));
  EXPECT_THAT(error({{0, 0, negative, blocks_}}), HasSubstr("token -2"));
  EXPECT_THAT(error({{0, 2, tokens_, minus}}), HasSubstr("1 blocks do not cover 5 positions"));
  EXPECT_THAT(error({{0, 2, tokens_, bad_block}}), HasSubstr("block 10 is not in [0, 10)"));
  EXPECT_THAT(error({{0, 0, tokens_, minus}}), HasSubstr("block -1"));
  EXPECT_THAT(error({{0, 0, many, blocks_}}), HasSubstr("9 tokens; at most 8"));
  EXPECT_THAT(error({{0, 0, one_, blocks_},
                     {1, 0, one_, blocks_},
                     {2, 0, one_, blocks_},
                     {0, 0, one_, blocks_}}),
              HasSubstr("4 rows; 1 to 3"));
}

// Blocks that the positions do not reach may be anything: a scheduler reserves ahead.
TEST_F(StepDataTest, LooksOnlyAtBlocksInUse) {
  const Ids ahead = {1, 99};
  EXPECT_TRUE(pack({{0, 1, tokens_, ahead}}).ok());
}

// With a window of 6 and a sink of 2: at position 11 on, [2, 6) is seen by nobody.
TEST(StepDataWindow, HolesAreForBlocksThatNobodySees) {
  RunnerLimits limits = kStepLimits;
  limits.window = 6, limits.sink = 2, limits.block_tokens = 2;
  std::vector<std::byte> block(StepData::max_bytes(limits) + 64);
  const auto status = [&](const Ids& blocks, int32_t start) {
    const Ids tokens = {1, 2, 3};
    return StepData::pack({{StepRow{0, start, tokens, blocks, 1}}}, limits, kVocab, block.data())
        .status();
  };
  EXPECT_TRUE(status({3, -1, -1, 4, 5, 6, 7}, 11).ok());
  EXPECT_THAT(status({-1, -1, -1, 4, 5, 6, 7}, 11).ToString(), HasSubstr("block -1"));
  EXPECT_THAT(status({3, -1, -1, -1, 5, 6, 7}, 11).ToString(), HasSubstr("block -1"));
  EXPECT_THAT(status({3, -1, -1, 4, 5, 6, 7}, 10).ToString(), HasSubstr("block -1"));
  EXPECT_THAT(status({3, -1, -2, 4, 5, 6, 7}, 11).ToString(), HasSubstr("block -2"));
  limits.window = 0;
  EXPECT_THAT(status({3, -1, -1, 4, 5, 6, 7}, 11).ToString(), HasSubstr("block -1"));
}

TEST(Memory, WindowsHoldFewerBlocks) {
  RunnerLimits limits = kStepLimits;  // 8 tokens a step, 20 positions, blocks of 4
  EXPECT_EQ(blocks_held_per_sequence(limits), 5);
  limits.window = 3;
  EXPECT_EQ(blocks_held_per_sequence(limits), 4);
  limits.sink = 2;
  EXPECT_EQ(blocks_held_per_sequence(limits), 5);
  limits.max_tokens = 1;
  EXPECT_EQ(blocks_held_per_sequence(limits), 3);
  io::Plan plan = io::test_plan();
  auto& call = std::get<kernels::ids::Attention>(plan.calls[3].op);
  EXPECT_EQ(model_window(plan), 0);
  EXPECT_EQ(window_of(call.window, limits), 3);
  call.window = 2;
  EXPECT_EQ(model_window(plan), 2);
  EXPECT_EQ(window_of(call.window, limits), 2);
  limits.window = 0;
  EXPECT_EQ(window_of(call.window, limits), 2);
}

TEST(Memory, ScalesAreCounted) {
  const io::Plan plan = io::test_plan();
  RunnerLimits limits = kStepLimits;
  EXPECT_EQ(kv_block_bytes(plan, limits), 2u * 4 * 16 * 2);
  limits.kv_type = DType::kI8;
  EXPECT_EQ(kv_block_bytes(plan, limits), 2u * 4 * (16 + 4));
  limits.kv_type = DType::kF16;
  EXPECT_THAT(check_limits(plan, limits).ToString(), HasSubstr("kv_type: f16 is not one of"));
}

TEST(Memory, LimitsNameTheField) {
  const io::Plan plan = io::test_plan();
  const auto error = [&](const RunnerLimits& limits) {
    return check_limits(plan, limits).ToString();
  };
  EXPECT_TRUE(check_limits(plan, kStepLimits).ok());
  EXPECT_THAT(error({0, 8, 20, 10, 4}), HasSubstr("max_rows: 0"));
  EXPECT_THAT(error({3, -8, 20, 10, 4}), HasSubstr("max_tokens: -8"));
  EXPECT_THAT(error({3, 8, 65, 10, 4}), HasSubstr("max_sequence_length: 65 is not in [1, 64]"));
  EXPECT_THAT(error({3, 8, 20, 10, 0}), HasSubstr("block_tokens: 0"));
  EXPECT_THAT(error({3, 8, 20, -1, 4}), HasSubstr("num_blocks: -1"));
  EXPECT_THAT(error({3, 8, 20, 10, 4, -1}), HasSubstr("num_host_blocks: -1"));
}

TEST(Memory, AsManyBlocksAsFitAndNotOneMore) {
  const io::Plan plan = io::test_plan();
  const auto total = [&](int32_t num_blocks) {
    RunnerLimits limits = kStepLimits;
    limits.num_blocks = num_blocks;
    size_t sum = 0;
    for (const MemoryItem& item : memory_table(plan, limits, DeviceInfo())) sum += item.bytes;
    return sum;
  };
  for (const size_t budget : {size_t{40000}, size_t{1} << 20, size_t{123456789}}) {
    const auto num_blocks = num_blocks_that_fit(plan, kStepLimits, DeviceInfo(), budget);
    ASSERT_TRUE(num_blocks.ok()) << num_blocks.status();
    EXPECT_LE(total(*num_blocks), budget);
    EXPECT_GT(total(*num_blocks + 5), budget);  // less the rounding of the planes
  }
  const auto refused = num_blocks_that_fit(plan, kStepLimits, DeviceInfo(), 12000).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.ToString(), HasSubstr("one sequence of 20 positions needs 5"));
  EXPECT_THAT(refused.ToString(), HasSubstr("weights"));
  DeviceInfo device;
  device.workspace_bytes = 20000;
  EXPECT_EQ(num_blocks_that_fit(plan, kStepLimits, device, 123456789).value(),
            num_blocks_that_fit(plan, kStepLimits, DeviceInfo(), 123456789 - 20000).value());
}

}  // namespace
}  // namespace nereid::exec
