// Drafts from repeated text: of the sequence itself, and of the pool.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/rng.h"
#include "runtime/speculation/ngram_proposer.h"

namespace nereid::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Text = std::vector<TokenId>;

sched::Sequence ngram_sequence(Text tokens, RequestId id = 1, std::string root = "") {
  sched::SequenceSpec spec{
      .id = id, .prompt = std::move(tokens), .max_new_tokens = 10, .cache_salt = std::move(root)};
  return {std::move(spec), 1 << 20, 16, 1};
}

Text guesses_of(NgramProposer& proposer, const sched::Sequence& sequence, int32_t most) {
  DraftQuestion question{.sequence = &sequence, .most = most};
  proposer.propose(std::span(&question, 1));
  return question.drafts;
}

Text guesses_of(Text tokens, int32_t most) {
  NgramProposer proposer;
  return guesses_of(proposer, ngram_sequence(std::move(tokens)), most);
}

// A step has sampled `drawn`, the only output so far.
void land(NgramProposer& proposer, Text prompt, const Text& drawn, RequestId id = 1,
          std::string root = "") {
  sched::Sequence sequence = ngram_sequence(std::move(prompt), id, std::move(root));
  std::vector<kernels::SampleResult> results;
  for (const TokenId token : drawn) results.push_back({.token = token});
  const sched::ScheduledRow row{.sequence = &sequence,
                                .start = static_cast<int32_t>(sequence.tokens().size()) - 1,
                                .num_tokens = static_cast<int32_t>(drawn.size()),
                                .samples = true,
                                .num_drafts = static_cast<int32_t>(drawn.size()) - 1};
  proposer.completed(row, {.drawn = results});
  proposer.forget(id);
}

TEST(NgramProposer, GuessesWhatCameAfterTheLastTokensLast) {
  EXPECT_THAT(guesses_of({1, 2, 3, 4, 5, 6, 9, 1, 2, 3}, 2), ElementsAre(4, 5));
  EXPECT_THAT(guesses_of({1, 2, 3, 4, 1, 2, 3, 5, 6, 1, 2, 3}, 2), ElementsAre(5, 6));
  EXPECT_THAT(guesses_of({1, 2, 3, 4, 2, 3}, 2), IsEmpty()) << "two tokens are too few";
  EXPECT_THAT(guesses_of({1, 2, 3}, 2), IsEmpty());
  EXPECT_THAT(guesses_of({1}, 2), IsEmpty());
}

TEST(NgramProposer, RepeatsWhatRepeats) {
  EXPECT_THAT(guesses_of({5, 1, 2, 1, 2, 1, 2}, 5), ElementsAre(1, 2, 1, 2, 1));
  EXPECT_THAT(guesses_of({7, 7, 7, 7}, 3), ElementsAre(7, 7, 7));
}

TEST(NgramProposer, KnowsEachSequenceByItself) {
  NgramProposer proposer;
  const Text text = {1, 2, 3, 4, 5, 1, 2, 3};
  EXPECT_THAT(guesses_of(proposer, ngram_sequence(text, 1), 1), ElementsAre(4));
  EXPECT_THAT(guesses_of(proposer, ngram_sequence({9, 1, 2, 3}, 2), 1), IsEmpty());
  proposer.forget(1);
  EXPECT_THAT(guesses_of(proposer, ngram_sequence(text, 1), 1), ElementsAre(4));
}

// A long prompt is indexed over several calls.
TEST(NgramProposer, ALongPromptIsIndexedStepByStep) {
  NgramProposer proposer;
  Text tokens(20000);
  std::iota(tokens.begin(), tokens.end(), 0);
  for (const TokenId id : {15000, 15001, 15002}) tokens.push_back(id);
  const sched::Sequence sequence = ngram_sequence(tokens);
  EXPECT_THAT(guesses_of(proposer, sequence, 1), IsEmpty());
  for (int i = 0; i < 5; ++i) guesses_of(proposer, sequence, 1);
  EXPECT_THAT(guesses_of(proposer, sequence, 1), ElementsAre(15003));
}

// To the last token, which no step has read.
TEST(NgramPool, DraftsFromTextOfOtherSequences) {
  NgramProposer proposer(64);
  land(proposer, {1, 2, 3, 4, 5}, {6, 7});
  EXPECT_THAT(guesses_of(proposer, ngram_sequence({8, 1, 2, 3, 4}, 2), 9), ElementsAre(5, 6, 7));
  EXPECT_THAT(guesses_of(proposer, ngram_sequence({8, 1, 2, 3, 4}, 2), 2), ElementsAre(5, 6));
  EXPECT_THAT(guesses_of(proposer, ngram_sequence({8, 9, 2, 3, 4}, 2), 9), IsEmpty());
  EXPECT_THAT(guesses_of(proposer, ngram_sequence({2, 3, 4}, 2), 9), IsEmpty());
  land(proposer, {1, 2, 3, 4}, {50});
  EXPECT_THAT(guesses_of(proposer, ngram_sequence({8, 1, 2, 3, 4}, 2), 9), ElementsAre(50))
      << "the last";
}

TEST(NgramPool, TheSequencesOwnTextGoesFirst) {
  NgramProposer proposer(64);
  land(proposer, {1, 2, 3, 4}, {5, 6});
  EXPECT_THAT(guesses_of(proposer, ngram_sequence({2, 3, 4, 9, 1, 2, 3, 4}), 2), ElementsAre(9, 1));
}

TEST(NgramPool, TenantsAndAdaptersShareNothing) {
  NgramProposer proposer(64);
  land(proposer, {1, 2, 3, 4}, {5}, 1, "sone");
  land(proposer, {1, 2, 3, 4}, {6}, 1, "stwo");
  EXPECT_THAT(guesses_of(proposer, ngram_sequence({1, 2, 3, 4}, 2, "sone"), 1), ElementsAre(5));
  EXPECT_THAT(guesses_of(proposer, ngram_sequence({1, 2, 3, 4}, 2, "stwo"), 1), ElementsAre(6));
  EXPECT_THAT(guesses_of(proposer, ngram_sequence({1, 2, 3, 4}, 2), 1), IsEmpty());
}

// A failed position ends the learned text.
TEST(NgramPool, LearnsNoTokensThatAreNone) {
  NgramProposer proposer(64);
  land(proposer, {1, 2, 3, 4}, {-1});
  EXPECT_THAT(guesses_of(proposer, ngram_sequence({1, 2, 3, 4}, 2), 1), IsEmpty());
}

// One text is used repeatedly, others once: it stays, with as many others as fit.
TEST(NgramPool, IsBoundedAndKeepsWhatIsUsed) {
  constexpr int kSize = 256;
  NgramPool pool(kSize);
  const auto run_of = [](uint64_t i) {
    Text run;
    for (uint64_t k = 0; k < NgramPool::kRun; ++k)
      run.push_back(static_cast<TokenId>(philox(3, i, k)[0] >> 1));
    return run;
  };
  for (uint64_t i = 1; i < 20 * kSize; ++i) {
    pool.learn(0, run_of(0), 11);
    pool.learn(0, run_of(i), 12);
  }
  EXPECT_EQ(pool.find(0, run_of(0)), 11);
  int num_found = 0, num_new = 0;
  for (uint64_t i = 1; i < 20 * kSize; ++i) {
    const bool is_found = pool.find(0, run_of(i)).has_value();
    num_found += is_found;
    num_new += is_found && i >= 17 * kSize;
  }
  EXPECT_EQ(num_found, kSize - 1);
  EXPECT_GT(num_new, kSize * 9 / 10);
}

}  // namespace
}  // namespace nereid::runtime
