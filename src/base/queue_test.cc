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
  while (seen < 4000) {
    auto items = queue.take_all(/*may_sleep=*/true);
    ASSERT_TRUE(items.has_value());
    for (auto [p, i] : *items) {
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
  EXPECT_FALSE(queue.take_all(true).has_value());
}

TEST(Queue, HoldsMoveOnlyItems) {
  Queue<std::unique_ptr<int>> queue;
  queue.push(std::make_unique<int>(7));
  EXPECT_EQ(**queue.take(), 7);
  EXPECT_TRUE(queue.take_all(/*may_sleep=*/false)->empty());
}

}  // namespace
}  // namespace nereid
