// Drafts of a draft model equal those computed from scratch, whatever its cache has.
#include "runtime/speculation/draft_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "runtime/testing/engine_fixture.h"

namespace nereid::runtime {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

sched::Sequence text_of(std::vector<TokenId> tokens, RequestId id = 1) {
  sched::SequenceSpec spec{.id = id, .prompt = std::move(tokens), .max_new_tokens = 10};
  return {std::move(spec), 1 << 20, 16, 1};
}

class DraftModelTest : public ::testing::Test {
 protected:
  DraftModelTest() { add_test_kernels(registry_); }

  std::unique_ptr<DraftModel> open(const exec::RunnerLimits& limits = roomy()) {
    auto runner = std::make_unique<FakeRunner>(*device_, registry_, limits, kVocab);
    runner_ = runner.get();
    return std::make_unique<DraftModel>(std::move(runner));
  }

  static std::vector<TokenId> ask(DraftModel& model, const sched::Sequence& sequence,
                                  int32_t most) {
    DraftQuestion question{.sequence = &sequence, .most = most};
    model.propose(std::span(&question, 1));
    EXPECT_FALSE(question.is_behind);
    return question.drafts;
  }

  // Drafts of a fresh draft model.
  std::vector<TokenId> anew(const std::vector<TokenId>& tokens, int32_t most) {
    FakeRunner* const runner = runner_;
    const auto model = open();
    runner_ = runner;
    return ask(*model, text_of(tokens), most);
  }

  std::unique_ptr<Device> device_ = make_cpu_device({.num_threads = 1}).value();
  kernels::Registry registry_;
  FakeRunner* runner_ = nullptr;  // of the last model
};

TEST_F(DraftModelTest, EachDraftFollowsFromTheOneBefore) {
  std::vector<TokenId> tokens = {3, 1, 4, 1, 5};
  const std::vector<TokenId> drafts = anew(tokens, 6);
  ASSERT_THAT(drafts, SizeIs(6));
  for (const TokenId draft : drafts) {
    EXPECT_THAT(anew(tokens, 1), ::testing::ElementsAre(draft));
    tokens.push_back(draft);
  }
}

// Some drafts are accepted, some rejected, with other sequences in the same steps.
TEST_F(DraftModelTest, WhatDidNotHoldIsTakenBack) {
  const auto model = open();
  std::mt19937 random(1);
  std::vector<std::vector<TokenId>> texts;
  for (TokenId i = 0; i < 4; ++i) texts.emplace_back(static_cast<size_t>(3 + 7 * i), 10 + i);
  for (int round = 0; round < 12; ++round) {
    std::vector<sched::Sequence> sequences;
    for (size_t i = 0; i < texts.size(); ++i) sequences.push_back(text_of(texts[i], i + 1));
    std::vector<DraftQuestion> questions;
    for (const sched::Sequence& sequence : sequences)
      if (random() % 4 > 0)
        questions.push_back({&sequence, 1 + static_cast<int32_t>(random() % 5)});
    model->propose(questions);
    for (const DraftQuestion& question : questions) {
      std::vector<TokenId>& text = texts[question.sequence->id() - 1];
      EXPECT_EQ(question.drafts, anew(text, question.most)) << "round " << round;
      const size_t num_holding = random() % (question.drafts.size() + 1);
      text.insert(text.end(), question.drafts.begin(),
                  question.drafts.begin() + static_cast<ptrdiff_t>(num_holding));
      // A sampled token, sometimes one more without a draft.
      for (size_t more = 1 + random() % 2; more > 0; --more)
        text.push_back(static_cast<TokenId>(20 + random() % 20));
    }
  }
  EXPECT_LT(model->num_free_blocks(), roomy().num_blocks[0]);
  for (RequestId id = 1; id <= texts.size(); ++id) model->forget(id);
  EXPECT_EQ(model->num_free_blocks(), roomy().num_blocks[0]);
}

TEST_F(DraftModelTest, ALongPromptIsComputedInPartsAndHoldsUpNobody) {
  const auto model = open();
  std::vector<TokenId> tokens(static_cast<size_t>(roomy().max_sequence_length) - 10, 9);
  tokens.back() = 8;
  const sched::Sequence longer = text_of(tokens, 1);
  const int32_t num_calls = static_cast<int32_t>(tokens.size()) / roomy().max_tokens + 1;
  std::vector<TokenId> other = {1, 2, 3};
  for (int32_t i = 1; i <= num_calls; ++i) {
    const sched::Sequence shorter = text_of(other, 2);
    std::vector<DraftQuestion> questions = {{&longer, 3}, {&shorter, 2}};
    model->propose(questions);
    EXPECT_EQ(questions[0].is_behind, i < num_calls);
    EXPECT_THAT(questions[0].drafts, SizeIs(i < num_calls ? 0 : 3));
    EXPECT_EQ(questions[1].drafts, anew(other, 2));
    other.push_back(5);
    if (i < num_calls) continue;
    exec::RunnerLimits limits = roomy();
    limits.max_tokens = limits.max_sequence_length;
    EXPECT_EQ(questions[0].drafts, ask(*open(limits), longer, 3));
  }
}

TEST_F(DraftModelTest, EqualPromptsShareBlocks) {
  const auto model = open();
  const std::vector<TokenId> tokens(40, 11);
  const std::vector<TokenId> drafts = ask(*model, text_of(tokens, 1), 4);
  const int32_t num_free = model->num_free_blocks();
  EXPECT_EQ(ask(*model, text_of(tokens, 2), 4), drafts);
  EXPECT_EQ(num_free - model->num_free_blocks(), 1) << "two full blocks are the first one's";
}

TEST_F(DraftModelTest, WithoutRoomThoseThatWereAskedAboutLongAgoGo) {
  exec::RunnerLimits limits = roomy();
  limits.num_blocks = 3;
  const auto model = open(limits);
  const std::vector<TokenId> first(30, 12), second(20, 13), third(60, 14);
  EXPECT_EQ(ask(*model, text_of(first, 1), 2), anew(first, 2));
  EXPECT_EQ(ask(*model, text_of(second, 2), 2), anew(second, 2));
  EXPECT_EQ(ask(*model, text_of(first, 1), 2), anew(first, 2));
  EXPECT_THAT(ask(*model, text_of(third, 3), 2), IsEmpty()) << "it needs more than there is";
}

TEST_F(DraftModelTest, ATextThatIsTooLongOrHasEmbeddingsHasNone) {
  const auto model = open();
  const auto length = static_cast<size_t>(roomy().max_sequence_length);
  EXPECT_THAT(ask(*model, text_of(std::vector<TokenId>(length, 1)), 2), IsEmpty());
  sched::SequenceSpec spec{.id = 2, .prompt = {1, kVocab}, .max_new_tokens = 10};
  spec.input_keys.resize(2);
  EXPECT_THAT(ask(*model, sched::Sequence(std::move(spec), 100, 16, 1), 2), IsEmpty());
}

TEST_F(DraftModelTest, NothingIsGuessedBehindLogitsThatAreNotFinite) {
  const auto model = open();
  EXPECT_THAT(ask(*model, text_of({1, FakeRunner::kNanToken}, 1), 3), IsEmpty());
  EXPECT_EQ(ask(*model, text_of({1, 2}, 2), 3), anew({1, 2}, 3));
}

TEST_F(DraftModelTest, AfterAFailureThereAreNoneAndTheBooksBalance) {
  const auto model = open();
  runner_->fail_step(2);
  EXPECT_THAT(ask(*model, text_of({1, 2}), 4), IsEmpty());
  EXPECT_THAT(ask(*model, text_of({1, 2}), 4), IsEmpty());
  EXPECT_EQ(model->num_free_blocks(), roomy().num_blocks[0]);
}

// A block that matches partly is copied, if there is a free block.
TEST_F(DraftModelTest, BlocksThatBeginAlikeAreCopiedWhereThereIsRoom) {
  exec::RunnerLimits limits = roomy();
  limits.num_blocks = 2;
  const FakeRunner runner(*device_, registry_, limits, kVocab);
  DraftCache cache(runner, /*copies_blocks=*/true);
  const std::vector<TokenId> first(20, 3);
  std::vector<TokenId> second(20, 3);
  second[10] = 4;
  const DraftCache::Text texts[] = {{.tokens = first, .num_prompt = 20},
                                    {.tokens = second, .num_prompt = 20}};
  cache.begin_call();
  DraftCache::Entry& entry = cache.find(1, texts[0]);
  ASSERT_TRUE(cache.reserve(entry, 20));
  entry.tokens = first;
  entry.num_known = first.size();
  cache.publish(entry);
  EXPECT_THAT(cache.find(2, texts[1]).tokens, IsEmpty()) << "both blocks are held";
  cache.forget(1);
  cache.forget(2);
  EXPECT_THAT(cache.find(3, texts[1]).tokens, SizeIs(10));
  cache.forget(3);
  EXPECT_EQ(cache.num_free_blocks(), 2);
}

// The smallest id of sequences asked about in the same call is evicted first.
TEST_F(DraftModelTest, TheOldestGivesWayThenTheFirst) {
  exec::RunnerLimits limits = roomy();
  constexpr int32_t kSequences = 24;
  limits.num_blocks = kSequences;
  const FakeRunner runner(*device_, registry_, limits, kVocab);
  DraftCache cache(runner, /*copies_blocks=*/false);
  const std::vector<TokenId> tokens = {1, 2, 3};
  const auto reserve = [&](RequestId id, int32_t blocks) {
    DraftCache::Entry& entry = cache.find(id, {.tokens = tokens, .num_prompt = 3});
    return cache.reserve(entry, blocks * limits.block_tokens);
  };
  cache.begin_call();
  for (RequestId id = 1; id <= kSequences; ++id) ASSERT_TRUE(reserve(id, 1));
  cache.begin_call();
  for (RequestId id = 1; id <= 4; ++id) ASSERT_TRUE(reserve(id, 1));
  ASSERT_TRUE(reserve(100, kSequences - 10));  // of 5, 6, ...
  for (RequestId id = 1; id <= kSequences; ++id) {
    const bool is_held = id <= 4 || id > kSequences - 6;
    EXPECT_EQ(cache.holds(id), is_held) << id;
  }
  cache.forget_all();
  EXPECT_EQ(cache.num_free_blocks(), kSequences);
}

// A partly filled block is published when its sequence ends, not before.
TEST_F(DraftModelTest, AnUnfinishedBlockIsFoundOnceItsSequenceHasEnded) {
  const FakeRunner runner(*device_, registry_, roomy(), kVocab);
  const int32_t size = roomy().block_tokens;
  const auto num_known = static_cast<size_t>(size - 1);
  DraftCache cache(runner, /*copies_blocks=*/true);
  const std::vector<TokenId> first(num_known, 3);
  std::vector<TokenId> second(num_known, 3);
  second[num_known - 2] = 4;
  const DraftCache::Text texts[] = {{.tokens = first, .num_prompt = size - 1},
                                    {.tokens = second, .num_prompt = size - 1}};
  cache.begin_call();
  DraftCache::Entry& entry = cache.find(1, texts[0]);
  ASSERT_TRUE(cache.reserve(entry, size - 1));
  entry.tokens = first;
  entry.num_known = num_known;
  cache.publish(entry);
  EXPECT_THAT(cache.find(2, texts[1]).tokens, IsEmpty());
  cache.forget(2);
  cache.forget(1);
  EXPECT_THAT(cache.find(3, texts[1]).tokens, SizeIs(num_known - 2));
  cache.forget(3);
  EXPECT_EQ(cache.num_free_blocks(), roomy().num_blocks[0]);
}

// Draft model = target model: all drafts are accepted, because it samples with the request's
// parameters and random numbers.
TEST(DraftModelExecutor, DrawsAsTheRequestDoes) {
  ModelInstance model;
  model.device.device = make_cpu_device({.num_threads = 1}).value();
  add_test_kernels(model.device.registry);
  const auto runner = [&] {
    return std::make_unique<FakeRunner>(*model.device.device, model.device.registry, roomy(),
                                        kVocab);
  };
  model.runner = runner();
  model.proposer = std::make_unique<DraftModel>(runner());
  TestClient client;
  const auto executor = make_executor(std::move(model), {.max_draft_len = 3});
  std::vector<Request> requests(5, request({5, 6, 5, 8}, 60));
  requests[1].sampling.temperature = 1.5f;
  requests[1].sampling.top_p = 0.9f;
  requests[1].sampling.seed = 4;
  requests[2].sampling.repetition_penalty = 1.4f;
  requests[2].sampling.temperature = 0.9f;
  requests[2].sampling.num_return_sequences = 2;
  requests[3].bad_words = {{9}, {5, 8}};
  requests[3].sampling.no_repeat_ngram_size = 2;
  requests[4].logit_bias = {{12, 3.0f}, {30, 2.0f}};
  requests[4].end_ids = {12};
  requests[4].sampling.min_tokens = 40;
  std::vector<RequestId> ids;
  for (const Request& r : requests) ids.push_back(client.send(*executor, r));
  for (const RequestId id : ids) EXPECT_TRUE(client.wait(id).last.status.ok());
  executor->drain(std::chrono::milliseconds(60000));
  const ExecutorStats stats = executor->stats();
  EXPECT_GT(stats.num_drafts, 100);
  EXPECT_EQ(stats.num_accepted_drafts, stats.num_drafts);
}

}  // namespace
}  // namespace nereid::runtime
