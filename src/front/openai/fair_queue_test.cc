#include "front/openai/fair_queue.h"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

namespace nereid::front {
namespace {

// Runs posted work on demand.
class QueuedExchange final : public Exchange {
 public:
  Request& request() override { return request_; }
  void post(std::function<void()> work) override { posted_.push_back(std::move(work)); }
  void send(Response) override {}
  void begin_stream(Response, std::string) override {}
  void write(std::string_view) override {}
  void end() override { request_.permit->end(); }
  void on_disconnect(std::function<void()>) override {}
  bool disconnected() const override { return has_left_; }

  void run() {
    for (const auto& work : std::exchange(posted_, {})) work();
  }
  void leave() { has_left_ = true; }

 private:
  Request request_;
  std::vector<std::function<void()>> posted_;
  bool has_left_ = false;
};

class FairQueueTest : public ::testing::Test {
 protected:
  using Key = std::shared_ptr<KeyUse>;

  // Enters a request of that key; `name` is recorded when it starts.
  std::shared_ptr<QueuedExchange> enter(const Key& key, char name, int64_t cost = 10) {
    auto exchange = std::make_shared<QueuedExchange>();
    if (key) exchange->request().permit = std::get<KeyUse::PermitPtr>(key->begin({}, Time()));
    EXPECT_TRUE(queue_->enter(exchange, limit_, cost, [this, name, exchange] {
      started_ += name;
      running_.push_back(exchange);
    }));
    all_.push_back(exchange);
    return exchange;
  }
  // Ends the request that has run longest, and runs the one that starts.
  void end_one(int64_t num_tokens = 0) {
    const auto exchange = running_.front();
    running_.pop_front();
    exchange->request().permit->charge(num_tokens);
    exchange->end();
    for (const auto& each : all_) each->run();
  }
  void end_all() {
    while (!running_.empty()) end_one();
  }

  size_t limit_ = 1;
  std::shared_ptr<FairQueue> queue_ = std::make_shared<FairQueue>(/*most_waiting=*/8);
  const Key a_ = std::make_shared<KeyUse>(), b_ = std::make_shared<KeyUse>();
  std::vector<std::shared_ptr<QueuedExchange>> all_;
  std::deque<std::shared_ptr<QueuedExchange>> running_;
  std::string started_;
};

TEST_F(FairQueueTest, OneRequestDoesNotWaitForAnothersMany) {
  for (int i = 0; i < 4; ++i) enter(a_, 'a');
  enter(b_, 'b');
  EXPECT_EQ(started_, "a");
  end_all();
  EXPECT_EQ(started_, "aabaa");
}

TEST_F(FairQueueTest, TurnsGoByTokens) {
  enter(a_, '.');
  for (int i = 0; i < 3; ++i) {
    enter(a_, 'a', 30);
    enter(b_, 'b', 10);
  }
  // Output tokens count too: b's are as many more as a's prompts are longer.
  while (!running_.empty()) end_one(started_.back() == 'b' ? 20 : 0);
  EXPECT_EQ(started_, ".ababab");
  started_.clear();
  enter(a_, '.');
  for (int i = 0; i < 3; ++i) {
    enter(a_, 'a', 30);
    enter(b_, 'b', 10);
  }
  end_all();
  EXPECT_EQ(started_, ".abbbaa") << "three short ones for a long one";
}

TEST_F(FairQueueTest, IdleTimeIsNotSavedUp) {
  // a has used much while b used nothing; from then on they share equally.
  a_->charge(1'000'000, Time());
  enter(a_, '.');
  for (int i = 0; i < 2; ++i) enter(a_, 'a');
  for (int i = 0; i < 2; ++i) enter(b_, 'b');
  end_all();
  EXPECT_EQ(started_, ".abab");
}

TEST_F(FairQueueTest, WhoComesOneByOneIsNotAlwaysFirst) {
  enter(a_, '.');
  for (int i = 0; i < 4; ++i) enter(a_, 'a');
  for (int i = 0; i < 4; ++i) {
    enter(b_, 'b');
    end_one();
    if (started_.back() != 'b') end_one();
  }
  EXPECT_EQ(started_.substr(0, 7), ".ababab");
}

TEST_F(FairQueueTest, AsManyRunAsMay) {
  limit_ = 3;
  for (int i = 0; i < 5; ++i) enter(a_, static_cast<char>('1' + i));
  EXPECT_EQ(started_, "123");
  end_one();
  EXPECT_EQ(started_, "1234");
  end_all();
  EXPECT_EQ(started_, "12345");
  enter(b_, 'b');
  EXPECT_EQ(started_, "12345b");
}

TEST_F(FairQueueTest, WhoHasLeftTakesNoTurn) {
  enter(a_, '1');
  const auto left = enter(a_, '2');
  enter(a_, '3');
  left->leave();
  end_one();
  EXPECT_EQ(started_, "13");
  end_all();
  enter(b_, 'b');
  EXPECT_EQ(started_, "13b") << "nor does it keep a place";
}

TEST_F(FairQueueTest, TooManyAreRefused) {
  for (int i = 0; i < 9; ++i) enter(a_, 'a');
  auto exchange = std::make_shared<QueuedExchange>();
  exchange->request().permit = std::get<KeyUse::PermitPtr>(b_->begin({}, Time()));
  EXPECT_FALSE(queue_->enter(exchange, limit_, 1, [this] { started_ += 'x'; }));
  EXPECT_EQ(b_->num_charged(), 0);
  end_all();
  EXPECT_EQ(started_, "aaaaaaaaa");
}

TEST_F(FairQueueTest, NobodyWaitsWithoutKeysOrLimit) {
  for (int i = 0; i < 3; ++i) enter(nullptr, 'n');
  limit_ = 0;
  for (int i = 0; i < 3; ++i) enter(a_, 'a');
  EXPECT_EQ(started_, "nnnaaa");
  EXPECT_EQ(a_->num_charged(), 30) << "it pays all the same";
}

TEST(FairQueues, ABusyModelHoldsUpNoOther) {
  FairQueues queues;
  const auto key = std::make_shared<KeyUse>();
  std::string started;
  std::vector<std::shared_ptr<QueuedExchange>> all;
  const auto enter = [&](const char* model) {
    auto exchange = std::make_shared<QueuedExchange>();
    exchange->request().permit = std::get<KeyUse::PermitPtr>(key->begin({}, Time()));
    EXPECT_TRUE(queues.of(model)->enter(exchange, 1, 1, [&started, model] { started += model; }));
    all.push_back(exchange);
  };
  for (const char* model : {"a", "a", "a", "b", "b", "a"}) enter(model);
  EXPECT_EQ(started, "ab");
  all[3]->end();
  for (const auto& each : all) each->run();
  EXPECT_EQ(started, "abb");
  EXPECT_EQ(queues.size(), 2u);
  for (int round = 0; round < 6; ++round)
    for (const auto& each : all) {
      each->end();
      each->run();
    }
  EXPECT_EQ(started, "abbaaa");
  all.clear();
  enter("c");
  EXPECT_EQ(queues.size(), 1u) << "idle lines are forgotten";
}

}  // namespace
}  // namespace nereid::front
