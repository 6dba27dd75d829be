// What Medusa heads guess: the same as PyTorch (tests/golden/heads.json), whoever else asks.
#include "runtime/medusa_heads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "base/json.h"
#include "runtime/model_instance.h"
#include "runtime/sample_params.h"

namespace nereid::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::filesystem::path kTop = NEREID_SOURCE_DIR;
const std::filesystem::path kHeads = kTop / "models/quickstart-medusa";

ExecutorConfig medusa_config() {
  ExecutorConfig config{.num_threads = 1, .memory_bytes = 128 << 20};
  config.draft_model = kHeads;
  config.cache_dir = std::filesystem::path(::testing::TempDir()) / "medusa_heads";
  return config;
}

struct MedusaCase {
  std::vector<TokenId> prompt;
  TokenId next = 0;
  std::vector<TokenId> guesses;  // the likeliest of each head
};

std::vector<MedusaCase> medusa_cases() {
  const json::value golden = read_json_file(kTop / "tests/golden/heads.json").value();
  std::vector<MedusaCase> all;
  for (const json::value& one : golden.at("cases").as_array()) {
    MedusaCase c{.next = one.at("next_token").to_number<TokenId>()};
    for (const json::value& id : one.at("prompt_ids").as_array())
      c.prompt.push_back(id.to_number<TokenId>());
    for (const json::value& top : one.at("medusa_top5_logits").as_array())
      c.guesses.push_back(top.at(0).at(0).to_number<TokenId>());
    all.push_back(std::move(c));
  }
  return all;
}

class MedusaHeadsTest : public ::testing::Test {
 protected:
  MedusaHeadsTest() : model_(open_model(kTop / "models/quickstart", medusa_config()).value()) {}

  MedusaHeads& heads() { return dynamic_cast<MedusaHeads&>(*model_.proposer); }

  // Computes the prompt, which draws the case's next token.
  void compute(const MedusaCase& c, RequestId id) {
    sched::SequenceSpec spec{.id = id, .prompt = c.prompt, .max_new_tokens = 10};
    spec.sampling.temperature = 0;
    sched::Sequence sequence(std::move(spec), 1 << 20, 16, 1);
    const sched::Row row{.sequence = &sequence,
                         .num_tokens = static_cast<int32_t>(c.prompt.size()),
                         .samples = true};
    exec::Step step;
    add_draft_params(sequence, 0, model_.runner->vocab_size(), 0, step);
    std::vector<int32_t> blocks(16);
    std::iota(blocks.begin(), blocks.end(), 0);
    exec::PerGroup<std::span<const int32_t>> tables;
    tables[0] = blocks;
    step.add({.num_logits = 1, .samples = 1, .num_hidden = 1}, c.prompt, tables, 1,
             model_.runner->limits().block_tokens);
    std::vector<std::byte> message;
    exec::encode(step, message);
    exec::Ticket ticket = model_.runner->launch(message).value();
    const exec::StepResult results = model_.runner->wait(ticket).value();
    ASSERT_EQ(results[0].drawn[0].token, c.next);
    heads().landed(row, results[0]);
  }

  static sched::Sequence sequence_after(const MedusaCase& c, RequestId id) {
    sched::SequenceSpec spec{.id = id, .prompt = c.prompt, .max_new_tokens = 10};
    spec.prompt.push_back(c.next);
    return {std::move(spec), 1 << 20, 16, 1};
  }

  ModelInstance model_;
};

TEST_F(MedusaHeadsTest, GuessWhatPyTorchDoes) {
  const std::vector<MedusaCase> cases = medusa_cases();
  ASSERT_EQ(cases.size(), 16u);
  std::vector<sched::Sequence> sequences;
  for (size_t i = 0; i < cases.size(); ++i) {
    compute(cases[i], i + 1);
    sequences.push_back(sequence_after(cases[i], i + 1));
  }
  std::vector<DraftQuestion> questions;
  for (size_t i = 0; i < cases.size(); ++i)
    questions.push_back({&sequences[i], 1 + static_cast<int32_t>(i % 4)});
  heads().propose(questions);
  for (size_t i = 0; i < cases.size(); ++i) {
    std::vector<TokenId> expected = cases[i].guesses;
    expected.resize(std::min(expected.size(), i % 4 + 1));
    EXPECT_EQ(questions[i].drafts, expected) << "case " << i;
    DraftQuestion alone{&sequences[i], 3};
    heads().propose(std::span(&alone, 1));
    EXPECT_EQ(alone.drafts, cases[i].guesses) << "case " << i << " alone";
  }
}

TEST_F(MedusaHeadsTest, GuessNothingBehindAnotherTokenThanTheLastDrawn) {
  const MedusaCase c = medusa_cases()[0];
  compute(c, 1);
  MedusaCase longer = c;
  longer.prompt.push_back(c.next);
  sched::Sequence other = sequence_after(longer, 1), unknown = sequence_after(c, 2);
  DraftQuestion questions[] = {{&other, 3}, {&unknown, 3}};
  heads().propose(questions);
  EXPECT_THAT(questions[0].drafts, IsEmpty());
  EXPECT_THAT(questions[1].drafts, IsEmpty());
  sched::Sequence right = sequence_after(c, 1);
  heads().forget(1);
  DraftQuestion question{&right, 3};
  heads().propose(std::span(&question, 1));
  EXPECT_THAT(question.drafts, IsEmpty()) << "it has ended";
}

// With penalties, heads behind the first have not seen what the others guess.
TEST_F(MedusaHeadsTest, DrawWithTheRequestsParameters) {
  const MedusaCase c = medusa_cases()[0];
  compute(c, 1);
  sched::SequenceSpec spec{.id = 1, .prompt = c.prompt, .max_new_tokens = 10};
  spec.prompt.push_back(c.next);
  spec.sampling.repetition_penalty = 1.1f;
  spec.bad_words = {{c.guesses[1]}};
  sched::Sequence sequence(std::move(spec), 1 << 20, 16, 1);
  DraftQuestion question{&sequence, 3};
  heads().propose(std::span(&question, 1));
  EXPECT_THAT(question.drafts,
              ElementsAre(c.guesses[0], ::testing::Ne(c.guesses[1]), c.guesses[2]));
}

TEST(MedusaConfig, WhatDoesNotFitIsRefused) {
  const std::filesystem::path dir = medusa_config().cache_dir / "heads";
  std::filesystem::create_directories(dir);
  const auto refusal = [&](const json::object& fields, const ExecutorConfig& given) {
    json::object object = read_json_file(kHeads / "config.json").value().as_object();
    for (const auto& [key, value] : fields) object[key] = value;
    std::ofstream(dir / "config.json") << json::serialize(object);
    std::filesystem::copy_file(kHeads / "medusa_lm_head.safetensors",
                               dir / "medusa_lm_head.safetensors",
                               std::filesystem::copy_options::skip_existing);
    ExecutorConfig config = given;
    if (config.draft_model == kHeads) config.draft_model = dir;
    const auto model = open_model(kTop / "models/quickstart", config);
    return std::string(model.status().message());
  };
  const ExecutorConfig config = medusa_config();
  EXPECT_THAT(refusal({{"hidden_size", 128}}, config),
              HasSubstr("field 'hidden_size': 128 is not supported, only 256 is"));
  EXPECT_THAT(refusal({{"vocab_size", 4000}}, config), HasSubstr("only 4096 is"));
  EXPECT_THAT(refusal({{"medusa_num_heads", 0}}, config),
              HasSubstr("is not an integer in [1, 32]"));
  EXPECT_THAT(refusal({{"medusa_num_heads", 2}}, config),
              HasSubstr("is of head 2; config.json's medusa_num_heads is 2"));
  EXPECT_THAT(refusal({{"medusa_num_heads", 4}}, config), HasSubstr("3.0.linear.weight"));
  EXPECT_THAT(refusal({{"medusa_num_layers", 2}}, config), HasSubstr("0.1.linear.weight"));
  ExecutorConfig other = config;
  other.speculation = "draft_model";
  EXPECT_THAT(refusal({}, other), HasSubstr("allowed are medusa, auto and none"));
  other = config;
  other.speculation = "medusa";
  other.draft_model = kTop / "models/quickstart-draft";
  EXPECT_THAT(refusal({}, other), HasSubstr("allowed are draft_model, auto and none"));
}

}  // namespace
}  // namespace nereid::runtime
