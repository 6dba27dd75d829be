// Draft trees of heads, heads with several layers, MTP layers: equal to NumPy
// (tests/golden/tiny_heads.py), consistent parents.
#include <fstream>
#include <functional>
#include <map>
#include <set>

#include "runtime/speculation/eagle_head.h"
#include "runtime/speculation/heads_fixture.h"
#include "runtime/testing/edit_payload.h"

namespace nereid::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

ExecutorConfig tree_config(int32_t top_k, int32_t depth, const std::string& choices = "") {
  ExecutorConfig config = heads_config(kEagleFolder);
  config.eagle_tree_top_k = top_k;
  config.eagle_tree_depth = depth;
  config.eagle_choices = choices;
  return config;
}

ExecutorConfig eagle3_config() { return heads_config(kTop / "tests/heads/quickstart-eagle3"); }

ExecutorConfig mtp_config() {
  ExecutorConfig config = heads_config("");
  config.speculation = "mtp";
  return config;
}

struct ChainCase {
  Tokens prompt, known, chain;
};

std::vector<ChainCase> chain_cases(const std::string& file) {
  const json::value golden = read_json_file(kTop / "tests/golden" / file).value();
  std::vector<ChainCase> all;
  for (const json::value& one : golden.at("cases").as_array()) {
    ChainCase c{.prompt = tokens_of(one.at("prompt_ids")), .chain = tokens_of(one.at("chain"))};
    c.known = c.prompt;
    c.known.push_back(one.at("next_token").to_number<TokenId>());
    all.push_back(std::move(c));
  }
  return all;
}

Tokens some_prompt() {
  const json::value golden = read_json_file(kTop / "tests/golden/heads.json").value();
  return tokens_of(golden.at("cases").at(9).at("prompt_ids"));
}

class EagleTreeTest : public HeadsTest {
 protected:
  explicit EagleTreeTest(const ExecutorConfig& config = tree_config(3, 4)) : HeadsTest(config) {}

  DraftQuestion tree_of(const Tokens& known, RequestId id, int32_t most) {
    sched::Sequence sequence = sequence_of(known, id);
    DraftQuestion question{&sequence, most};
    model_.proposer->propose(std::span(&question, 1));
    return question;
  }
  Tokens known() {
    Tokens known = some_prompt();
    known.push_back(compute(known, 1).at(0));
    return known;
  }
  // The path of each draft.
  static std::vector<Tokens> paths_of(const DraftQuestion& tree) {
    std::vector<Tokens> paths;
    for (size_t i = 0; i < tree.drafts.size(); ++i) {
      Tokens path = tree.parents[i] < 0 ? Tokens() : paths[static_cast<size_t>(tree.parents[i])];
      path.push_back(tree.drafts[i]);
      paths.push_back(std::move(path));
    }
    return paths;
  }
};

TEST_F(EagleTreeTest, HasPathsOfSeveralDepths) {
  EXPECT_TRUE(model_.proposer->makes_trees());
  EXPECT_EQ(model_.proposer->usual_drafts(), 12);
  const Tokens text = known();
  const DraftQuestion tree = tree_of(text, 1, 12);
  ASSERT_THAT(tree.drafts, SizeIs(12));
  ASSERT_THAT(tree.parents, SizeIs(12));
  const std::vector<Tokens> paths = paths_of(tree);
  EXPECT_EQ(std::set(paths.begin(), paths.end()).size(), 12u) << "no path appears twice";
  // The first draft is the likeliest next token.
  EXPECT_THAT(paths[0], SizeIs(1));
  std::map<size_t, int> num_at_depth;
  for (const Tokens& path : paths) ++num_at_depth[path.size()];
  EXPECT_GT(num_at_depth.size(), 1u);
  EXPECT_LE(num_at_depth[1], 3);
}

// Fewer drafts are a prefix of more, however often they are requested.
TEST_F(EagleTreeTest, FewerDraftsAreTheLikeliestOfMore) {
  const Tokens text = known();
  const DraftQuestion all = tree_of(text, 1, 12);
  compute(some_prompt(), 2);
  const DraftQuestion some = tree_of(text, 2, 5);
  EXPECT_EQ(some.drafts, Tokens(all.drafts.begin(), all.drafts.begin() + 5));
  EXPECT_EQ(some.parents, std::vector<int32_t>(all.parents.begin(), all.parents.begin() + 5));
  compute(some_prompt(), 3);
  EXPECT_EQ(tree_of(text, 3, 12).drafts, all.drafts) << "again";
}

// States are in the order of a row's tokens, whichever drafts are accepted.
TEST_F(EagleTreeTest, GoesOnFromTheEndOfThePath) {
  Tokens text = known();
  EXPECT_THAT(tree_of(text, 1, 12).drafts, SizeIs(12));
  const TokenId second = compute(text, 2).at(0);
  Tokens tested = text;
  tested.insert(tested.end(), {second == 7 ? 8 : 7, second});
  const Tokens drawn =
      compute(tested, 1, static_cast<int32_t>(text.size()) - 1, 2, std::vector<int32_t>{-1, -1});
  ASSERT_THAT(drawn, ElementsAre(second, ::testing::_));
  text.push_back(second);
  compute(text, 3);
  text.push_back(drawn[1]);
  const DraftQuestion anew = tree_of(text, 3, 12), on = tree_of(text, 1, 12);
  EXPECT_THAT(anew.drafts, SizeIs(12));
  EXPECT_EQ(on.drafts, anew.drafts);
  EXPECT_EQ(on.parents, anew.parents);
}

// Several sequences share the rows of a step.
TEST_F(EagleTreeTest, IsTheSameBesideOthers) {
  const Tokens text = known();
  const DraftQuestion alone = tree_of(text, 1, 12);
  std::vector<sched::Sequence> sequences;
  for (RequestId id = 2; id < 5; ++id) {
    compute(some_prompt(), id);
    sequences.push_back(sequence_of(text, id));
  }
  std::vector<DraftQuestion> questions;
  for (sched::Sequence& sequence : sequences) questions.push_back({&sequence, 12});
  model_.proposer->propose(questions);
  for (const DraftQuestion& question : questions) {
    EXPECT_EQ(question.drafts, alone.drafts);
    EXPECT_EQ(question.parents, alone.parents);
  }
}

class EagleChoicesTest : public EagleTreeTest {
 protected:
  EagleChoicesTest() : EagleTreeTest(tree_config(0, 0, "{0}, {1}, {0, 0}, {1, 0}, {0, 0, 0}")) {}
};

// The chain of likeliest drafts, and a branch of the second likeliest, which equals the chain of
// the text with that token.
TEST_F(EagleChoicesTest, BranchesAreChains) {
  ModelInstance chains = open_model(kTop / "models/quickstart", heads_config(kEagleFolder)).value();
  const Tokens text = known();
  const DraftQuestion tree = tree_of(text, 1, 10);
  ASSERT_THAT(tree.parents, ElementsAre(-1, -1, 0, 1, 2));
  std::swap(model_, chains);
  compute(some_prompt(), 1);
  const Tokens chain = ask(text, 1, 3);
  EXPECT_THAT(chain, ElementsAre(tree.drafts[0], tree.drafts[2], tree.drafts[4]));
  EXPECT_NE(tree.drafts[1], tree.drafts[0]);
}

class Eagle3Test : public HeadsTest {
 protected:
  Eagle3Test() : HeadsTest(eagle3_config()) {}
};

TEST_F(Eagle3Test, GuessesWhatNumPyDoes) {
  EXPECT_EQ(model_.proposer->name(), "eagle");
  EXPECT_EQ(model_.runner->num_states(), 4);
  const std::vector<ChainCase> cases = chain_cases("eagle3.json");
  ASSERT_GE(cases.size(), 8u);
  RequestId id = 0;
  for (const ChainCase& c : cases) {
    compute(c.prompt, ++id);
    EXPECT_EQ(ask(c.known, id, 4), c.chain) << "case " << id;
  }
}

// Bans, biases and penalties use the target model's ids.
TEST_F(Eagle3Test, DrawsWithTheRequestsParameters) {
  const ChainCase c = chain_cases("eagle3.json").at(0);
  RequestId id = 0;
  const auto first_draft = [&](const std::function<void(sched::SequenceSpec&)>& set) {
    compute(c.prompt, ++id);
    sched::SequenceSpec spec{.id = id, .prompt = c.known, .max_new_tokens = 10};
    spec.sampling.temperature = 0;
    set(spec);
    sched::Sequence sequence(std::move(spec), 1 << 20, 16, 1);
    DraftQuestion question{&sequence, 1};
    model_.proposer->propose(std::span(&question, 1));
    EXPECT_THAT(question.drafts, SizeIs(1));
    return question.drafts.empty() ? -1 : question.drafts[0];
  };
  const TokenId unknown = 4;  // unknown to the head
  EXPECT_EQ(first_draft([](auto&) {}), c.chain[0]);
  EXPECT_NE(first_draft([&](auto& spec) { edit_payload(spec).bad_words = {{c.chain[0]}}; }),
            c.chain[0]);
  EXPECT_EQ(first_draft([&](auto& spec) {
              SequencePayload& payload = edit_payload(spec);
              payload.logit_bias = {{c.chain[1], 1000.0f}, {unknown, 2000.0f}};
              payload.bad_words = {{unknown}};
            }),
            c.chain[1]);
}

class MtpTest : public HeadsTest {
 protected:
  MtpTest() : HeadsTest(mtp_config(), kTop / "tests/heads/deepseek_v3-mtp") {}
};

TEST_F(MtpTest, GuessesWhatNumPyDoes) {
  EXPECT_EQ(model_.proposer->name(), "mtp");
  const std::vector<ChainCase> cases = chain_cases("mtp.json");
  ASSERT_GE(cases.size(), 2u);
  RequestId id = 0;
  for (const ChainCase& c : cases) {
    EXPECT_THAT(compute(c.prompt, ++id), ElementsAre(c.known.back()));
    EXPECT_EQ(ask(c.known, id, 4), c.chain) << "case " << id;
  }
}

// Several MTP layers are not supported: speculation mtp is refused, auto uses another proposer.
TEST(DraftTrees, SeveralMtpLayersAreNoProposer) {
  const auto dir = std::filesystem::path(testing::TempDir()) / "nereid_two_mtp_layers";
  std::filesystem::remove_all(dir);
  std::filesystem::copy(kTop / "tests/heads/deepseek_v3-mtp", dir);
  json::value config = read_json_file(dir / "config.json").value();
  config.as_object()["num_nextn_predict_layers"] = 2;
  std::ofstream(dir / "config.json") << json::serialize(config);
  ExecutorConfig wish = mtp_config();
  EXPECT_THAT(std::string(open_model(dir, wish).status().message()),
              HasSubstr("field 'num_nextn_predict_layers': 2 is not 1"));
  wish.speculation = "auto";
  const auto model = open_model(dir, wish);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->proposer->name(), "ngram");
}

// ngram_pool_size needs the ngram proposer.
TEST(DraftTrees, APoolNeedsNgrams) {
  ExecutorConfig config = eagle3_config();
  config.ngram_pool_size = 5;
  EXPECT_THAT(std::string(open_model(kTop / "models/quickstart", config).status().message()),
              HasSubstr("ngram_pool_size: 5 needs speculation ngram; here it is eagle"));
  config = heads_config("");
  config.speculation = "none";
  config.ngram_pool_size = 5;
  EXPECT_THAT(std::string(open_model(kTop / "models/quickstart", config).status().message()),
              HasSubstr("here it is none"));
}

TEST(DraftTrees, WhatDoesNotFitIsRefused) {
  const auto error = [](const ExecutorConfig& config,
                        const std::string& model = "models/quickstart") {
    return std::string(open_model(kTop / model, config).status().message());
  };
  ExecutorConfig config = eagle3_config();
  EXPECT_THAT(error(config, "tests/models/llama"), HasSubstr("is not an integer in [0, 1]"));
  EXPECT_THAT(error(mtp_config()), HasSubstr("field 'num_nextn_predict_layers': 0 is not 1"));
  config.speculation = "medusa";
  EXPECT_THAT(error(config), HasSubstr("allowed are eagle, auto and none"));
}

}  // namespace
}  // namespace nereid::runtime
