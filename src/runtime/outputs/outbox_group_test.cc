// Outbox: requests with several sequences, beams, and the alignment of response lists.
#include <gmock/gmock.h>

#include "runtime/outputs/outbox.h"

namespace nereid::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class OutboxGroupTest : public testing::Test {
 protected:
  void open(Subscription s) {
    s.id = 10;
    s.callback = [this](Response r) { responses_.push_back(std::move(r)); };
    progress_.opened();
    outbox_->open(std::move(s));
  }

  void post(EngineUpdate update) {
    std::vector<EngineUpdate> list;
    list.push_back(std::move(update));
    outbox_->post({now(), std::move(list)});
  }
  void tokens(RequestId id, const std::vector<TokenId>& list, float sum = 0) {
    post({.row = {.id = id, .tokens = {list.begin(), list.end()}, .full_log_probs = {sum}}});
  }
  void finish(RequestId id, FinishReason reason) {
    post({.row = {.id = id, .finished = true, .reason = reason}});
  }
  void fail(RequestId id) {
    post({.row = {.id = id, .finished = true, .status = internal_error("broken")}});
  }
  void beams(std::vector<std::vector<TokenId>> hypotheses,
             FinishReason reason = FinishReason::kNotFinished) {
    const auto update = std::make_unique<EngineUpdate>();
    sched::SequenceUpdate& row = update->row;
    row.id = 10;
    for (auto& h : hypotheses)
      row.beams.push_back({.tokens = h, .cum_log_prob = -1, .reason = reason});
    row.finished = reason != FinishReason::kNotFinished;
    row.reason = reason;
    post(std::move(*update));
  }

  // Delivers everything; exactly one response, the last, is final.
  void close() {
    outbox_.reset();
    ASSERT_FALSE(responses_.empty());
    for (const Response& r : responses_) EXPECT_EQ(r.is_final, &r == &responses_.back());
    EXPECT_TRUE(progress_.wait_idle(std::chrono::milliseconds(0)));
  }

  std::vector<RequestId> cancelled() {
    std::vector<RequestId> ids;
    inbox_.push(CancelAll{});
    std::vector<Command> commands;
    inbox_.take_all(commands, false);
    for (const Command& command : commands)
      if (const auto* c = std::get_if<Cancel>(&command)) ids.push_back(c->id);
    return ids;
  }

  const SequenceOutput& output(size_t response, size_t index = 0) {
    return responses_.at(response).outputs.at(index);
  }

  Inbox inbox_;
  Progress progress_;
  std::vector<Response> responses_;
  std::unique_ptr<Outbox> outbox_ = std::make_unique<Outbox>(nullptr, inbox_, progress_);
};

TEST_F(OutboxGroupTest, EachSequenceEndsAndTheLastEndsTheRequest) {
  open({.streaming = true, .num_sequences = 2, .num_returned = 2, .client_id = 4});
  tokens(11, {1});
  tokens(10, {2});
  finish(11, FinishReason::kEndId);
  tokens(10, {3});
  finish(10, FinishReason::kLength);
  close();
  ASSERT_EQ(responses_.size(), 5u);
  EXPECT_THAT(output(0).token_ids, ElementsAre(1));
  EXPECT_EQ(responses_[0].sequence_index, 1);
  EXPECT_TRUE(responses_[2].is_sequence_final);
  EXPECT_EQ(output(2).finish_reason, FinishReason::kEndId);
  EXPECT_EQ(responses_[4].sequence_index, 0);
  for (const Response& r : responses_) {
    EXPECT_EQ(r.request_id, 10u);
    EXPECT_EQ(r.client_id, 4u);
  }
}

TEST_F(OutboxGroupTest, AFailureEndsTheWholeRequestAndCancelsTheRest) {
  open({.num_sequences = 3, .num_returned = 3});
  finish(12, FinishReason::kLength);
  fail(10);
  finish(11, FinishReason::kCancelled);
  close();
  ASSERT_EQ(responses_.size(), 2u);
  EXPECT_TRUE(absl::IsInternal(responses_[1].status));
  EXPECT_THAT(responses_[1].outputs, IsEmpty());
  EXPECT_THAT(cancelled(), ElementsAre(10));
}

TEST_F(OutboxGroupTest, TheBestAreReturnedBestFirst) {
  open({.log_probs = true, .num_sequences = 4, .num_returned = 2});
  tokens(10, {1}, -3);
  tokens(11, {2}, -1);
  tokens(12, {3}, -0.5f);
  tokens(13, {4}, -2);
  for (RequestId id : {10, 11, 13}) finish(id, FinishReason::kLength);
  finish(12, FinishReason::kTimedOut);
  close();
  ASSERT_EQ(responses_.size(), 2u);
  EXPECT_THAT(output(0).token_ids, ElementsAre(2));
  EXPECT_EQ(output(0).cum_log_prob, -1.0f);
  EXPECT_THAT(output(1).token_ids, ElementsAre(4));
  EXPECT_EQ(responses_[1].sequence_index, 1);
}

TEST_F(OutboxGroupTest, ACancelledSequenceHasNoNewTokens) {
  for (const bool whole : {false, true}) {
    outbox_ = std::make_unique<Outbox>(nullptr, inbox_, progress_);
    responses_.clear();
    open({.streaming = true, .whole = whole, .log_probs = true, .echo = {7}});
    const auto update = std::make_unique<EngineUpdate>();
    update->row.id = 10, update->row.tokens = {1}, update->row.log_probs = {-1};
    post(std::move(*update));
    finish(10, FinishReason::kCancelled);
    close();
    ASSERT_EQ(responses_.size(), 2u);
    EXPECT_THAT(output(0).token_ids, ElementsAre(7, 1));
    EXPECT_THAT(output(0).log_probs, ElementsAre(-1));
    EXPECT_EQ(output(1).token_ids.size(), whole ? 1u : 0u) << "the echo only";
    EXPECT_THAT(output(1).log_probs, IsEmpty());
    EXPECT_FALSE(output(1).cum_log_prob);
    EXPECT_EQ(output(1).num_output_tokens, 1);
  }
}

TEST_F(OutboxGroupTest, BeamsAreSentWholeAndNeverShrink) {
  open({.streaming = true, .num_returned = 2, .beam_width = 3, .echo = {7}});
  beams({{1}, {2}});
  beams({{1, 3}, {2, 4}});
  beams({{1}, {2}});        // preempted, restarted
  beams({{1, 3}, {2, 4}});  // as long as before
  beams({{2, 4, 5}, {1, 3, 6}});
  beams({{2, 4, 5}, {8}}, FinishReason::kEndId);
  close();
  ASSERT_EQ(responses_.size(), 4u);
  EXPECT_THAT(output(1, 0).token_ids, ElementsAre(7, 1, 3));
  EXPECT_THAT(output(1, 1).token_ids, ElementsAre(7, 2, 4));
  EXPECT_THAT(output(2, 0).token_ids, ElementsAre(7, 2, 4, 5));
  EXPECT_THAT(output(3, 1).token_ids, ElementsAre(7, 8));
  EXPECT_EQ(output(3, 0).finish_reason, FinishReason::kEndId);
  EXPECT_EQ(output(3, 0).num_output_tokens, 3);
  EXPECT_FALSE(output(3, 0).cum_log_prob) << "not asked for";
}

TEST_F(OutboxGroupTest, CancelledBeamsHaveTheirNumberAndNoTokens) {
  open({.num_returned = 3, .beam_width = 3});
  beams({{1}, {2}, {3}});
  finish(10, FinishReason::kTimedOut);
  close();
  ASSERT_EQ(responses_.size(), 1u);
  ASSERT_EQ(responses_[0].outputs.size(), 3u);
  for (const SequenceOutput& o : responses_[0].outputs) {
    EXPECT_THAT(o.token_ids, IsEmpty());
    EXPECT_EQ(o.finish_reason, FinishReason::kTimedOut);
  }
}

TEST_F(OutboxGroupTest, LogitsComeOnceAndWithTheirTokens) {
  open({.streaming = true, .num_sequences = 2, .num_returned = 2});
  const auto follower = std::make_unique<EngineUpdate>();
  follower->row.id = 11, follower->row.tokens = {5};
  follower->generation_logits = {1, 2, 3};
  post(std::move(*follower));
  const auto leader = std::make_unique<EngineUpdate>();
  leader->row.id = 10, leader->row.tokens = {6};
  leader->context_logits =
      std::make_shared<const std::vector<float>>(std::vector<float>{0.5f, 0.25f});
  post(std::move(*leader));
  finish(10, FinishReason::kLength);
  finish(11, FinishReason::kLength);
  close();
  ASSERT_EQ(responses_.size(), 4u);
  EXPECT_THAT(output(0).generation_logits, ElementsAre(1, 2, 3));
  EXPECT_FALSE(responses_[0].context_logits);
  ASSERT_TRUE(responses_[1].context_logits);
  EXPECT_THAT(*responses_[1].context_logits, ElementsAre(0.5f, 0.25f));
  EXPECT_FALSE(responses_[2].context_logits);
  EXPECT_THAT(output(2).generation_logits, IsEmpty());
}

}  // namespace
}  // namespace nereid::runtime
