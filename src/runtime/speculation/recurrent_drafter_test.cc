// Drafts of a ReDrafter head equal NumPy's beams (tests/golden/tiny_heads.py).
#include <algorithm>
#include <fstream>

#include "runtime/speculation/heads_fixture.h"
#include "runtime/testing/edit_payload.h"

namespace nereid::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const std::filesystem::path kRedrafterFolder = kTop / "tests/heads/quickstart-redrafter";
constexpr size_t kNumBeams = 3, kBeamLength = 4;

// Room for every candidate of the search.
ExecutorConfig beams_config() {
  ExecutorConfig config = heads_config(kRedrafterFolder);
  config.max_draft_len = 32;
  return config;
}

struct BeamsCase {
  Tokens prompt, known;
  std::vector<Tokens> beams;  // likeliest first
};

std::vector<BeamsCase> beams_cases() {
  const json::value golden = read_json_file(kTop / "tests/golden/redrafter.json").value();
  std::vector<BeamsCase> all;
  for (const json::value& one : golden.at("cases").as_array()) {
    BeamsCase c{.prompt = tokens_of(one.at("prompt_ids"))};
    for (const json::value& beam : one.at("beams").as_array()) c.beams.push_back(tokens_of(beam));
    c.known = c.prompt;
    c.known.push_back(one.at("next_token").to_number<TokenId>());
    all.push_back(std::move(c));
  }
  return all;
}

class RecurrentDrafterTest : public HeadsTest {
 protected:
  RecurrentDrafterTest() : HeadsTest(beams_config()) {}

  static constexpr int32_t kAll = 32;

  // The longest paths of a tree, in its order (by probability).
  static std::vector<Tokens> beams_of(const DraftQuestion& tree) {
    std::vector<Tokens> paths, longest;
    for (size_t i = 0; i < tree.drafts.size(); ++i) {
      Tokens path = tree.parents[i] < 0 ? Tokens() : paths[static_cast<size_t>(tree.parents[i])];
      path.push_back(tree.drafts[i]);
      if (path.size() == kBeamLength && longest.size() < kNumBeams) longest.push_back(path);
      paths.push_back(std::move(path));
    }
    return longest;
  }
  DraftQuestion tree_of(const Tokens& known, RequestId id, int32_t most = kAll) {
    sched::Sequence sequence = sequence_of(known, id);
    DraftQuestion question{&sequence, most};
    model_.proposer->propose(std::span(&question, 1));
    return question;
  }
};

TEST_F(RecurrentDrafterTest, SearchesAsNumPyDoes) {
  EXPECT_EQ(model_.proposer->name(), "redrafter");
  EXPECT_TRUE(model_.proposer->makes_trees());
  const std::vector<BeamsCase> cases = beams_cases();
  ASSERT_GE(cases.size(), 8u);
  std::vector<sched::Sequence> sequences;
  RequestId id = 0;
  for (const BeamsCase& c : cases) {
    EXPECT_THAT(compute(c.prompt, ++id), ElementsAre(c.known.back()));
    EXPECT_EQ(beams_of(tree_of(c.known, id)), c.beams) << "case " << id;
    sequences.push_back(sequence_of(c.known, id));
  }
  std::vector<DraftQuestion> questions;
  for (sched::Sequence& sequence : sequences) questions.push_back({&sequence, kAll});
  model_.proposer->propose(questions);
  for (size_t i = 0; i < cases.size(); ++i)
    EXPECT_EQ(beams_of(questions[i]), cases[i].beams) << "case " << i << " beside the others";
}

TEST_F(RecurrentDrafterTest, FewerDraftsAreTheLikeliestOfMore) {
  const BeamsCase c = beams_cases().at(0);
  compute(c.prompt, 1);
  const DraftQuestion all = tree_of(c.known, 1), some = tree_of(c.known, 1, 1);
  EXPECT_THAT(some.drafts, ElementsAre(all.drafts.at(0)));
  EXPECT_THAT(some.parents, ElementsAre(-1));
}

// The state of the accepted path's last draft is used.
TEST_F(RecurrentDrafterTest, GoesOnFromTheEndOfThePath) {
  const BeamsCase c = beams_cases().at(1);
  Tokens known = c.known;
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
  const DraftQuestion on = tree_of(known, 1), anew = tree_of(known, 3);
  EXPECT_THAT(on.drafts, SizeIs(::testing::Gt(kBeamLength)));
  EXPECT_EQ(on.drafts, anew.drafts);
  EXPECT_EQ(on.parents, anew.parents);
}

TEST_F(RecurrentDrafterTest, GuessesNothingBehindAnotherTokenThanTheLastDrawn) {
  const BeamsCase c = beams_cases().at(0);
  compute(c.prompt, 1);
  Tokens longer = c.known;
  longer.push_back(c.known.back());
  EXPECT_THAT(tree_of(longer, 1).drafts, IsEmpty());
  EXPECT_THAT(tree_of(c.known, 2).drafts, IsEmpty()) << "nothing is known of it";
  model_.proposer->forget(1);
  EXPECT_THAT(tree_of(c.known, 1).drafts, IsEmpty()) << "it has ended";
}

// Ids banned for the first two tokens are sampled from the third on.
TEST_F(RecurrentDrafterTest, DrawsForThePositionsOfTheText) {
  constexpr TokenId kEnd = 5;
  const BeamsCase c = beams_cases().at(0);
  compute(c.prompt, 1);
  sched::SequenceSpec spec{.id = 1, .prompt = c.known, .max_new_tokens = 10, .end_ids = {kEnd}};
  spec.sampling.min_tokens = 2;
  spec.sampling.temperature = 0;
  edit_payload(spec).logit_bias = {{kEnd, 100.0f}};
  sched::Sequence sequence(std::move(spec), 1 << 20, 16, 1);
  DraftQuestion question{&sequence, kAll};
  model_.proposer->propose(std::span(&question, 1));
  Tokens first;  // likeliest token of each depth
  int32_t last = -1;
  for (size_t i = 0; i < question.drafts.size(); ++i)
    if (question.parents[i] == last && first.size() < kBeamLength) {
      first.push_back(question.drafts[i]);
      last = static_cast<int32_t>(i);
    }
  EXPECT_THAT(first, ElementsAre(c.beams[0][0], c.beams[0][1], kEnd, kEnd));
}

// Folders with other fields or tensor names.
TEST(Redrafter, WhatDoesNotFitIsRefused) {
  ExecutorConfig config = heads_config(kRedrafterFolder);
  config.draft_model = config.cache_dir / "redrafter";
  std::filesystem::create_directories(config.draft_model);
  std::filesystem::copy_file(kRedrafterFolder / "model.safetensors",
                             config.draft_model / "model.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  const auto error = [&](const json::object& fields) {
    json::object object = read_json_file(kRedrafterFolder / "config.json").value().as_object();
    for (const auto& [key, value] : fields) object[key] = value;
    std::ofstream(config.draft_model / "config.json") << json::serialize(object);
    return std::string(open_model(kTop / "models/quickstart", config).status().message());
  };
  EXPECT_EQ(error({}), "");
  EXPECT_THAT(error({{"hidden_size", 128}}), HasSubstr("'hidden_size': 128 is not supported"));
  EXPECT_THAT(error({{"vocab_size", 4000}}), HasSubstr("only 4096 is"));
  EXPECT_THAT(error({{"rnn", false}}), HasSubstr("field 'rnn': false is not supported"));
  EXPECT_THAT(error({{"exit_dim", 0}}), HasSubstr("is not an integer in [1, "));
  EXPECT_THAT(error({{"exit_dim", 128}}), HasSubstr("input_proj"));
  EXPECT_THAT(error({{"num_draft_layers", 2}}), HasSubstr("lm_head"));
  EXPECT_THAT(error({{"redrafter_num_beams", 33}}), HasSubstr("is not an integer in [1, 32]"));
  config.speculation = "eagle";
  EXPECT_THAT(error({}), HasSubstr("allowed are redrafter, auto and none"));
}

}  // namespace
}  // namespace nereid::runtime
