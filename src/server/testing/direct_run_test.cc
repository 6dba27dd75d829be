// When requests run on their callers' threads.
#include "server/direct_run.h"

#include <gtest/gtest.h>

namespace nereid::server {
namespace {

void prove(DirectRun& runs) {
  for (uint32_t i = 0; i < DirectRun::kProof; ++i) {
    runs.enter(0);
    runs.leave(0, 1000);
  }
}

TEST(DirectRun, OnlyWhenQuick) {
  DirectRun runs(1);
  EXPECT_FALSE(runs.claim().has_value());
  prove(runs);
  const auto claimed = runs.claim();
  ASSERT_TRUE(claimed.has_value());
  runs.leave(*claimed, DirectRun::kQuickNs + 1);
  EXPECT_FALSE(runs.claim().has_value());
  prove(runs);
  EXPECT_TRUE(runs.claim().has_value());
}

TEST(DirectRun, OnlyOnIdleInstances) {
  DirectRun runs(2);
  prove(runs);
  runs.enter(0);
  const auto other = runs.claim();
  ASSERT_TRUE(other.has_value());
  EXPECT_EQ(*other, 1u);
  EXPECT_FALSE(runs.claim().has_value());
  runs.leave(0, 1000);
  EXPECT_EQ(runs.claim(), 0u);
}

}  // namespace
}  // namespace nereid::server
