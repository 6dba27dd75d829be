// Grammar-constrained decoding on the shipped model: complete texts are in the grammar's language.
#include <gmock/gmock.h>

#include <cmath>
#include <map>

#include "base/json.h"
#include "base/testing/source_dir.h"
#include "nereid/executor.h"
#include "runtime/grammars/grammars.h"
#include "runtime/grammars/made_guide.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::runtime {
namespace {

using ::testing::HasSubstr;

class GuidesTest : public ::testing::Test {
 protected:
  static inline const std::string kModel = source_dir() + "/models/quickstart";

  static std::unique_ptr<Executor> open(const std::string& speculation = "none",
                                        bool jumps_ahead = true) {
    ExecutorConfig config;
    config.num_threads = 2;
    config.max_batch_size = 8;
    config.speculation = speculation;
    config.enable_jump_ahead = jumps_ahead;
    config.cache_dir = std::filesystem::path(testing::TempDir()) / "nereid_guides_test";
    return Executor::create(kModel, config).value();
  }

  Request request(const GuidedDecoding& guided, uint64_t seed, float temperature = 1.5f) const {
    Request r;
    r.input_token_ids = tokenizer_->encode("The answer is").value();
    r.max_tokens = 120;
    r.end_ids = executor_->default_end_ids();
    r.sampling.top_p = 1.0f;
    r.sampling.temperature = temperature;
    r.sampling.seed = seed;
    r.guided_decoding = guided;
    return r;
  }

  // The tokens of each sequence that ended by itself.
  std::vector<std::vector<TokenId>> run(Executor& executor, std::vector<Request> requests) {
    std::vector<std::vector<TokenId>> ended;
    const auto ids = executor.enqueue_requests(std::move(requests));
    EXPECT_TRUE(ids.ok()) << ids.status();
    std::map<std::pair<RequestId, int32_t>, std::vector<TokenId>> texts;
    size_t num_open = ids.ok() ? ids->size() : 0;
    while (num_open > 0)
      for (const Response& response : executor.await_responses(std::chrono::seconds(30))) {
        EXPECT_TRUE(response.status.ok()) << response.status;
        num_open -= response.is_final;
        auto& text = texts[{response.request_id, response.sequence_index}];
        if (response.outputs.empty()) continue;
        const SequenceOutput& output = response.outputs[0];
        text.insert(text.end(), output.token_ids.begin(), output.token_ids.end());
        if (output.finish_reason == FinishReason::kEndId) ended.push_back(text);
      }
    return ended;
  }

  std::shared_ptr<text::Grammar> grammar(const GuidedDecoding& guided) {
    return made_guide(grammars_, request(guided, 1)).value()->grammar;
  }

  // Whether all are complete texts of the grammar.
  void expect_whole(const GuidedDecoding& guided, const std::vector<std::vector<TokenId>>& texts) {
    for (const auto& ids : texts) {
      text::Matcher matcher(grammar(guided));
      const std::string text = tokenizer_->decode(ids, true);
      EXPECT_TRUE(matcher.accept(text).ok() && matcher.may_end()) << guided.guide << ": " << text;
      const bool json = guided.type == GuideType::kJson || guided.type == GuideType::kJsonSchema;
      EXPECT_TRUE(!json || parse_json(text).ok()) << text;
    }
  }

  std::shared_ptr<const text::Tokenizer> tokenizer_ = text::Tokenizer::load(kModel).value();
  std::unique_ptr<Executor> executor_ = open();
  Grammars grammars_{tokenizer_, executor_->vocab_size()};
};

const GuidedDecoding kSchema = {
    GuideType::kJsonSchema,
    R"({"type": "object", "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 400},
        "s": {"enum": ["red", "green"]}, "l": {"type": "array", "items": {"type": "boolean"}, "maxItems": 4}},
        "required": ["n", "s"], "additionalProperties": false})"};
const GuidedDecoding kRegex = {GuideType::kRegex, "(yes|no)( [a-z]{2,5}){1,3}\\."};
const GuidedDecoding kGbnf = {GuideType::kEbnfGrammar, "root ::= \"(\" root? \")\" | [0-9]{1,3}"};
const GuidedDecoding kTag = {
    GuideType::kStructuralTag,
    R"({"format": {"type": "triggered_tags", "triggers": ["e"], "stop_after_first": true, "tags": [
        {"begin": "e", "content": {"type": "regex", "pattern": "[0-9]{1,3}"}, "end": "!"}]}})"};

TEST_F(GuidesTest, WhatEndsIsWhole) {
  for (const GuidedDecoding& guided :
       {kSchema, kRegex, kGbnf, kTag, GuidedDecoding{GuideType::kJson, ""}}) {
    std::vector<Request> requests;
    for (uint64_t seed = 0; seed < 12; ++seed) {
      requests.push_back(request(guided, seed, seed % 3 == 0 ? 6.0f : 1.0f));
      requests.back().streaming = seed % 2 == 0;
      requests.back().output.return_log_probs = seed % 4 < 2;
    }
    requests.push_back(request(guided, 100));
    requests.back().sampling.num_return_sequences = 3;
    const auto ended = run(*executor_, requests);
    EXPECT_GE(ended.size(), guided.type == GuideType::kJson ? 1u : 12u) << guided.guide;
    expect_whole(guided, ended);
  }
}

TEST_F(GuidesTest, OthersInTheBatchAndGuessesChangeNothing) {
  const auto alone = run(*executor_, {request(kSchema, 7)});
  const auto speculating = open("ngram");
  std::vector<Request> mixed = {request(kSchema, 7), request(kRegex, 8)};
  Request free = request(kRegex, 9);
  free.guided_decoding.reset();
  mixed.push_back(free);
  const auto together = run(*speculating, mixed);
  ASSERT_EQ(alone.size(), 1u);
  EXPECT_THAT(together, testing::Contains(alone[0]));
}

// Jump-forward: the same tokens and log-probabilities, bit by bit, in fewer steps.
TEST_F(GuidesTest, JumpingAheadChangesNothing) {
  const auto step_by_step = open("none", false);
  const GuidedDecoding names = {
      GuideType::kJsonSchema,
      R"({"type": "object", "properties": {"favourite_colour": {"enum": ["ultramarine", "red"]},
          "number_of_wheels": {"type": "integer"}}, "required": ["favourite_colour",
          "number_of_wheels"], "additionalProperties": false})"};
  for (const GuidedDecoding& guided : {names, kSchema, kGbnf, kTag}) {
    std::vector<RequestId> ids, expected_ids;
    for (uint64_t seed = 0; seed < 6; ++seed) {
      Request r = request(guided, seed, seed % 2 == 0 ? 1.0f : 4.0f);
      r.output.return_log_probs = true;
      r.sampling.repetition_penalty = seed % 3 == 0 ? 1.2f : 1.0f;
      ids.push_back(executor_->enqueue(r).value());
      expected_ids.push_back(step_by_step->enqueue(r).value());
    }
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto got = executor_->await_responses(ids[i], std::chrono::seconds(30));
      const auto expected =
          step_by_step->await_responses(expected_ids[i], std::chrono::seconds(30));
      ASSERT_TRUE(got.size() == 1 && expected.size() == 1 && !got[0].outputs.empty());
      EXPECT_EQ(got[0].outputs[0].token_ids, expected[0].outputs[0].token_ids) << i;
      EXPECT_EQ(got[0].outputs[0].log_probs, expected[0].outputs[0].log_probs) << i;
      EXPECT_EQ(got[0].outputs[0].finish_reason, expected[0].outputs[0].finish_reason) << i;
      EXPECT_EQ(got[0].metrics.num_drafts, 0) << "what is forced is no draft";
    }
  }
  const auto num_steps = [&](Executor& executor) {
    const int64_t before = executor.stats().num_steps;
    run(executor, {request(names, 1, 1.0f)});
    return executor.stats().num_steps - before;
  };
  EXPECT_LT(num_steps(*executor_) + 5, num_steps(*step_by_step));
}

// One letter of one token each: probabilities sum to 1.
TEST_F(GuidesTest, LogProbsAreOfWhatMayFollow) {
  Request r = request({GuideType::kRegex, "[ab]"}, 1, 1.0f);
  r.output.return_log_probs = true;
  r.output.num_top_log_probs = 3;
  const RequestId id = executor_->enqueue(r).value();
  const auto responses = executor_->await_responses(id, std::chrono::seconds(30));
  ASSERT_TRUE(!responses.empty() && !responses.back().outputs.empty());
  const SequenceOutput& output = responses.back().outputs[0];
  ASSERT_EQ(output.token_ids.size(), 1u);
  ASSERT_EQ(output.top_log_probs[0].size(), 2u);
  EXPECT_NEAR(
      std::exp(output.top_log_probs[0][0].log_prob) + std::exp(output.top_log_probs[0][1].log_prob),
      1, 1e-5);
}

// Greedy output up to the mark equals unconstrained output; behind it the text is in the language.
// (Not sampled: a token with the mark in its middle is banned, which shifts draws.)
TEST_F(GuidesTest, TheAnswerBehindReasoningIsHeld) {
  size_t num_held = 0;
  for (const char* prompt :
       {"The answer is", "One day", "The cat sat on", "She said that", "A model of language",
        "In the garden", "Numbers are", "To build a house"}) {
    Request r = request(kRegex, 0);
    r.input_token_ids = tokenizer_->encode(prompt).value();
    r.sampling.top_k = 1;
    r.reasoning = ReasoningConfig{.close = ".", .begun = true};
    const auto held = run(*executor_, {r});
    r.guided_decoding.reset(), r.reasoning.reset();
    r.stop_strings = {"."};
    const RequestId id = executor_->enqueue(r).value();
    const auto responses = executor_->await_responses(id, std::chrono::seconds(30));
    const SequenceOutput& free = responses.back().outputs.at(0);
    if (held.empty() || free.finish_reason != FinishReason::kStopWords) continue;
    ++num_held;
    const std::string reasoning = tokenizer_->decode(free.token_ids, true);
    const std::string text = tokenizer_->decode(held[0], true);
    ASSERT_TRUE(text.starts_with(reasoning)) << text << " / " << reasoning;
    text::Matcher matcher(grammar(kRegex));
    const std::string answer = text.substr(text.find('.') + 1);
    EXPECT_TRUE(matcher.accept(answer.substr(answer.find_first_not_of(" \n"))).ok()) << text;
    EXPECT_TRUE(matcher.may_end()) << text;
  }
  EXPECT_GE(num_held, 4u);
}

TEST_F(GuidesTest, ReasoningIsClosedAtItsLimit) {
  const std::string close = "\n</think>";
  const auto mark = tokenizer_->encode(close, {.add_special_tokens = false}).value();
  Request r = request(kRegex, 5, 1.0f);
  r.reasoning = ReasoningConfig{.open = "<think>", .close = close, .begun = true, .max_tokens = 4};
  const auto held = run(*executor_, {r});
  ASSERT_EQ(held.size(), 1u);
  ASSERT_GT(held[0].size(), 4 + mark.size());
  const std::span<const TokenId> ids = held[0];
  EXPECT_THAT(ids.subspan(4, mark.size()), testing::ElementsAreArray(mark));
  const auto answer = ids.subspan(4 + mark.size());
  expect_whole(kRegex, {{answer.begin(), answer.end()}});

  r.guided_decoding.reset();  // the token limit alone
  r.max_tokens = 4 + static_cast<int32_t>(mark.size()) + 3, r.end_ids.clear();
  const auto output_of = [&](const Request& request) {
    const RequestId id = executor_->enqueue(request).value();
    return executor_->await_responses(id, std::chrono::seconds(30)).back().outputs.at(0).token_ids;
  };
  const auto limited = output_of(r);
  ASSERT_EQ(limited.size(), static_cast<size_t>(r.max_tokens));
  EXPECT_TRUE(std::equal(mark.begin(), mark.end(), limited.begin() + 4));
  r.reasoning.reset();
  EXPECT_TRUE(std::equal(limited.begin(), limited.begin() + 4, output_of(r).begin()));
}

TEST_F(GuidesTest, RefusesByName) {
  const auto error = [&](const std::function<void(Request&)>& change) {
    Request r = request(kRegex, 1);
    change(r);
    return executor_->enqueue(r).status().ToString();
  };
  EXPECT_THAT(error([](Request& r) { r.end_ids.clear(); }),
              HasSubstr("guided_decoding: without end_ids"));
  EXPECT_THAT(error([](Request& r) { r.draft_token_ids = {1}; }), HasSubstr("draft_token_ids"));
  EXPECT_THAT(error([](Request& r) { r.guided_decoding->guide = ""; }),
              HasSubstr("guided_decoding.guide: 0 bytes"));
  EXPECT_THAT(error([](Request& r) { r.guided_decoding->guide = "("; }),
              HasSubstr("guided_decoding: regular expression '('"));
  EXPECT_THAT(error([](Request& r) {
                r.guided_decoding = {GuideType::kJsonSchema, R"({"items": {"minItems": -1}})"};
              }),
              HasSubstr("guided_decoding: schema: '/items/minItems'"));
  const auto reasoning = [&](ReasoningConfig wanted) {
    return error([&](Request& r) { r.reasoning = std::move(wanted); });
  };
  EXPECT_THAT(reasoning({.open = "a"}), HasSubstr("reasoning.close: 0 bytes; 1 to 64"));
  EXPECT_THAT(reasoning({.close = "a"}), HasSubstr("reasoning.open: 0 bytes"));
  EXPECT_THAT(reasoning({.open = std::string(65, 'a'), .close = "a"}),
              HasSubstr("reasoning.open: 65 bytes"));
  EXPECT_THAT(reasoning({.open = "a", .close = "a", .max_tokens = -1}),
              HasSubstr("reasoning.max_tokens: -1; at least 0"));
  EXPECT_THAT(error([](Request& r) {
                r.guided_decoding.reset();
                r.reasoning = ReasoningConfig{.open = "a", .close = "b"};
                r.sampling.beam_width = 2;
              }),
              HasSubstr("beam_width"));
}

// State sets that take too long.
TEST_F(GuidesTest, AGrammarThatIsTooAmbiguousEndsItsRequestOnly) {
  const RequestId bad =
      executor_->enqueue(request({GuideType::kRegex, "((a?){2000}){2}(a?b?){5000}"}, 1)).value();
  const RequestId good = executor_->enqueue(request(kRegex, 1)).value();
  EXPECT_THAT(executor_->await_responses(bad, std::chrono::seconds(30)).back().status.ToString(),
              HasSubstr("too ambiguous"));
  EXPECT_TRUE(executor_->await_responses(good, std::chrono::seconds(30)).back().status.ok());
}

}  // namespace
}  // namespace nereid::runtime
