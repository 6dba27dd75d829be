// Exceptions at the entry of a thread.
#include "base/contained.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <vector>

#include "base/serial.h"

namespace nereid {
namespace {

TEST(Contained, SaysWhetherTheBodyThrew) {
  EXPECT_TRUE(contained("test", [] {}));
  EXPECT_FALSE(contained("test", [] { throw std::bad_alloc(); }));
  EXPECT_FALSE(contained("test", [] { throw 7; }));
}

TEST(Contained, AThreadsWorkBeginsAgain) {
  int num_runs = 0;
  run_contained("test", [&] {
    if (++num_runs < 3) throw std::length_error("short");
  });
  EXPECT_EQ(num_runs, 3);
}

TEST(SerialEvents, AThrowingEventHoldsUpNoOther) {
  SerialEvents events;
  std::vector<int> seen;
  const auto post_more = [&] {
    events.post([&] { seen.push_back(1); });
    throw std::bad_alloc();
  };
  EXPECT_THROW(events.post(post_more), std::bad_alloc);
  events.post([&] { seen.push_back(2); });
  EXPECT_EQ(seen, (std::vector<int>{1, 2}));
}

}  // namespace
}  // namespace nereid
