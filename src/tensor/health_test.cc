#include "tensor/health.h"

#include <gtest/gtest.h>

#include <chrono>

namespace nereid {
namespace {

using std::chrono::seconds;

TEST(Health, KeepsTheFirstReasonAndTheWorstState) {
  int num_hung = 0;
  Health health([] { return "device x"; });
  health.set_hooks(nullptr, [&] { ++num_hung; });
  EXPECT_TRUE(health.failure().ok());
  health.fail(internal_error("bad memory"));
  health.fail(internal_error("other"));
  EXPECT_FALSE(health.is_hung());
  EXPECT_EQ(num_hung, 0);
  health.hang(unavailable("no progress"));
  health.hang(unavailable("no progress"));
  health.fail(internal_error("another"));
  EXPECT_TRUE(health.is_hung());
  EXPECT_EQ(num_hung, 1);
  EXPECT_EQ(health.failure(), unavailable("device x has failed: bad memory"));
}

TEST(Stall, IsOverOnceNothingMovedForTheTimeout) {
  Health health([] { return "device x"; });
  health.set_timeout(seconds(80));
  Stall stall(health);
  EXPECT_EQ(stall.slice(), seconds(10));
  Time at = now();
  stall.restart(at);
  for (int i = 1; i < 8; ++i) EXPECT_FALSE(stall.over(at += seconds(10))) << i;
  health.made_progress();  // a long step continues while there is progress
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(stall.over(at += seconds(10))) << i;
  EXPECT_TRUE(stall.over(at += seconds(10)));
  EXPECT_EQ(message(stall.error()), "it has made no progress for 80 s (device_timeout_secs)");
}

// The process was stopped, or the machine suspended.
TEST(Stall, ASuspendedProcessHasNotWaited) {
  Health health([] { return "device x"; });
  health.set_timeout(seconds(80));
  Stall stall(health);
  Time at = now();
  stall.restart(at);
  for (int i = 1; i < 8; ++i) EXPECT_FALSE(stall.over(at += std::chrono::hours(10))) << i;
  EXPECT_TRUE(stall.over(at += std::chrono::hours(10)));
}

TEST(Stall, HasExtraTimeAndNoLimitWhereThereIsNone) {
  Health health([] { return "device x"; });
  Time at = now();
  Stall endless(health);
  endless.restart(at);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(endless.over(at += std::chrono::hours(10)));
  health.set_timeout(seconds(80));
  Stall longer(health, 0.25);
  longer.restart(at);
  for (int i = 1; i < 8; ++i) EXPECT_FALSE(longer.over(at += seconds(12))) << i;
  EXPECT_FALSE(longer.over(at += seconds(12)));  // 96 of 100
  EXPECT_TRUE(longer.over(at += seconds(12)));
}

}  // namespace
}  // namespace nereid
