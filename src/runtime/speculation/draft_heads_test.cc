// Drafts of heads on hidden states equal PyTorch's (tests/golden/heads.json), independent of other
// questions and of how states arrived.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "runtime/speculation/eagle_head.h"
#include "runtime/speculation/heads_fixture.h"
#include "runtime/speculation/medusa_heads.h"
#include "runtime/testing/edit_payload.h"

namespace nereid::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct TopLogit {
  TokenId token = 0;
  double logit = 0;
};

struct HeadsCase {
  Tokens prompt;
  TokenId next = 0;
  Tokens medusa;                                  // argmax of each head
  std::vector<std::vector<TopLogit>> medusa_top;  // five likeliest tokens of each head
  Tokens eagle;                                   // chain

  Tokens known() const {
    Tokens all = prompt;
    all.push_back(next);
    return all;
  }
};

std::vector<HeadsCase> heads_cases() {
  const json::value golden = read_json_file(kTop / "tests/golden/heads.json").value();
  std::vector<HeadsCase> all;
  for (const json::value& one : golden.at("cases").as_array()) {
    HeadsCase c{.prompt = tokens_of(one.at("prompt_ids")),
                .next = one.at("next_token").to_number<TokenId>(),
                .eagle = tokens_of(one.at("eagle_chain"))};
    for (const json::value& top : one.at("medusa_top5_logits").as_array()) {
      auto& logits = c.medusa_top.emplace_back();
      for (const json::value& one_of_top : top.as_array())
        logits.push_back(
            {one_of_top.at(0).to_number<TokenId>(), one_of_top.at(1).to_number<double>()});
      c.medusa.push_back(logits.at(0).token);
    }
    all.push_back(std::move(c));
  }
  return all;
}

class GoldenHeadsTest : public HeadsTest {
 protected:
  explicit GoldenHeadsTest(const std::filesystem::path& folder, const std::string& choices = "")
      : HeadsTest(heads_config(folder, choices)) {}

  // All cases in one call with different draft counts, then each alone.
  void expect_golden(Tokens HeadsCase::*drafts) {
    const std::vector<HeadsCase> cases = heads_cases();
    ASSERT_THAT(cases, SizeIs(16));
    std::vector<sched::Sequence> sequences;
    for (size_t i = 0; i < cases.size(); ++i) {
      EXPECT_THAT(compute(cases[i].prompt, i + 1), ElementsAre(cases[i].next));
      sequences.push_back(sequence_of(cases[i].known(), i + 1));
    }
    std::vector<DraftQuestion> questions;
    for (size_t i = 0; i < cases.size(); ++i)
      questions.push_back({&sequences[i], 1 + static_cast<int32_t>(i % 5)});
    model_.proposer->propose(questions);
    for (size_t i = 0; i < cases.size(); ++i) {
      const Tokens& all = cases[i].*drafts;
      const Tokens expected(all.begin(), all.begin() + std::min(all.size(), i % 5 + 1));
      if (questions[i].drafts.size() > expected.size())
        questions[i].drafts.resize(expected.size());  // the file has four drafts of a chain
      EXPECT_EQ(questions[i].drafts, expected) << "case " << i;
      compute(cases[i].prompt, 100 + i);
      EXPECT_EQ(ask(cases[i].known(), 100 + i, static_cast<int32_t>(all.size())), all)
          << "case " << i << " alone";
    }
  }

  // Steps that test drafts, some rejected: the next drafts equal those of a fresh computation.
  void expect_same_as_anew() {
    Tokens text = heads_cases()[9].prompt;
    Tokens drawn = compute(text, 1);
    for (RequestId round = 2; round < 10; ++round) {
      text.insert(text.end(), drawn.begin(), drawn.end());
      Tokens drafts = ask(text, 1, 3);
      ASSERT_THAT(drafts, SizeIs(3));
      const Tokens computed(text.begin(), text.end() - 1);
      compute(computed, round);
      EXPECT_EQ(ask(text, round, 3), drafts) << "round " << round;
      if (round % 2 == 0) drafts[1] = 7;
      Tokens tested = text;
      tested.insert(tested.end(), drafts.begin(), drafts.end());
      drawn = compute(tested, 1, static_cast<int32_t>(text.size()) - 1, 3);
    }
  }
};

class MedusaHeadsTest : public GoldenHeadsTest {
 protected:
  MedusaHeadsTest() : GoldenHeadsTest(kMedusaFolder) {}
};

class MedusaTreeTest : public GoldenHeadsTest {
 protected:
  MedusaTreeTest() : GoldenHeadsTest(kMedusaFolder, "{0}, {1}, {0, 0}, {1, 2}, {2}, {0, 0, 1}") {}

  DraftQuestion tree_of(sched::Sequence& sequence, int32_t most) {
    DraftQuestion question{&sequence, most};
    model_.proposer->propose(std::span(&question, 1));
    return question;
  }
};

// Logits within 0.25 of each other may be swapped: magnitudes are below 32, where bf16 rounding
// changes a number by up to 0.0625; states and the head's inner layer are rounded on both sides.
TEST_F(MedusaTreeTest, HasTheLikeliestOfPyTorch) {
  ASSERT_TRUE(model_.proposer->makes_trees());
  EXPECT_EQ(model_.proposer->usual_drafts(), 6);
  for (const HeadsCase& c : heads_cases()) {
    compute(c.prompt, 1);
    sched::Sequence sequence = sequence_of(c.known(), 1);
    const DraftQuestion all = tree_of(sequence, 10);
    EXPECT_THAT(all.parents, ElementsAre(-1, -1, 0, 1, -1, 2));
    ASSERT_THAT(all.drafts, SizeIs(6));
    const std::pair<size_t, size_t> head_and_rank[] = {{0, 0}, {0, 1}, {1, 0},
                                                       {1, 2}, {0, 2}, {2, 1}};
    for (size_t i = 0; i < 6; ++i) {
      const auto& top = c.medusa_top[head_and_rank[i].first];
      const auto found = std::ranges::find(top, all.drafts[i], &TopLogit::token);
      ASSERT_NE(found, top.end()) << "node " << i;
      EXPECT_NEAR(found->logit, top[head_and_rank[i].second].logit, 0.25) << "node " << i;
    }
    const DraftQuestion some = tree_of(sequence, 3);
    EXPECT_EQ(some.drafts, Tokens(all.drafts.begin(), all.drafts.begin() + 3));
    EXPECT_THAT(some.parents, ElementsAre(-1, -1, 0));
  }
}

// The next drafts start from the state of the path's last draft.
TEST_F(MedusaTreeTest, GoesOnFromTheEndOfThePath) {
  const HeadsCase c = heads_cases()[9];
  Tokens known = c.known();
  compute(c.prompt, 1);
  const TokenId second = compute(known, 2).at(0);
  Tokens tested = known;
  tested.insert(tested.end(), {second == 7 ? 8 : 7, second});
  const Tokens drawn =
      compute(tested, 1, static_cast<int32_t>(known.size()) - 1, 2, std::vector<int32_t>{-1, -1});
  ASSERT_THAT(drawn, ElementsAre(second, ::testing::_));
  known.push_back(second);
  compute(known, 3);
  known.push_back(drawn[1]);
  EXPECT_THAT(ask(known, 1, 6), SizeIs(6));
  EXPECT_EQ(ask(known, 1, 6), ask(known, 3, 6));
}

TEST_F(MedusaHeadsTest, DraftWhatPyTorchDoes) { expect_golden(&HeadsCase::medusa); }

TEST_F(MedusaHeadsTest, GoOnFromTheStateOfTheLastTokenDrawn) { expect_same_as_anew(); }

TEST_F(MedusaHeadsTest, DraftNothingBehindAnotherTokenThanTheLastDrawn) {
  const HeadsCase c = heads_cases()[0];
  compute(c.prompt, 1);
  Tokens longer = c.known();
  longer.push_back(c.next);
  EXPECT_THAT(ask(longer, 1, 3), IsEmpty());
  EXPECT_THAT(ask(c.known(), 2, 3), IsEmpty()) << "nothing is known of it";
  EXPECT_THAT(ask(c.known(), 1, 3), SizeIs(3));
  model_.proposer->forget(1);
  EXPECT_THAT(ask(c.known(), 1, 3), IsEmpty()) << "it has ended";
}

// With penalties, later heads ignore the drafts of earlier heads.
TEST_F(MedusaHeadsTest, DrawWithTheRequestsParameters) {
  const HeadsCase c = heads_cases()[0];
  compute(c.prompt, 1);
  sched::SequenceSpec spec{.id = 1, .prompt = c.known(), .max_new_tokens = 10};
  spec.sampling.repetition_penalty = 1.1f;
  edit_payload(spec).bad_words = {{c.medusa[1]}};
  sched::Sequence sequence(std::move(spec), 1 << 20, 16, 1);
  DraftQuestion question{&sequence, 3};
  model_.proposer->propose(std::span(&question, 1));
  EXPECT_THAT(question.drafts, ElementsAre(c.medusa[0], ::testing::Ne(c.medusa[1]), c.medusa[2]));
}

class EagleHeadTest : public GoldenHeadsTest {
 protected:
  EagleHeadTest() : GoldenHeadsTest(kEagleFolder) {}
};

TEST_F(EagleHeadTest, GuessesWhatPyTorchDoes) { expect_golden(&HeadsCase::eagle); }

TEST_F(EagleHeadTest, WaitsForTheRestOfAPrompt) {
  const HeadsCase c = heads_cases()[15];
  const Tokens part(c.prompt.begin(), c.prompt.begin() + 7);
  compute(part, 1);
  sched::Sequence sequence = sequence_of(c.prompt, 1);
  DraftQuestion question{&sequence, 3};
  model_.proposer->propose(std::span(&question, 1));
  EXPECT_TRUE(question.is_behind);
  EXPECT_THAT(question.drafts, IsEmpty());
  compute(c.prompt, 1, 7);
  EXPECT_EQ(ask(c.known(), 1, 4), c.eagle);
}

// A prompt in chunks: states are computed before the next chunk arrives, with the same result.
TEST_F(EagleHeadTest, FollowsAPrompt) {
  const auto& head = static_cast<const EagleHead&>(*model_.proposer);
  const HeadsCase c = heads_cases()[15];
  const sched::Sequence sequence = sequence_of(c.prompt, 1);
  const sched::Sequence* const running[] = {&sequence};
  const auto size = static_cast<int32_t>(c.prompt.size());
  constexpr int32_t kChunk = 7;
  for (int32_t end = kChunk; end < size; end += kChunk) {
    compute(Tokens(c.prompt.begin(), c.prompt.begin() + end), 1, end - kChunk);
    EXPECT_EQ(head.num_waiting(), static_cast<size_t>(kChunk));
    model_.proposer->follow(running);
    EXPECT_EQ(head.num_waiting(), 0u);
  }
  compute(c.prompt, 1, size / kChunk * kChunk);
  EXPECT_EQ(ask(c.known(), 1, 4), c.eagle);
  EXPECT_EQ(head.num_waiting(), 0u);
  compute(c.prompt, 2);
  model_.proposer->forget(2);
  EXPECT_EQ(head.num_waiting(), 0u);
}

TEST_F(EagleHeadTest, WhatWaitsIsInTheTableOfMemory) {
  size_t bytes = 0;
  for (const exec::MemoryItem& item : model_.proposer->memory())
    if (item.what == "eagle head: host states of the model") bytes = item.bytes;
  EXPECT_EQ(bytes,
            4u * static_cast<size_t>(model_.runner->limits().max_tokens) * 256 * sizeof(BF16));
}

TEST_F(EagleHeadTest, GoesOnFromTheModelsOwnStates) { expect_same_as_anew(); }

// States of a cached prefix never arrive; the head's own prefix cache replaces them.
TEST_F(EagleHeadTest, TakesWhatAnotherTextHasLeft) {
  HeadsCase c = heads_cases()[15];
  Tokens prompt;
  for (int i = 0; i < 4; ++i) prompt.insert(prompt.end(), c.prompt.begin(), c.prompt.end());
  ASSERT_GT(prompt.size(), 70u);
  Tokens known = prompt;
  known.push_back(compute(prompt, 1).at(0));
  const Tokens drafts = ask(known, 1, 4);
  ASSERT_THAT(drafts, SizeIs(4));
  compute(prompt, 2, 64);
  EXPECT_EQ(ask(known, 2, 4), drafts);
  compute(prompt, 3, 70);
  EXPECT_THAT(ask(known, 3, 4), SizeIs(4)) << "without some positions";
}

// Ids banned for the first two tokens are sampled from the third on.
TEST_F(EagleHeadTest, DrawsForThePositionsOfTheText) {
  constexpr TokenId kEnd = 5;
  const HeadsCase c = heads_cases()[2];
  compute(c.prompt, 1);
  sched::SequenceSpec spec{.id = 1, .prompt = c.known(), .max_new_tokens = 10, .end_ids = {kEnd}};
  spec.sampling.min_tokens = 2;
  spec.sampling.repetition_penalty = 1.01f;
  edit_payload(spec).logit_bias = {{kEnd, 100.0f}};
  sched::Sequence sequence(std::move(spec), 1 << 20, 16, 1);
  DraftQuestion question{&sequence, 4};
  model_.proposer->propose(std::span(&question, 1));
  EXPECT_THAT(question.drafts, ElementsAre(c.eagle[0], c.eagle[1], kEnd, kEnd));
}

struct Refusal {
  json::object fields;
  std::string speculation;
  const char* expected;
};

// Refusals of a folder with other config.json fields.
void expect_refusals(const std::filesystem::path& folder, const std::vector<Refusal>& refusals) {
  ExecutorConfig config = heads_config(folder);
  config.draft_model = config.cache_dir / folder.filename();
  std::filesystem::create_directories(config.draft_model);
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    std::filesystem::copy_file(entry.path(), config.draft_model / entry.path().filename(),
                               std::filesystem::copy_options::overwrite_existing);
  for (const Refusal& refusal : refusals) {
    json::object object = read_json_file(folder / "config.json").value().as_object();
    for (const auto& [key, value] : refusal.fields) object[key] = value;
    std::ofstream(config.draft_model / "config.json") << json::serialize(object);
    config.speculation = refusal.speculation;
    const auto model = open_model(kTop / "models/quickstart", config);
    EXPECT_THAT(std::string(model.status().message()), HasSubstr(refusal.expected));
  }
}

TEST(DraftHeads, ChoicesThatDoNotFitAreRefused) {
  const auto error = [](const std::filesystem::path& folder, const std::string& choices) {
    const auto model = open_model(kTop / "models/quickstart", heads_config(folder, choices));
    return std::string(model.status().message());
  };
  EXPECT_THAT(error(kMedusaFolder, "{0}, {0, 0}, {0, 0, 0}, {0, 0, 0, 0}"),
              HasSubstr("medusa_choices: a node is 4 deep"));
  EXPECT_THAT(error(kMedusaFolder, "{1, 0}"),
              HasSubstr("medusa_choices: {1, 0} has no parent {1}"));
  EXPECT_THAT(error(kEagleFolder, "{0}"), HasSubstr("is not a folder of Medusa heads"));
}

TEST(DraftHeads, WhatDoesNotFitIsRefused) {
  expect_refusals(
      kMedusaFolder,
      {{{{"hidden_size", 128}}, "", "field 'hidden_size': 128 is not supported, only 256 is"},
       {{{"vocab_size", 4000}}, "", "only 4096 is"},
       {{{"medusa_num_heads", 0}}, "", "is not an integer in [1, 32]"},
       {{{"medusa_num_heads", 2}}, "", "is of head 2; config.json's medusa_num_heads is 2"},
       {{{"medusa_num_heads", 4}}, "", "3.0.linear.weight"},
       {{{"medusa_num_layers", 2}}, "", "0.1.linear.weight"},
       {{}, "draft_model", "allowed are medusa, auto and none"}});
  expect_refusals(
      kEagleFolder,
      {{{{"hidden_size", 128}}, "", "field 'hidden_size': 128 is not supported, only 256 is"},
       {{{"vocab_size", 4000}}, "", "only 4096 is"},
       {{{"num_hidden_layers", 2}}, "", "only 1 is"},
       {{{"bias", false}}, "", "eagle.fc.bias"},
       {{{"intermediate_size", 512}}, "", "mlp"},
       {{}, "medusa", "allowed are eagle, auto and none"}});
  expect_refusals(kTop / "models/quickstart-draft",
                  {{{}, "eagle", "allowed are draft_model, auto and none"}});
}

}  // namespace
}  // namespace nereid::runtime
