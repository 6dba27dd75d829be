#include "tensor/thread_pool.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "base/clock.h"
#include "base/testing/wait.h"

namespace nereid {
namespace {

TEST(ThreadPool, CoversEveryItemOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (int64_t items : {0, 1, 2, 7, 64, 1000}) {
      for (int64_t grain : {0, 1, 3, 64, 5000}) {
        std::vector<int> hits(items, 0);
        pool.parallel_for(items, grain, [&](int64_t begin, int64_t end, int thread) {
          EXPECT_GE(thread, 0);
          EXPECT_LT(thread, threads);
          EXPECT_EQ(begin % std::max<int64_t>(grain, 1), 0);
          EXPECT_LE(end - begin, std::max<int64_t>(grain, 1));
          for (int64_t i = begin; i < end; ++i) ++hits[i];
        });
        for (int64_t i = 0; i < items; ++i) ASSERT_EQ(hits[i], 1) << threads << " " << items;
      }
    }
  }
}

// Each region reads what the previous one wrote, synchronised by the join only.
TEST(ThreadPool, RegionsAreOrdered) {
  ThreadPool pool(4);
  constexpr int64_t kItems = 37;
  std::vector<int64_t> a(kItems, 0), b(kItems, 0);
  for (int step = 0; step < 3000; ++step) {
    pool.parallel_for(kItems, 2, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) b[i] = a[kItems - 1 - i] + 1;
    });
    a.swap(b);
    // Lets the workers sleep occasionally.
    if (step % 1000 == 999) {
      EXPECT_TRUE(wait_until_nothing_runs());
    }
  }
  EXPECT_EQ(std::accumulate(a.begin(), a.end(), int64_t{0}), 3000 * kItems);
}

TEST(ThreadPool, CallersTakeTurns) {
  ThreadPool pool(3);
  std::atomic<int64_t> sum = 0;
  std::vector<std::thread> callers;
  for (int c = 0; c < 3; ++c)
    callers.emplace_back([&] {
      for (int i = 0; i < 500; ++i)
        pool.parallel_for(10, 1, [&](int64_t begin, int64_t, int) { sum += begin; });
    });
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(sum, 3 * 500 * 45);
}

TEST(ThreadPool, OneThreadHasItsScratchToItself) {
  ThreadPool pool(4);
  std::vector<int> busy(4, 0);
  for (int i = 0; i < 300; ++i)
    pool.parallel_for(40, 1, [&](int64_t, int64_t, int thread) {
      EXPECT_EQ(busy[thread]++, 0);
      EXPECT_EQ(--busy[thread], 0);
    });
}

TEST(ThreadPool, CountsBusyTimeWhenAsked) {
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads);
    const auto work = [](int64_t, int64_t, int) {
      for (const Time start = now(); now() == start;) continue;
    };
    const auto sum = [&] {
      double all = 0;
      for (const double seconds : pool.busy_seconds()) all += seconds;
      return all;
    };
    pool.parallel_for(4, 1, work);
    EXPECT_EQ(sum(), 0);
    pool.count_busy(true);
    pool.parallel_for(4, 1, work);
    const double counted = sum();
    EXPECT_GT(counted, 0);
    pool.count_busy(false);
    pool.parallel_for(4, 1, work);
    EXPECT_EQ(sum(), counted);
  }
}

TEST(ThreadPool, SleepsWhenIdle) {
  ThreadPool pool(2);
  EXPECT_TRUE(wait_until_nothing_runs());
  pool.parallel_for(2, 1, [](int64_t, int64_t, int) {});
  EXPECT_TRUE(wait_until_nothing_runs());
}

// Each of the two ranges waits until the other has started.
TEST(ThreadPool, RangesRunAtTheSameTime) {
  ThreadPool pool(2);
  for (int i = 0; i < 200; ++i) {
    std::atomic<int> num_taken = 0;
    pool.parallel_for(2, 1, [&](int64_t, int64_t, int) {
      ++num_taken;
      while (num_taken.load() < 2) std::this_thread::yield();
    });
    EXPECT_EQ(num_taken, 2);
  }
}

}  // namespace
}  // namespace nereid
