// Where drafts come from, and for how many is asked.
#include "runtime/speculation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "runtime/ngram_proposer.h"

namespace nereid::runtime {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

sched::Sequence sequence_of(std::vector<TokenId> tokens, RequestId id = 1) {
  sched::SequenceSpec spec{.id = id, .prompt = std::move(tokens), .max_new_tokens = 10};
  return {std::move(spec), 1 << 20, 16, 1};
}

std::vector<TokenId> guesses(NgramProposer& proposer, const sched::Sequence& sequence,
                             int32_t most) {
  DraftQuestion question{.sequence = &sequence, .most = most};
  proposer.propose(std::span(&question, 1));
  return question.drafts;
}

std::vector<TokenId> guesses(std::vector<TokenId> tokens, int32_t most) {
  NgramProposer proposer;
  return guesses(proposer, sequence_of(std::move(tokens)), most);
}

TEST(NgramProposer, GuessesWhatCameAfterTheLastTokensLast) {
  EXPECT_THAT(guesses({1, 2, 3, 4, 5, 6, 9, 1, 2, 3}, 2), ElementsAre(4, 5));
  EXPECT_THAT(guesses({1, 2, 3, 4, 1, 2, 3, 5, 6, 1, 2, 3}, 2), ElementsAre(5, 6));
  EXPECT_THAT(guesses({1, 2, 3, 4, 2, 3}, 2), IsEmpty()) << "two tokens are too few";
  EXPECT_THAT(guesses({1, 2, 3}, 2), IsEmpty());
  EXPECT_THAT(guesses({1}, 2), IsEmpty());
}

TEST(NgramProposer, RepeatsWhatRepeats) {
  EXPECT_THAT(guesses({5, 1, 2, 1, 2, 1, 2}, 5), ElementsAre(1, 2, 1, 2, 1));
  EXPECT_THAT(guesses({7, 7, 7, 7}, 3), ElementsAre(7, 7, 7));
}

TEST(NgramProposer, KnowsEachSequenceByItself) {
  NgramProposer proposer;
  const std::vector<TokenId> text = {1, 2, 3, 4, 5, 1, 2, 3};
  EXPECT_THAT(guesses(proposer, sequence_of(text, 1), 1), ElementsAre(4));
  EXPECT_THAT(guesses(proposer, sequence_of({9, 1, 2, 3}, 2), 1), IsEmpty());
  proposer.forget(1);
  EXPECT_THAT(guesses(proposer, sequence_of(text, 1), 1), ElementsAre(4));
}

// What a long prompt's end holds is found some calls later.
TEST(NgramProposer, ALongPromptIsIndexedStepByStep) {
  NgramProposer proposer;
  std::vector<TokenId> tokens(20000);
  std::iota(tokens.begin(), tokens.end(), 0);
  for (const TokenId id : {15000, 15001, 15002}) tokens.push_back(id);
  const sched::Sequence sequence = sequence_of(tokens);
  EXPECT_THAT(guesses(proposer, sequence, 1), IsEmpty());
  for (int i = 0; i < 5; ++i) guesses(proposer, sequence, 1);
  EXPECT_THAT(guesses(proposer, sequence, 1), ElementsAre(15003));
}

// Notes how many it is asked for, and guesses as many.
class CountingProposer : public Proposer {
 public:
  void propose(std::span<DraftQuestion> questions) override {
    for (DraftQuestion& question : questions) {
      asked.push_back(question.most);
      question.drafts.assign(static_cast<size_t>(question.most), 7);
    }
  }
  std::vector<int32_t> asked;
};

sched::Limits limits(int32_t batch) {
  return {.max_batch_size = batch,
          .max_num_tokens = 512,
          .max_queue_size = 64,
          .max_sequence_length = 1024,
          .groups = {{.num_blocks = 1000}},
          .tokens_per_block = 16,
          .max_logits = 512};
}

class SpeculationTest : public ::testing::Test {
 protected:
  void submit(int count) {
    for (int i = 1; i <= count; ++i)
      ASSERT_TRUE(sched_
                      .submit(sched::SequenceSpec{
                          .id = static_cast<RequestId>(i), .prompt = {i}, .max_new_tokens = 900})
                      .ok());
  }

  // One step, in which so many drafts of each row hold; the most that were asked for.
  int32_t step(Speculation& speculation, int32_t num_holding) {
    proposer_.asked.clear();
    speculation.offer(sched_);
    const sched::StepPlan plan = sched_.plan(Time());
    for (const sched::Row& row : plan.rows) {
      const int32_t num_drawn = 1 + std::min(row.num_drafts, num_holding);
      std::vector<sched::Drawn> drawn(static_cast<size_t>(num_drawn), {.token = 7});
      drawn.back().token = num_holding > 0 ? 7 : 8;
      speculation.landed(row, drawn.size());
      sched_.commit(row, drawn);
    }
    return proposer_.asked.empty() ? 0 : proposer_.asked.back();
  }

  CountingProposer proposer_;
  sched::Scheduler sched_{limits(16)};
};

TEST_F(SpeculationTest, WithoutAdaptingAsksForAllAlways) {
  submit(12);
  Speculation speculation(&proposer_, {.max_drafts = 5});
  step(speculation, 0);  // nobody runs before it
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(step(speculation, 0), 5);
    EXPECT_EQ(proposer_.asked.size(), 12u);
  }
  EXPECT_GT(sched_.stats().num_drafts, 0);
  EXPECT_EQ(sched_.stats().num_accepted_drafts, 0);
}

TEST_F(SpeculationTest, AsksForMoreWhileDraftsHold) {
  submit(1);
  Speculation speculation(&proposer_, {.max_drafts = 6, .adapts = true, .cheap_tokens = 64});
  step(speculation, 9);
  EXPECT_EQ(step(speculation, 9), 2) << "even chances";
  int32_t last = 2;
  for (int i = 0; i < 12; ++i) last = step(speculation, 9);
  EXPECT_EQ(last, 6);
}

TEST_F(SpeculationTest, FallsSilentWhileDraftsDoNotHoldAndTriesAgain) {
  submit(1);
  Speculation speculation(&proposer_, {.adapts = true, .cheap_tokens = 64});
  int num_asked = 0, num_silent = 0;
  for (int i = 0; i < 200; ++i) ++(step(speculation, 0) > 0 ? num_asked : num_silent);
  EXPECT_GT(num_asked, 3);
  EXPECT_GT(num_silent, 180);
}

TEST_F(SpeculationTest, ALargeBatchHasFewOrNone) {
  submit(8);
  Speculation few(&proposer_, {.adapts = true, .cheap_tokens = 16});
  step(few, 9);
  EXPECT_EQ(step(few, 9), 1);
  Speculation none(&proposer_, {.adapts = true, .cheap_tokens = 15});
  EXPECT_EQ(step(none, 9), 0);
}

TEST_F(SpeculationTest, WithoutAProposerNothingIsGuessed) {
  submit(2);
  Speculation speculation(nullptr, {});
  for (int i = 0; i < 3; ++i) step(speculation, 0);
  EXPECT_EQ(sched_.stats().num_drafts, 0);
}

}  // namespace
}  // namespace nereid::runtime
