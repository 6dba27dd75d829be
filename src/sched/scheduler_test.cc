// Scheduler: one behaviour per test; combinations belong to scheduler_fuzz_test.cc.
#include <tuple>

#include "sched/scheduler.h"

#include <gmock/gmock.h>

#include "sched/test_requests.h"

namespace nereid::sched {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Commits every row of a plan; each row that samples gets `token`.
std::vector<SequenceUpdate> commit_all(Scheduler& sched, const StepPlan& plan, TokenId token) {
  std::vector<SequenceUpdate> all;
  const SampledTokens drawn{.token = token};
  for (const ScheduledRow& row : plan.rows) all.push_back(sched.commit(row, given(row, drawn)));
  return all;
}

struct Shape {
  int start, num_tokens;
  bool samples, on_device;
  bool operator==(const Shape&) const = default;
};
std::vector<Shape> shapes(const StepPlan& plan) {
  std::vector<Shape> out;
  for (const ScheduledRow& r : plan.rows)
    out.push_back({r.start, r.num_tokens, r.samples, r.input_on_device});
  return out;
}

TEST(Scheduler, RunsOneRequestToItsLength) {
  Scheduler sched(limits());
  ASSERT_TRUE(sched.submit(spec(1, 5, 2)).ok());
  StepPlan plan = sched.plan(Time{});
  EXPECT_THAT(shapes(plan), ElementsAre(Shape{0, 5, true, false}));
  SampledTokens drawn{.token = 7};
  SequenceUpdate update = sched.commit(plan.rows[0], {&drawn, 1});
  EXPECT_THAT(update.tokens, ElementsAre(7));
  EXPECT_FALSE(update.finished);
  plan = sched.plan(Time{});
  EXPECT_THAT(shapes(plan), ElementsAre(Shape{5, 1, true, false}));
  drawn.token = 8;
  update = sched.commit(plan.rows[0], {&drawn, 1});
  EXPECT_THAT(update.tokens, ElementsAre(8));
  EXPECT_TRUE(update.finished);
  EXPECT_EQ(update.reason, FinishReason::kLength);
  EXPECT_TRUE(sched.idle());
  sched.check();
  EXPECT_EQ(sched.stats().blocks_free, 32);
}

TEST(Scheduler, WhatIsHeldLetsOthersGoPast) {
  Scheduler sched(limits());
  ASSERT_TRUE(sched.submit(spec(1, 5, 3)).ok());
  ASSERT_TRUE(sched.submit(spec(2, 6, 1, 50)).ok());
  sched.hold(1), sched.hold(1);
  StepPlan plan = sched.plan(Time{});
  EXPECT_THAT(shapes(plan), ElementsAre(Shape{0, 6, true, false})) << "the second";
  EXPECT_TRUE(commit_all(sched, plan, 7)[0].finished);
  EXPECT_TRUE(sched.plan(Time{}).empty());
  sched.release(1);
  EXPECT_TRUE(sched.plan(Time{}).empty());
  sched.release(1);
  EXPECT_THAT(shapes(sched.plan(Time{})), ElementsAre(Shape{0, 5, true, false}));
  sched.hold(1), sched.hold(9);
  EXPECT_EQ(sched.num_held(), 1);
  sched.check();
  EXPECT_FALSE(sched.cancel(1)->tokens.size() > 0);
}

TEST(Scheduler, WhatIsNotDrawnIsComputedAgainFromTheLastToken) {
  Scheduler sched(limits());
  ASSERT_TRUE(sched.submit(spec(1, 5, 3)).ok());
  for (const int start : {0, 5}) {
    StepPlan plan = sched.plan(Time{});
    EXPECT_EQ(plan.rows.at(0).start, start);
    sched.hold(1);
    EXPECT_TRUE(sched.undrawn(plan.rows[0]).empty());
    EXPECT_TRUE(sched.plan(Time{}).empty());
    sched.release(1);
    sched.check();
    plan = sched.plan(Time{});
    EXPECT_THAT(shapes(plan), ElementsAre(Shape{start == 0 ? 4 : 5, 1, true, false}));
    EXPECT_THAT(commit_all(sched, plan, 7)[0].tokens, ElementsAre(7));
  }
  sched.draft(1, std::vector<TokenId>{8, 9});
  const StepPlan plan = sched.plan(Time{});
  EXPECT_THAT(shapes(plan), ElementsAre(Shape{6, 1, true, false})) << "no room for drafts";
  EXPECT_TRUE(commit_all(sched, plan, 7)[0].finished);
  EXPECT_TRUE(sched.idle());
  sched.check();
  EXPECT_EQ(sched.stats().blocks_free, 32);
}

// Neither the blocks of a held sequence nor its place in the order keep others waiting.
TEST(Scheduler, WhatIsHeldGivesItsMemoryToOthersFirst) {
  Limits small = limits();
  small.groups = {{.num_blocks = 4}};
  Scheduler sched(small);
  ASSERT_TRUE(sched.submit(spec(1, 7, 4)).ok());
  ASSERT_TRUE(sched.submit(spec(2, 4, 8, 50)).ok());
  StepPlan plan = sched.plan(Time{});
  ASSERT_EQ(plan.rows.size(), 2u);
  sched.hold(1);
  EXPECT_TRUE(sched.undrawn(plan.rows[0]).empty());
  const SampledTokens drawn{.token = 7};
  EXPECT_FALSE(sched.commit(plan.rows[1], {&drawn, 1}).finished);
  for (int i = 1; i < 8; ++i) {
    plan = sched.plan(Time{});
    ASSERT_EQ(plan.rows.size(), 1u) << i;
    EXPECT_EQ(commit_all(sched, plan, 7)[0].finished, i == 7);
  }
  EXPECT_TRUE(sched.plan(Time{}).empty());
  sched.release(1);
  EXPECT_EQ(sched.plan(Time{}).rows.size(), 1u);
  sched.check();
}

// A full hit, a hit inside a block, and blocks without partial reuse.
TEST(Scheduler, TheLastCachedTokenIsComputedAgainWhereItsStateIsWanted) {
  for (const auto& [num_same, is_divided, start] :
       {std::tuple(8, true, 7), std::tuple(6, true, 5), std::tuple(8, false, 4),
        std::tuple(6, false, 0)}) {
    Limits l = limits();
    l.renews_last_cached = true;
    l.enable_partial_reuse = is_divided;
    Scheduler sched(l);
    ASSERT_TRUE(sched.submit(spec(1, 12, 1)).ok());
    commit_all(sched, sched.plan(Time{}), 7);
    SequenceSpec second = spec(2, 12, 1);
    for (size_t i = static_cast<size_t>(num_same); i < 12; ++i) second.prompt[i] += 1000;
    ASSERT_TRUE(sched.submit(std::move(second)).ok());
    const StepPlan plan = sched.plan(Time{});
    EXPECT_THAT(shapes(plan), ElementsAre(Shape{start, 12 - start, true, false}));
    commit_all(sched, plan, 7);
    sched.check();
  }
}

TEST(Scheduler, ChunksALongPromptAndMixesItWithDecoding) {
  Limits l = limits();
  l.max_num_tokens = 8;
  Scheduler sched(l);
  ASSERT_TRUE(sched.submit(spec(1, 3)).ok());
  commit_all(sched, sched.plan(Time{}), 7);
  ASSERT_TRUE(sched.submit(spec(2, 10)).ok());
  StepPlan plan = sched.plan(Time{});
  EXPECT_THAT(shapes(plan), ElementsAre(Shape{3, 1, true, false}, Shape{0, 4, false, false}))
      << "of the 7 tokens left, whole blocks";
  EXPECT_EQ(plan.num_tokens, 5);
  commit_all(sched, plan, 7);
  EXPECT_THAT(shapes(sched.plan(Time{})),
              ElementsAre(Shape{4, 1, true, false}, Shape{4, 6, true, false}));
}

TEST(Scheduler, PlansAheadOfTheHost) {
  Scheduler sched(limits());
  ASSERT_TRUE(sched.submit(spec(1, 5, 3)).ok());
  const StepPlan first = sched.plan(Time{}), second = sched.plan(Time{});
  EXPECT_THAT(shapes(second), ElementsAre(Shape{5, 1, true, true}));
  commit_all(sched, first, 7);
  const StepPlan third = sched.plan(Time{});
  EXPECT_THAT(shapes(third), ElementsAre(Shape{6, 1, true, true}));
  EXPECT_TRUE(sched.plan(Time{}).empty()) << "three tokens are all it may have";
  commit_all(sched, second, 8);
  EXPECT_TRUE(commit_all(sched, third, 9)[0].finished);
  EXPECT_TRUE(sched.idle());
}

TEST(Scheduler, EndIdInFlightDropsTheExtraToken) {
  Scheduler sched(limits());
  SequenceSpec s = spec(1, 4);
  s.end_ids = {2};
  ASSERT_TRUE(sched.submit(s).ok());
  const StepPlan first = sched.plan(Time{}), second = sched.plan(Time{});
  const SequenceUpdate update = commit_all(sched, first, 2)[0];
  EXPECT_TRUE(update.finished);
  EXPECT_EQ(update.reason, FinishReason::kEndId);
  EXPECT_TRUE(update.tokens.empty());
  EXPECT_FALSE(sched.idle()) << "memory is held while a row is in flight";
  sched.check();
  EXPECT_TRUE(commit_all(sched, second, 9)[0].empty());
  EXPECT_TRUE(sched.idle());
  sched.check();
}

TEST(Scheduler, StopWordsEndAndStay) {
  Scheduler sched(limits());
  SequenceSpec s = spec(1, 4, 10);
  s.stop_words = {{5, 6}};
  ASSERT_TRUE(sched.submit(s).ok());
  EXPECT_FALSE(commit_all(sched, sched.plan(Time{}), 5)[0].finished);
  const SequenceUpdate update = commit_all(sched, sched.plan(Time{}), 6)[0];
  EXPECT_THAT(update.tokens, ElementsAre(6));
  EXPECT_EQ(update.reason, FinishReason::kStopWords);
}

TEST(Scheduler, MaxSequenceLengthEndsWithLength) {
  Limits l = limits();
  l.max_sequence_length = 6;
  Scheduler sched(l);
  ASSERT_TRUE(sched.submit(spec(1, 4, 100)).ok());
  EXPECT_FALSE(commit_all(sched, sched.plan(Time{}), 7)[0].finished);
  const SequenceUpdate update = commit_all(sched, sched.plan(Time{}), 7)[0];
  EXPECT_EQ(update.reason, FinishReason::kLength);
  EXPECT_TRUE(sched.idle());
}

TEST(Scheduler, RefusesWhatCanNeverRunWithTheNumbers) {
  Limits l = limits();
  l.groups[0].num_blocks = 4;
  Scheduler sched(l);
  EXPECT_THAT(std::string(message(sched.submit(spec(1, 128)))),
              testing::AllOf(HasSubstr("128"), HasSubstr("max_sequence_length")));
  EXPECT_THAT(std::string(message(sched.submit(spec(1, 14, 4)))),
              testing::AllOf(HasSubstr("17 tokens"), HasSubstr("memory for 16")));
  EXPECT_TRUE(absl::IsInvalidArgument(sched.submit(spec(1, 0))));
  EXPECT_TRUE(absl::IsInvalidArgument(sched.submit(spec(1, 1, 0))));
  EXPECT_TRUE(absl::IsInvalidArgument(sched.submit(spec(0, 1))));
  EXPECT_TRUE(sched.submit(spec(1, 13, 4)).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(sched.submit(spec(1, 1)))) << "same id";
}

TEST(Scheduler, QueueIsBounded) {
  Limits l = limits();
  l.max_queue_size = 2;
  l.max_batch_size = 1;
  Scheduler sched(l);
  ASSERT_TRUE(sched.submit(spec(1, 4)).ok());
  ASSERT_TRUE(sched.submit(spec(2, 4)).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(sched.submit(spec(3, 4))));
  commit_all(sched, sched.plan(Time{}), 7);
  EXPECT_TRUE(sched.submit(spec(3, 4)).ok());
  EXPECT_EQ(sched.num_queued(), 2);
  EXPECT_TRUE(sched.cancel(3)->finished);
  EXPECT_EQ(sched.num_queued(), 1);
}

TEST(Scheduler, ReusesThePrefixButComputesTheLastToken) {
  for (const bool partial : {false, true}) {
    Limits l = limits();
    l.enable_partial_reuse = partial;
    Scheduler sched(l);
    ASSERT_TRUE(sched.submit(spec(1, 8, 1)).ok());
    commit_all(sched, sched.plan(Time{}), 7);
    ASSERT_TRUE(sched.submit(spec(2, 8, 1)).ok());
    const StepPlan plan = sched.plan(Time{});
    EXPECT_THAT(shapes(plan),
                ElementsAre(partial ? Shape{7, 1, true, false} : Shape{4, 4, true, false}));
    const SequenceUpdate update = commit_all(sched, plan, 7)[0];
    EXPECT_EQ(update.metrics.reused_blocks, partial ? 2 : 1);
    EXPECT_EQ(update.metrics.cached_tokens, partial ? 7 : 4);
    EXPECT_EQ(sched.stats().blocks_reused, partial ? 2 : 1);
    EXPECT_EQ(sched.stats().prompt_tokens, partial ? 9 : 12);
  }
}

TEST(Scheduler, PreemptsTheNewestAndResumesIt) {
  Limits l = limits();
  l.groups[0].num_blocks = 4;
  l.enable_reuse = false;
  Scheduler sched(l);
  ASSERT_TRUE(sched.submit(spec(1, 4, 8)).ok());
  ASSERT_TRUE(sched.submit(spec(2, 3, 8)).ok());
  EXPECT_EQ(commit_all(sched, sched.plan(Time{}), 7).size(), 2u);
  int steps = 0, preempted = 0, finished = 0;
  while (!sched.idle() && ++steps < 100) {
    const StepPlan plan = sched.plan(Time{});
    for (const SequenceUpdate& update : commit_all(sched, plan, 7)) {
      if (!update.finished) continue;
      ++finished;
      EXPECT_EQ(update.id, static_cast<RequestId>(finished)) << "the older one ends first";
      preempted += update.metrics.num_preemptions;
    }
    sched.check();
  }
  EXPECT_EQ(finished, 2);
  EXPECT_GE(preempted, 1);
  EXPECT_EQ(sched.stats().num_preemptions, preempted);
  EXPECT_EQ(sched.stats().generated_tokens, 16);
}

TEST(Scheduler, CancelWaitingAndRunning) {
  Limits l = limits();
  l.max_batch_size = 1;
  Scheduler sched(l);
  ASSERT_TRUE(sched.submit(spec(1, 4)).ok());
  ASSERT_TRUE(sched.submit(spec(2, 4)).ok());
  const StepPlan plan = sched.plan(Time{});
  EXPECT_EQ(sched.cancel(2)->reason, FinishReason::kCancelled);
  EXPECT_EQ(sched.cancel(1)->reason, FinishReason::kCancelled);
  EXPECT_FALSE(sched.cancel(1).has_value()) << "one final update only";
  EXPECT_FALSE(sched.cancel(9).has_value());
  EXPECT_FALSE(sched.idle());
  EXPECT_TRUE(commit_all(sched, plan, 7)[0].empty());
  EXPECT_TRUE(sched.idle());
  sched.check();
  EXPECT_EQ(sched.stats().num_cancelled, 2);
}

TEST(Scheduler, AbortFailsTheSequenceAndForgetsItsBlocks) {
  Scheduler sched(limits());
  ASSERT_TRUE(sched.submit(spec(1, 8)).ok());
  commit_all(sched, sched.plan(Time{}), 7);
  const StepPlan plan = sched.plan(Time{});
  const SequenceUpdate update = sched.abort(plan.rows[0], internal_error("device lost"));
  EXPECT_TRUE(update.finished);
  EXPECT_TRUE(absl::IsInternal(update.status));
  EXPECT_TRUE(sched.idle());
  sched.check();
  ASSERT_TRUE(sched.submit(spec(2, 8)).ok());
  EXPECT_EQ(sched.plan(Time{}).rows[0].start, 0);
}

TEST(Scheduler, StopEndsWithStopWords) {
  Scheduler sched(limits());
  ASSERT_TRUE(sched.submit(spec(1, 8)).ok());
  commit_all(sched, sched.plan(Time{}), 7);
  EXPECT_EQ(sched.stop(1)->reason, FinishReason::kStopWords);
  EXPECT_TRUE(sched.idle());
  EXPECT_EQ(sched.stats().num_finished, 1);
}

}  // namespace
}  // namespace nereid::sched
