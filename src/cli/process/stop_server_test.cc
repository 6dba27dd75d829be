#include "cli/process/stop_server.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace nereid::cli {
namespace {

using std::chrono::seconds;

TEST(StopDeadline, EndsAProcessThatHangs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const StopDeadline deadline(seconds(0), [] { std::fputs("cleaned up", stderr); });
        while (true) ::pause();
      },
      testing::ExitedWithCode(1), "cleaned up");
}

TEST(StopDeadline, AHurryBringsItForward) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        StopDeadline deadline(seconds(86400));
        if (deadline.is_hurried() || deadline.left() < seconds(3600)) std::exit(3);
        deadline.hurry();
        if (!deadline.is_hurried() || deadline.left() != seconds(0)) std::exit(4);
        while (true) ::pause();
      },
      testing::ExitedWithCode(1), "");
}

TEST(StopDeadline, AStopInTimeIsLeftAlone) {
  StopDeadline deadline(seconds(86400));
  deadline.hurry();
}

}  // namespace
}  // namespace nereid::cli
