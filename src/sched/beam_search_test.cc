// Beam search: each rule with numbers worked out by hand. Log-probabilities are multiples of 1/8,
// so that sums are exact.
#include "sched/beam_search.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

namespace nereid::sched {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Candidates = std::vector<std::vector<TokenLogProb>>;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr TokenId kEnd = 2;
const std::vector<TokenId> kEnds = {kEnd};

BeamRules rules(int width) {
  return {.width = width, .num_prompt = 2, .limit = 100, .early_stopping = 0, .end_ids = kEnds};
}

// Live beams after the prompt {50, 51}: (output, cumulative log-probability).
BeamState after(std::vector<std::pair<std::vector<TokenId>, float>> outputs) {
  BeamState state;
  for (auto& [output, cum] : outputs) {
    LiveBeam& beam = state.live.emplace_back();
    beam.tokens = {50, 51};
    beam.tokens.insert(beam.tokens.end(), output.begin(), output.end());
    beam.log_probs.assign(output.size(), cum / static_cast<float>(output.size()));
    beam.cum_log_prob = cum;
  }
  return state;
}

std::vector<std::vector<TokenId>> texts(const std::vector<Hypothesis>& hypotheses) {
  std::vector<std::vector<TokenId>> all;
  for (const Hypothesis& h : hypotheses) all.push_back(h.tokens);
  return all;
}

TEST(BeamSearch, FirstStepOpensDistinctBeams) {
  BeamState state = after({{{}, 0.0f}});
  advance(rules(2), Candidates{{{7, -0.5f}, {8, -1.0f}, {9, -2.0f}, {3, -3.0f}}}, state);
  ASSERT_THAT(state.live, SizeIs(2));
  EXPECT_THAT(state.live[0].tokens, ElementsAre(50, 51, 7));
  EXPECT_THAT(state.live[1].tokens, ElementsAre(50, 51, 8));
  EXPECT_THAT(state.live[1].log_probs, ElementsAre(-1.0f));
  EXPECT_EQ(state.live[1].cum_log_prob, -1.0f);
  EXPECT_EQ(state.live[1].parent, 0);
  EXPECT_FALSE(state.done);
}

TEST(BeamSearch, BestOfAllBeamsGoOn) {
  BeamState state = after({{{10}, -1.0f}, {{11}, -1.5f}, {{12}, -4.0f}});
  // Sums: -3, -4 | -1.75, -2 | -4.125, -5. Both children of the second beam and one of the first.
  advance(
      rules(3),
      Candidates{{{3, -2.0f}, {4, -3.0f}}, {{5, -0.25f}, {6, -0.5f}}, {{7, -0.125f}, {8, -1.0f}}},
      state);
  ASSERT_THAT(state.live, SizeIs(3));
  EXPECT_THAT(state.live[0].tokens, ElementsAre(50, 51, 11, 5));
  EXPECT_THAT(state.live[1].tokens, ElementsAre(50, 51, 11, 6));
  EXPECT_THAT(state.live[2].tokens, ElementsAre(50, 51, 10, 3));
  EXPECT_EQ(state.live[0].parent, 1);
  EXPECT_EQ(state.live[1].parent, 1);
  EXPECT_EQ(state.live[2].parent, 0);
  EXPECT_EQ(state.live[2].cum_log_prob, -3.0f);
  EXPECT_THAT(state.live[1].log_probs, ElementsAre(-1.5f, -0.5f));
}

TEST(BeamSearch, OfEqualCandidatesTheEarlierBeamGoesFirst) {
  BeamState state = after({{{10}, -1.0f}, {{11}, -1.0f}});
  advance(rules(2), Candidates{{{3, -0.5f}, {4, -0.5f}}, {{5, -0.5f}, {6, -0.5f}}}, state);
  EXPECT_THAT(state.live[0].tokens, ElementsAre(50, 51, 10, 3));
  EXPECT_THAT(state.live[1].tokens, ElementsAre(50, 51, 10, 4));
}

TEST(BeamSearch, AnEndIdMovesABeamToThePoolWithoutIt) {
  BeamState state = after({{{10}, -1.0f}, {{11}, -2.0f}});
  advance(rules(2), Candidates{{{kEnd, -0.5f}, {4, -1.0f}}, {{5, -0.5f}, {6, -3.0f}}}, state);
  ASSERT_THAT(state.finished, SizeIs(1));
  const Hypothesis& h = state.finished[0];
  EXPECT_THAT(h.tokens, ElementsAre(10));
  EXPECT_THAT(h.log_probs, ElementsAre(-1.0f));
  EXPECT_EQ(h.cum_log_prob, -1.5f) << "the end id's own log-probability counts";
  EXPECT_EQ(h.score, -1.5f);
  EXPECT_EQ(h.reason, FinishReason::kEndId);
  ASSERT_THAT(state.live, SizeIs(2)) << "the rest of the ranking fills the beams";
  EXPECT_THAT(state.live[0].tokens, ElementsAre(50, 51, 10, 4));
  EXPECT_THAT(state.live[1].tokens, ElementsAre(50, 51, 11, 5));
}

TEST(BeamSearch, AnEndIdBelowTheFirstWidthRanksIsIgnored) {
  BeamState state = after({{{10}, -1.0f}, {{11}, -2.0f}});
  advance(rules(2), Candidates{{{3, -0.5f}, {4, -0.625f}, {kEnd, -0.75f}}, {{5, -8.0f}}}, state);
  EXPECT_THAT(state.finished, IsEmpty());
  EXPECT_THAT(state.live, SizeIs(2));
}

TEST(BeamSearch, RanksCountEndsOfOtherBeamsToo) {
  BeamState state = after({{{10}, -1.0f}, {{11}, -1.0f}});
  advance(rules(2), Candidates{{{kEnd, -0.25f}, {4, -2.0f}}, {{kEnd, -0.5f}, {6, -3.0f}}}, state);
  EXPECT_THAT(texts(state.finished), ElementsAre(ElementsAre(10), ElementsAre(11)));
}

TEST(BeamSearch, LengthPenaltyDividesByThePowerOfTheLength) {
  BeamRules r = rules(1);
  r.early_stopping = 1;
  for (const auto& [penalty, score] : {std::pair{0.0f, -6.0f}, {1.0f, -1.5f}, {2.0f, -0.375f}}) {
    r.length_penalty = penalty;
    BeamState state = after({{{10, 11, 12}, -4.0f}});
    advance(r, Candidates{{{kEnd, -2.0f}, {4, -3.0f}}}, state);
    ASSERT_THAT(state.finished, SizeIs(1));
    EXPECT_EQ(state.finished[0].score, score) << "3 tokens and the end id are 4";
    EXPECT_EQ(state.finished[0].cum_log_prob, -6.0f) << "never normalised";
  }
}

Hypothesis done(TokenId token, float score) {
  return {.tokens = {token}, .cum_log_prob = score, .score = score, .reason = FinishReason::kEndId};
}

TEST(BeamSearch, AFullPoolKeepsTheBest) {
  BeamState state = after({{{10}, -1.0f}, {{11}, -2.0f}});
  state.finished = {done(90, -1.25f), done(91, -4.0f)};
  BeamRules r = rules(2);
  advance(r, Candidates{{{kEnd, -0.5f}, {4, -1.0f}}, {{5, -1.0f}, {6, -1.5f}}}, state);
  EXPECT_THAT(texts(state.finished), ElementsAre(ElementsAre(90), ElementsAre(10)));
  BeamState worse = after({{{10}, -5.0f}, {{11}, -2.0f}});
  worse.finished = {done(90, -1.25f), done(91, -4.0f)};
  advance(r, Candidates{{{kEnd, -0.5f}, {4, -1.0f}}, {{5, -1.0f}, {6, -4.0f}}}, worse);
  EXPECT_THAT(texts(worse.finished), ElementsAre(ElementsAre(90), ElementsAre(91)));
}

TEST(BeamSearch, EarlyStoppingEndsWithAFullPool) {
  BeamRules r = rules(2);
  r.early_stopping = 1;
  BeamState state = after({{{10}, -1.0f}, {{11}, -2.0f}});
  state.finished = {done(90, -9.0f)};
  advance(r, Candidates{{{kEnd, -0.5f}, {4, -0.625f}}, {{5, -0.5f}, {6, -3.0f}}}, state);
  EXPECT_TRUE(state.done);
  EXPECT_THAT(state.live, IsEmpty());
  EXPECT_THAT(texts(best_hypotheses(r, state, 2)), ElementsAre(ElementsAre(10), ElementsAre(90)));
}

// The best live candidate has the sum -2 at length 2: score -1 with penalty 1; at the longest
// length, 4, it would be -0.5.
TEST(BeamSearch, WithoutEarlyStoppingItEndsWhenNoBeamCanDoBetter) {
  const auto run = [](int early_stopping, float worst) {
    BeamRules r = rules(1);
    r.limit = 6;
    r.length_penalty = 1;
    r.early_stopping = early_stopping;
    BeamState state = after({{{10}, -1.0f}});
    state.finished = {done(90, worst)};
    advance(r, Candidates{{{3, -1.0f}, {4, -5.0f}}}, state);
    return state.done;
  };
  EXPECT_TRUE(run(0, -1.0f));
  EXPECT_FALSE(run(0, -1.125f));
  EXPECT_TRUE(run(2, -0.5f));
  EXPECT_FALSE(run(2, -0.625f)) << "it could still come at the longest length";
  EXPECT_TRUE(run(1, -99.0f));
}

TEST(BeamSearch, WithoutPenaltyNeverMeansThePresentSum) {
  BeamRules r = rules(1);
  r.early_stopping = 2;
  BeamState state = after({{{10}, -1.0f}});
  state.finished = {done(90, -2.0f)};
  advance(r, Candidates{{{3, -1.0f}, {4, -5.0f}}}, state);
  EXPECT_TRUE(state.done) << "sums only fall";
}

TEST(BeamSearch, DiversitySteersTheRankingButIsNotPartOfTheSum) {
  BeamRules r = rules(2);
  r.diversity_rate = 1;
  BeamState state = after({{{10}, -1.0f}, {{11}, -1.5f}});
  // Ranks: -2, -2.25 | -1.5 + ... : -1.5 - 1 + 1 = -1.5, -1.5 - 1.25 + 1 = -1.75.
  advance(r, Candidates{{{3, -1.0f}, {4, -1.25f}}, {{5, -1.0f}, {6, -1.25f}}}, state);
  EXPECT_THAT(state.live[0].tokens, ElementsAre(50, 51, 11, 5));
  EXPECT_THAT(state.live[1].tokens, ElementsAre(50, 51, 11, 6));
  EXPECT_EQ(state.live[0].cum_log_prob, -2.5f);
  BeamState ends = after({{{10}, -1.0f}, {{11}, -1.5f}});
  advance(r, Candidates{{{3, -1.0f}, {4, -1.25f}}, {{kEnd, -1.0f}, {6, -1.25f}}}, ends);
  ASSERT_THAT(ends.finished, SizeIs(1));
  EXPECT_EQ(ends.finished[0].score, -1.5f);
  EXPECT_EQ(ends.finished[0].cum_log_prob, -2.5f);
}

TEST(BeamSearch, AStopWordEndsABeamAndIsKept) {
  BeamRules r = rules(2);
  const std::vector<std::vector<TokenId>> words = {{10, 3}, {51, 11, 5}, {99, 4}};
  r.stop_words = words;
  BeamState state = after({{{10}, -1.0f}, {{11}, -1.0f}});
  advance(r, Candidates{{{3, -0.5f}, {4, -1.0f}}, {{5, -0.75f}, {6, -2.0f}}}, state);
  EXPECT_THAT(texts(state.finished), ElementsAre(ElementsAre(10, 3), ElementsAre(11, 5)));
  EXPECT_THAT(state.finished[0].log_probs, ElementsAre(-1.0f, -0.5f));
  EXPECT_EQ(state.finished[0].reason, FinishReason::kStopWords);
  ASSERT_THAT(state.live, SizeIs(2));
  EXPECT_THAT(state.live[0].tokens, ElementsAre(50, 51, 10, 4)) << "99 did not come before the 4";
}

TEST(BeamSearch, StopWordsWaitForMinTokens) {
  BeamRules r = rules(1);
  const std::vector<std::vector<TokenId>> words = {{3}};
  r.stop_words = words;
  r.min_tokens = 3;
  BeamState state = after({{{10}, -1.0f}});
  advance(r, Candidates{{{3, -0.5f}, {4, -1.0f}}}, state);
  EXPECT_THAT(state.finished, IsEmpty());
  advance(r, Candidates{{{3, -0.5f}, {4, -1.0f}}}, state);
  ASSERT_THAT(state.finished, SizeIs(1));
  EXPECT_THAT(state.finished[0].tokens, ElementsAre(10, 3, 3));
}

TEST(BeamSearch, AtTheLimitLiveBeamsJoinThePool) {
  BeamRules r = rules(2);
  r.limit = 4;
  r.length_penalty = 1;
  BeamState state = after({{{10}, -1.0f}, {{11}, -2.0f}});
  state.finished = {done(90, -1.5f)};
  // -1.5 and -2.5 over 2 tokens; the pool holds two.
  advance(r, Candidates{{{3, -0.5f}, {4, -9.0f}}, {{5, -0.5f}, {6, -9.0f}}}, state);
  EXPECT_TRUE(state.done);
  EXPECT_THAT(state.live, IsEmpty());
  EXPECT_THAT(texts(state.finished), ElementsAre(ElementsAre(10, 3), ElementsAre(11, 5)));
  EXPECT_EQ(state.finished[0].score, -0.75f);
  EXPECT_EQ(state.finished[0].reason, FinishReason::kLength);
  EXPECT_THAT(best_hypotheses(r, state, 1), SizeIs(1));
}

TEST(BeamSearch, BannedTokensAreNoCandidates) {
  BeamState state = after({{{10}, -1.0f}, {{11}, -2.0f}});
  advance(rules(2), Candidates{{{3, -0.5f}, {4, -kInf}}, {{5, -kInf}, {6, -kInf}}}, state);
  ASSERT_THAT(state.live, SizeIs(1));
  EXPECT_THAT(state.live[0].tokens, ElementsAre(50, 51, 10, 3));
  advance(rules(2), Candidates{{{3, -kInf}}}, state);
  EXPECT_TRUE(state.done);
  EXPECT_THAT(texts(state.finished), ElementsAre(ElementsAre(10, 3)));
}

TEST(BeamSearch, StreamingShowsLiveBeamsAmongFinishedOnes) {
  BeamRules r = rules(2);
  r.length_penalty = 1;
  BeamState state = after({{{10, 12}, -2.0f}, {{11, 13}, -5.0f}});
  state.finished = {done(90, -1.5f)};
  const auto best = best_hypotheses(r, state, 2);
  EXPECT_THAT(texts(best), ElementsAre(ElementsAre(10, 12), ElementsAre(90)));
  EXPECT_EQ(best[0].reason, FinishReason::kNotFinished);
  EXPECT_EQ(best[0].score, -1.0f);
  EXPECT_EQ(best[1].reason, FinishReason::kEndId);
  EXPECT_FALSE(state.done);
}

TEST(BeamSearch, WidthOneIsGreedy) {
  BeamState state = after({{{}, 0.0f}});
  BeamRules r = rules(1);
  r.early_stopping = 1;
  for (TokenId t : {5, 6}) advance(r, Candidates{{{t, -0.25f}, {9, -4.0f}}}, state);
  advance(r, Candidates{{{kEnd, -0.25f}, {9, -4.0f}}}, state);
  EXPECT_TRUE(state.done);
  EXPECT_THAT(texts(state.finished), ElementsAre(ElementsAre(5, 6)));
  EXPECT_EQ(state.finished[0].cum_log_prob, -0.75f);
}

}  // namespace
}  // namespace nereid::sched
