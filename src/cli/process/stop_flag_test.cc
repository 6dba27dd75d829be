#include "cli/process/stop_flag.h"

#include <gtest/gtest.h>

namespace nereid::cli {
namespace {

TEST(StopFlag, TakesTheSignalAndGivesItBack) {
  struct sigaction before {
  }, after{};
  ::sigaction(SIGINT, nullptr, &before);
  {
    const StopFlag stop;
    EXPECT_FALSE(stop.is_set());
    ::raise(SIGINT);
    EXPECT_TRUE(stop.is_set());
    EXPECT_EQ(stop.signal(), SIGINT);
  }
  ::sigaction(SIGINT, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
  const StopFlag again;
  EXPECT_FALSE(again.is_set());
}

}  // namespace
}  // namespace nereid::cli
