// Which work of the threads beside the event loops runs, and which waits.
#include "front/http/workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <vector>

namespace nereid::front {
namespace {

// Jobs that wait for the test.
class Gate {
 public:
  std::function<void()> job() {
    return [this] {
      std::unique_lock lock(mutex_);
      ++num_inside_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return is_open_; });
    };
  }
  void wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_inside_ >= count; });
  }
  size_t num_inside() {
    std::lock_guard lock(mutex_);
    return num_inside_;
  }
  void open() {
    std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t num_inside_ = 0;
  bool is_open_ = false;
};

void run_and_wait(Workers& workers, Lane lane) {
  std::promise<void> done;
  workers.push([&] { done.set_value(); }, lane);
  done.get_future().wait();
}

TEST(Workers, WorkThatWaitsForOthersTakesNoWorker) {
  Gate gate;
  Workers workers(2);
  for (size_t i = 0; i < 3 * kMostFetches; ++i) workers.push(gate.job(), Lane::kFetch, i % 3);
  gate.wait_for(kMostFetches);
  for (const Lane lane : {Lane::kWorker, Lane::kLong, Lane::kWorker}) run_and_wait(workers, lane);
  EXPECT_EQ(gate.num_inside(), kMostFetches);
  gate.open();
}

TEST(Workers, ATenantLeavesThreadsToOthers) {
  Gate first, second;
  Workers workers(1);
  for (size_t i = 0; i < 3 * kMostFetches; ++i) workers.push(first.job(), Lane::kFetch, 7);
  first.wait_for(kTenantFetches);
  for (size_t i = 0; i < kTenantFetches; ++i) workers.push(second.job(), Lane::kFetch, 8);
  second.wait_for(kTenantFetches);
  EXPECT_EQ(first.num_inside(), kTenantFetches);
  second.open();
  first.open();
}

// Work of kFetch counts as one of kLong after count_as_long(): with two workers one job of kLong
// runs at a time.
TEST(Workers, WorkThatHasWaitedCountsAsLong) {
  Gate gate;
  std::atomic<bool> has_run = false;
  std::promise<void> waited;
  Workers workers(2);  // one of them for long work
  const auto block = gate.job();
  workers.push(
      [&] {
        workers.count_as_long();
        waited.set_value();
        block();
      },
      Lane::kFetch);
  waited.get_future().wait();
  workers.push([&] { has_run = true; }, Lane::kLong);
  run_and_wait(workers, Lane::kWorker);  // by then the job of kLong would have run
  run_and_wait(workers, Lane::kWorker);
  EXPECT_FALSE(has_run);
  gate.open();
}

// All jobs of all lanes run before the threads end.
TEST(Workers, TheEndFinishesWaitingJobs) {
  std::atomic<int> num_done = 0;
  {
    Workers workers(1);
    for (int i = 0; i < 50; ++i)
      workers.push(
          [&] {
            workers.count_as_long();
            ++num_done;
          },
          Lane::kFetch, static_cast<uint64_t>(i % 5));
  }
  EXPECT_EQ(num_done, 50);
}

}  // namespace
}  // namespace nereid::front
