#include "exec/step_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "exec/kv_cache.h"
#include "exec/memory.h"
#include "exec/test_harness.h"
#include "io/test_plan.h"

namespace nereid::exec {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr RunnerLimits kStepLimits{3, 8, 20, 10, 4};
constexpr int32_t kVocab = 100;
const std::vector<CacheGroup> kOneGroup(1);

class StepDataTest : public ::testing::Test {
 protected:
  StatusOr<StepData> pack(const StepMessage& step) {
    message_.clear();
    encode(step, message_);
    return StepData::pack(decode(message_).value(), kOneGroup, kStepLimits, kVocab, block_.data());
  }
  static StepMessage step(const std::vector<RowSpec>& rows) {
    return step_of(rows, 1, kStepLimits.block_tokens);
  }
  // The error of pack().
  std::string error(const StepMessage& step) {
    const auto data = pack(step);
    EXPECT_EQ(data.status().code(), absl::StatusCode::kInvalidArgument);
    return data.status().ToString();
  }
  std::string error(const std::vector<RowSpec>& rows) { return error(step(rows)); }
  static Ids ints(const int32_t* data, size_t count) { return Ids(data, data + count); }

  alignas(64) std::vector<std::byte> block_ =
      std::vector<std::byte>(StepData::max_bytes(kStepLimits, 1));
  std::vector<std::byte> message_;
  const Ids tokens_ = {7, 8, 9}, one_ = {kTokenOnDevice}, blocks_ = {5, 6, 7, 8, 9, 0};
};

TEST_F(StepDataTest, PacksRows) {
  const auto step = pack(this->step(
      {{2, 3, tokens_, blocks_, 1}, {0, 0, one_, blocks_, 0}, {1, 9, one_, blocks_, 1}}));
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ(step->num_rows, 3);
  EXPECT_EQ(step->num_tokens, 5);
  EXPECT_EQ(step->num_logits, 2);
  EXPECT_EQ(step->max_length, 10);
  EXPECT_EQ(step->max_blocks, 3);
  EXPECT_EQ(step->num_positions, 6 + 1 + 10);
  EXPECT_LE(step->bytes, StepData::max_bytes(kStepLimits, 1));
  const std::vector<std::byte> copy(block_.begin(), block_.end());
  std::fill(block_.begin(), block_.end(), std::byte{0xee});
  const StepData moved = step->at(block_.data(), copy.data());
  EXPECT_THAT(ints(moved.tokens, 5), ElementsAreArray(Ids{7, 8, 9, -1, -2}));
  EXPECT_THAT(ints(moved.positions, 5), ElementsAreArray(Ids{3, 4, 5, 0, 9}));
  EXPECT_THAT(ints(moved.row_of_token, 5), ElementsAreArray(Ids{0, 0, 0, 1, 2}));
  EXPECT_THAT(ints(moved.row_begin, 4), ElementsAreArray(Ids{0, 3, 4, 5}));
  EXPECT_THAT(ints(moved.logit_tokens, 2), ElementsAreArray(Ids{2, 4}));
  EXPECT_THAT(ints(moved.block_tables, 9), ElementsAreArray(Ids{5, 6, 0, 5, 0, 0, 5, 6, 7}));
}

// Rows of the feature pool, and components of positions.
TEST_F(StepDataTest, PicturesReadFeaturesAtPositionsWithComponents) {
  RunnerLimits limits = kStepLimits;
  limits.num_feature_blocks = 2;
  limits.has_components = true;
  std::vector<std::byte> block(StepData::max_bytes(limits, 1));
  const auto pack_with = [&](const StepMessage& step) {
    message_.clear();
    encode(step, message_);
    return StepData::pack(decode(message_).value(), kOneGroup, limits, kVocab, block.data());
  };
  const Ids first = {7, kTokenFeature, kTokenFeature};
  StepMessage good = this->step({{2, 3, first, blocks_, 1}, {0, 8, one_, blocks_}});
  good.feature_rows = {5, 2};
  good.rows[0].num_components = 2;
  good.components = {3, 3, 3, 4, 5, 6};
  good.rows[0].component_offset = good.rows[1].component_offset = -1;
  const auto step = pack_with(good);
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_LE(step->bytes, block.size());
  const int32_t f = kernels::kFirstFeature;
  EXPECT_THAT(ints(step->tokens, 4), ElementsAreArray(Ids{7, f + 5, f + 2, -1}));
  EXPECT_THAT(ints(step->components, 12),
              ElementsAreArray(Ids{3, 3, 3, 4, 5, 6, 4, 4, 4, 7, 7, 7}));
  const Ids end = {7, kTokenRowEnd};
  const auto ended = pack_with(this->step({{2, 3, end, blocks_, 1}}));
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_THAT(ints(ended->tokens, 2), ElementsAreArray(Ids{7, kernels::kRowEnd}));
  const auto wrong = [&](const std::function<void(StepMessage&)>& edit) {
    StepMessage bad = good;
    edit(bad);
    return pack_with(bad).status().ToString();
  };
  EXPECT_THAT(wrong([](StepMessage& m) { m.feature_rows[1] = 8; }),
              HasSubstr("feature row 8 is not in [0, 8)"));
  EXPECT_THAT(wrong([](StepMessage& m) { m.feature_rows.pop_back(); }),
              HasSubstr("1 feature rows of 2 tokens"));
  EXPECT_THAT(wrong([](StepMessage& m) { m.components[4] = 20; }),
              HasSubstr("row 0: component 20 of a position"));
  EXPECT_THAT(wrong([](StepMessage& m) { m.components.pop_back(); }), HasSubstr("are left"));
  EXPECT_THAT(wrong([](StepMessage& m) { m.rows[1].component_offset = -9; }),
              HasSubstr("row 1: component_offset -9"));
  EXPECT_THAT(wrong([](StepMessage& m) { m.rows[0].num_components = -1; }),
              HasSubstr("num_components -1"));
  EXPECT_THAT(error(good), HasSubstr("of a model without"));
}

TEST_F(StepDataTest, MasksOfCrossAttentionGoToTheirTokens) {
  RunnerLimits limits = kStepLimits;
  limits.max_encoder_length = 40;
  limits.num_cross_blocks = 30;
  limits.has_trees = true;
  limits.max_logits = 8;
  std::vector<std::byte> block(StepData::max_bytes(limits, 1));
  const auto pack_with = [&](const StepMessage& step) {
    message_.clear();
    encode(step, message_);
    return StepData::pack(decode(message_).value(), kOneGroup, limits, kVocab, block.data());
  };
  // The tree's drafts, 8 and 9, both follow 7.
  StepMessage good = this->step({{2, 3, tokens_, blocks_, 1}, {0, 0, one_, blocks_, 1}});
  good.rows[0].cross_length = 5;
  good.rows[0].has_cross_mask = 1;
  good.rows[0].num_drafts = 2;
  good.rows[0].num_logits = 3;
  good.rows[0].samples = 1;
  good.rows[0].has_tree = 1;
  good.parents = {-1, -1};
  good.rows[1].cross_length = 33;
  good.cross_blocks = {3, 4, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  good.cross_masks = {11, 22, 33};
  const auto step = pack_with(good);
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_LE(step->bytes, block.size());
  EXPECT_EQ(step->cross_mask_words, 2);
  EXPECT_THAT(ints(step->cross_mask, 8), ElementsAreArray(Ids{11, -1, 22, -1, 22, -1, -1, -1}));
  const auto wrong = [&](const std::function<void(StepMessage&)>& edit) {
    StepMessage bad = good;
    edit(bad);
    return pack_with(bad).status().ToString();
  };
  EXPECT_THAT(wrong([](StepMessage& m) { m.cross_masks.pop_back(); }),
              HasSubstr("row 0: 2 words of cross_masks are left for 3 tokens and 5 positions"));
  EXPECT_THAT(wrong([](StepMessage& m) { m.cross_masks.push_back(0); }),
              HasSubstr("1 words of cross_masks belong to no row"));
  EXPECT_THAT(wrong([](StepMessage& m) { m.rows[0].has_cross_mask = -1; }),
              HasSubstr("row 0: has_cross_mask -1"));
  good.cross_masks.clear();
  good.rows[0].has_cross_mask = 0;
  EXPECT_EQ(pack_with(good)->cross_mask, nullptr);
}

TEST_F(StepDataTest, TokensAttendAheadWithinTheirRow) {
  RunnerLimits limits = kStepLimits;
  limits.has_last = true;
  std::vector<std::byte> block(StepData::max_bytes(limits, 1));
  const auto pack_with = [&](const StepMessage& step) {
    message_.clear();
    encode(step, message_);
    return StepData::pack(decode(message_).value(), kOneGroup, limits, kVocab, block.data());
  };
  const Ids first = {7, 8, 9};
  StepMessage good = this->step({{2, 3, first, blocks_, 1}, {0, 8, one_, blocks_}});
  good.rows[0].has_last = 1;
  good.last = {4, 4, 5};
  const auto step = pack_with(good);
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_LE(step->bytes, block.size());
  EXPECT_THAT(ints(step->last, 4), ElementsAreArray(Ids{4, 4, 5, 8}));
  const auto wrong = [&](const std::function<void(StepMessage&)>& edit) {
    StepMessage bad = good;
    edit(bad);
    return pack_with(bad).status().ToString();
  };
  EXPECT_THAT(wrong([](StepMessage& m) { m.last[0] = 6; }),
              HasSubstr("row 0: last position 6 is not in [3, 6)"));
  EXPECT_THAT(wrong([](StepMessage& m) { m.last[1] = 3; }), HasSubstr("3 is not in [4, 6)"));
  EXPECT_THAT(wrong([](StepMessage& m) { m.last.pop_back(); }), HasSubstr("are left"));
  EXPECT_THAT(wrong([](StepMessage& m) { m.last.push_back(5); }), HasSubstr("belong to no row"));
  EXPECT_THAT(wrong([](StepMessage& m) { m.rows[0].has_last = 2; }), HasSubstr("has_last 2"));
  EXPECT_THAT(error(good), HasSubstr("has_last 1; allowed is 0"));
}

TEST_F(StepDataTest, NumbersTheEmbeddings) {
  const Ids first = {kTokenExternal, 8, kTokenExternal}, second = {4, kTokenExternal};
  const auto step =
      pack(this->step({{2, 3, first, blocks_, 1}, {0, 0, one_, blocks_}, {1, 0, second, blocks_}}));
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ(step->num_embeddings, 3);
  const int32_t e = kernels::kFirstEmbedding;
  EXPECT_THAT(ints(step->tokens, 6), ElementsAreArray(Ids{e, 8, e + 1, -1, 4, e + 2}));
  StepMessage draft = this->step({{2, 3, first, blocks_, 2}});
  draft.rows[0].num_drafts = 1;
  EXPECT_THAT(error(draft), HasSubstr("row 0: token -2 is not in"));
}

TEST_F(StepDataTest, RefusesWhatWouldReachOutside) {
  const Ids many(9, 1), bad_token = {1, kVocab}, early = {kTokenOnDevice, 3}, negative = {-5};
  const Ids bad_block = {1, 10}, minus = {-1};
  EXPECT_THAT(error(StepMessage()), HasSubstr("0 rows"));
  EXPECT_THAT(error({{3, 0, tokens_, blocks_}}), HasSubstr("row 0: slot 3 is not in [0, 3)"));
  EXPECT_THAT(error({{-1, 0, tokens_, blocks_}}), HasSubstr("slot -1"));
  EXPECT_THAT(error({{0, 0, {}, blocks_}}), HasSubstr("no tokens"));
  EXPECT_THAT(error({{0, 18, tokens_, blocks_}}), HasSubstr("positions [18, 21)"));
  EXPECT_THAT(error({{0, -1, tokens_, blocks_}}), HasSubstr("positions [-1, 2)"));
  EXPECT_THAT(error({{0, 0, tokens_, blocks_}, {1, 0, bad_token, blocks_}}),
              HasSubstr("row 1: token 100"));
  EXPECT_THAT(error({{0, 0, early, blocks_}}), HasSubstr("token -1"));
  EXPECT_THAT(error({{0, 0, negative, blocks_}}), HasSubstr("token -5"));
  EXPECT_THAT(error({{0, 2, tokens_, bad_block}}), HasSubstr("block 10 is not in [0, 10)"));
  EXPECT_THAT(error({{0, 0, tokens_, minus}}), HasSubstr("block -1"));
  EXPECT_THAT(error({{0, 0, many, blocks_}}), HasSubstr("9 tokens; at most 8"));
  EXPECT_THAT(error({{0, 0, one_, blocks_},
                     {1, 0, one_, blocks_},
                     {2, 0, one_, blocks_},
                     {0, 0, one_, blocks_}}),
              HasSubstr("4 rows; 1 to 3"));
}

TEST_F(StepDataTest, RefusesRowsThatDoNotAgreeWithTheArrays) {
  const auto with = [&](auto change) {
    StepMessage step = this->step({{0, 2, tokens_, blocks_, 1}, {1, 0, one_, blocks_, 1}});
    change(step);
    return error(step);
  };
  EXPECT_THAT(with([](StepMessage& s) { s.blocks.pop_back(); }),
              HasSubstr("row 1: 1 tokens and 0 blocks are left for 1 positions"));
  EXPECT_THAT(with([](StepMessage& s) { s.blocks.push_back(0); }),
              HasSubstr("0 tokens and 1 blocks belong to no row"));
  EXPECT_THAT(with([](StepMessage& s) { s.tokens.push_back(0); }),
              HasSubstr("1 tokens and 0 blocks"));
  EXPECT_THAT(with([](StepMessage& s) { s.rows[1].num_tokens = 9; }), HasSubstr("row 1: 1 tokens"));
  EXPECT_THAT(with([](StepMessage& s) { s.rows[0].num_tokens = -3; }),
              HasSubstr("row 0: no tokens"));
  EXPECT_THAT(with([](StepMessage& s) { s.rows[0].start = 0x7fffffff; }), HasSubstr("positions ["));
  EXPECT_THAT(with([](StepMessage& s) { s.rows[0].position_offset = -1; }),
              HasSubstr("position_offset -1"));
  EXPECT_THAT(with([](StepMessage& s) { s.rows[0].position_offset = 0x7fffffff; }),
              HasSubstr("positions ["));
  EXPECT_THAT(with([](StepMessage& s) { s.rows[0].num_logits = 2; }),
              HasSubstr("2 logits of 3 tokens"));
  EXPECT_THAT(with([](StepMessage& s) { s.rows[0].num_read = 2; }), HasSubstr("2 rows of logits"));
  EXPECT_THAT(with([](StepMessage& s) { s.rows[0].num_read = -1; }),
              HasSubstr("-1 rows of logits"));
  EXPECT_THAT(with([](StepMessage& s) { s.rows[0].samples = 2; }), HasSubstr("samples 2 of 1"));
  EXPECT_THAT(with([](StepMessage& s) { s.rows[0].num_logits = s.rows[0].num_read = 0; }),
              HasSubstr("samples 1 of 0 logits"));
  EXPECT_THAT(with([](StepMessage& s) { s.rows[0].num_drafts = 1; }),
              HasSubstr("1 logits of 3 tokens; allowed are none, 2 and all"));
  EXPECT_THAT(with([](StepMessage& s) { s.rows[0].num_drafts = 3; }),
              HasSubstr("3 drafts of 3 tokens"));
  EXPECT_THAT(with([](StepMessage& s) { s.rows[0].num_drafts = -1; }), HasSubstr("-1 drafts of 3"));
  EXPECT_THAT(with([](StepMessage& s) { s.rows[0].num_drafts = 1, s.tokens[2] = kTokenOnDevice; }),
              HasSubstr("token -1"));
  EXPECT_THAT(with([](StepMessage& s) {
                s.rows[0].num_drafts = 1, s.rows[0].num_logits = 2, s.rows[0].samples = 0;
              }),
              HasSubstr("1 drafts of a row that does not sample"));
}

// Blocks beyond the row's positions are arbitrary: a scheduler reserves ahead.
TEST_F(StepDataTest, LooksOnlyAtBlocksInUse) {
  const Ids ahead = {1, 99};
  EXPECT_TRUE(pack(step({{0, 1, tokens_, ahead}})).ok());
}

// Window 6, sink 2: at positions >= 11, [2, 6) is unseen.
TEST(StepDataWindow, HolesAreForBlocksThatNobodySees) {
  RunnerLimits limits = kStepLimits;
  limits.block_tokens = 2;
  std::vector<CacheGroup> groups = {{.window = 6, .sink = 2}};
  std::vector<std::byte> block(StepData::max_bytes(limits, 1) + 64);
  const auto status = [&](const Ids& blocks, int32_t start) {
    const Ids tokens = {1, 2, 3};
    std::vector<std::byte> message;
    encode(step_of({{0, start, tokens, blocks, 1}}, 1, limits.block_tokens), message);
    return StepData::pack(decode(message).value(), groups, limits, kVocab, block.data()).status();
  };
  EXPECT_TRUE(status({3, -1, -1, 4, 5, 6, 7}, 11).ok());
  EXPECT_THAT(status({-1, -1, -1, 4, 5, 6, 7}, 11).ToString(), HasSubstr("block -1"));
  EXPECT_THAT(status({3, -1, -1, -1, 5, 6, 7}, 11).ToString(), HasSubstr("block -1"));
  EXPECT_THAT(status({3, -1, -1, 4, 5, 6, 7}, 10).ToString(), HasSubstr("block -1"));
  EXPECT_THAT(status({3, -1, -2, 4, 5, 6, 7}, 11).ToString(), HasSubstr("block -2"));
  groups[0].window = 0;
  EXPECT_THAT(status({3, -1, -1, 4, 5, 6, 7}, 11).ToString(), HasSubstr("block -1"));
}

TEST(Memory, WindowsHoldFewerBlocks) {
  RunnerLimits limits = kStepLimits;  // 8 tokens per step, 20 positions, 4 tokens per block
  io::Plan plan = io::test_plan();
  const auto held = [&] {
    return blocks_held_per_sequence(limits, cache_groups(plan, limits).at(0));
  };
  const auto window = [&] { return cache_groups(plan, limits).at(0).window; };
  EXPECT_EQ(held(), 5);
  limits.window = 3;
  EXPECT_EQ(held(), 4);
  limits.sink = 2;
  EXPECT_EQ(held(), 5);
  limits.max_tokens = 1;
  EXPECT_EQ(held(), 3);
  EXPECT_EQ(window(), 3);
  std::get<kernels::ids::Attention>(plan.calls[3].op).window = 2;
  EXPECT_EQ(window(), 2);
  limits.window = 0;
  EXPECT_EQ(window(), 2);
  std::get<kernels::ids::Attention>(plan.calls[3].op).window = plan.model.max_positions;
  EXPECT_EQ(window(), 0) << "it hides nothing";
}

// Layers with other windows or other heads.
TEST(Memory, LayersOfOneKindAreAGroup) {
  io::Plan plan = io::test_plan();
  const io::Call attention = plan.calls[3];
  plan.model.num_layers = 6;
  for (int32_t layer = 1; layer < 6; ++layer) {
    plan.calls.push_back(attention);
    auto& call = std::get<kernels::ids::Attention>(plan.calls.back().op);
    call.cache = layer;
    call.window = layer == 3 ? 0 : layer == 4 ? 5 : 9;
    if (layer == 5) call.heads.num_kv = 2;
  }
  const auto groups = cache_groups(plan, kStepLimits);
  ASSERT_EQ(groups.size(), 4u);
  EXPECT_THAT(groups[0].layers, ElementsAreArray(Ids{0, 3}));
  EXPECT_EQ(groups[0].window, 0);
  EXPECT_THAT(groups[1].layers, ElementsAreArray(Ids{1, 2}));
  EXPECT_EQ(groups[1].window, 9);
  EXPECT_THAT(groups[2].layers, ElementsAreArray(Ids{5}));
  EXPECT_EQ(groups[2].num_kv_heads, 2);
  EXPECT_THAT(groups[3].layers, ElementsAreArray(Ids{4}));
  RunnerLimits limits = kStepLimits;
  limits.window = 5;
  EXPECT_EQ(cache_groups(plan, limits).size(), 2u) << "all see 5 positions";
  limits.window = 7;
  EXPECT_EQ(cache_groups(plan, limits).at(0).window, 7);
}

// Two full layers and two with a window: a full batch of long sequences exhausts both at once.
TEST(Memory, GroupsShareByWhatABatchHolds) {
  io::Plan plan = io::test_plan();
  plan.model.num_layers = 2;
  plan.calls.push_back(plan.calls[3]);
  auto& windowed = std::get<kernels::ids::Attention>(plan.calls.back().op);
  windowed.cache = 1;
  windowed.window = 4;
  RunnerLimits limits = kStepLimits;  // 3 rows, 4 tokens per block
  limits.max_tokens = 4;
  limits.max_sequence_length = 64;  // 16 blocks; with the window 3
  const size_t block = 256;
  const auto table = memory_table(plan, limits, DeviceInfo());
  size_t fixed = 0;
  for (const MemoryItem& item : table) fixed += item.bytes;
  fixed -= table[1].bytes;
  EXPECT_EQ(table[1].what, "KV cache of 1 layers");
  EXPECT_EQ(table[2].what, "KV cache of 1 layers with a window of 4");
  const auto blocks = [&](size_t count) {
    return num_blocks_that_fit(plan, limits, DeviceInfo(), fixed + count * block);
  };
  EXPECT_FALSE(blocks(18).ok());
  EXPECT_EQ(blocks(19).value()[0], 16) << "one of the longest";
  EXPECT_EQ(blocks(19).value()[1], 3);
  EXPECT_EQ(blocks(16 + 9).value()[0], 16) << "a batch of 3 sequences of 5 blocks and more";
  EXPECT_EQ(blocks(16 + 9).value()[1], 9);
  EXPECT_EQ(blocks(30 + 9).value()[0], 30);
  EXPECT_EQ(blocks(30 + 9).value()[1], 9);
  EXPECT_EQ(blocks(2 * (48 + 9)).value()[0], 2 * 48) << "more than a full batch";
  EXPECT_EQ(blocks(2 * (48 + 9)).value()[1], 2 * 9);
}

TEST(Memory, ScalesAreCounted) {
  const io::Plan plan = io::test_plan();
  RunnerLimits limits = kStepLimits;
  const auto bytes = [&] { return KvLayout::of(cache_groups(plan, limits)[0], limits).block; };
  EXPECT_EQ(bytes(), 2u * 4 * 16 * 2);
  limits.kv_type = DType::kI8;
  EXPECT_EQ(bytes(), 2u * 4 * (16 + 4));
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
  RunnerLimits limits = kStepLimits;
  limits.depth = 0;
  EXPECT_THAT(error(limits), HasSubstr("depth: 0 is not in [1, 8]"));
  limits.depth = 9;
  EXPECT_THAT(error(limits), HasSubstr("depth: 9"));
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
    EXPECT_LE(total((*num_blocks)[0]), budget);
    EXPECT_GT(total((*num_blocks)[0] + 1), budget);
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
