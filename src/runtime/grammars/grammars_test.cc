// Grammars of requests: compiled once, in turns, and bounded.
#include "runtime/grammars/grammars.h"

#include <gmock/gmock.h>

#include <deque>
#include <future>
#include <mutex>
#include <string>
#include <thread>

#include "base/testing/source_dir.h"
#include "runtime/grammars/made_guide.h"

namespace nereid::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int32_t kGrammarVocab = 64;

std::shared_ptr<const text::Tokenizer> tokenizer() {
  static const std::shared_ptr<const text::Tokenizer> shipped =
      text::Tokenizer::load(source_dir() + "/models/quickstart").value();
  return shipped;
}

Request matching(std::string regex, uint64_t tenant = 0) {
  Request r;
  r.input_token_ids = {7};
  r.max_tokens = 9;
  r.end_ids = {3};
  r.guided_decoding = {GuideType::kRegex, std::move(regex)};
  r.tenant = tenant;
  return r;
}

TEST(Grammars, EqualTextsAreCompiledOnceAndRefusalsAreRemembered) {
  Grammars grammars(tokenizer(), kGrammarVocab);
  const Request r = matching("[A-F]+"), bad = matching("(");
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(made_guide(grammars, r).ok());
    EXPECT_THAT(made_guide(grammars, bad).status().ToString(), HasSubstr("'('"));
  }
  const int64_t num_small = grammars.num_compiled();
  EXPECT_LE(num_small, 3) << "the first time there are no tokens of the vocabulary yet";
  const Request long_text = matching(fmt::format("[A-F]+({})", std::string(5000, 'A')));
  std::vector<Grammars::Order> orders;
  for (int i = 0; i < 20; ++i) orders.push_back(grammars.order(long_text).value());
  for (const Grammars::Order& order : orders) {
    if (!order.waiter) continue;
    std::promise<Status> made;
    grammars.start(order, [&](const Status& status) { made.set_value(status); });
    EXPECT_TRUE(made.get_future().get().ok());
    EXPECT_NE(order.guide->grammar, nullptr);
  }
  EXPECT_EQ(grammars.num_compiled(), num_small + 1);
}

TEST(Grammars, WaitingTextsAreBoundedAndGoWithThoseWhoWait) {
  Grammars grammars(tokenizer(), kGrammarVocab);
  const auto text = [](int i) {
    return matching(fmt::format("[A-F]+{}({})", std::string(5000, 'A'), i));
  };
  std::vector<Grammars::Order> orders;
  Status refusal;
  for (int i = 0; i < 5000 && refusal.ok(); ++i) {
    auto order = grammars.order(text(i));
    if (order.ok())
      orders.push_back(*std::move(order));
    else
      refusal = order.status();
  }
  EXPECT_EQ(refusal.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(refusal.ToString(), HasSubstr("64 other texts wait to be compiled, 64 are allowed"));
  orders.clear();
  EXPECT_TRUE(made_guide(grammars, text(-1)).ok());
}

// Texts that take longer than a millisecond, and the order in which they are made.
class GrammarTurns : public ::testing::Test {
 protected:
  // Holds a thread that has made a text of the tenant.
  void hold_a_thread(uint64_t tenant) {
    const auto here = std::this_thread::get_id();
    for (bool holds = false; !holds;) {
      orders_.push_back(grammars_.order(text(tenant)).value());
      auto held = std::make_shared<std::promise<bool>>();
      auto go_on = releases_.emplace_back().get_future().share();
      grammars_.start(orders_.back(), [=](const Status&) {
        const bool is_theirs = std::this_thread::get_id() != here;  // else it was made too soon
        held->set_value(is_theirs);
        if (is_theirs) go_on.wait();
      });
      holds = held->get_future().get();
      if (!holds) releases_.pop_back();
    }
  }
  void release_one() { releases_.at(num_released_++).set_value(); }
  void TearDown() override {
    while (num_released_ < releases_.size()) release_one();
  }

  Status queue(uint64_t tenant) { return queue(text(tenant), tenant); }
  Status queue(const Request& request, uint64_t tenant) {
    ASSIGN_OR_RETURN(orders_.emplace_back(), grammars_.order(request));
    auto ended = std::make_shared<std::promise<void>>();
    ends_.push_back(ended->get_future());
    grammars_.start(orders_.back(), [this, tenant, ended](const Status& status) {
      {
        const std::lock_guard lock(mutex_);
        (status.ok() ? made_ : refused_).push_back(tenant);
      }
      ended->set_value();
    });
    return ok();
  }
  void wait_for_all() {
    for (std::future<void>& end : ends_) end.wait();
  }
  Request text(uint64_t tenant) {
    return matching(fmt::format("[A-F]+{}({})", std::string(5000, 'A'), ++num_texts_), tenant);
  }

  std::mutex mutex_;
  std::vector<uint64_t> made_, refused_;  // whose
  std::deque<std::promise<void>> releases_;
  size_t num_released_ = 0;
  std::vector<std::future<void>> ends_;
  std::deque<Grammars::Order> orders_;
  int num_texts_ = 0;
  Grammars grammars_{tokenizer(), kGrammarVocab};
};

TEST_F(GrammarTurns, ATenantsOnlyTextDoesNotWaitForAllOfAnothers) {
  constexpr uint64_t kBusy = 1, kOther = 2;
  for (int i = 0; i < 2; ++i) hold_a_thread(kBusy);
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(queue(kBusy).ok());
  EXPECT_TRUE(queue(kOther).ok());
  release_one();
  wait_for_all();
  ASSERT_EQ(made_.size(), 17u);
  EXPECT_EQ(made_[1], kOther) << "of two that come to an idle queue the first is first";
}

TEST_F(GrammarTurns, ATextThatAnotherTenantWantsToo) {
  for (int i = 0; i < 2; ++i) hold_a_thread(1);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(queue(1).ok());
  const int64_t num_held = grammars_.num_compiled();
  const Request shared = text(1);
  EXPECT_TRUE(queue(shared, 1).ok());
  Request same = shared;
  same.tenant = 2;
  EXPECT_TRUE(queue(same, 2).ok());
  release_one();
  wait_for_all();
  EXPECT_THAT(made_, ElementsAre(1, 1, 2, 1, 1)) << "with the other's first turn";
  EXPECT_EQ(grammars_.num_compiled(), num_held + 4) << "and once";
}

TEST_F(GrammarTurns, AFullQueueHasRoomForATenantWithFewerTexts) {
  for (int i = 0; i < 2; ++i) hold_a_thread(1);
  for (size_t i = 0; i < Grammars::kMostWaiting; ++i) EXPECT_TRUE(queue(1).ok());
  EXPECT_THAT(queue(1).ToString(), HasSubstr("64 other texts wait to be compiled, 64 are allowed"));
  EXPECT_TRUE(queue(2).ok());
  EXPECT_THAT(refused_, ElementsAre(1)) << "the last of the longest line";
  EXPECT_FALSE(queue(1).ok());
  for (size_t i = 1; i < Grammars::kMostWaiting / 2; ++i) EXPECT_TRUE(queue(2).ok());
  EXPECT_FALSE(queue(2).ok()) << "as many as the other's";
  release_one();
  wait_for_all();
  EXPECT_EQ(made_.size(), Grammars::kMostWaiting);
}

}  // namespace
}  // namespace nereid::runtime
