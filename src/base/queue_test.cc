#include "base/queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace nereid {
namespace {

TEST(Queue, KeepsOrderPerProducerAndDrainsAfterClose) {
  Queue<std::pair<int, int>> queue;
  std::vector<std::thread> producers;
  for (int p = 0; p < 4; ++p)
    producers.emplace_back([&, p] {
      for (int i = 0; i < 1000; ++i) ASSERT_TRUE(queue.push({p, i}));
    });
  std::vector<int> next(4, 0);
  int seen = 0;
  std::vector<std::pair<int, int>> items;
  while (seen < 4000) {
    ASSERT_TRUE(queue.take_all(items, /*may_sleep=*/true));
    for (auto [p, i] : items) {
      EXPECT_EQ(i, next[p]++);
      ++seen;
    }
  }
  for (auto& t : producers) t.join();
  queue.push({9, 9});
  queue.close();
  EXPECT_FALSE(queue.push({1, 1}));
  EXPECT_EQ(queue.take()->first, 9);
  EXPECT_FALSE(queue.take().has_value());
  EXPECT_FALSE(queue.take_all(items, true));
  EXPECT_TRUE(items.empty());
}

TEST(Queue, HoldsMoveOnlyItems) {
  Queue<std::unique_ptr<int>> queue;
  queue.push(std::make_unique<int>(7));
  EXPECT_EQ(**queue.take(), 7);
  std::vector<std::unique_ptr<int>> items;
  items.push_back(std::make_unique<int>(8));
  EXPECT_TRUE(queue.take_all(items, /*may_sleep=*/false));
  EXPECT_TRUE(items.empty());
}

// take() and take_all() by turns, with backlogs of all sizes.
TEST(Queue, TakesInOrderHoweverMuchIsLeft) {
  Queue<int> queue;
  std::vector<int> all;
  int pushed = 0, taken = 0;
  for (int turn = 0; turn < 300; ++turn) {
    for (int i = turn % 7; i > 0; --i) queue.push(pushed++);
    for (int i = turn % 5; i > 0 && taken < pushed; --i) EXPECT_EQ(*queue.take(), taken++);
    EXPECT_EQ(queue.size(), static_cast<size_t>(pushed - taken));
    if (turn % 50 != 49) continue;
    EXPECT_TRUE(queue.take_all(all, false));
    for (const int item : all) EXPECT_EQ(item, taken++);
    EXPECT_EQ(taken, pushed);
  }
}

// A producer and a consumer of everything, by turns, use the same two buffers.
TEST(Queue, ReusesItsMemory) {
  Queue<int> queue;
  std::vector<int> out;
  std::vector<const int*> places;
  for (int turn = 0; turn < 8; ++turn) {
    for (int i = 0; i < 10; ++i) queue.push(i);
    queue.take_all(out, false);
    places.push_back(out.data());
  }
  for (size_t i = 4; i < places.size(); ++i) EXPECT_EQ(places[i], places[i - 2]);
}

}  // namespace
}  // namespace nereid
