// Scheduler: the rows of a step; one behaviour per test.
#include <gmock/gmock.h>

#include "sched/fake_model.h"
#include "sched/test_requests.h"

namespace nereid::sched {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// A row: request, first position, tokens.
struct Part {
  RequestId id;
  int start, num_tokens;
  bool operator==(const Part&) const = default;
};
std::vector<Part> parts(const StepPlan& plan) {
  std::vector<Part> out;
  for (const ScheduledRow& r : plan.rows) out.push_back({r.sequence->id(), r.start, r.num_tokens});
  return out;
}

std::vector<SequenceUpdate> commit_with_log_probs(Scheduler& sched, const StepPlan& plan,
                                                  TokenId token = 7) {
  const std::vector<TokenLogProb> top = {{1, -1.0f}, {2, -2.0f}, {3, -4.0f}, {4, -8.0f}};
  const SampledTokens drawn{.token = token, .log_prob = -0.5f, .full_log_prob = -1.5f, .top = top};
  std::vector<SequenceUpdate> all;
  for (const ScheduledRow& row : plan.rows) {
    SequenceUpdate update = sched.commit(row, given(row, drawn));
    if (!update.empty()) all.push_back(std::move(update));
  }
  return all;
}

std::vector<Part> step(Scheduler& sched) {
  const StepPlan plan = sched.plan(Time{});
  std::vector<Part> planned = parts(plan);  // a commit may destroy the row's sequence
  commit_with_log_probs(sched, plan);
  sched.check();
  return planned;
}

TEST(SchedulerStep, HigherPriorityGoesFirstThenTheOlder) {
  Limits l = limits(4);
  l.max_batch_size = 1;
  l.policy.capacity_policy = CapacityPolicy::kGuaranteedNoEvict;
  Scheduler sched(l);
  for (RequestId id : {1, 2, 3}) {
    SequenceSpec s = spec(id, 4, 1, 10 * static_cast<TokenId>(id));
    s.priority = id == 3 ? 0.9f : 0.5f;
    ASSERT_TRUE(sched.submit(s).ok());
  }
  std::vector<RequestId> order;
  while (!sched.idle()) order.push_back(step(sched)[0].id);
  EXPECT_THAT(order, ElementsAre(3, 1, 2));
}

TEST(SchedulerStep, AModelInStagesHasItsDecodesInPartsWithKnownInputs) {
  Limits l = limits();
  l.num_stages = 2;
  Scheduler sched(l);
  for (RequestId id : {1, 2, 3})
    ASSERT_TRUE(sched.submit(spec(id, 4, 8, 10 * static_cast<TokenId>(id))).ok());
  const StepPlan prompts = sched.plan(Time{});
  EXPECT_EQ(prompts.rows.size(), 3u);
  EXPECT_TRUE(sched.plan(Time{}).empty()) << "their next inputs are not sampled yet";
  commit_with_log_probs(sched, prompts);
  const StepPlan first = sched.plan(Time{}), second = sched.plan(Time{});
  EXPECT_THAT(parts(first), ElementsAre(Part{1, 4, 1}, Part{2, 4, 1}));
  EXPECT_THAT(parts(second), ElementsAre(Part{3, 4, 1}));
  EXPECT_TRUE(sched.plan(Time{}).empty());
  commit_with_log_probs(sched, first);
  const StepPlan third = sched.plan(Time{});
  EXPECT_THAT(parts(third), ElementsAre(Part{1, 5, 1}, Part{2, 5, 1}));
  for (const ScheduledRow& row : third.rows) EXPECT_FALSE(row.input_on_device);
  commit_with_log_probs(sched, second);
  commit_with_log_probs(sched, third);
  while (!sched.idle()) step(sched);
}

TEST(SchedulerStep, ThePromptsOfAModelInStagesComeInParts) {
  Limits l = limits();
  l.num_stages = 2;
  Scheduler sched(l);
  ASSERT_TRUE(sched.submit(spec(1, 60)).ok());
  const StepPlan first = sched.plan(Time{}), second = sched.plan(Time{});
  EXPECT_THAT(parts(first), ElementsAre(Part{1, 0, 32}));
  EXPECT_THAT(parts(second), ElementsAre(Part{1, 32, 28})) << "beside the first one";
  commit_with_log_probs(sched, first);
  commit_with_log_probs(sched, second);
  l.policy.enable_chunked_context = false;
  Scheduler whole(l);
  ASSERT_TRUE(whole.submit(spec(1, 60)).ok());
  EXPECT_THAT(step(whole), ElementsAre(Part{1, 0, 60}));
}

TEST(SchedulerStep, NoEvictAdmitsOnlyWhatFitsToItsEnd) {
  Limits l = limits(4);
  l.groups[0].num_blocks = 6;
  l.enable_reuse = false;
  l.policy.capacity_policy = CapacityPolicy::kGuaranteedNoEvict;
  Scheduler sched(l);
  ASSERT_TRUE(sched.submit(spec(1, 4, 13)).ok());  // 16 positions: 4 blocks
  ASSERT_TRUE(sched.submit(spec(2, 4, 9)).ok());   // 3 blocks, one too many
  ASSERT_TRUE(sched.submit(spec(3, 2, 1)).ok());   // would fit, but must not overtake the second
  for (int i = 0; i < 13; ++i) EXPECT_THAT(step(sched), ElementsAre(testing::Field(&Part::id, 1)));
  EXPECT_EQ(step(sched).size(), 2u);
  while (!sched.idle()) step(sched);
  EXPECT_EQ(sched.stats().num_preemptions, 0);
}

TEST(SchedulerStep, RefusesBeamsByTheirWorstCase) {
  Limits l = limits(4);
  l.groups[0].num_blocks = 10;
  EXPECT_EQ(worst_case_blocks(l, l.groups[0], 10, 16, 1), 4);
  EXPECT_EQ(worst_case_blocks(l, l.groups[0], 10, 16, 4), 2 + 4 * 2);
  EXPECT_EQ(worst_case_blocks(l, l.groups[0], 10, 11, 4), 3) << "one token needs no branch";
  EXPECT_TRUE(Scheduler::validate(l, 10, 6, 4).ok());
  EXPECT_THAT(std::string(message(Scheduler::validate(l, 10, 8, 4))),
              testing::AllOf(HasSubstr("14 blocks"), HasSubstr("beam_width 4"),
                             HasSubstr("there are 10 blocks")));
  EXPECT_THAT(std::string(message(Scheduler::validate(l, 10, 6, 5))), HasSubstr("[1, 4]"));
  EXPECT_THAT(std::string(message(Scheduler::validate(l, 10, 6, 1, 9))), HasSubstr("[1, 8]"));
}

TEST(SchedulerStep, EqualProgressGivesABlockInTurn) {
  Limits l = limits(4);
  l.max_num_tokens = 12;
  l.policy.chunking_policy = ChunkingPolicy::kEqualProgress;
  Scheduler sched(l);
  ASSERT_TRUE(sched.submit(spec(1, 20)).ok());
  ASSERT_TRUE(sched.submit(spec(2, 6, 4, 50)).ok());
  EXPECT_THAT(step(sched), ElementsAre(Part{1, 0, 8}, Part{2, 0, 4}));
  EXPECT_THAT(step(sched), ElementsAre(Part{1, 8, 8}, Part{2, 4, 2}));
  l.policy.chunking_policy = ChunkingPolicy::kFirstComeFirstServed;
  Scheduler in_turn(l);
  ASSERT_TRUE(in_turn.submit(spec(1, 20)).ok());
  ASSERT_TRUE(in_turn.submit(spec(2, 6, 4, 50)).ok());
  EXPECT_THAT(step(in_turn), ElementsAre(Part{1, 0, 12}));
  EXPECT_THAT(step(in_turn), ElementsAre(Part{1, 12, 8}, Part{2, 0, 4}));
}

TEST(SchedulerStep, PrefillIsLimitedWhileOthersDecode) {
  Scheduler sched(limits());
  sched.limit_prefill(10);
  ASSERT_TRUE(sched.submit(spec(1, 40, 8)).ok());
  EXPECT_THAT(step(sched), ElementsAre(Part{1, 0, 40})) << "nobody decodes";
  ASSERT_TRUE(sched.submit(spec(2, 21, 4, 300)).ok());
  ASSERT_TRUE(sched.submit(spec(3, 3, 4, 500)).ok());
  EXPECT_THAT(step(sched), ElementsAre(Part{1, 40, 1}, Part{2, 0, 8})) << "whole blocks";
  EXPECT_THAT(step(sched), ElementsAre(Part{1, 41, 1}, Part{2, 8, 8}));
  EXPECT_THAT(step(sched), ElementsAre(Part{1, 42, 1}, Part{2, 16, 5}, Part{3, 0, 3}))
      << "together at most ten";
  sched.limit_prefill(0);
  ASSERT_TRUE(sched.submit(spec(4, 40, 4, 700)).ok());
  EXPECT_THAT(step(sched), testing::Contains(Part{4, 0, 40})) << "no limit";
}

TEST(SchedulerStep, ALimitedPrefillGetsAtLeastABlock) {
  Scheduler sched(limits());
  sched.limit_prefill(1);
  ASSERT_TRUE(sched.submit(spec(1, 4, 8)).ok());
  step(sched);
  ASSERT_TRUE(sched.submit(spec(2, 9, 4, 300)).ok());
  EXPECT_THAT(step(sched), ElementsAre(Part{1, 4, 1}, Part{2, 0, 4}));
  EXPECT_THAT(step(sched), ElementsAre(Part{1, 5, 1}, Part{2, 4, 4}));
}

TEST(SchedulerStep, ALimitedPrefillIsSharedEqually) {
  Limits l = limits();
  l.policy.chunking_policy = ChunkingPolicy::kEqualProgress;
  Scheduler sched(l);
  sched.limit_prefill(8);
  ASSERT_TRUE(sched.submit(spec(1, 4, 8)).ok());
  step(sched);
  ASSERT_TRUE(sched.submit(spec(2, 40, 4, 300)).ok());
  ASSERT_TRUE(sched.submit(spec(3, 40, 4, 500)).ok());
  ASSERT_TRUE(sched.submit(spec(4, 40, 4, 700)).ok());
  EXPECT_THAT(step(sched), ElementsAre(Part{1, 4, 1}, Part{2, 0, 4}, Part{3, 0, 4}));
}

// A search decodes in every other step: the step in between delays it as one with a row of it.
TEST(SchedulerStep, PrefillIsLimitedBesideASearchInFlight) {
  Scheduler sched(limits(2));
  sched.limit_prefill(8);
  SequenceSpec search = spec(1, 4, 8);
  search.sampling.beam_width = 2;
  ASSERT_TRUE(sched.submit(search).ok());
  const StepPlan plan = sched.plan(Time{});
  ASSERT_TRUE(sched.submit(spec(2, 40, 4, 300)).ok());
  const StepPlan beside = sched.plan(Time{});
  EXPECT_THAT(parts(beside), ElementsAre(Part{2, 0, 8}));
  commit_with_log_probs(sched, plan);
  commit_with_log_probs(sched, beside);
}

TEST(SchedulerStep, PromptsThatMustNotBeChunkedHaveNoPrefillLimit) {
  Limits l = limits();
  l.policy.enable_chunked_context = false;
  Scheduler sched(l);
  sched.limit_prefill(8);
  ASSERT_TRUE(sched.submit(spec(1, 4, 8)).ok());
  step(sched);
  ASSERT_TRUE(sched.submit(spec(2, 40, 4, 300)).ok());
  EXPECT_THAT(step(sched), ElementsAre(Part{1, 4, 1}, Part{2, 0, 40}));
}

TEST(SchedulerStep, ContextLogitsAreAsManyAsSlots) {
  Scheduler sched(limits(4));
  SequenceSpec s = spec(1, 10);
  ASSERT_TRUE(sched.submit(spec(9, 10, 1)).ok());
  step(sched);
  s.output.return_context_logits = true;
  ASSERT_TRUE(sched.submit(s).ok());
  int position = 0;
  for (int expected : {4, 4, 2}) {  // no prefix is matched: each position has logits
    const StepPlan plan = sched.plan(Time{});
    ASSERT_EQ(plan.rows.size(), 1u);
    EXPECT_TRUE(plan.rows[0].all_logits);
    EXPECT_EQ(plan.rows[0].start, position);
    EXPECT_EQ(plan.rows[0].num_logits(), expected);
    position += expected;
    commit_with_log_probs(sched, plan);
  }
  EXPECT_FALSE(sched.plan(Time{}).rows[0].all_logits);
}

TEST(SchedulerStep, PromptsAreScoredInPiecesBesideOthers) {
  Limits l = limits(4);
  l.max_logits = 64;
  l.max_scored_tokens = 3;
  Scheduler sched(l);
  SequenceSpec s = spec(1, 7);
  s.output.num_prompt_log_probs = 0;
  ASSERT_TRUE(sched.submit(s).ok());
  s = spec(2, 4, 4, 50);
  s.output.num_prompt_log_probs = 0;
  ASSERT_TRUE(sched.submit(s).ok());
  ASSERT_TRUE(sched.submit(spec(3, 6, 4, 80)).ok());
  EXPECT_THAT(step(sched), ElementsAre(Part{1, 0, 3}, Part{3, 0, 6}));
  EXPECT_THAT(step(sched), UnorderedElementsAre(Part{1, 3, 3}, Part{3, 6, 1}));
  EXPECT_THAT(step(sched), UnorderedElementsAre(Part{1, 6, 1}, Part{2, 0, 2}, Part{3, 7, 1}));
  EXPECT_THAT(step(sched), UnorderedElementsAre(Part{1, 7, 1}, Part{2, 2, 2}, Part{3, 8, 1}));
}

// Tokens whose scores are many count as several; one makes progress even so.
TEST(SchedulerStep, WeightsOfScoredTokens) {
  Limits l = limits(4);
  l.max_logits = 64;
  l.max_scored_tokens = 5;
  Scheduler sched(l);
  SequenceSpec s = spec(1, 3);
  s.output.alignment_heads = {{0, 0}};
  s.score_weight = 2;
  ASSERT_TRUE(sched.submit(s).ok());
  s = spec(2, 3, 4, 50);
  s.output.num_prompt_log_probs = 0;
  ASSERT_TRUE(sched.submit(s).ok());
  EXPECT_THAT(step(sched), ElementsAre(Part{1, 0, 2}, Part{2, 0, 1}));
  EXPECT_THAT(step(sched), UnorderedElementsAre(Part{1, 2, 1}, Part{2, 1, 2}));
  s = spec(3, 2, 4, 80);
  s.output.alignment_heads = {{0, 0}};
  s.score_weight = 1000;
  ASSERT_TRUE(sched.submit(s).ok());
  EXPECT_THAT(step(sched), UnorderedElementsAre(Part{1, 3, 1}, Part{2, 3, 1}, Part{3, 0, 1}));
  EXPECT_THAT(step(sched), UnorderedElementsAre(Part{1, 4, 1}, Part{2, 4, 1}, Part{3, 1, 1}));
}

TEST(SchedulerStep, FollowersComputeOneTokenOfThePrompt) {
  Scheduler sched(limits(4));
  std::vector<SequenceSpec> group(3, spec(1, 10, 2));
  for (RequestId i = 1; i < 3; ++i) {
    group[i].id = 1 + i;
    group[i].leader = 1;
  }
  ASSERT_TRUE(sched.submit(group).ok());
  EXPECT_THAT(step(sched), ElementsAre(Part{1, 0, 10}));
  const StepPlan plan = sched.plan(Time{});
  EXPECT_THAT(parts(plan), ElementsAre(Part{1, 10, 1}, Part{2, 9, 1}, Part{3, 9, 1}));
  EXPECT_EQ(plan.copies.size(), 2u) << "the last block of each follower";
  for (size_t block : {0, 1})
    EXPECT_EQ(plan.rows[1].sequence->block_table()[block],
              plan.rows[0].sequence->block_table()[block]);
  EXPECT_NE(plan.rows[1].sequence->block_table()[2], plan.rows[2].sequence->block_table()[2]);
  commit_with_log_probs(sched, plan);
  while (!sched.idle()) step(sched);
  EXPECT_EQ(sched.stats().prompt_tokens, 12);
}

TEST(SchedulerStep, TheSamePromptIsNotComputedTwiceAtOnce) {
  Scheduler sched(limits(4));
  ASSERT_TRUE(sched.submit(spec(1, 10, 2)).ok());
  ASSERT_TRUE(sched.submit(spec(2, 12, 2)).ok());
  ASSERT_TRUE(sched.submit(spec(3, 4, 2, 50)).ok());
  EXPECT_THAT(step(sched), ElementsAre(Part{1, 0, 10}, Part{3, 0, 4})) << "others go past it";
  const auto second = step(sched);
  ASSERT_EQ(second.size(), 3u);
  EXPECT_GE(second.back().start, 8);
}

TEST(SchedulerStep, ShareThePromptAndCopyOnlyPartialBlocks) {
  Scheduler sched(limits(4));
  SequenceSpec s = spec(1, 6, 3);
  s.sampling.beam_width = 2;
  s.output.return_log_probs = true;
  ASSERT_TRUE(sched.submit(s).ok());
  StepPlan plan = sched.plan(Time{});
  EXPECT_THAT(parts(plan), ElementsAre(Part{1, 0, 6}));
  EXPECT_TRUE(sched.plan(Time{}).empty()) << "the host decides between the steps of a search";
  EXPECT_TRUE(commit_with_log_probs(sched, plan).empty());
  plan = sched.plan(Time{});
  EXPECT_THAT(parts(plan), ElementsAre(Part{1, 6, 1}, Part{1, 6, 1}));
  EXPECT_EQ(plan.copies.size(), 1u) << "one of two holders of the half filled block";
  const Sequence& sequence = *plan.rows[0].sequence;
  EXPECT_EQ(sequence.block_table(0)[0], sequence.block_table(1)[0]);
  EXPECT_NE(sequence.block_table(0)[1], sequence.block_table(1)[1]);
  EXPECT_EQ(sequence.tokens(0).back(), 1);
  EXPECT_EQ(sequence.tokens(1).back(), 2);
  EXPECT_NE(plan.rows[0].slot, plan.rows[1].slot);
  commit_with_log_probs(sched, plan);
  const auto update = commit_with_log_probs(sched, sched.plan(Time{}));
  ASSERT_EQ(update.size(), 1u);
  ASSERT_EQ(update[0].beams.size(), 2u);
  EXPECT_THAT(update[0].beams[0].tokens, ElementsAre(1, 1, 1));
  EXPECT_THAT(update[0].beams[0].log_probs, ElementsAre(-1, -1, -1));
  EXPECT_EQ(update[0].beams[1].cum_log_prob, -4);
  EXPECT_EQ(update[0].reason, FinishReason::kLength);
  EXPECT_TRUE(sched.idle());
  sched.check();
}

TEST(SchedulerStep, GivesBackWhatNobodySees) {
  Limits l = limits(4);
  l.groups[0].window = 8;
  l.groups[0].sink = 2;
  l.max_num_tokens = 8;
  l.groups[0].num_blocks = 7;  // 28 of 64 positions
  Scheduler sched(l);
  ASSERT_TRUE(sched.submit(spec(1, 32, 32)).ok());
  int steps = 0;
  while (!sched.idle() && ++steps < 100) step(sched);
  EXPECT_EQ(steps, 4 + 31);
  EXPECT_EQ(sched.stats().num_preemptions, 0);
  EXPECT_EQ(sched.stats().blocks_free, 7);
}

// Positions 4 to 10 are computed; one draft is accepted, the positions of the others are released.
TEST(SchedulerStep, DraftsThatDoNotHoldAreTakenBack) {
  Limits l = limits();
  l.max_logits = 16;
  Scheduler sched(l);
  ASSERT_TRUE(sched.submit(spec(1, 4, 20)).ok());
  step(sched);
  const int64_t free = sched.stats().blocks_free;
  sched.draft(1, std::vector<TokenId>{1, 2, 2, 2, 2, 2});
  StepPlan plan = sched.plan(Time{});
  EXPECT_THAT(parts(plan), ElementsAre(Part{1, 4, 7}));
  EXPECT_EQ(plan.rows[0].num_logits(), 7);
  EXPECT_EQ(plan.num_tokens, 7);
  EXPECT_TRUE(plan.rows[0].needs_host && sched.plan(Time{}).empty());
  EXPECT_EQ(sched.stats().blocks_free, free - 2);
  const SampledTokens drawn[] = {{.token = 1, .full_log_prob = -1},
                                 {.token = 3, .full_log_prob = -2}};
  const SequenceUpdate update = sched.commit(plan.rows[0], drawn);
  EXPECT_THAT(update.tokens, ElementsAre(1, 3));
  EXPECT_THAT(update.full_log_probs, ElementsAre(-1, -2));
  EXPECT_EQ(sched.stats().blocks_free, free - 1) << "of 8 positions";
  sched.check();
  EXPECT_THAT(step(sched), ElementsAre(Part{1, 6, 1})) << "the other drafts are forgotten";
}

// Accepted drafts are computed once; the remaining drafts follow them.
TEST(SchedulerStep, DraftsThatHoldSaveSteps) {
  Limits l = limits();
  l.max_logits = 3;  // raised to max_batch_size: a row for each slot
  Scheduler sched(l);
  ASSERT_TRUE(sched.submit(spec(1, 4, 8)).ok());
  step(sched);
  sched.draft(1, std::vector<TokenId>{1, 2, 3, 4, 5, 6, 7, 8, 9});
  StepPlan plan = sched.plan(Time{});
  EXPECT_THAT(parts(plan), ElementsAre(Part{1, 4, 4})) << "four rows of logits";
  std::vector<SampledTokens> drawn = {{.token = 1}, {.token = 2}, {.token = 3}, {.token = 4}};
  EXPECT_EQ(sched.commit(plan.rows[0], drawn).tokens.size(), 4u);
  plan = sched.plan(Time{});
  EXPECT_THAT(parts(plan), ElementsAre(Part{1, 8, 3})) << "three tokens to the limit";
  EXPECT_THAT(plan.rows[0].sequence->drafts().first(2), ElementsAre(5, 6));
  drawn = {{.token = 5}, {.token = 6}, {.token = 7}};
  const SequenceUpdate update = sched.commit(plan.rows[0], drawn);
  EXPECT_EQ(update.tokens.size(), 3u);
  EXPECT_EQ(update.reason, FinishReason::kLength);
  EXPECT_TRUE(sched.idle());
}

TEST(SchedulerStep, DraftsPauseNobody) {
  Limits l = limits();
  l.max_logits = 64;
  l.groups[0].num_blocks = 5;
  Scheduler sched(l);
  ASSERT_TRUE(sched.submit(spec(1, 4, 16)).ok());
  ASSERT_TRUE(sched.submit(spec(2, 4, 4, 50)).ok());
  step(sched);
  sched.draft(1, std::vector<TokenId>{7, 7, 7, 7, 7, 7});
  EXPECT_THAT(step(sched), ElementsAre(Part{1, 4, 4}, Part{2, 4, 1})) << "to the end of its block";
  EXPECT_EQ(sched.stats().num_preemptions, 0);
}

TEST(SchedulerStep, TellsOfEachRequest) {
  Limits l = limits(4);
  l.max_batch_size = 1;
  l.max_num_tokens = 8;
  Scheduler sched(l);
  ASSERT_TRUE(sched.submit(spec(1, 10, 3)).ok());
  ASSERT_TRUE(sched.submit(spec(2, 4, 3)).ok());
  const StepPlan plan = sched.plan(Time{});
  auto stats = sched.request_stats();
  ASSERT_EQ(stats.size(), 2u);
  EXPECT_EQ(stats[0].stage, RequestStage::kContextInProgress);
  EXPECT_EQ(stats[0].context_prefill_position, 8);
  EXPECT_TRUE(stats[0].scheduled);
  EXPECT_EQ(stats[0].alloc_total_blocks, 3);
  EXPECT_EQ(stats[1].stage, RequestStage::kQueued);
  commit_with_log_probs(sched, plan);
  step(sched);
  stats = sched.request_stats();
  EXPECT_EQ(stats[0].stage, RequestStage::kGenerationInProgress);
  EXPECT_EQ(stats[0].num_generated_tokens, 1);
  EXPECT_EQ(stats[0].missed_blocks, 2);
}

}  // namespace
}  // namespace nereid::sched
