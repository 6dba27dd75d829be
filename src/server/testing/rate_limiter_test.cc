// The rate limiter's turns, without models.
#include "server/batching/rate_limiter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace nereid::server {
namespace {

using testing::HasSubstr;

RateLimits needs(const std::string& name, uint32_t count, bool is_global = false,
                 uint32_t priority = 1) {
  return {{{name, is_global, count}}, priority};
}

TEST(RateLimiter, RefusesWhatCanNeverRun) {
  RateLimiter limiter({{{RateLimiter::kEveryDevice, "R"}, 2}});
  EXPECT_EQ(message(limiter.add_instance(needs("R", 3), 0).status()),
            "Resource count for \"R\" is limited to 2 which will prevent scheduling of one or more "
            "model instances, the minimum required count is 3");
  const auto gate = limiter.add_instance(needs("R", 2), 0);
  ASSERT_TRUE(gate.ok());
  EXPECT_THAT(message(limiter.add_instance(needs("R", 1, true), 0).status()),
              HasSubstr("present as both global and device-specific resource"));
}

// Runs `num_turns` turns in all on the gates and counts each one's. `is_full`: a turn ends only
// when all others wait for one, and asks for the next at once.
std::vector<int> race(std::vector<std::unique_ptr<Gate>>& gates, int num_turns, int& most_inside,
                      bool is_full = false) {
  std::vector<int> turns(gates.size());
  std::atomic<int> inside{0}, most{0}, left{num_turns};
  std::atomic<size_t> num_wanting{0};  // at the end of their work, or waiting
  std::vector<std::thread> threads;
  for (size_t i = 0; i < gates.size(); ++i) {
    threads.emplace_back([&, i] {
      while (++num_wanting, left.fetch_sub(1) > 0) {
        gates[i]->enter();
        --num_wanting;
        const int now_inside = ++inside;
        int seen = most.load();
        while (now_inside > seen && !most.compare_exchange_weak(seen, now_inside)) continue;
        while (is_full && num_wanting + 1 < gates.size()) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        ++turns[i];
        --inside;
        if (!is_full) gates[i]->leave();
      }
      gates[i]->leave();
    });
  }
  for (auto& thread : threads) thread.join();
  most_inside = most.load();
  return turns;
}

TEST(RateLimiter, OnlyAsManyAtATimeAsThereAreResources) {
  RateLimiter limiter({{{RateLimiter::kGlobal, "R"}, 4}});
  std::vector<std::unique_ptr<Gate>> gates;
  for (int i = 0; i < 4; ++i) {
    auto gate = limiter.add_instance(needs("R", 2, true), i);
    ASSERT_TRUE(gate.ok());
    gates.push_back(*std::move(gate));
  }
  int most = 0;
  race(gates, 100, most);
  EXPECT_EQ(most, 2);
}

TEST(RateLimiter, WhereSomeResourcesAreSetThereIsNothingOfTheOthers) {
  RateLimiter limiter({{{RateLimiter::kEveryDevice, "R"}, 2}, {{10, "S"}, 5}, {{3, "G"}, 1}});
  EXPECT_TRUE(limiter.add_instance(needs("R", 2), 0).ok());
  EXPECT_TRUE(limiter.add_instance(needs("S", 5), 10).ok());
  EXPECT_TRUE(limiter.add_instance(needs("G", 1, true), 0).ok());
  EXPECT_FALSE(limiter.add_instance(needs("G", 2, true), 0).ok());
  for (const char* name : {"S", "T"})
    EXPECT_THAT(std::string(message(limiter.add_instance(needs(name, 1), 0).status())),
                HasSubstr("is limited to 0 which will prevent"));
}

TEST(RateLimiter, DefaultCapacityIsTheLargestDemandOfADevice) {
  RateLimiter limiter({});
  std::vector<std::unique_ptr<Gate>> gates;
  for (const int device : {0, 0, 1}) {
    auto gate = limiter.add_instance(needs("R", 5), device);
    ASSERT_TRUE(gate.ok());
    gates.push_back(*std::move(gate));
  }
  int most = 0;
  race(gates, 60, most);
  EXPECT_EQ(most, 2) << "one on each device";
}

TEST(RateLimiter, PriorityDividesTheTurns) {
  RateLimiter limiter({});
  std::vector<std::unique_ptr<Gate>> gates;
  for (const uint32_t priority : {1, 2}) {
    auto gate = limiter.add_instance(needs("R", 1, false, priority), 0);
    ASSERT_TRUE(gate.ok());
    gates.push_back(*std::move(gate));
  }
  int most = 0;
  const auto turns = race(gates, 150, most, true);
  EXPECT_EQ(most, 1);
  EXPECT_NEAR(turns[0], 100, 2);
  EXPECT_NEAR(turns[1], 50, 2);
}

// A demand for everything gets its turn although small ones never leave the resource idle.
TEST(RateLimiter, ALargeDemandIsNotStarved) {
  RateLimiter limiter({{{RateLimiter::kGlobal, "R"}, 3}});
  std::vector<std::unique_ptr<Gate>> gates;
  for (const uint32_t count : {1, 1, 1, 3}) {
    auto gate = limiter.add_instance(needs("R", count, true), 0);
    ASSERT_TRUE(gate.ok());
    gates.push_back(*std::move(gate));
  }
  int most = 0;
  EXPECT_GE(race(gates, 200, most)[3], 10);
}

}  // namespace
}  // namespace nereid::server
