// Outbox: stop strings, streaming and the single final response, with the real tokenizer.
#include "runtime/outputs/outbox.h"

#include <gmock/gmock.h>

#include <future>

#include "base/testing/source_dir.h"
#include "runtime/prompts/prompt_scorer.h"
#include "runtime/testing/test_client.h"

namespace nereid::runtime {
namespace {

using ::testing::ElementsAreArray;

class OutboxTest : public testing::Test {
 protected:
  void SetUp() override {
    auto loaded = text::Tokenizer::load(source_dir() + "/models/quickstart");
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    tokenizer_ = *loaded;
    outbox_ = std::make_unique<Outbox>(tokenizer_, inbox_, progress_);
    tokens_ = tokenizer_
                  ->encode("A model is shown many examples, and its weights are adjusted.",
                           {.add_special_tokens = false})
                  .value();
    ASSERT_GT(tokens_.size(), 8u);
  }

  void open(std::vector<std::string> stops, bool streaming, int32_t min_tokens = 0) {
    Subscription s{.id = 1, .streaming = streaming, .min_tokens = min_tokens};
    s.stop_strings = std::move(stops);
    s.callback = [this](Response r) { responses_.push_back(std::move(r)); };
    progress_.opened();
    outbox_->open(std::move(s));
  }

  // One token per turn, then the final update; returns the delivered tokens. Closes the outbox.
  std::vector<TokenId> run(FinishReason reason = FinishReason::kLength) {
    for (TokenId token : tokens_) outbox_->post({now(), {{.row = {.id = 1, .tokens = {token}}}}});
    outbox_->post({now(), {{.row = {.id = 1, .finished = true, .reason = reason}}}});
    outbox_.reset();
    std::vector<TokenId> all;
    int finals = 0;
    for (const Response& r : responses_) {
      finals += r.is_final;
      all.insert(all.end(), r.outputs[0].token_ids.begin(), r.outputs[0].token_ids.end());
    }
    EXPECT_EQ(finals, 1);
    EXPECT_TRUE(responses_.back().is_final);
    return all;
  }

  // The tokens up to the one that completes `stop`.
  std::vector<TokenId> until(const std::string& stop) {
    for (size_t n = 1; n <= tokens_.size(); ++n)
      if (tokenizer_->decode(std::span(tokens_).first(n), true).find(stop) != std::string::npos)
        return {tokens_.begin(), tokens_.begin() + static_cast<ptrdiff_t>(n)};
    ADD_FAILURE() << "no '" << stop << "' in the text";
    return {};
  }

  bool engine_was_told() {
    inbox_.push(CancelAll{});
    std::vector<Command> commands;
    inbox_.take_all(commands, false);
    return commands.size() == 2 && std::get<StopStringFound>(commands[0]).id == 1;
  }

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  Inbox inbox_;
  Progress progress_;
  std::vector<Response> responses_;
  std::unique_ptr<Outbox> outbox_;
  std::vector<TokenId> tokens_;
};

TEST_F(OutboxTest, StopStringCutsAfterTheTokenThatCompletesIt) {
  for (const bool streaming : {false, true}) {
    SetUp();
    responses_.clear();
    open({"nowhere", "n exam", "ples"}, streaming);
    EXPECT_THAT(run(), ElementsAreArray(until("ples")));
    EXPECT_EQ(responses_.back().outputs[0].finish_reason, FinishReason::kStopWords);
    EXPECT_EQ(responses_.back().outputs[0].num_output_tokens,
              static_cast<int>(until("ples").size()));
    EXPECT_TRUE(engine_was_told());
    EXPECT_TRUE(progress_.wait_idle(std::chrono::milliseconds(0)));
  }
}

// Clients without scores do not wait.
TEST_F(OutboxTest, WhatComesWithScoresAndBehindThemWaitsUntilTheyAreDone) {
  for (const bool fails : {false, true}) {
    SetUp();
    responses_.clear();
    open({}, /*streaming=*/true);
    const auto scores = std::make_shared<PromptScores>();
    std::promise<void> others;
    Subscription other{.id = 2};
    other.callback = [&](const Response&) { others.set_value(); };
    progress_.opened();
    outbox_->open(std::move(other));
    outbox_->scored(1);  // nothing waits
    outbox_->post({now(), {{.row = {.id = 1, .tokens = {tokens_[0]}}, .prompt_scores = scores}}});
    outbox_->post({now(), {{.row = {.id = 1, .tokens = {tokens_[1]}}}}});
    outbox_->post({now(), {{.row = {.id = 2, .finished = true, .reason = FinishReason::kLength}}}});
    others.get_future().wait();
    EXPECT_TRUE(responses_.empty());
    scores->values.log_probs = {-1, -2};
    if (fails) scores->status = internal_error("not finite");
    scores->done = true;
    outbox_->scored(1);
    outbox_->post({now(), {{.row = {.id = 1, .finished = true, .reason = FinishReason::kLength}}}});
    outbox_.reset();
    ASSERT_EQ(responses_.size(), fails ? 1u : 3u);
    EXPECT_EQ(responses_[0].status, scores->status);
    EXPECT_TRUE(responses_.back().is_final);
    EXPECT_TRUE(progress_.wait_idle(std::chrono::milliseconds(0)));
    inbox_.push(CancelAll{});
    std::vector<Command> commands;
    inbox_.take_all(commands, false);
    ASSERT_EQ(commands.size(), fails ? 2u : 1u) << "the engine need not go on";
    if (fails) {
      EXPECT_EQ(std::get<Cancel>(commands[0]).id, 1);
      continue;
    }
    ASSERT_TRUE(responses_[0].prompt_log_probs);
    EXPECT_EQ(responses_[0].prompt_log_probs->log_probs, scores->values.log_probs);
    EXPECT_EQ(responses_[0].outputs[0].token_ids[0], tokens_[0]);
    EXPECT_EQ(responses_[1].outputs[0].token_ids[0], tokens_[1]);
    EXPECT_FALSE(responses_[1].prompt_log_probs);
  }
}

TEST_F(OutboxTest, StopStringAcrossTokens) {
  open({"many exa"}, true);
  EXPECT_THAT(run(), ElementsAreArray(until("many exa")));
}

TEST_F(OutboxTest, TokensAfterTheStopStringInOneNewsAreDropped) {
  open({"shown"}, false);
  outbox_->post({now(), {{.row = {.id = 1, .tokens = {tokens_.begin(), tokens_.end()}}}}});
  outbox_->post(
      {now(), {{.row = {.id = 1, .finished = true, .reason = FinishReason::kStopWords}}}});
  outbox_.reset();
  ASSERT_EQ(responses_.size(), 1u);
  EXPECT_THAT(responses_[0].outputs[0].token_ids, ElementsAreArray(until("shown")));
}

TEST_F(OutboxTest, TextOfTheFirstMinTokensIsNotSearched) {
  const auto first = static_cast<int32_t>(until("model").size());
  open({"model"}, false, first);
  EXPECT_THAT(run(), ElementsAreArray(tokens_));
  EXPECT_EQ(responses_.back().outputs[0].finish_reason, FinishReason::kLength);
  EXPECT_FALSE(engine_was_told());
}

TEST_F(OutboxTest, StopStringInTheFinalNewsNeedsNoCommand) {
  open({"adjusted."}, false);
  const TokenId last = tokens_.back();
  tokens_.pop_back();
  for (TokenId token : tokens_) outbox_->post({now(), {{.row = {.id = 1, .tokens = {token}}}}});
  outbox_->post(
      {now(),
       {{.row = {.id = 1, .tokens = {last}, .finished = true, .reason = FinishReason::kLength}}}});
  outbox_.reset();
  ASSERT_EQ(responses_.size(), 1u);
  EXPECT_EQ(responses_[0].outputs[0].finish_reason, FinishReason::kStopWords);
  EXPECT_FALSE(engine_was_told());
}

TEST_F(OutboxTest, StreamsEachTokenAndKeepsNothing) {
  open({}, true);
  EXPECT_THAT(run(FinishReason::kEndId), ElementsAreArray(tokens_));
  EXPECT_EQ(responses_.size(), tokens_.size() + 1);
  EXPECT_TRUE(responses_.back().outputs[0].token_ids.empty());
  EXPECT_EQ(responses_.back().outputs[0].finish_reason, FinishReason::kEndId);
}

TEST_F(OutboxTest, EachSequenceHasItsOwnText) {
  Subscription s{.id = 1, .num_sequences = 2, .num_returned = 2};
  s.stop_strings = {"many exa"};
  s.callback = [this](Response r) { responses_.push_back(std::move(r)); };
  progress_.opened();
  outbox_->open(std::move(s));
  // The first text never contains the string; the second one does, over several tokens.
  for (TokenId token : tokens_) {
    outbox_->post({now(), {{.row = {.id = 1, .tokens = {tokens_[0]}}}}});
    outbox_->post({now(), {{.row = {.id = 2, .tokens = {token}}}}});
  }
  for (RequestId id : {2, 1})
    outbox_->post(
        {now(), {{.row = {.id = id, .finished = true, .reason = FinishReason::kLength}}}});
  outbox_.reset();
  ASSERT_EQ(responses_.size(), 2u);
  EXPECT_EQ(responses_[0].sequence_index, 1);
  EXPECT_THAT(responses_[0].outputs[0].token_ids, ElementsAreArray(until("many exa")));
  EXPECT_EQ(responses_[0].outputs[0].finish_reason, FinishReason::kStopWords);
  EXPECT_EQ(responses_[1].outputs[0].token_ids.size(), tokens_.size());
  EXPECT_EQ(responses_[1].outputs[0].finish_reason, FinishReason::kLength);
  inbox_.push(CancelAll{});
  std::vector<Command> commands;
  inbox_.take_all(commands, false);
  ASSERT_EQ(commands.size(), 2u);
  EXPECT_EQ(std::get<StopStringFound>(commands[0]).id, 2u);
}

TEST_F(OutboxTest, FailureCarriesOnlyItsStatus) {
  open({}, false);
  outbox_->post({now(), {{.row = {.id = 1, .tokens = {tokens_[0]}}}}});
  outbox_->post(
      {now(), {{.row = {.id = 1, .finished = true, .status = internal_error("broken")}}}});
  outbox_.reset();
  ASSERT_EQ(responses_.size(), 1u);
  EXPECT_TRUE(absl::IsInternal(responses_[0].status));
  EXPECT_TRUE(responses_[0].is_final);
  EXPECT_TRUE(responses_[0].outputs.empty());
}

}  // namespace
}  // namespace nereid::runtime
