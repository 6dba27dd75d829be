// Lookahead decoding without an engine; the model's next token is a function of the last one.
#include "runtime/speculation/lookahead.h"
#include "runtime/testing/edit_payload.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

namespace nereid::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Tokens = std::vector<TokenId>;

constexpr int32_t kPredictableVocab = 97;

TokenId next(TokenId token) { return (token * 5 + 3) % kPredictableVocab; }

sched::Sequence sequence_of(Tokens tokens, std::optional<LookaheadConfig> config = {}) {
  sched::SequenceSpec spec{.id = 1, .prompt = std::move(tokens), .max_new_tokens = 10};
  edit_payload(spec).lookahead = config;
  return {std::move(spec), 1 << 20, 16, 1};
}

DraftQuestion ask(Lookahead& proposer, const sched::Sequence& sequence, int32_t most = 64) {
  DraftQuestion question{.sequence = &sequence, .most = most};
  proposer.propose(std::span(&question, 1));
  return question;
}

void expect_a_tree(const DraftQuestion& question) {
  ASSERT_EQ(question.parents.size(), question.drafts.size());
  std::set<std::pair<int32_t, TokenId>> all;
  for (size_t i = 0; i < question.drafts.size(); ++i) {
    EXPECT_GE(question.parents[i], -1);
    EXPECT_LT(question.parents[i], static_cast<int32_t>(i));
    EXPECT_TRUE(all.emplace(question.parents[i], question.drafts[i]).second) << "twice, " << i;
  }
}

// The model's step with the first `count` drafts; returns its tokens.
Tokens step(Lookahead& proposer, sched::Sequence& sequence, const DraftQuestion& question,
            size_t count) {
  const auto known = sequence.tokens();
  const auto num_drafts = static_cast<int32_t>(count);
  std::vector<int32_t> likeliest = {next(known.back())}, path;
  for (size_t i = 0; i < count; ++i) likeliest.push_back(next(question.drafts[i]));
  std::vector<kernels::SampleResult> drawn = {{.token = likeliest[0]}};
  for (int32_t i = 0, node = -1; i < num_drafts; ++i) {
    if (question.parents[static_cast<size_t>(i)] != node ||
        question.drafts[static_cast<size_t>(i)] != drawn.back().token)
      continue;
    path.push_back(node = i);
    drawn.push_back({.token = likeliest[static_cast<size_t>(i) + 1]});
  }
  const sched::ScheduledRow row{.sequence = &sequence,
                                .start = static_cast<int32_t>(known.size()) - 1,
                                .num_tokens = 1 + num_drafts,
                                .samples = true,
                                .num_drafts = num_drafts};
  proposer.completed(row, {.drawn = drawn, .path = path, .likeliest = likeliest});
  Tokens tokens;
  for (const kernels::SampleResult& one : drawn) tokens.push_back(one.token);
  return tokens;
}

// Number of tokens from num_steps steps.
size_t tokens_of(const LookaheadConfig& config, int num_steps) {
  Lookahead proposer(config, kPredictableVocab);
  Tokens text = {1, 50, 7, 20};
  const size_t num_prompt = text.size();
  for (int i = 0; i < num_steps; ++i) {
    sched::Sequence sequence = sequence_of(text);
    const DraftQuestion question = ask(proposer, sequence);
    expect_a_tree(question);
    EXPECT_LE(question.drafts.size(), static_cast<size_t>(num_drafts(config)));
    for (const TokenId token : step(proposer, sequence, question, question.drafts.size())) {
      EXPECT_EQ(token, next(text.back()));
      text.push_back(token);
    }
  }
  return text.size() - num_prompt;
}

TEST(Lookahead, FindsWhatComesNext) {
  EXPECT_EQ(num_drafts({4, 3, 4}), 15);
  EXPECT_EQ(num_drafts({1, 1, 0}), 0);
  EXPECT_EQ(tokens_of({1, 1, 0}, 30), 30u);
  EXPECT_EQ(tokens_of({1, 2, 0}, 30), 30u) << "neither a window nor n-grams";
  EXPECT_EQ(tokens_of({1, 3, 4}, 30), 30u) << "n-grams of the text, which repeats nothing";
  EXPECT_EQ(tokens_of({4, 3, 0}, 30), 30u) << "nothing is tested but the window";
  EXPECT_GT(tokens_of({4, 3, 4}, 30), 30u);
  EXPECT_GT(tokens_of({8, 5, 4}, 30), 40u);
}

TEST(Lookahead, NgramsOfTheTextComeFirst) {
  Lookahead proposer({2, 3, 2}, kPredictableVocab);
  sched::Sequence sequence = sequence_of({1, 2, 3, 1, 4, 5, 1, 6, 7, 1});
  const DraftQuestion question = ask(proposer, sequence);
  ASSERT_GE(question.drafts.size(), 4u);
  EXPECT_THAT(std::span(question.drafts).first(4), ElementsAre(6, 7, 4, 5)) << "the newest two";
  EXPECT_THAT(std::span(question.parents).first(4), ElementsAre(-1, 0, -1, 2));
}

// The window and the n-grams propose the same tokens.
TEST(Lookahead, NoDraftIsTwiceInItsPlace) {
  Lookahead proposer({4, 3, 4}, kPredictableVocab);
  sched::Sequence sequence = sequence_of({5, 5, 5, 5});
  const DraftQuestion question = ask(proposer, sequence);
  expect_a_tree(question);
  EXPECT_THAT(question.drafts, ElementsAre(5, 5, 5)) << "a row of the window";
}

TEST(Lookahead, RequestsMayHaveLess) {
  Lookahead proposer({8, 5, 4}, kPredictableVocab);
  EXPECT_EQ(proposer.usual_drafts(), num_drafts({8, 5, 4}));
  for (int i = 0; i < 20; ++i) {
    sched::Sequence sequence = sequence_of({1, 2, 1, 3, 1}, LookaheadConfig{2, 2, 1});
    const DraftQuestion question = ask(proposer, sequence);
    EXPECT_LE(question.drafts.size(), 2u);
    step(proposer, sequence, question, question.drafts.size());
  }
  proposer.forget(1);
  EXPECT_THAT(ask(proposer, sequence_of({1, 2, 1}, LookaheadConfig{1, 1, 0})).drafts, IsEmpty());
}

// The window stays if a step had too little room, or had other tokens.
TEST(Lookahead, AWindowThatWasNotComputedStays) {
  Lookahead proposer({4, 3, 0}, kPredictableVocab);
  sched::Sequence sequence = sequence_of({1, 50, 7, 20});
  const DraftQuestion first = ask(proposer, sequence);
  ASSERT_EQ(first.drafts.size(), 3u) << "a row";
  step(proposer, sequence, first, 2);
  EXPECT_EQ(ask(proposer, sequence).drafts, first.drafts);
  step(proposer, sequence, ask(proposer, sequence, 2), 2);
  EXPECT_EQ(ask(proposer, sequence).drafts, first.drafts);
  sched::Sequence other = sequence_of({1, 50, 7, 20, 6});
  step(proposer, other, ask(proposer, sequence), 3);
  EXPECT_EQ(ask(proposer, sequence).drafts, first.drafts);
  step(proposer, sequence, ask(proposer, sequence), 3);
  EXPECT_GT(ask(proposer, sequence).drafts.size(), 3u) << "another row";
}

// Ids of prompt table rows are not drafted.
TEST(Lookahead, KnowsTheVocabulary) {
  Lookahead proposer({4, 3, 4}, kPredictableVocab);
  sched::Sequence sequence =
      sequence_of({kPredictableVocab, kPredictableVocab + 1, 5, kPredictableVocab, 3, 5});
  for (const TokenId token : ask(proposer, sequence).drafts) EXPECT_LT(token, kPredictableVocab);
}

}  // namespace
}  // namespace nereid::runtime
