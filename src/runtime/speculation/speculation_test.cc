// Proposers, and the number of requested drafts.
#include "runtime/speculation/speculation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "base/rng.h"

namespace nereid::runtime {
namespace {

using ::testing::IsEmpty;

Time g_time;              // of the tests
Duration g_usual_time{};  // sum of pass() without noise
struct TestClock : Clock {
  Time now() const override { return g_time; }
} g_clock;
void pass(Duration usual, double noise) {
  g_usual_time += usual;
  g_time += std::chrono::duration_cast<Duration>(usual * noise);
}

// Factors of mean 1: one in `one_in` is 30 times the others.
std::function<double()> seldom_slow(int32_t one_in, uint64_t seed) {
  return [=, at = uint64_t{0}]() mutable {
    const bool is_slow = philox(seed, at++)[0] % static_cast<uint32_t>(one_in) == 0;
    return (is_slow ? 30.0 : 1.0) * one_in / (one_in + 29);
  };
}

// Records the number of requested drafts and returns as many, at a configurable cost.
class CountingProposer : public Proposer {
 public:
  std::string_view name() const override { return "counting"; }
  void propose(std::span<DraftQuestion> questions) override {
    int32_t deepest = 0;
    for (DraftQuestion& question : questions) {
      asked[question.sequence->id()] = question.most;
      deepest = std::max(deepest, question.most);
      question.drafts.assign(static_cast<size_t>(question.most), 7);
    }
    pass(cost_of_first, 1);
    for (int32_t i = 0; i < deepest; ++i) pass(cost_of_draft, noise());
  }
  double first_seconds() const override {
    return cost_of_first > Duration() ? nereid::seconds(cost_of_first + cost_of_draft) : 0;
  }
  bool is_free() const override { return free; }

  std::map<RequestId, int32_t> asked;
  Duration cost_of_draft{}, cost_of_first{};           // cost_of_first: additional, once per call
  std::function<double()> noise = [] { return 1.0; };  // factor of the cost
  bool free = false;
};

sched::Limits limits(int32_t batch) {
  return {.max_batch_size = batch,
          .max_num_tokens = 512,
          .max_queue_size = 64,
          .max_sequence_length = 40000,
          .groups = {{.num_blocks = 40000}},
          .tokens_per_block = 16,
          .max_logits = 512};
}

// An engine without a device: the test sets step times.
class SpeculationTest : public ::testing::Test {
 protected:
  using Cost = std::function<double(int32_t)>;  // milliseconds by tokens

  static Duration of_ms(double ms) {
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(ms));
  }
  static Speculation::Options adapting(int32_t max_drafts) {
    return {.max_drafts = max_drafts, .adapts = true, .clock = &g_clock};
  }

  void submit(int count, int32_t num_prompt = 1) {
    for (int i = 1; i <= count; ++i)
      ASSERT_TRUE(sched_
                      .submit(sched::SequenceSpec{
                          .id = ++last_id_,
                          .prompt = std::vector<TokenId>(static_cast<size_t>(num_prompt),
                                                         static_cast<TokenId>(100 + last_id_)),
                          .max_new_tokens = 30000})
                      .ok());
  }

  // One step without overlap; returns its number of drafts. Acceptance probability: rates_ of the
  // sequence, else the common rate.
  int32_t step(Speculation& speculation) {
    proposer_.asked.clear();
    EXPECT_TRUE(speculation.offer(sched_, false));
    const sched::StepPlan plan = sched_.plan(g_time);
    const Time launched = g_time;
    pass(of_ms(cost_(plan.num_tokens)), noise_());
    int32_t num_drafts = 0;
    for (const sched::ScheduledRow& row : plan.rows) {
      num_drafts += row.num_drafts;
      const RequestId id = row.sequence->id();
      const double rate = rates_.contains(id) ? rates_[id] : rate_;
      std::vector<sched::SampledTokens> drawn;
      bool holds = true;
      for (int32_t i = 0; i <= row.num_drafts && holds && row.samples; ++i) {
        const auto at = static_cast<uint64_t>(row.first_sampled() + i);
        holds = philox(id, at)[0] < rate * 4294967296.0;
        drawn.push_back({.token = holds ? 7 : 8});
      }
      num_tokens_ += static_cast<int64_t>(drawn.size());
      const std::vector<kernels::SampleResult> sampled(drawn.size());
      speculation.open({.id = id}, {});
      EngineUpdate update;
      EXPECT_TRUE(speculation.completed({row, {.drawn = sampled}}, update).ok());
      sched_.commit(row, drawn);
    }
    speculation.finished(
        {.plan = plan, .launched = launched, .finished = g_time, .scheduler = sched_});
    return num_drafts;
  }

  // Sum over num_steps steps.
  int64_t drafts_of(Speculation& speculation, int num_steps) {
    int64_t sum = 0;
    for (int i = 0; i < num_steps; ++i) sum += step(speculation);
    return sum;
  }

  // Tokens per millisecond over num_steps steps, noise removed.
  double speed(Speculation& speculation, int num_steps) {
    g_usual_time = {};
    num_tokens_ = 0;
    drafts_of(speculation, num_steps);
    return static_cast<double>(num_tokens_) / (1000 * nereid::seconds(g_usual_time));
  }

  CountingProposer proposer_;
  sched::Scheduler sched_{limits(32)};
  Cost cost_ = [](int32_t) { return 10.0; };
  std::function<double()> noise_ = [] { return 1.0; };  // factor of the cost
  double rate_ = 0.8;
  std::map<RequestId, double> rates_;
  RequestId last_id_ = 0;
  int64_t num_tokens_ = 0;
};

TEST_F(SpeculationTest, WithoutAdaptingAsksForAllAlways) {
  submit(12);
  rate_ = 0;
  Speculation speculation(&proposer_, {.max_drafts = 5});
  step(speculation);  // no row before it
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(step(speculation), 60);
    EXPECT_EQ(proposer_.asked.size(), 12u);
  }
  EXPECT_EQ(sched_.stats().num_accepted_drafts, 0);
}

TEST_F(SpeculationTest, AllDraftsWhereMoreTokensCostNothing) {
  submit(3);
  Speculation speculation(&proposer_, adapting(6));
  drafts_of(speculation, 20);
  EXPECT_EQ(step(speculation), 18);
  // Sometimes a step without drafts is measured.
  EXPECT_GT(drafts_of(speculation, 400), 400 * 18 * 98 / 100);
  EXPECT_LT(drafts_of(speculation, 400), 400 * 18);
}

TEST_F(SpeculationTest, NoneWhereEachTokenCostsAsMuchAsTheFirst) {
  submit(32);
  proposer_.cost_of_draft = of_ms(2);
  cost_ = [](int32_t n) { return 1.0 * n; };
  Speculation speculation(&proposer_, adapting(4));
  speed(speculation, 50);
  const double adapted = speed(speculation, 1000);
  Speculation none(nullptr, {});
  EXPECT_GT(adapted, 0.98 * speed(none, 1000));
  EXPECT_GT(sched_.stats().num_drafts, 0) << "it was tried";
}

// At these costs the best fixed number is two; for a larger batch none.
TEST_F(SpeculationTest, ComesCloseToTheBestFixedNumber) {
  proposer_.cost_of_draft = of_ms(1);
  cost_ = [](int32_t n) { return 8.0 + n; };
  rate_ = 0.7;
  submit(2);
  Speculation adapted(&proposer_, adapting(8));
  speed(adapted, 50);
  const double reached = speed(adapted, 2000);
  double best = 0;
  for (const int32_t count : {0, 1, 2, 3, 4, 8}) {
    Speculation fixed(count > 0 ? &proposer_ : nullptr, {.max_drafts = count});
    speed(fixed, 5);
    best = std::max(best, speed(fixed, 2000));
  }
  EXPECT_GT(reached, 0.93 * best);
  Speculation none(nullptr, {});
  EXPECT_GT(reached, 1.2 * speed(none, 100));
}

// One draft does not pay for the first one's cost, many do.
TEST_F(SpeculationTest, TheFirstDraftMayCostMoreThanTheOthers) {
  proposer_.cost_of_first = of_ms(5);
  proposer_.cost_of_draft = of_ms(0.2);
  cost_ = [](int32_t n) { return 8.0 + 0.3 * n; };
  submit(1);
  Speculation adapted(&proposer_, adapting(8));
  speed(adapted, 300);
  const double reached = speed(adapted, 3000);
  Speculation fixed(&proposer_, {.max_drafts = 8});
  EXPECT_GT(reached, 0.95 * speed(fixed, 3000));
  Speculation none(nullptr, {});
  EXPECT_GT(reached, 2 * speed(none, 100));
}

// Most drafts take 0.65 ms, one in twenty 20 ms: the mean of 1.6 ms exceeds their gain.
TEST_F(SpeculationTest, DraftsThatNowAndThenTakeLongCostWhatTheyTakeOnTheAverage) {
  cost_ = [](int32_t n) { return 1.9 + 0.1 * n; };
  proposer_.cost_of_draft = of_ms(1.6);
  proposer_.noise = seldom_slow(20, 5);
  rate_ = 0.6;
  submit(1);
  Speculation speculation(&proposer_, adapting(4));
  speed(speculation, 200);
  EXPECT_GT(speed(speculation, 4000), 0.97 / 2);
}

// Noisy times of any shape: never much slower than no drafts, close to the best fixed number.
TEST_F(SpeculationTest, NoiseCostsLittle) {
  const Cost costs[] = {[](int32_t) { return 4.0; }, [](int32_t n) { return 2 + 0.5 * n; },
                        [](int32_t n) { return 1.0 * n; },
                        [](int32_t n) { return n > 3 ? 9.0 : 3.0; }};
  uint64_t seed = 0;
  double of_best = 0;
  int num_cases = 0;
  for (const Cost& cost : costs)
    for (const double draft_ms : {0.2, 1.5})
      for (const double rate : {0.3, 0.6, 0.8}) {
        cost_ = cost, rate_ = rate;
        proposer_.cost_of_draft = of_ms(draft_ms);
        const auto speed_of = [&](Proposer* proposer, const Speculation::Options& options) {
          noise_ = seldom_slow(50, ++seed), proposer_.noise = seldom_slow(50, ++seed);
          for (const RequestId id : {last_id_ - 1, last_id_}) static_cast<void>(sched_.cancel(id));
          submit(2);
          Speculation speculation(proposer, options);
          speed(speculation, 300);
          return speed(speculation, 4000);
        };
        const double off = speed_of(nullptr, {});
        double best = off;
        for (const int32_t count : {1, 2, 4})
          best = std::max(best, speed_of(&proposer_, {.max_drafts = count}));
        const double adapted = speed_of(&proposer_, adapting(4));
        EXPECT_GT(adapted, 0.95 * off) << draft_ms << " ms, " << rate;
        of_best += adapted / best;
        ++num_cases;
      }
  EXPECT_GT(of_best, 0.93 * num_cases) << "the mean";
}

TEST_F(SpeculationTest, EachSequenceByItsRate) {
  submit(2);
  rates_ = {{1, 0.95}, {2, 0.02}};
  cost_ = [](int32_t n) { return 8.0 + n; };
  Speculation speculation(&proposer_, adapting(4));
  drafts_of(speculation, 60);
  int64_t asked_of_2 = 0;
  for (int i = 0; i < 100; ++i, asked_of_2 += proposer_.asked[2]) step(speculation);
  EXPECT_EQ(proposer_.asked[1], 4);
  EXPECT_LT(asked_of_2, 40) << "only probes";
}

TEST_F(SpeculationTest, SilentOnesAreProbedAndComeBack) {
  submit(1);
  rate_ = 0;
  cost_ = [](int32_t n) { return 8.0 + n; };
  Speculation speculation(&proposer_, adapting(4));
  drafts_of(speculation, 100);
  const double silent = speed(speculation, 1000);
  EXPECT_GT(silent, 0.995 / 9) << "probes that change nothing become seldom";
  EXPECT_GT(sched_.stats().num_drafts, 0);
  rate_ = 1;
  drafts_of(speculation, 500);
  EXPECT_GT(drafts_of(speculation, 100), 300);
}

// A draft costs the same for all sequences as for one: pays for many only, which measurements of
// one do not show.
TEST_F(SpeculationTest, WhatPaysForAllTogetherIsFoundByProbesOfMoreAndMore) {
  proposer_.cost_of_draft = of_ms(6);
  cost_ = [](int32_t n) { return 4.0 + std::min(n, 32) + 0.05 * std::max(0, n - 32); };
  submit(1);
  Speculation adapted(&proposer_, adapting(2));
  speed(adapted, 200);
  submit(31);
  const double looking = speed(adapted, 2000), reached = speed(adapted, 1000);
  Speculation none(nullptr, {});
  const double off = speed(none, 100);
  EXPECT_GT(looking, 0.98 * off) << "it costs little";
  Speculation fixed(&proposer_, {.max_drafts = 2});
  EXPECT_GT(reached, 0.93 * speed(fixed, 1000));
  EXPECT_GT(reached, 1.4 * off);
}

TEST_F(SpeculationTest, AProposerThatCostsTooMuchIsNotAsked) {
  submit(1);
  proposer_.cost_of_draft = of_ms(9);
  Speculation speculation(&proposer_, adapting(4));
  drafts_of(speculation, 50);
  EXPECT_LT(drafts_of(speculation, 200), 5);
  proposer_.cost_of_draft = of_ms(0.5);
  drafts_of(speculation, 3000);
  EXPECT_GT(drafts_of(speculation, 100), 300) << "probes tell that it costs less now";
}

// Drafts that pay wait for steps in flight.
TEST_F(SpeculationTest, StepsInFlightAreWaitedForWhereDraftsPay) {
  submit(1);
  Speculation speculation(&proposer_, adapting(4));
  drafts_of(speculation, 20);
  const sched::StepPlan plan = sched_.plan(g_time);
  ASSERT_EQ(plan.rows.size(), 1u);
  EXPECT_FALSE(speculation.offer(sched_, true));
  const std::vector<sched::SampledTokens> drawn = {{.token = 3}};
  sched_.commit(plan.rows[0], drawn);
  cost_ = [](int32_t n) { return 10.0 * n; };
  drafts_of(speculation, 20);
  const sched::StepPlan next = sched_.plan(g_time);
  proposer_.asked.clear();
  EXPECT_TRUE(speculation.offer(sched_, true));
  EXPECT_THAT(proposer_.asked, IsEmpty());
  sched_.commit(next.rows[0], drawn);
}

// Prompts are planned before drafts.
TEST_F(SpeculationTest, PromptsGoBeforeDrafts) {
  submit(2);
  Speculation speculation(&proposer_, adapting(4));
  drafts_of(speculation, 20);
  submit(1, 2000);
  for (const int64_t num_prompt : {496, 992, 1488, 1984, 2000}) {
    step(speculation);
    EXPECT_EQ(sched_.stats().prompt_tokens, 2 + num_prompt) << "whole blocks beside the decodes";
  }
  drafts_of(speculation, 10);
  EXPECT_EQ(step(speculation), 12);
}

TEST_F(SpeculationTest, WhatIsFreeIsAskedFirstAndChosenFrom) {
  submit(2);
  proposer_.free = true;
  rates_ = {{1, 0.95}, {2, 0.02}};
  cost_ = [](int32_t n) { return 8.0 + n; };
  Speculation speculation(&proposer_, adapting(4));
  drafts_of(speculation, 60);
  EXPECT_NEAR(step(speculation), 4, 2) << "but for a probe";
  EXPECT_EQ(proposer_.asked.size(), 2u);
}

// Drafts of requests and of the proposer are counted separately, tests by accepted drafts.
TEST_F(SpeculationTest, CountsBySourceAndLength) {
  Speculation speculation(&proposer_, {.max_drafts = 4});
  ASSERT_TRUE(sched_
                  .submit(sched::SequenceSpec{
                      .id = ++last_id_, .prompt = {5}, .max_new_tokens = 30000, .drafts = {7, 7}})
                  .ok());
  rate_ = 1;
  step(speculation), step(speculation);
  rate_ = 0;
  step(speculation), step(speculation);
  ExecutorStats stats;
  speculation.report(stats);
  EXPECT_EQ(stats.proposer, "counting");
  EXPECT_EQ(stats.request_drafts.num_drafts, 2);
  EXPECT_EQ(stats.request_drafts.num_accepted, 2);
  EXPECT_EQ(stats.request_drafts.tests_by_accepted[2], 1);
  EXPECT_EQ(stats.proposer_drafts.num_drafts, 12);
  EXPECT_EQ(stats.proposer_drafts.num_accepted, 4);
  EXPECT_EQ(stats.proposer_drafts.tests_by_accepted[0], 2);
  EXPECT_EQ(stats.proposer_drafts.tests_by_accepted[4], 1);
}

TEST_F(SpeculationTest, WithoutAProposerNothingIsGuessed) {
  submit(2);
  Speculation speculation(nullptr, {});
  EXPECT_EQ(drafts_of(speculation, 3), 0);
}

}  // namespace
}  // namespace nereid::runtime
