// Estimated costs of steps, and the drafts that pay at them.
#include "runtime/speculation/draft_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/rng.h"

namespace nereid::runtime {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

CostTable costs_at(std::initializer_list<int32_t> sizes, const std::function<double(int)>& cost) {
  CostTable table;
  for (const int32_t size : sizes)
    for (int i = 0; i < 3; ++i) table.add(size, cost(size));
  return table;
}

TEST(CostTable, IsInterpolatedAndGoesOnAsItGrew) {
  const CostTable table = costs_at({2, 4, 8, 12}, [](int n) { return 1 + 0.5 * n; });
  EXPECT_DOUBLE_EQ(table.at(1), 2) << "below all it is the least one's";
  for (const int n : {2, 3, 6, 12, 20}) EXPECT_DOUBLE_EQ(table.at(n), 1 + 0.5 * n);
  EXPECT_GE(table.at(48), 2 * table.at(24)) << "far beyond at least in proportion";
  EXPECT_EQ(CostTable().at(5), 0);
}

TEST(CostTable, FlatGoesOnFlatUpToTwiceTheSize) {
  const CostTable table = costs_at({1, 8, 16}, [](int) { return 3.0; });
  EXPECT_DOUBLE_EQ(table.at(32), 3);
  EXPECT_DOUBLE_EQ(table.at(64), 6);
}

TEST(CostTable, GrowsWithTheSizeWhateverWasMeasured) {
  CostTable table = costs_at({1, 2, 4, 8}, [](int n) { return n == 2 ? 5.0 : 1.0 * n; });
  for (int n = 1; n < 20; ++n) EXPECT_LE(table.at(n), table.at(n + 1)) << n;
  EXPECT_DOUBLE_EQ(table.at(1), 1);
  EXPECT_DOUBLE_EQ(table.at(2), 4.5) << "the mean of 5 and 4";
  EXPECT_DOUBLE_EQ(table.at(4), 4.5);
  EXPECT_DOUBLE_EQ(table.at(8), 8);
}

// One step in ten takes eleven times as long: the mean counts, not the median.
TEST(CostTable, WhatOftenTakesLongCounts) {
  CostTable table;
  for (int i = 0; i < 400; ++i) table.add(4, i % 10 == 5 ? 11 : 1);
  EXPECT_NEAR(table.at(4), 2, 0.5);
}

TEST(CostTable, OneStepThatTookLongCountsForABoundedShare) {
  CostTable table;
  for (int i = 0; i < 100; ++i) table.add(4, 4);
  table.add(4, 1e6);
  EXPECT_DOUBLE_EQ(table.at(4), 4 + 7 * 4.0 / 64);
  for (int i = 0; i < 500; ++i) table.add(4, 6);
  EXPECT_NEAR(table.at(4), 6, 0.01) << "what was long ago counts for nothing";
}

// Rare measurements: the mean follows the last few.
TEST(CostTable, OldMeasurementsWeighLess) {
  CostTable table;
  for (int i = 0; i < 100; ++i) table.add(1, 1);
  for (int i = 0; i < 4000; ++i) table.add(8, 2);
  for (int i = 0; i < 12; ++i) table.add(1, 2);
  EXPECT_GT(table.at(1), 1.7);
}

TEST(CostTable, TheFirstOfASizeCountsOnlyUntilTheSecond) {
  CostTable table;
  table.add(4, 1000), table.add(4, 4);
  EXPECT_DOUBLE_EQ(table.at(4), 4);
}

TEST(CostTable, AFirstMeasurementCountsWhileThereIsNoOther) {
  CostTable table;
  table.add(4, 9);
  EXPECT_DOUBLE_EQ(table.at(4), 9);
  EXPECT_TRUE(table.knows(8));
  EXPECT_FALSE(table.knows(9));
  EXPECT_FALSE(table.knows(1));
  table.add(1, 1), table.add(1, 1);
  EXPECT_DOUBLE_EQ(table.at(4), 2) << "in proportion, beyond twice the size";
}

TEST(CostTable, ForgetsWhatWasNotMeasuredForLong) {
  CostTable table = costs_at({64}, [](int) { return 1e6; });
  for (int i = 0; i < 5000; ++i) table.add(32, 1);
  EXPECT_DOUBLE_EQ(table.at(64), 1);
}

TEST(CostTable, IsDueAfterManyUses) {
  CostTable table = costs_at({1}, [](int) { return 1.0; });
  int num_uses = 0;
  for (; !table.is_due(1); ++num_uses) table.use(1);
  EXPECT_EQ(num_uses, 256);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(table.is_due(1)) << "until it was measured three times";
    table.add(1, 1);
  }
  EXPECT_FALSE(table.is_due(1));
  for (num_uses = 0; !table.is_due(2); ++num_uses) table.use(2);
  EXPECT_EQ(num_uses, 16) << "it was never measured itself";
}

class DraftChooserTest : public ::testing::Test {
 protected:
  // Draft counts of decoding sequences with these acceptance rates.
  std::vector<int32_t> counts(const std::vector<double>& rates, int32_t most = 4,
                              int32_t room = 1000) {
    std::vector<DraftCandidate> candidates;
    for (const double rate : rates) candidates.push_back({.rate = rate, .most = most});
    const auto size = static_cast<int32_t>(rates.size());
    expected_ = DraftChooser().choose(
        costs_, {.num_tokens = size + num_prompt_, .num_drawing = size, .room = room}, candidates);
    std::vector<int32_t> all;
    for (const DraftCandidate& c : candidates) all.push_back(c.count);
    return all;
  }

  void steps_cost(const std::function<double(int)>& cost) {
    costs_.step = costs_at({1, 2, 4, 8, 16, 32, 64, 128, 256}, cost);
  }
  void drafts_cost(double seconds) {
    costs_.draft = costs_at({1, 32}, [&](int) { return seconds; });
  }
  void host_costs(double seconds) {
    costs_.host = costs_at({1, 32}, [&](int) { return seconds; });
  }

  SpeculationCosts costs_;
  int32_t num_prompt_ = 0;
  Expectation expected_;
};

TEST_F(DraftChooserTest, AFlatCostGivesAllDrafts) {
  steps_cost([](int) { return 1.0; });
  EXPECT_THAT(counts({0.5, 0.9, 0.4}), Each(4));
  EXPECT_NEAR(expected_.tokens, 3 + 0.9375 + 3.0951 + 0.6496 - 0.0, 1e-9);
}

TEST_F(DraftChooserTest, ACostInProportionGivesNone) {
  steps_cost([](int n) { return 1.0 * n; });
  EXPECT_THAT(counts({0.5, 0.9, 0.98}), Each(0));
  EXPECT_DOUBLE_EQ(expected_.rate(), 1);
}

// A draft costs 0.25; a step of three tokens costs 1.75.
TEST_F(DraftChooserTest, EachSequenceHasAsManyAsItsRateIsWorth) {
  steps_cost([](int n) { return 1 + 0.25 * n; });
  EXPECT_THAT(counts({0.9, 0.1, 0.6}), ElementsAre(4, 0, 1));
  EXPECT_THAT(counts({0.1, 0.1, 0.1}), Each(0));
  EXPECT_THAT(counts({0.9, 0.9, 0.9}), Each(4));
}

TEST_F(DraftChooserTest, WhatIsWonMustBeMoreThanWhatDraftsCost) {
  steps_cost([](int) { return 1.0; });
  drafts_cost(0.1);
  EXPECT_THAT(counts({0.8}, 8), ElementsAre(6)) << "the best of (1 - 0.8^(k+1)) / (1 + 0.1 k)";
  drafts_cost(0.5);
  EXPECT_THAT(counts({0.8}, 8), ElementsAre(2));
  drafts_cost(0.8);
  EXPECT_THAT(counts({0.8}, 8), ElementsAre(0));
}

// One draft does not pay for the host time; three do.
TEST_F(DraftChooserTest, TheHostIsWaitedForOnce) {
  steps_cost([](int) { return 1.0; });
  host_costs(0.9);
  costs_.overlaps = true;
  EXPECT_THAT(counts({0.8}, 1), ElementsAre(0));
  EXPECT_THAT(counts({0.8}, 4), ElementsAre(4));
  costs_.overlaps = false;
  EXPECT_THAT(counts({0.8}, 1), ElementsAre(1)) << "without drafts it is waited for, too";
}

TEST_F(DraftChooserTest, TheBestDraftsGetTheRoom) {
  steps_cost([](int) { return 1.0; });
  EXPECT_THAT(counts({0.5, 0.9}, 4, 3), ElementsAre(0, 3));
  EXPECT_THAT(counts({0.5, 0.9}, 4, 0), Each(0));
}

// Costs grow from 32 tokens on: drafts for few sequences, fewer in larger batches, then none.
TEST_F(DraftChooserTest, FewerInALargerBatch) {
  steps_cost([](int n) { return std::max(32, n) / 32.0; });
  EXPECT_THAT(counts(std::vector<double>(4, 0.7)), Each(4));
  EXPECT_THAT(counts(std::vector<double>(16, 0.7)), Each(1));
  EXPECT_THAT(counts(std::vector<double>(32, 0.7)), Each(0));
}

// Next to a prompt, a draft adds little to the step.
TEST_F(DraftChooserTest, BesideAPromptDraftsPaySooner) {
  steps_cost([](int n) { return 1.0 * n; });
  num_prompt_ = 200;
  EXPECT_THAT(counts({0.5, 0.5}), Each(4));
}

// For any tables: tokens per second of the choice >= without drafts, and the expectation equals the
// tables' values at the counts.
TEST_F(DraftChooserTest, NeverExpectsLessThanWithoutDrafts) {
  auto draw = [at = uint64_t{0}]() mutable { return philox(17, at++)[0] / 4294967296.0; };
  int num_with_drafts = 0, num_without = 0;
  for (int i = 0; i < 2000; ++i) {
    costs_ = {.overlaps = i % 2 == 0};
    std::vector<CostTable*> tables = {&costs_.step, &costs_.draft, &costs_.host};
    if (i % 3 == 0) tables.push_back(&costs_.first_draft);
    for (CostTable* table : tables) {
      const double scale = std::pow(10, -2 * draw());
      const auto num_measured = 1 + static_cast<int>(20 * draw());
      for (int k = 0; k < num_measured; ++k)
        table->add(1 + static_cast<int32_t>(100 * draw()), scale * (draw() + 0.01));
    }
    std::vector<DraftCandidate> candidates(1 + static_cast<size_t>(12 * draw()));
    for (DraftCandidate& c : candidates)
      c = {.rate = 0.98 * draw(), .most = static_cast<int32_t>(9 * draw())};
    const auto size = static_cast<int32_t>(candidates.size());
    const NextStep next = {.num_tokens = size + static_cast<int32_t>(20 * draw()),
                           .num_drawing = size,
                           .room = static_cast<int32_t>(60 * draw())};
    const Expectation chosen = DraftChooser().choose(costs_, next, candidates);
    Expectation same{static_cast<double>(size), costs_.host.at(size)};
    const double off =
        size / (costs_.step.at(next.num_tokens) + (costs_.overlaps ? 0 : costs_.host.at(size)));
    int32_t num_drafts = 0;
    for (int32_t depth = 1; depth <= 8; ++depth) {
      int32_t num = 0;
      for (const DraftCandidate& c : candidates) {
        num += c.count >= depth;
        if (c.count >= depth) same.tokens += std::pow(c.rate, depth);
      }
      const bool is_first = depth == 1 && i % 3 == 0;
      if (num > 0) same.seconds += (is_first ? costs_.first_draft : costs_.draft).at(num);
      num_drafts += num;
    }
    same.seconds += costs_.step.at(next.num_tokens + num_drafts);
    ++(num_drafts > 0 ? num_with_drafts : num_without);
    EXPECT_LE(num_drafts, next.room);
    EXPECT_GE(chosen.rate(), off * (1 - 1e-12));
    if (num_drafts > 0) {
      EXPECT_NEAR(chosen.rate(), same.rate(), 1e-9 * same.rate());
    }
  }
  EXPECT_GT(num_with_drafts, 200);
  EXPECT_GT(num_without, 200);
}

}  // namespace
}  // namespace nereid::runtime
