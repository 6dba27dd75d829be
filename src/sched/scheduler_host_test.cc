// Scheduler: sequences whose cached blocks are onboarded from the host pool.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "sched/test_requests.h"

namespace nereid::sched {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Sequences of ten tokens; every sampled token is the same. Two blocks of the first prompt are in
// the host pool, none on the device.
class SchedulerHost : public ::testing::Test {
 protected:
  static constexpr int kPrompt = 10, kNumBlocks = 8;

  static Limits small() {
    Limits l = limits();
    l.groups[0].num_blocks = kNumBlocks;
    l.groups[0].num_host_blocks = 16;
    l.enable_partial_reuse = false;
    return l;
  }

  SchedulerHost() : sched_(small()) {
    run_alone(spec(1, kPrompt, 1));
    run_alone(spec(2, 4 * kNumBlocks, 1, 500));  // takes all blocks
  }

  void run_alone(SequenceSpec s) {
    ASSERT_TRUE(sched_.submit(std::move(s)).ok());
    while (!sched_.idle()) commit(sched_.plan(Time{}));
  }

  void commit(const StepPlan& plan) {
    const SampledTokens drawn{.token = 7};
    for (const ScheduledRow& row : plan.rows) take(sched_.commit(row, given(row, drawn)));
    sched_.check();
  }

  void take(const SequenceUpdate& update) {
    EXPECT_FALSE(update.finished && ended_.contains(update.id)) << "a second final update";
    if (update.finished) ended_.emplace(update.id, update.status);
  }

  static std::vector<RequestId> ids(const StepPlan& plan) {
    std::vector<RequestId> all;
    for (const ScheduledRow& row : plan.rows) all.push_back(row.sequence->id());
    return all;
  }

  int64_t num_free() const { return sched_.stats().blocks_free; }

  Scheduler sched_;
  std::map<RequestId, Status> ended_;
};

TEST_F(SchedulerHost, OthersRunUntilItsBlocksAreThere) {
  ASSERT_TRUE(sched_.submit(spec(3, kPrompt, 3)).ok());
  ASSERT_TRUE(sched_.submit(spec(4, 4, 6, 900)).ok());
  StepPlan plan = sched_.plan(Time{});
  EXPECT_EQ(plan.onboards.size(), 2u);
  EXPECT_THAT(ids(plan), ElementsAre(4));
  for (int i = 0; i < 3; ++i) {
    commit(plan);
    plan = sched_.plan(Time{});
    EXPECT_THAT(ids(plan), ElementsAre(4));
    EXPECT_THAT(plan.onboards, IsEmpty());
  }
  commit(plan);
  sched_.onboarded(ok());
  plan = sched_.plan(Time{});
  EXPECT_THAT(ids(plan), ElementsAre(4, 3));
  EXPECT_EQ(plan.rows[1].start, 8);
  while (!sched_.idle()) commit(plan), plan = sched_.plan(Time{});
  EXPECT_TRUE(ended_.at(3).ok() && ended_.at(4).ok());
}

TEST_F(SchedulerHost, APlanMayHaveNothingButCopies) {
  ASSERT_TRUE(sched_.submit(spec(3, kPrompt, 3)).ok());
  const StepPlan plan = sched_.plan(Time{});
  EXPECT_FALSE(plan.empty());
  EXPECT_THAT(plan.rows, IsEmpty());
  EXPECT_TRUE(sched_.plan(Time{}).empty());
  // Another sequence with the same prefix waits for the same copies.
  ASSERT_TRUE(sched_.submit(spec(4, kPrompt, 3)).ok());
  EXPECT_TRUE(sched_.plan(Time{}).empty());
  sched_.check();
  sched_.onboarded(ok());
  EXPECT_THAT(ids(sched_.plan(Time{})), ElementsAre(3, 4));
}

TEST_F(SchedulerHost, ACancelledOneGivesItsBlocksBackWhenTheCopyIsOver) {
  ASSERT_TRUE(sched_.submit(spec(3, kPrompt, 3)).ok());
  commit(sched_.plan(Time{}));
  const int64_t before = num_free();
  auto update = sched_.cancel(3);
  ASSERT_TRUE(update && update->finished);
  EXPECT_FALSE(sched_.cancel(3).has_value());
  EXPECT_EQ(num_free(), before);
  EXPECT_FALSE(sched_.idle());
  sched_.check();
  sched_.onboarded(ok());
  EXPECT_EQ(num_free(), kNumBlocks);
  EXPECT_TRUE(sched_.idle());
  sched_.check();
}

TEST_F(SchedulerHost, AFailedCopyCostsNoRequest) {
  ASSERT_TRUE(sched_.submit(spec(3, kPrompt, 3)).ok());
  ASSERT_TRUE(sched_.submit(spec(4, 4, 6, 900)).ok());
  commit(sched_.plan(Time{}));
  sched_.onboarded(internal_error("the copy failed"));
  sched_.check();
  StepPlan plan = sched_.plan(Time{});
  EXPECT_THAT(ids(plan), ElementsAre(4, 3));
  EXPECT_EQ(plan.rows[1].start, 0) << "nothing that did not arrive is used";
  while (!sched_.idle()) commit(plan), plan = sched_.plan(Time{});
  EXPECT_TRUE(ended_.at(3).ok() && ended_.at(4).ok());
  EXPECT_EQ(num_free(), kNumBlocks);
}

TEST_F(SchedulerHost, AFailedStepDoesNotFreeWhatACopyWrites) {
  ASSERT_TRUE(sched_.submit(spec(3, kPrompt, 3)).ok());
  ASSERT_TRUE(sched_.submit(spec(4, 4, 6, 900)).ok());
  const StepPlan plan = sched_.plan(Time{});
  for (const SequenceUpdate& update : sched_.fail(plan, internal_error("the step failed")))
    take(update);
  EXPECT_EQ(ended_.size(), 3u) << "4 has ended, as have those before";
  EXPECT_TRUE(sched_.plan(Time{}).empty()) << "3 starts over when its blocks are quiet";
  EXPECT_LT(num_free(), kNumBlocks);
  sched_.check();
  sched_.onboarded(ok());
  EXPECT_EQ(num_free(), kNumBlocks);
  StepPlan next = sched_.plan(Time{});
  EXPECT_EQ(next.rows.at(0).start, 0) << "nothing cached is trusted";
  while (!sched_.idle()) commit(next), next = sched_.plan(Time{});
  EXPECT_TRUE(ended_.at(3).ok());
}

}  // namespace
}  // namespace nereid::sched
