// Several executors on fake runners behind one.
#include "runtime/instances/instance_group.h"

#include <gmock/gmock.h>

#include <atomic>
#include <functional>
#include <future>
#include <set>
#include <thread>

#include "runtime/testing/engine_fixture.h"

namespace nereid::runtime {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

bool wait_for(const std::function<bool()>& condition) {
  for (int i = 0; i < 6000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return false;
}

class InstanceGroupTest : public testing::Test {
 protected:
  void open(int32_t count, bool restarts = false, ExecutorConfig config = {}) {
    fakes_.resize(static_cast<size_t>(count));
    auto group = open_instances(
        [this, config](int32_t i) -> StatusOr<std::unique_ptr<Executor>> {
          ++num_opens_;
          if (open_fails_) return unavailable("no device");
          Fixture fixture(roomy(), config);
          const std::lock_guard lock(mutex_);
          fakes_[static_cast<size_t>(i)] = {fixture.runner, fixture.device};
          return std::move(fixture.executor);
        },
        {.num_instances = count,
         .restarts = restarts,
         .first_delay = milliseconds(1),
         .last_delay = milliseconds(20)});
    ASSERT_TRUE(group.ok()) << group.status();
    group_ = *std::move(group);
  }

  FakeRunner& runner(size_t i) {
    const std::lock_guard lock(mutex_);
    return *fakes_[i].runner;
  }
  // Steps in flight end with the failure, and the instance may be gone then.
  void fail(size_t i) {
    const std::lock_guard lock(mutex_);
    fakes_[i].device->health().fail(unavailable("rank 0 is gone"));
  }
  int64_t open_requests(size_t i) { return group_->instances().at(i).num_requests; }

  struct Fake {
    FakeRunner* runner = nullptr;
    TightDevice* device = nullptr;
  };
  std::mutex mutex_;
  std::vector<Fake> fakes_;
  std::atomic<bool> open_fails_ = false;
  std::atomic<int> num_opens_ = 0;
  TestClient client_;  // outlives the group
  std::unique_ptr<Executor> group_;
};

TEST_F(InstanceGroupTest, AnswersAreThoseOfOneExecutor) {
  Fixture single;
  open(3);
  std::vector<RequestId> ids;
  for (TokenId t = 8; t < 38; ++t) ids.push_back(client_.send(*group_, request({t, 9, t}, 12)));
  for (TokenId t = 8; t < 38; ++t)
    EXPECT_EQ(client_.wait(ids[static_cast<size_t>(t - 8)]).tokens,
              single.client.run(*single.executor, request({t, 9, t}, 12)).tokens);
  EXPECT_TRUE(wait_for([&] { return group_->stats().num_finished == 30; }));
  const ExecutorStats stats = group_->stats();
  EXPECT_EQ(stats.max_batch_size, 3 * 8);
  EXPECT_EQ(stats.kv_blocks_total, 3 * 128);
  EXPECT_EQ(stats.generated_tokens, 30 * 12);
  EXPECT_EQ(group_->vocab_size(), kVocab);
  EXPECT_EQ(group_->max_sequence_length(), single.executor->max_sequence_length());
  EXPECT_TRUE(
      wait_for([&] { return open_requests(0) + open_requests(1) + open_requests(2) == 0; }));
}

TEST_F(InstanceGroupTest, RequestsGoToAllInstancesAndAPrefixToItsOwn) {
  open(2);
  runner(0).hold(true);
  runner(1).hold(true);
  std::vector<RequestId> ids;
  for (TokenId t = 10; t < 14; ++t) ids.push_back(client_.send(*group_, request({t}, 2)));
  EXPECT_EQ(open_requests(0), 2);
  EXPECT_EQ(open_requests(1), 2);
  runner(0).hold(false);
  runner(1).hold(false);
  for (const RequestId id : ids) client_.wait(id);
  EXPECT_TRUE(wait_for([&] { return open_requests(0) + open_requests(1) == 0; }));
  const std::vector<TokenId> prompt(100, 11);
  client_.run(*group_, request(prompt, 2));
  for (int i = 0; i < 4; ++i)
    EXPECT_GT(client_.run(*group_, request(prompt, 2)).last.metrics.reused_blocks, 0) << i;
}

TEST_F(InstanceGroupTest, AwaitedResponsesAndCancelledRequestsHaveTheGroupsIds) {
  open(2);
  runner(0).hold(true);
  runner(1).hold(true);
  std::vector<RequestId> ids;
  for (TokenId t = 10; t < 14; ++t) ids.push_back(*group_->enqueue(request({t}, 100)));
  EXPECT_EQ(std::set<RequestId>(ids.begin(), ids.end()).size(), 4U);
  EXPECT_EQ(group_->num_responses_ready({}), 0);
  group_->cancel(ids[2]);
  group_->cancel(12345);
  runner(0).hold(false);
  runner(1).hold(false);
  for (const RequestId id : ids) {
    const auto all = all_responses(*group_, id);
    EXPECT_EQ(all.back().request_id, id);
    EXPECT_EQ(all.back().outputs[0].finish_reason,
              id == ids[2] ? FinishReason::kCancelled : FinishReason::kLength);
  }
  const auto batch = group_->enqueue_requests({request({20}, 3), request({21}, 3)});
  ASSERT_TRUE(batch.ok());
  for (const RequestId id : *batch) EXPECT_EQ(all_responses(*group_, id).back().request_id, id);
  EXPECT_THAT(group_->enqueue_requests({request({20}, 3), request({}, 3)}).status().ToString(),
              HasSubstr("requests[1]: "));
  EXPECT_TRUE(wait_for([&] { return open_requests(0) + open_requests(1) == 0; }));
}

TEST_F(InstanceGroupTest, StepsAreNumberedThroughAllInstances) {
  open(2);
  for (TokenId t = 10; t < 14; ++t) client_.run(*group_, request({t}, 5));
  ASSERT_TRUE(wait_for([&] { return group_->stats().num_active == 0; }));
  const auto steps = group_->latest_iteration_stats();
  ASSERT_FALSE(steps.empty());
  for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i].iter, static_cast<int64_t>(i) + 1);
  EXPECT_EQ(steps.back().iter, group_->stats().num_steps);
  EXPECT_EQ(steps.back().kv_max_blocks, 2 * 128);
}

TEST_F(InstanceGroupTest, OneFailureLeavesTheOthersServing) {
  open(2);
  runner(0).hold(true);
  runner(1).hold(true);
  std::vector<RequestId> ids;
  for (TokenId t = 10; t < 14; ++t) ids.push_back(client_.send(*group_, request({t}, 20)));
  fail(0);
  runner(1).hold(false);
  int num_failed = 0;
  for (const RequestId id : ids) num_failed += !client_.wait(id).last.status.ok();
  EXPECT_EQ(num_failed, 2);
  EXPECT_TRUE(group_->health().ok());
  EXPECT_TRUE(group_->can_enqueue());
  EXPECT_FALSE(group_->instances()[0].is_healthy);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(client_.run(*group_, request({30}, 3)).last.status.ok());
  fail(1);
  EXPECT_THAT(group_->health().ToString(), HasSubstr("rank 0 is gone"));
  EXPECT_FALSE(group_->can_enqueue());
  EXPECT_TRUE(absl::IsUnavailable(group_->enqueue(request({9}, 3)).status()));
  EXPECT_EQ(num_opens_, 2);
}

class RestartTest : public InstanceGroupTest, public testing::WithParamInterface<int32_t> {};

TEST_P(RestartTest, AFailedInstanceIsOpenedAgain) {
  const int32_t count = GetParam();
  open(count, /*restarts=*/true);
  for (int32_t i = 0; i < 2 * count; ++i) client_.run(*group_, request({40}, 5));
  const int64_t tokens = group_->stats().generated_tokens;
  runner(0).hold(true);
  const RequestId running = client_.send(*group_, request(std::vector<TokenId>(30, 41), 20));
  open_fails_ = true;
  fail(0);
  ASSERT_TRUE(wait_for([&] { return num_opens_ >= count + 3; }));
  EXPECT_EQ(group_->instances()[0].num_restarts, 0);
  EXPECT_EQ(group_->health().ok(), count == 2);
  open_fails_ = false;
  ASSERT_TRUE(wait_for([&] { return group_->instances()[0].num_restarts == 1; }));
  EXPECT_TRUE(group_->instances()[0].is_healthy);
  client_.wait(running);
  const RequestId next = client_.send(*group_, request({42}, 5));
  EXPECT_TRUE(client_.wait(next).last.status.ok());
  EXPECT_NE(next, running);
  // Counts go on.
  ASSERT_TRUE(wait_for([&] { return group_->stats().generated_tokens >= tokens + 5; }));
  group_->drain(milliseconds(60000));
  EXPECT_EQ(group_->stats().kv_blocks_free, count * 128);
}

INSTANTIATE_TEST_SUITE_P(Instances, RestartTest, testing::Values(1, 2));

TEST_F(InstanceGroupTest, FailuresWhileRequestsComeLoseNone) {
  open(3, /*restarts=*/true);
  std::atomic<bool> over = false;
  std::thread failing([&] {
    for (size_t i = 0; !over; i = (i + 1) % 3) {
      const int64_t before = group_->instances()[i].num_restarts;
      fail(i);
      if (!wait_for([&] { return over || group_->instances()[i].num_restarts > before; })) return;
    }
  });
  int num_ok = 0;
  for (int i = 0; i < 300; ++i) {
    auto got = std::make_shared<std::promise<Status>>();
    const auto id = group_->enqueue(request({TokenId(8 + i % 50), 3}, 4), [got](Response r) {
      if (r.is_final) got->set_value(r.status);
    });
    if (!id.ok()) {
      EXPECT_TRUE(absl::IsUnavailable(id.status())) << id.status();
      continue;
    }
    auto status = got->get_future();
    ASSERT_EQ(status.wait_for(std::chrono::seconds(60)), std::future_status::ready);
    num_ok += status.get().ok();
  }
  over = true;
  failing.join();
  EXPECT_GT(num_ok, 0);
  EXPECT_TRUE(
      wait_for([&] { return open_requests(0) + open_requests(1) + open_requests(2) == 0; }));
}

TEST_F(InstanceGroupTest, AHungInstanceIsNotOpenedAgain) {
  open(2, /*restarts=*/true);
  {
    const std::lock_guard lock(mutex_);
    fakes_[0].device->health().hang(unavailable("no progress"));
  }
  ASSERT_TRUE(wait_for([&] { return !group_->instances()[0].is_healthy; }));
  EXPECT_TRUE(client_.run(*group_, request({30}, 3)).last.status.ok());
  EXPECT_FALSE(group_->is_hung());
  std::this_thread::sleep_for(milliseconds(150));  // three looks at its health
  EXPECT_EQ(num_opens_, 2);
}

TEST_F(InstanceGroupTest, ErrorsAtTheStartNameTheInstance) {
  const auto group = open_instances(
      [](int32_t i) -> StatusOr<std::unique_ptr<Executor>> {
        if (i == 1) return not_found("no file");
        return std::move(Fixture().executor);
      },
      {.num_instances = 2});
  EXPECT_THAT(group.status().ToString(), HasSubstr("instance 1: no file"));
}

TEST_F(InstanceGroupTest, AClosedGroupTakesNothing) {
  open(2, true);
  group_->shutdown();
  EXPECT_FALSE(group_->can_enqueue());
  EXPECT_THAT(group_->enqueue(request({9}, 3)).status().ToString(), HasSubstr("shutting down"));
  EXPECT_TRUE(group_->await_responses(milliseconds(60000)).empty());
}

}  // namespace
}  // namespace nereid::runtime
