// Scheduler: policies - admission, waiting, preemption, order.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "sched/scheduler.h"
#include "sched/test_requests.h"

namespace nereid::sched {
namespace {

using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr int kPolicyBlock = 4;

// A scheduler whose steps are committed at once; every row that samples gets token 7.
struct Loop {
  Scheduler sched;
  std::map<RequestId, SequenceUpdate> ended;

  explicit Loop(const Limits& l) : sched(l) {}

  StepPlan step(Time now = {}) {
    StepPlan plan = sched.plan(now);
    if (!plan.onboards.empty()) sched.onboarded(ok());
    const SampledTokens drawn{.token = 7};
    for (const ScheduledRow& row : plan.rows) take(sched.commit(row, given(row, drawn)));
    sched.check();
    return plan;
  }
  void take(SequenceUpdate update) {
    if (update.finished) ended[update.id] = std::move(update);
  }
  void run() {
    for (int i = 0; i < 1000 && !sched.idle(); ++i) step();
    EXPECT_TRUE(sched.idle());
  }
};

std::vector<RequestId> ids(const StepPlan& plan) {
  std::vector<RequestId> all;
  for (const ScheduledRow& row : plan.rows) all.push_back(row.sequence->id());
  return all;
}

// ScheduledRow fields copied before the commit, which may destroy sequences.
struct Seen {
  RequestId id;
  int start, num_tokens;
  bool operator==(const Seen&) const = default;
};
std::vector<Seen> next(Loop& loop) {
  StepPlan plan = loop.sched.plan(Time{});
  std::vector<Seen> all;
  for (const ScheduledRow& row : plan.rows)
    all.push_back({row.sequence->id(), row.start, row.num_tokens});
  const SampledTokens drawn{.token = 7};
  for (const ScheduledRow& row : plan.rows) loop.take(loop.sched.commit(row, given(row, drawn)));
  loop.sched.check();
  return all;
}

TEST(Policy, StaticBatchLetsNobodyJoin) {
  Limits l = limits();
  l.policy.capacity_policy = CapacityPolicy::kStaticBatch;
  Loop loop(l);
  ASSERT_TRUE(loop.sched.submit(spec(1, 4, 3)).ok());
  EXPECT_THAT(next(loop), ElementsAre(Seen{1, 0, 4}));
  ASSERT_TRUE(loop.sched.submit(spec(2, 4, 3, 500)).ok());
  EXPECT_THAT(next(loop), ElementsAre(Seen{1, 4, 1}));
  EXPECT_THAT(next(loop), ElementsAre(Seen{1, 5, 1}));
  EXPECT_THAT(next(loop), ElementsAre(Seen{2, 0, 4}));
}

TEST(Policy, NoEvictAdmitsByTheWorstCase) {
  Limits l = limits();
  l.groups[0].num_blocks = 8;
  for (auto policy : {CapacityPolicy::kGuaranteedNoEvict, CapacityPolicy::kMaxUtilization}) {
    const bool evicts = policy == CapacityPolicy::kMaxUtilization;
    l.policy.capacity_policy = policy;
    Loop loop(l);
    // 20 positions, 5 blocks each: more than the pool for both.
    ASSERT_TRUE(loop.sched.submit(spec(1, 4, 17)).ok());
    ASSERT_TRUE(loop.sched.submit(spec(2, 4, 17, 500)).ok());
    const auto first = next(loop);
    EXPECT_EQ(first.size(), evicts ? 2u : 1u);
    loop.run();
    EXPECT_EQ(loop.ended.size(), 2u);
    EXPECT_EQ(loop.sched.stats().num_preemptions > 0, evicts);
  }
}

TEST(Policy, APauseBySwapMovesBlocksToTheHostAndBack) {
  Limits l = limits();
  l.groups[0].num_blocks = 5;
  l.groups[0].num_host_blocks = 8;
  l.policy.pause_policy = PausePolicy::kSwap;
  Loop loop(l);
  ASSERT_TRUE(loop.sched.submit(spec(1, 4, 12)).ok());
  ASSERT_TRUE(loop.sched.submit(spec(2, 4, 12, 500)).ok());
  int64_t moved_at_once = 0;
  while (!loop.sched.idle()) {
    const int64_t before = loop.sched.stats().num_preemptions;
    const StepPlan plan = loop.sched.plan(Time{});
    if (loop.sched.stats().num_preemptions > before) {
      moved_at_once += std::ranges::count_if(plan.copies, [&](const PlanCopy& copy) {
        return copy.from < l.groups[0].num_blocks && copy.to >= l.groups[0].num_blocks;
      });
    }
    if (!plan.onboards.empty()) loop.sched.onboarded(ok());
    const SampledTokens drawn{.token = 7};
    for (const ScheduledRow& row : plan.rows) loop.take(loop.sched.commit(row, given(row, drawn)));
  }
  EXPECT_EQ(moved_at_once, 2) << "all that it had, not just what is needed now";
  const SchedulerStats stats = loop.sched.stats();
  EXPECT_GT(stats.num_preemptions, 0);
  EXPECT_GT(stats.blocks_onboarded, 0);
  EXPECT_EQ(stats.prompt_tokens, 8) << "no prompt was computed twice";
}

TEST(Policy, ContextLogitsNeedTheWholePromptComputed) {
  Loop loop(limits());
  ASSERT_TRUE(loop.sched.submit(spec(1, 9)).ok());
  loop.run();
  SequenceSpec wants = spec(2, 9);
  wants.output.return_context_logits = true;
  ASSERT_TRUE(loop.sched.submit(wants).ok());
  std::vector<int> positions;
  while (!loop.sched.idle()) {
    const StepPlan plan = loop.step();
    int num_logits = 0;
    for (const ScheduledRow& row : plan.rows) {
      num_logits += row.num_logits();
      for (int p = row.start; row.all_logits && p < row.end(); ++p) positions.push_back(p);
    }
    EXPECT_LE(num_logits, limits().max_batch_size);
  }
  EXPECT_THAT(positions, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
}

// The same with every slot taken.
TEST(Policy, ContextLogitsAdvanceByTheRowsOfLogits) {
  Limits l = limits();
  l.max_batch_size = 1;
  l.max_num_tokens = 64;
  l.max_logits = 8;
  Loop loop(l);
  SequenceSpec wants = spec(1, 20);
  wants.output.return_context_logits = true;
  ASSERT_TRUE(loop.sched.submit(wants).ok());
  std::vector<int> chunks;
  while (!loop.sched.idle()) chunks.push_back(loop.step().rows.at(0).num_tokens);
  chunks.resize(3);
  EXPECT_THAT(chunks, ElementsAre(8, 8, 4));
}

TEST(Policy, EqualPromptsThatArriveTogetherAreComputedOnce) {
  Limits l = limits();
  l.max_num_tokens = 8;
  l.policy.chunking_policy = ChunkingPolicy::kEqualProgress;
  Loop loop(l);
  ASSERT_TRUE(loop.sched.submit(spec(1, 17, 1)).ok());
  ASSERT_TRUE(loop.sched.submit(spec(2, 17, 1)).ok());
  EXPECT_THAT(next(loop), ElementsAre(Seen{1, 0, 8}));
  loop.run();
  EXPECT_LT(loop.sched.stats().prompt_tokens, 2 * 17 - 3 * kPolicyBlock);
  EXPECT_GE(loop.ended[2].metrics.reused_blocks, 2);
}

TEST(Policy, WhoeverWaitsForAPromptGoesOnWhenItIsCancelled) {
  Limits l = limits();
  l.max_num_tokens = 8;
  l.policy.chunking_policy = ChunkingPolicy::kEqualProgress;
  Loop loop(l);
  ASSERT_TRUE(loop.sched.submit(spec(1, 17, 1)).ok());
  ASSERT_TRUE(loop.sched.submit(spec(2, 17, 1)).ok());
  const StepPlan plan = loop.sched.plan(Time{});
  EXPECT_THAT(ids(plan), ElementsAre(1));
  loop.sched.cancel(1);
  loop.take(loop.sched.commit(plan.rows[0], {}));
  EXPECT_THAT(next(loop), ElementsAre(testing::Field(&Seen::id, 2)));
}

TEST(Policy, NobodyWaitsForAPromptForEver) {
  Limits l = limits();
  l.max_num_tokens = 2 * kPolicyBlock;
  l.max_sequence_length = 4000;
  l.groups[0].num_blocks = 2000;
  l.policy.chunking_policy = ChunkingPolicy::kEqualProgress;
  Loop loop(l);
  ASSERT_TRUE(loop.sched.submit(spec(1, 3500, 1)).ok());
  ASSERT_TRUE(loop.sched.submit(spec(2, 3500, 1)).ok());
  int turns = 0;
  while (next(loop).size() < 2) ASSERT_LT(++turns, Scheduler::kMaxReuseDelays + 2);
  EXPECT_GT(turns, Scheduler::kMaxReuseDelays / 2);
}

TEST(Policy, WithoutChunkingAPromptWaitsForAWholeStep) {
  Limits l = limits();
  l.max_num_tokens = 14;
  l.policy.enable_chunked_context = false;
  Loop loop(l);
  ASSERT_TRUE(loop.sched.submit(spec(1, 8)).ok());
  ASSERT_TRUE(loop.sched.submit(spec(2, 7, 4, 500)).ok());
  EXPECT_THAT(next(loop), ElementsAre(Seen{1, 0, 8}));
  EXPECT_THAT(next(loop), UnorderedElementsAre(Seen{1, 8, 1}, Seen{2, 0, 7}));
  EXPECT_FALSE(loop.sched.submit(spec(3, 15)).ok());
}

TEST(Policy, EqualProgressSharesTheStep) {
  Limits l = limits();
  l.max_num_tokens = 16;
  for (auto policy : {ChunkingPolicy::kEqualProgress, ChunkingPolicy::kFirstComeFirstServed}) {
    l.policy.chunking_policy = policy;
    Loop loop(l);
    ASSERT_TRUE(loop.sched.submit(spec(1, 40)).ok());
    ASSERT_TRUE(loop.sched.submit(spec(2, 40, 4, 500)).ok());
    if (policy == ChunkingPolicy::kEqualProgress) {
      EXPECT_THAT(next(loop), ElementsAre(Seen{1, 0, 8}, Seen{2, 0, 8}));
    } else {
      EXPECT_THAT(next(loop), ElementsAre(Seen{1, 0, 16}));
    }
  }
}

TEST(Policy, ANewcomerOfHigherPriorityIsNotStarvedByDecodes) {
  Limits l = limits();
  l.max_num_tokens = kPolicyBlock;
  Loop loop(l);
  for (RequestId id : {1, 2, 3}) ASSERT_TRUE(loop.sched.submit(spec(id, 1, 100, 500 * id)).ok());
  for (int i = 0; i < 3; ++i) next(loop);
  SequenceSpec urgent = spec(9, 20);
  urgent.priority = 1;
  ASSERT_TRUE(loop.sched.submit(urgent).ok());
  int turns = 0;
  while (!loop.ended.contains(9)) {
    next(loop);
    ASSERT_LT(++turns, 14) << "a block in each step, then a token";
  }
}

TEST(Policy, HigherPriorityGoesFirstAndPausesTheLastWhenThereIsNoSlot) {
  Limits l = limits();
  l.max_batch_size = 1;
  Loop loop(l);
  ASSERT_TRUE(loop.sched.submit(spec(1, 4, 10)).ok());
  EXPECT_THAT(next(loop), ElementsAre(Seen{1, 0, 4}));
  SequenceSpec low = spec(2, 4, 2, 500), high = spec(3, 4, 2, 600);
  low.priority = 0.25f;
  high.priority = 0.75f;
  ASSERT_TRUE(loop.sched.submit(low).ok());
  ASSERT_TRUE(loop.sched.submit(high).ok());
  next(loop);
  EXPECT_THAT(next(loop), ElementsAre(testing::Field(&Seen::id, 3)));
  loop.run();
  EXPECT_EQ(loop.ended[1].metrics.num_preemptions, 1);
  EXPECT_EQ(loop.ended[2].metrics.num_preemptions, 0);
}

TEST(Policy, DeadlinesEndWaitingAndRunningSequences) {
  Limits l = limits();
  l.max_batch_size = 1;
  Loop loop(l);
  SequenceSpec running = spec(1, 4, 50), waiting = spec(2, 4, 50, 500);
  running.deadline = Time{} + milliseconds(10);
  waiting.deadline = Time{} + milliseconds(5);
  ASSERT_TRUE(loop.sched.submit(running).ok());
  ASSERT_TRUE(loop.sched.submit(waiting).ok());
  next(loop);
  EXPECT_THAT(loop.sched.expire(Time{} + milliseconds(4)), IsEmpty());
  auto update = loop.sched.expire(Time{} + milliseconds(5));
  ASSERT_EQ(update.size(), 1u);
  EXPECT_EQ(update[0].id, 2u);
  EXPECT_EQ(update[0].reason, FinishReason::kTimedOut);
  update = loop.sched.expire(Time{} + milliseconds(99));
  ASSERT_EQ(update.size(), 1u);
  EXPECT_EQ(update[0].id, 1u);
  EXPECT_TRUE(loop.sched.idle());
  EXPECT_EQ(loop.sched.stats().num_timed_out, 2);
}

TEST(Policy, AFailedStepEndsItsSequencesAndTheOthersStartOver) {
  Limits l = limits();
  l.max_num_tokens = 8;
  Loop loop(l);
  ASSERT_TRUE(loop.sched.submit(spec(1, 8, 20)).ok());
  next(loop);
  const StepPlan first = loop.sched.plan(Time{});
  EXPECT_THAT(ids(first), ElementsAre(1));
  ASSERT_TRUE(loop.sched.submit(spec(2, 7, 2, 500)).ok());
  const StepPlan second = loop.sched.plan(Time{});  // in flight behind the one that fails
  EXPECT_THAT(ids(second), Contains(2));
  const auto update = loop.sched.fail(first, internal_error("lost"));
  ASSERT_EQ(update.size(), 1u);
  EXPECT_EQ(update[0].id, 1u);
  EXPECT_FALSE(update[0].status.ok());
  const SampledTokens drawn{.token = 66};
  for (const ScheduledRow& row : second.rows)
    EXPECT_TRUE(loop.sched.commit(row, given(row, drawn)).empty())
        << "what it drew may rest on lost contents";
  EXPECT_THAT(next(loop), ElementsAre(Seen{2, 0, 7}));
  loop.run();
  EXPECT_TRUE(loop.ended[2].status.ok());
}

TEST(Policy, FollowersShareTheLeadersPrompt) {
  Loop loop(limits());
  std::vector<SequenceSpec> group(3, spec(1, 10));
  for (size_t i = 1; i < group.size(); ++i) {
    group[i].id = 1 + i;
    group[i].leader = 1;
  }
  ASSERT_TRUE(loop.sched.submit(group).ok());
  EXPECT_THAT(next(loop), ElementsAre(Seen{1, 0, 10}));
  const StepPlan plan = loop.sched.plan(Time{});
  std::vector<Seen> seen;
  for (const ScheduledRow& row : plan.rows)
    seen.push_back({row.sequence->id(), row.start, row.num_tokens});
  EXPECT_THAT(seen, UnorderedElementsAre(Seen{1, 10, 1}, Seen{2, 9, 1}, Seen{3, 9, 1}));
  EXPECT_EQ(plan.copies.size(), 2u) << "the block that each of them writes";
  loop.sched.check();
  EXPECT_EQ(loop.sched.stats().prompt_tokens, 12);
}

TEST(Policy, AGroupIsQueuedAsAWholeOrNotAtAll) {
  Limits l = limits();
  l.max_queue_size = 4;
  Loop loop(l);
  ASSERT_TRUE(loop.sched.submit(spec(10, 4)).ok());
  std::vector<SequenceSpec> group(4, spec(1, 10));
  for (size_t i = 1; i < group.size(); ++i) {
    group[i].id = 1 + i;
    group[i].leader = 1;
  }
  EXPECT_EQ(loop.sched.submit(group).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(loop.sched.num_queued(), 1);
  group.pop_back();
  EXPECT_TRUE(loop.sched.submit(group).ok());
}

std::vector<SequenceSpec> group_of(size_t count, const SequenceSpec& first) {
  std::vector<SequenceSpec> group(count, first);
  for (size_t i = 1; i < count; ++i) {
    group[i].id = first.id + i;
    group[i].leader = first.id;
  }
  return group;
}

// The fifth of six sequences in four slots is placed behind eight later requests.
TEST(Policy, LaterRequestsGoBeforeMostOfALargeGroup) {
  Limits l = limits();
  l.max_queue_size = 64;
  Loop loop(l);
  ASSERT_TRUE(loop.sched.submit(group_of(6, spec(1, 4, 20))).ok());
  loop.step();
  for (RequestId id = 20; id < 32; ++id)
    ASSERT_TRUE(loop.sched.submit(spec(id, 4, 2, 100 * static_cast<TokenId>(id))).ok());
  std::vector<RequestId> begun;
  for (int i = 0; i < 1000 && !loop.sched.idle(); ++i)
    for (const Seen& seen : next(loop))
      if (std::ranges::find(begun, seen.id) == begun.end()) begun.push_back(seen.id);
  EXPECT_THAT(begun, ElementsAre(1, 2, 3, 4, 20, 21, 22, 23, 24, 25, 26, 27, 5, 28, 29, 30, 31, 6));
  EXPECT_EQ(loop.ended.size(), 18u);
}

TEST(Policy, ALaterRequestNeedNotWaitForTheEndOfALargeGroup) {
  Limits l = limits();
  l.max_batch_size = 6;
  Loop loop(l);
  ASSERT_TRUE(loop.sched.submit(group_of(6, spec(1, 4, 12))).ok());
  loop.step();
  EXPECT_THAT(ids(loop.step()), UnorderedElementsAre(1, 2, 3, 4, 5, 6));
  ASSERT_TRUE(loop.sched.submit(spec(20, 4, 2, 500)).ok());
  loop.step();  // preempted when the rows of the last sequence are planned
  EXPECT_THAT(ids(loop.step()), UnorderedElementsAre(1, 2, 3, 4, 5, 20));
  loop.run();
  EXPECT_EQ(loop.ended.size(), 7u);
  for (const auto& [id, update] : loop.ended) EXPECT_TRUE(update.status.ok()) << id;
}

TEST(Policy, LogProbsComeWhenAskedForAndSumsAlways) {
  Scheduler sched(limits());
  SequenceSpec asks = spec(1, 4);
  asks.output.return_log_probs = true;
  asks.output.num_top_log_probs = 1;
  ASSERT_TRUE(sched.submit(asks).ok());
  ASSERT_TRUE(sched.submit(spec(2, 4, 4, 500)).ok());
  const StepPlan plan = sched.plan(Time{});
  ASSERT_EQ(plan.rows.size(), 2u);
  const std::vector<TokenLogProb> top = {{7, -0.5f}};
  const SampledTokens drawn{.token = 7, .log_prob = -0.5f, .full_log_prob = -1.5f, .top = top};
  const SequenceUpdate one = sched.commit(plan.rows[0], {&drawn, 1}),
                       two = sched.commit(plan.rows[1], {&drawn, 1});
  EXPECT_THAT(one.log_probs, ElementsAre(-0.5f));
  ASSERT_EQ(one.top_log_probs.size(), 1u);
  EXPECT_EQ(one.top_log_probs[0][0].token, 7);
  EXPECT_THAT(one.full_log_probs, ElementsAre(-1.5f));
  EXPECT_THAT(two.log_probs, IsEmpty());
  EXPECT_THAT(two.top_log_probs, IsEmpty());
  EXPECT_THAT(two.full_log_probs, ElementsAre(-1.5f));
}

TEST(Policy, ASlidingWindowGivesBlocksBackWhileItRuns) {
  Limits l = limits();
  l.groups[0].window = 8;
  l.groups[0].sink = 2;
  Loop loop(l);
  ASSERT_TRUE(loop.sched.submit(spec(1, 20, 20)).ok());
  std::vector<BlockId> table;
  while (!loop.sched.idle()) {
    const StepPlan plan = loop.sched.plan(Time{});
    const auto now = plan.rows[0].sequence->block_table();
    table.assign(now.begin(), now.end());
    const SampledTokens drawn{.token = 7};
    loop.take(loop.sched.commit(plan.rows[0], {&drawn, 1}));
  }
  ASSERT_EQ(table.size(), 10u);
  EXPECT_NE(table[0], kNoBlock) << "it holds the sinks";
  for (int i = 1; i < 7; ++i) EXPECT_EQ(table[i], kNoBlock) << i;
  for (int i = 8; i < 10; ++i) EXPECT_NE(table[i], kNoBlock) << i;
}

TEST(Policy, AWindowBesideAFullGroupHoldsOneBlockMoreThanTheWindow) {
  Limits l = limits();
  l.max_num_tokens = 8;
  l.groups.push_back({.num_blocks = 2 + 8 / 4 + 2, .window = 8});  // window, chunk, partial blocks
  Loop loop(l);
  ASSERT_TRUE(loop.sched.submit(spec(1, 40, 80)).ok());
  int64_t most = 0;
  while (!loop.sched.idle()) {
    const StepPlan plan = loop.sched.plan(Time{});
    const Sequence& sequence = *plan.rows[0].sequence;
    if (sequence.num_generated() > 0) {
      most = std::max<int64_t>(
          most, std::ranges::count_if(sequence.block_table(0, 1),
                                      [](BlockId block) { return block != kNoBlock; }));
      EXPECT_EQ(std::ranges::count(sequence.block_table(0, 0), kNoBlock), 0);
    }
    const SampledTokens drawn{.token = 7};
    loop.take(loop.sched.commit(plan.rows[0], given(plan.rows[0], drawn)));
  }
  EXPECT_EQ(most, 8 / 4 + 1);
  EXPECT_EQ(loop.sched.stats().num_preemptions, 0);
}

TEST(SchedulerPolicy, AsManyAdaptersRunAsThereArePlaces) {
  Limits l = limits();
  l.max_adapters = 2;
  Loop loop(l);
  const uint64_t adapters[] = {7, 0, 8, 7, 9};
  for (RequestId id = 1; id <= 5; ++id) {
    SequenceSpec s = spec(id, 3, 4, static_cast<TokenId>(100 * id));
    s.adapter = adapters[id - 1];
    ASSERT_TRUE(loop.sched.submit(std::move(s)).ok());
  }
  EXPECT_THAT(ids(loop.step()), UnorderedElementsAre(1, 2, 3, 4));
  loop.run();
  EXPECT_EQ(loop.ended.size(), 5u);

  Loop narrow([] {
    Limits one = limits();
    one.max_adapters = 1;
    return one;
  }());
  for (RequestId id = 1; id <= 3; ++id) {
    SequenceSpec s = spec(id, 3, 4, static_cast<TokenId>(100 * id));
    s.adapter = id;
    ASSERT_TRUE(narrow.sched.submit(std::move(s)).ok());
  }
  EXPECT_THAT(ids(narrow.step()), ElementsAre(1));
  narrow.run();
  EXPECT_EQ(narrow.ended.size(), 3u);
}

// A sequence whose adapter is being loaded holds its memory and has no rows; others go on.
TEST(SchedulerPolicy, WithoutItsAdapterASequenceHasNoRows) {
  Limits l = limits();
  l.max_adapters = 3;
  Loop loop(l);
  uint64_t there = 0;
  loop.sched.set_adapter_check([&](uint64_t adapter) { return adapter == there; });
  for (RequestId id = 1; id <= 3; ++id) {
    SequenceSpec s = spec(id, 3, 4, static_cast<TokenId>(100 * id));
    s.adapter = id == 2 ? 0 : id;
    ASSERT_TRUE(loop.sched.submit(std::move(s)).ok());
  }
  EXPECT_THAT(ids(loop.step()), ElementsAre(2));
  EXPECT_EQ(loop.sched.running().size(), 3u);
  EXPECT_TRUE(loop.sched.running()[0]->awaits_adapter());
  there = 3;
  EXPECT_THAT(ids(loop.step()), UnorderedElementsAre(2, 3));
  there = 0;  // asked once
  EXPECT_THAT(ids(loop.step()), UnorderedElementsAre(2, 3));
  while (!loop.ended.contains(3)) loop.step();
  EXPECT_TRUE(loop.step().empty());
  loop.take(*loop.sched.cancel(1));
  EXPECT_TRUE(loop.sched.idle());
}

// The third adapter has a slot, but no pages.
TEST(SchedulerPolicy, AsManyAdaptersRunAsThereArePages) {
  Limits l = limits();
  l.max_adapters = 3, l.max_adapter_pages = 5;
  Loop loop(l);
  const uint64_t adapters[] = {7, 7, 8, 9};
  for (RequestId id = 1; id <= 4; ++id) {
    SequenceSpec s = spec(id, 3, 4, static_cast<TokenId>(100 * id));
    s.adapter = adapters[id - 1];
    s.adapter_pages = s.adapter == 9 ? 1 : s.adapter == 8 ? 2 : 3;
    ASSERT_TRUE(loop.sched.submit(std::move(s)).ok());
  }
  EXPECT_THAT(ids(loop.step()), UnorderedElementsAre(1, 2, 3));
  loop.run();
  EXPECT_EQ(loop.ended.size(), 4u);
}

}  // namespace
}  // namespace nereid::sched
