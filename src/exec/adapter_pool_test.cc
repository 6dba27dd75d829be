// Checks and effects of adapter loads in step messages.
#include "exec/adapter_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

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

  // Adapter 1: rank 2 in each module, one page per module.
  static StepMessage load() {
    StepMessage step;
    step.adapter_loads = {{.adapter = 1, .num_matrices = 2, .first_page = 1, .num_weights = 26}};
    step.adapter_matrices = {{0, 2, 1.0f}, {1, 2, 1.0f}};
    step.adapter_weights.resize(2 * (4 + 2) + 2 * (4 + 3));
    return step;
  }
  // The weights of load() from number `first` on; weight i has the value i + 1.
  static StepMessage part(int64_t first, int32_t count) {
    StepMessage step = load();
    step.adapter_loads[0].first_weight = first, step.adapter_loads[0].num_weights = count;
    step.adapter_weights.clear();
    for (int64_t i = first; i < first + count; ++i)
      step.adapter_weights.push_back(to_bf16(static_cast<float>(i + 1)));
    return step;
  }
  // Stages and executes a valid message.
  void run(const StepMessage& step) {
    std::vector<std::byte> message;
    encode(step, message);
    const StepMessageView view = decode(message).value();
    ASSERT_TRUE(pool_.check(view).ok()) << pool_.check(view);
    pool_.stage(view, 0);
    const auto stream = device_->create_stream().value();
    const auto work = [&](Stream& s) -> Status {
      if (pool_.has_loads(0)) RETURN_IF_ERROR(pool_.load(0, s));
      return pool_.run(0, s);
    };
    ASSERT_TRUE(stream->submit(work).value()->wait().ok());
    pool_.keep(view);
  }
  // The weights of adapter 1 as found through the kernels' tables.
  std::vector<float> numbers() const {
    kernels::BatchView view;
    pool_.add_to(view);
    std::vector<float> out;
    for (size_t m = 0; m < kModules.size(); ++m) {
      const kernels::LoraMatrix& matrix = view.adapter_matrices[kModules.size() + m];
      for (int64_t i = 0; i < 2 * 4; ++i)
        out.push_back(to_float(view.adapter_weights[matrix.a + i]));
      for (int64_t i = 0; i < 2 * kModules[m].n; ++i)
        out.push_back(to_float(view.adapter_weights[matrix.b + i]));
    }
    return out;
  }
  std::string refusal(const StepMessage& step) {
    std::vector<std::byte> message;
    encode(step, message);
    const StepMessageView view = decode(message).value();
    const Status status = pool_.check(view);
    if (status.ok()) pool_.keep(view);
    return std::string(status.message());
  }
  template <class Change>
  std::string refusal_of(Change change) {
    StepMessage step = load();
    change(step);
    return refusal(step);
  }

  RunnerLimits limits_;
  std::unique_ptr<Device> device_ = make_cpu_device({.num_threads = 1}).value();
  AdapterPool pool_;
};

TEST_F(AdapterPoolTest, TakesWhatFits) {
  EXPECT_EQ(refusal(load()), "");
  EXPECT_EQ(refusal(StepMessage()), "");
  StepMessage with_gain = load();
  with_gain.adapter_matrices[1].has_gain = 1;
  with_gain.adapter_weights.resize(with_gain.adapter_weights.size() + 2 * 3);
  with_gain.adapter_loads[0].num_weights += 2 * 3;
  EXPECT_EQ(refusal(with_gain), "");
  EXPECT_EQ(AdapterPool::bytes(kModules, limits_),
            3 * 32 * sizeof(BF16) + 2 * 2 * sizeof(kernels::LoraMatrix));
  // 8 * (4 + 2) + 2 * 2 and 8 * (4 + 3) numbers, each at a multiple of 32.
  EXPECT_EQ(adapter_numbers(kModules, std::vector<LoraMatrixInfo>{{0, 8, 1, 1}, {1, 8, 1}}), 128);
}

TEST_F(AdapterPoolTest, PagesHaveOneAdapter) {
  EXPECT_THAT(refusal_of([](StepMessage& s) { s.adapter_loads[0].first_page = 2; }),
              HasSubstr("load of adapter 1: pages [2, 2 + 2) are not in [0, 3)"));
  EXPECT_THAT(refusal_of([](StepMessage& s) { s.adapter_loads[0].first_page = -1; }),
              HasSubstr("pages [-1, -1 + 2)"));
  EXPECT_EQ(refusal(load()), "");
  StepMessage rows;
  rows.rows = {{.adapter = 1}};
  EXPECT_EQ(refusal(rows), "");
  // Another adapter in the first page empties the slot; one in the second page does not.
  StepMessage beside = load();
  beside.adapter_loads[0] = {.num_matrices = 1, .num_weights = 2 * (4 + 2)};
  beside.adapter_matrices.pop_back();
  beside.adapter_weights.resize(2 * (4 + 2));
  EXPECT_EQ(refusal(beside), "");
  EXPECT_EQ(refusal(rows), "");
  beside.adapter_loads[0].first_page = 2;
  beside.rows = rows.rows;
  EXPECT_THAT(refusal(beside), HasSubstr("adapter 1 of slot 0 is not loaded"));
  EXPECT_EQ(refusal(rows), "") << "a refused step changes nothing";
  beside.rows = {};
  EXPECT_EQ(refusal(beside), "");
  EXPECT_THAT(refusal(rows), HasSubstr("adapter 1 of slot 0 is not loaded"));
}

TEST_F(AdapterPoolTest, RefusesWhatDoesNot) {
  EXPECT_THAT(refusal_of([](StepMessage& s) { s.adapter_loads[0].adapter = 2; }),
              HasSubstr("load of adapter 2, which is not in [0, 2)"));
  EXPECT_THAT(refusal_of([](StepMessage& s) { s.adapter_loads[0].num_matrices = 3; }),
              HasSubstr("3 matrices, 2 are left"));
  EXPECT_THAT(refusal_of([](StepMessage& s) { s.adapter_loads[0].num_matrices = -1; }),
              HasSubstr("-1 matrices"));
  EXPECT_THAT(refusal_of([](StepMessage& s) { s.adapter_loads[0].num_matrices = 1; }),
              HasSubstr("weights [0, 0 + 26) are not in [0, 12)"));
  EXPECT_THAT(refusal_of([](StepMessage& s) {
                s.adapter_loads[0].num_matrices = 1, s.adapter_loads[0].num_weights = 12;
              }),
              HasSubstr("1 matrices and 14 weights belong to no adapter"));
  EXPECT_THAT(refusal_of([](StepMessage& s) { s.adapter_matrices[1].module = 0; }),
              HasSubstr("module 0 is not in [1, 2)"));
  EXPECT_THAT(refusal_of([](StepMessage& s) { s.adapter_matrices[1].module = 2; }),
              HasSubstr("module 2 is not in [1, 2)"));
  EXPECT_THAT(refusal_of([](StepMessage& s) { s.adapter_matrices[0].rank = 9; }),
              HasSubstr("rank 9 is not in [1, 8]"));
  EXPECT_THAT(refusal_of([](StepMessage& s) { s.adapter_matrices[0].scale = 1.0f / 0.0f; }),
              HasSubstr("the scale is not a number"));
  EXPECT_THAT(refusal_of([](StepMessage& s) { s.adapter_matrices[0].has_gain = 2; }),
              HasSubstr("has_gain is 2, not 0 or 1"));
  EXPECT_THAT(refusal_of([](StepMessage& s) { s.adapter_weights.pop_back(); }),
              HasSubstr("the message has 25 of its 26 weights left"));
}

// Two layers. Not fused: the first norm (no product before it) and the last layer's norms (gathered
// or returned rows). Fused: the four products next to the other norms, and the last gate and up.
TEST_F(AdapterPoolTest, PartsAndMovesLieWhereTheTablesSay) {
  std::vector<float> all(26);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i + 1);
  StepMessage rows;
  rows.rows = {{.adapter = 1}};
  for (int64_t first = 0; first < 26; first += 7) {
    EXPECT_THAT(refusal(rows), HasSubstr("adapter 1 of slot 0 is not loaded"));
    run(part(first, static_cast<int32_t>(std::min<int64_t>(7, 26 - first))));
  }
  EXPECT_EQ(numbers(), all);
  EXPECT_EQ(refusal(rows), "");
  StepMessage move;
  move.adapter_moves = {{.adapter = 1, .to_page = 0}};  // source and target pages overlap
  run(move);
  EXPECT_EQ(numbers(), all);
  move.adapter_moves[0].to_page = 1;
  run(move);
  EXPECT_EQ(numbers(), all);
}

TEST_F(AdapterPoolTest, PartsComeInOrder) {
  run(part(0, 7));
  EXPECT_THAT(refusal(part(8, 7)), HasSubstr("from 8 on do not continue the 7 in its pages"));
  StepMessage elsewhere = part(7, 7);
  elsewhere.adapter_loads[0].first_page = 0;
  EXPECT_THAT(refusal(elsewhere), HasSubstr("from 7 on do not continue"));
  StepMessage move;
  move.adapter_moves = {{.adapter = 1, .to_page = 0}};
  EXPECT_THAT(refusal(move), HasSubstr("move of adapter 1: it is not completely loaded"));
  run(part(7, 19));
  EXPECT_THAT(refusal(part(7, 7)), HasSubstr("from 7 on do not continue"));
}

TEST_F(AdapterPoolTest, MovesGoToFreePages) {
  run(part(0, 26));
  const auto refusal_of_moves = [&](std::vector<AdapterMove> moves) {
    StepMessage step;
    step.adapter_moves = std::move(moves);
    return refusal(step);
  };
  EXPECT_THAT(refusal_of_moves({{2, 0}}), HasSubstr("move of adapter 2: it is not in [0, 2)"));
  EXPECT_THAT(refusal_of_moves({{1, 2}}), HasSubstr("pages [2, 2 + 2) are not in [0, 3)"));
  EXPECT_THAT(refusal_of_moves({{1, 0}, {1, 1}}), HasSubstr("adapter 1 moves twice"));
  StepMessage both = load();
  both.adapter_moves = {{1, 0}};
  EXPECT_THAT(refusal(both), HasSubstr("1 moves of adapters beside 1 loads"));
  StepMessage other = load();
  other.adapter_loads[0] = {.num_matrices = 1, .num_weights = 2 * (4 + 2)};
  other.adapter_matrices.pop_back();
  other.adapter_weights.resize(2 * (4 + 2));
  EXPECT_EQ(refusal(other), "");
}

TEST_F(AdapterPoolTest, ARowsAdapterMustBeThere) {
  StepMessage step;
  step.rows = {{.adapter = 1}};
  EXPECT_THAT(refusal(step), HasSubstr("adapter 1 of slot 0 is not loaded"));
  StepMessage both = load();
  both.rows = step.rows;
  EXPECT_EQ(refusal(both), "");
  EXPECT_EQ(refusal(step), "");
}

// A rank has columns 0 and 2 of module b, none of a; loads come in any pieces.
TEST_F(AdapterPoolTest, RanksKeepTheirColumns) {
  const std::vector<io::ModulePart> parts = {{1, 4, {{0, 1, 1}, {2, 1, 1}}}};
  const float b_first = 2 * (4 + 2) + 1;  // value of the first weight of module b
  for (int32_t piece = 1; piece <= 26; ++piece) {
    pool_ = AdapterPool::create(kModules, limits_, *device_, parts, true).value();
    for (int32_t first = 0; first < 26; first += piece)
      run(part(first, std::min(piece, 26 - first)));
    kernels::BatchView view;
    pool_.add_to(view);
    const kernels::LoraMatrix& matrix = view.adapter_matrices[kModules.size()];
    EXPECT_EQ(matrix.column, 4);
    EXPECT_EQ(matrix.cols, 2);
    for (int32_t i = 0; i < 2 * 4; ++i)
      ASSERT_EQ(to_float(view.adapter_weights[matrix.a + i]), b_first + static_cast<float>(i));
    const float b = b_first + 2 * 4;  // rows of three columns
    const float wanted[] = {b, b + 2, b + 3, b + 5};
    for (int32_t i = 0; i < 4; ++i)
      ASSERT_EQ(to_float(view.adapter_weights[matrix.b + i]), wanted[i]) << "pieces of " << piece;
  }
}

}  // namespace
}  // namespace nereid::exec
