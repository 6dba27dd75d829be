// Grammar-constrained sequences in the engine loop on a fake model: overlap of steps, and equal
// tokens in any company.
#include <gmock/gmock.h>

#include <cmath>
#include <future>
#include <random>
#include <thread>

#include "base/testing/source_dir.h"
#include "runtime/grammars/grammar_masks.h"
#include "runtime/grammars/grammars.h"
#include "runtime/grammars/made_guide.h"
#include "runtime/testing/edit_payload.h"
#include "runtime/testing/engine_fixture.h"

namespace nereid::runtime {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const text::Tokenizer> shipped_tokenizer() {
  static const std::shared_ptr<const text::Tokenizer> tokenizer =
      text::Tokenizer::load(source_dir() + "/models/quickstart").value();
  return tokenizer;
}

// Ids of the shipped tokenizer in the fake model's vocabulary: marks, and letters '!' to 'Z'.
constexpr TokenId kEnd = 3;
constexpr TokenId kFirstLetter = 6;
constexpr TokenId letter(char c) { return kFirstLetter + (c - '!'); }

Request guided(const std::string& regex, int32_t max_tokens, uint64_t seed = 0) {
  Request r = request({letter('A'), letter('B')}, max_tokens);
  r.input_token_ids.push_back(letter('0') + static_cast<TokenId>(seed % 10));
  r.end_ids = {kEnd};
  r.sampling.top_k = 0;
  r.sampling.seed = seed;
  r.sampling.temperature = 2.0f;
  r.guided_decoding = {GuideType::kRegex, regex};
  return r;
}

std::string text_of(const std::vector<TokenId>& tokens) {
  std::string text;
  for (const TokenId token : tokens) text += static_cast<char>(token - kFirstLetter + '!');
  return text;
}

TEST(EngineGuides, AStepIsLaunchedBeforeTheMasksOfItsRowsAreKnown) {
  Fixture f(roomy(), {}, shipped_tokenizer());
  f.runner->hold(true);
  const RequestId id = f.client.send(*f.executor, guided("[A-F]{20}", 30));
  const Time end = now() + std::chrono::seconds(60);
  while (f.runner->num_steps() < 2 && now() < end) std::this_thread::yield();
  EXPECT_EQ(f.runner->num_steps(), 2) << "the second beside the first, whose token is not drawn";
  EXPECT_EQ(f.runner->num_draws(), 1);
  f.runner->hold(false);
  const Received got = f.client.wait(id);
  EXPECT_EQ(got.reason(), FinishReason::kEndId);
  EXPECT_EQ(got.tokens.size(), 20u);
  EXPECT_EQ(text_of(got.tokens).find_first_not_of("ABCDEF"), std::string::npos);
  f.expect_counts_add_up();
  EXPECT_EQ(f.runner->num_draws(), f.runner->num_steps());
}

TEST(EngineGuides, WhatAGrammarLeavesNoChoiceOfTakesOneStep) {
  const Request r = guided("[A-F]GHIJKLMNOPQR[A-F]", 30);
  std::vector<TokenId> expected;
  for (const bool jumps : {false, true}) {
    ExecutorConfig config;
    config.enable_jump_ahead = jumps;
    exec::RunnerLimits limits = roomy();
    limits.max_logits = 32;
    Fixture f(limits, config, shipped_tokenizer());
    const Received got = f.client.run(*f.executor, r);
    EXPECT_EQ(got.reason(), FinishReason::kEndId);
    if (!jumps) expected = got.tokens;
    EXPECT_EQ(got.tokens, expected);
    f.expect_counts_add_up();
    if (jumps) {
      EXPECT_LE(f.runner->num_steps(), 6);
    } else {
      EXPECT_GE(f.runner->num_steps(), 15);
    }
  }
}

// Number of drafts in a step of num_rows rows, one with three forced tokens.
size_t num_forced_drafts(int num_rows, const SpeculationCosts& costs) {
  sched::Scheduler scheduler({.max_batch_size = 8,
                              .max_num_tokens = 64,
                              .max_queue_size = 8,
                              .max_sequence_length = 128,
                              .groups = {{.num_blocks = 128}},
                              .tokens_per_block = 16,
                              .max_logits = 64});
  Grammars grammars(shipped_tokenizer(), kVocab);
  GrammarMasks guides(kVocab, /*jumps_ahead=*/true, GrammarMasks::kTurnSteps, costs,
                      [](RequestId) {});
  for (int i = 1; i <= num_rows; ++i) {
    sched::SequenceSpec spec{.id = static_cast<RequestId>(i),
                             .prompt = {letter('A')},
                             .max_new_tokens = 100,
                             .has_grammar = true};
    edit_payload(spec).guide =
        made_guide(grammars, guided(i == 1 ? "AGHI[A-F]+" : "[A-F]+", 9)).value();
    EXPECT_TRUE(scheduler.submit(std::move(spec)).ok());
  }
  for (const sched::ScheduledRow& row : scheduler.plan(now()).rows) {
    exec::StepRow out;
    exec::StepMessage step;
    int32_t spare_logits = 0;
    guides.write(row, {out, {}, step, spare_logits});
    scheduler.commit(row, std::vector<sched::SampledTokens>{{.token = letter('A')}});
  }
  const bool waits = !guides.offer(scheduler, /*in_flight=*/true);
  EXPECT_TRUE(guides.offer(scheduler, /*in_flight=*/false));
  size_t num_drafts = 0;
  for (const sched::Sequence* sequence : scheduler.running())
    num_drafts += sequence->drafts().size();
  EXPECT_EQ(waits, num_drafts > 0);
  return num_drafts;
}

TEST(EngineGuides, FewForcedTokensBesideManyRowsAreDraftsWhereThatPays) {
  const auto costs_of = [](double seconds, double host) {
    SpeculationCosts costs{.overlaps = true};
    for (int i = 0; i < 3; ++i) {
      costs.step.add(8, 1.0);
      costs.step.add(11, seconds);
      costs.host.add(8, host);
    }
    return costs;
  };
  EXPECT_EQ(num_forced_drafts(8, {}), 0u) << "nothing was measured";
  EXPECT_EQ(num_forced_drafts(8, costs_of(1.0, 0.01)), 3u);
  EXPECT_EQ(num_forced_drafts(8, costs_of(11.0 / 8, 0.01)), 0u) << "each token costs as much";
  EXPECT_EQ(num_forced_drafts(8, costs_of(1.0, 0.5)), 0u) << "nothing runs beside the host";
  EXPECT_EQ(num_forced_drafts(3, {}), 3u) << "as many as rows";
}

// One third unconstrained, the others with grammars; all finish reasons.
std::vector<Request> mixed_requests(int count, uint64_t seed) {
  std::mt19937_64 rng(seed);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(rng);
  };
  const char* const expressions[] = {"([A-F]{3}[0-9])+", "[A-Z]{2,9}", "(YES|NO)( ?[!-9]{4})*",
                                     "A{40}", "[B-Y]+Z"};
  std::vector<Request> all;
  for (int i = 0; i < count; ++i) {
    Request r = guided(expressions[pick(0, 4)], pick(1, 40), static_cast<uint64_t>(i));
    for (int k = pick(0, 40); k > 0; --k) r.input_token_ids.push_back(letter('A') + k % 20);
    if (i % 3 == 0) r.guided_decoding.reset();
    r.streaming = pick(0, 1);
    r.output.return_log_probs = true;
    if (pick(0, 2) == 0) r.sampling.repetition_penalty = 1.3f;
    if (pick(0, 2) == 0) r.stop_words = {{letter('C')}, {letter('0'), letter('A')}};
    all.push_back(std::move(r));
  }
  return all;
}

struct Way {
  const char* name;
  int32_t max_rows, max_tokens, num_blocks, depth;
  int32_t max_logits = 0;                          // more than rows: room for forced tokens
  int64_t guide_steps = GrammarMasks::kTurnSteps;  // 0: all masks are made by the other thread
};

class GuidedEveryWay : public testing::TestWithParam<Way> {};

TEST_P(GuidedEveryWay, TokensEqualThoseOfOneAtATime) {
  const Way& way = GetParam();
  const std::vector<Request> requests = mixed_requests(60, 11);
  ExecutorConfig config;
  config.enable_overlap = config.enable_jump_ahead = false;
  std::vector<Received> expected;
  {
    Fixture alone(roomy(), config, shipped_tokenizer());
    for (const Request& r : requests) expected.push_back(alone.client.run(*alone.executor, r));
  }
  config.enable_overlap = way.depth > 1;
  config.enable_jump_ahead = true;
  exec::RunnerLimits limits = roomy();
  limits.max_logits = way.max_logits;
  limits.max_rows = way.max_rows;
  limits.max_tokens = way.max_tokens;
  limits.num_blocks = way.num_blocks;
  limits.depth = way.depth;
  Fixture f(limits, config, shipped_tokenizer(), way.guide_steps);
  const bool preempts = way.num_blocks < 16;
  f.runner->hold(preempts);
  std::vector<RequestId> ids;
  for (const Request& r : requests) ids.push_back(f.client.send(*f.executor, r));
  f.runner->hold(false);
  int num_ended = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const Received got = f.client.wait(ids[i]);
    EXPECT_TRUE(got.last.status.ok()) << got.last.status;
    EXPECT_EQ(got.tokens, expected[i].tokens) << "request " << i;
    EXPECT_EQ(got.reason(), expected[i].reason()) << "request " << i;
    EXPECT_EQ(got.log_probs, expected[i].log_probs) << "request " << i;
    num_ended += requests[i].guided_decoding && got.reason() == FinishReason::kEndId;
    EXPECT_EQ(got.last.metrics.num_drafts, 0) << "what is forced is no draft";
  }
  EXPECT_GT(num_ended, 10);
  if (way.max_logits > 0) {
    // With masks from the other thread, forced tokens are known late.
    EXPECT_GT(f.runner->num_drafts(), way.guide_steps > 0 ? 50 : 0);
  }
  f.expect_counts_add_up();
  if (preempts) {
    EXPECT_GT(f.executor->stats().num_preemptions, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ways, GuidedEveryWay,
    testing::Values(Way{"roomy", 8, 64, 128, 2}, Way{"no_overlap", 8, 64, 128, 1},
                    Way{"deep", 8, 64, 128, 5}, Way{"small_chunks", 8, 5, 128, 2},
                    Way{"preempted", 8, 64, 7, 2}, Way{"preempted_deep", 8, 64, 7, 4},
                    Way{"ahead", 8, 64, 128, 2, 64}, Way{"ahead_deep", 8, 64, 128, 5, 64},
                    Way{"ahead_preempted", 8, 64, 7, 2, 64}, Way{"late", 8, 64, 128, 2, 0, 0},
                    Way{"late_no_overlap", 8, 64, 128, 1, 0, 0},
                    Way{"late_small_chunks", 8, 5, 128, 3, 0, 0},
                    Way{"late_preempted", 8, 64, 7, 2, 0, 0},
                    Way{"late_ahead_preempted", 8, 64, 7, 4, 64, 0}),
    [](const auto& info) { return info.param.name; });

// A grammar beyond the step limit; each number is another text.
Request heavy_guide(int number) {
  Request r = guided("", 30);
  r.guided_decoding = {GuideType::kJsonSchema,
                       fmt::format(R"({{"type": "string", "pattern": "{}", "minLength": {}}})",
                                   "(((){3000}){3000}){3000}", number)};
  return r;
}

TEST(EngineGuides, AMaskThatTakesLongKeepsNobodyElseWaiting) {
  Fixture f(roomy(), {}, shipped_tokenizer(), /*guide_steps=*/0);
  Request slow = guided("([A-F]?){300}(0?[A-F]){20}", 60), free = guided("", 60, 1);
  free.guided_decoding.reset();
  free.end_ids.clear();
  const Received expected = f.client.run(*f.executor, free);
  const RequestId first = f.client.send(*f.executor, slow);
  EXPECT_EQ(f.client.run(*f.executor, free).tokens, expected.tokens);
  const Received got = f.client.wait(first);
  EXPECT_TRUE(got.last.status.ok()) << got.last.status;
  EXPECT_GE(got.tokens.size(), 20u);
  f.expect_counts_add_up();
}

TEST(EngineGuides, WhoWaitsForAGuideCanBeCancelledAndTimesOut) {
  Fixture f(roomy(), {}, shipped_tokenizer());
  const RequestId cancelled = f.client.send(*f.executor, heavy_guide(1));
  Request late = heavy_guide(2);
  late.allotted_time = std::chrono::milliseconds(1);
  late.sampling.num_return_sequences = 3;
  const RequestId timed_out = f.client.send(*f.executor, late);
  f.executor->cancel(cancelled);
  EXPECT_EQ(f.client.wait(cancelled).reason(), FinishReason::kCancelled);
  EXPECT_EQ(f.client.wait(timed_out).reason(), FinishReason::kTimedOut);
  f.expect_counts_add_up();
}

TEST(EngineGuides, AGrammarThatTakesTooManyStepsEndsItsRequestOnly) {
  Fixture f(roomy(), {}, shipped_tokenizer());
  Request bad = heavy_guide(1);
  bad.sampling.num_return_sequences = 2;
  const RequestId id = f.client.send(*f.executor, bad);
  EXPECT_TRUE(f.client.run(*f.executor, guided("[A-F]{5}", 9)).last.status.ok());
  const Received got = f.client.wait(id);
  EXPECT_EQ(got.last.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(got.last.status.ToString(), HasSubstr("more than 10000000 steps"));
  EXPECT_THAT(f.executor->enqueue(bad).status().ToString(), HasSubstr("10000000")) << "remembered";
  f.expect_counts_add_up();
}

TEST(EngineGuides, OptionsThatLeaveNoTokenAreTheClientsFault) {
  Fixture f(roomy(), {}, shipped_tokenizer());
  // The first grammar is ready after enqueue() returns, because building the vocabulary takes long.
  EXPECT_TRUE(f.client.run(*f.executor, guided("[A-C]{3}", 9)).last.status.ok());
  const auto refusal = [&](const auto& change) {
    Request r = guided("[A-C]{3}", 9);
    change(r);
    const Status status = f.executor->enqueue(r).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return status.ToString();
  };
  const auto only_d = [](Request& r) {
    r.embedding_bias.assign(kVocab, -INFINITY);
    r.embedding_bias[static_cast<size_t>(letter('D'))] = 0;
  };
  EXPECT_THAT(refusal(only_d), HasSubstr("no token of the model that may come at position 3"));
  EXPECT_THAT(refusal([](Request& r) {
                r.bad_words = {{letter('A')}, {letter('B')}, {letter('C')}};
              }),
              HasSubstr("position 3"));
  EXPECT_THAT(refusal([](Request& r) {
                for (const char c : {'A', 'B', 'C'})
                  r.logit_bias.emplace_back(letter(c), -INFINITY);
              }),
              HasSubstr("position 3"));
  EXPECT_THAT(refusal([](Request& r) {
                r.guided_decoding->guide = "()";
                r.sampling.min_tokens = 2;
              }),
              HasSubstr("min_tokens"));
  EXPECT_THAT(refusal([](Request& r) {
                r.guided_decoding.reset();
                r.embedding_bias.assign(kVocab, -INFINITY);
              }),
              HasSubstr("leave no token for position 3"));
  EXPECT_THAT(refusal([](Request& r) { r.guided_decoding->guide = "\u00e4"; }),
              HasSubstr("no token of the model"))
      << "no token writes it";
  // Detected behind the first tokens only.
  Request later = guided("A[B-D]", 9);
  later.bad_words = {{letter('A'), letter('B')}, {letter('C')}, {letter('A'), letter('D')}};
  const Received got = f.client.run(*f.executor, later);
  EXPECT_EQ(got.last.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(got.last.status.ToString(), HasSubstr("position 4"));
  later.bad_words.pop_back();
  EXPECT_TRUE(f.client.run(*f.executor, later).last.status.ok());
  f.expect_counts_add_up();
  EXPECT_EQ(f.executor->stats().num_numeric_failures, 0);
}

// Steps in flight beside a failed step start over.
TEST(EngineGuides, AStepThatFailsEndsItsRequestsOnly) {
  const Request r = guided("[A-F]{20}", 30), other = guided("[A-F]{9}", 30, 1);
  Fixture alone(roomy(), {}, shipped_tokenizer());
  const Received expected = alone.client.run(*alone.executor, other);
  for (const bool at_launch : {false, true}) {
    Fixture f(roomy(), {}, shipped_tokenizer());
    constexpr int kFails = 3;
    at_launch ? f.runner->fail_launch(kFails) : f.runner->fail_step(kFails);
    EXPECT_THAT(f.client.run(*f.executor, r).last.status.ToString(), HasSubstr("3 fails"));
    const Received got = f.client.run(*f.executor, other);
    EXPECT_TRUE(got.last.status.ok()) << got.last.status;
    EXPECT_EQ(got.tokens, expected.tokens);
    f.expect_counts_add_up();
  }
}

TEST(EngineGuides, CancelsLeaveTheOthersAlone) {
  Fixture f(roomy(), {}, shipped_tokenizer());
  const Request r = guided("[A-F]{100}", 110);
  const Received expected = f.client.run(*f.executor, r);
  ASSERT_EQ(expected.tokens.size(), 100u);
  for (int turn = 0; turn < 20; ++turn) {
    const RequestId cancelled = f.client.send(*f.executor, guided("[G-Z]+", 110, 5));
    const RequestId kept = f.client.send(*f.executor, r);
    for (int i = 0; i < 10 * turn; ++i) std::this_thread::yield();
    f.executor->cancel(cancelled);
    f.client.wait(cancelled);
    EXPECT_EQ(f.client.wait(kept).tokens, expected.tokens);
  }
  f.expect_counts_add_up();
}

}  // namespace
}  // namespace nereid::runtime
