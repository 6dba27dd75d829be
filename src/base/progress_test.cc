#include "base/progress.h"

#include <gtest/gtest.h>

namespace nereid {
namespace {

TEST(Progress, SizesAndTimesForPeople) {
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(999), "999 B");
  EXPECT_EQ(size_text(1234), "1.2 kB");
  EXPECT_EQ(size_text(999'600), "1.0 MB");
  EXPECT_EQ(size_text(16.5e9), "16.5 GB");
  EXPECT_EQ(size_text(812e9), "812 GB");
  EXPECT_EQ(size_text(5e18), "5000 PB");
  EXPECT_EQ(duration_text(6.2), "0:07");
  EXPECT_EQ(duration_text(750), "12:30");
  EXPECT_EQ(duration_text(11100), "3:05:00");
  EXPECT_EQ(duration_text(-1), "0:00");
}

TEST(Progress, LineHasShareRateAndTimeLeft) {
  const ProgressState state{"x.safetensors", 1'200'000'000, 2'900'000'000, ProgressUnit::kBytes,
                            85e6};
  EXPECT_EQ(progress_text(state, 100),
            "x.safetensors  [########------------]   41%  1.2 GB of 2.9 GB  85.0 MB/s  0:20 left");
  EXPECT_EQ(progress_text({"layers", 3, 12, ProgressUnit::kCount, 0.5}, 100),
            "layers  [#####---------------]   25%  3 of 12  0.5/s  0:18 left");
}

TEST(Progress, NarrowTerminalKeepsShareAndLabel) {
  const ProgressState state{"x.safetensors", 1'200'000'000, 2'900'000'000, ProgressUnit::kBytes,
                            85e6};
  EXPECT_EQ(progress_text(state, 60),
            "x.safetensors   41%  1.2 GB of 2.9 GB  85.0 MB/s  0:20 left");
  EXPECT_EQ(progress_text(state, 41), "x.safetensors   41%  85.0 MB/s  0:20 left");
  EXPECT_EQ(progress_text(state, 34), "x.safetensors   41%  0:20 left");
  EXPECT_EQ(progress_text(state, 20), "x.safetensors   41%");
  EXPECT_EQ(progress_text(state, 8), "x.safete");
  EXPECT_EQ(progress_text(state, 0), "");
}

TEST(Progress, UnknownTotalAndMoreThanTheTotal) {
  EXPECT_EQ(progress_text({"list", 5'000, 0, ProgressUnit::kBytes, 1000}, 100),
            "list  5.0 kB  1.0 kB/s");
  EXPECT_EQ(progress_text({"list", 30, 20, ProgressUnit::kCount, 1}, 100),
            "list  [####################]  100%  30 of 20  1/s");
}

TEST(Progress, PrintsNothingWithoutATerminal) {
  testing::internal::CaptureStderr();
  {
    ProgressBar bar("build", 10, ProgressUnit::kCount);
    bar.add(10);
    EXPECT_EQ(bar.done(), 10);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Progress, PrintsALineAtTheEndWhereLinesAreAskedFor) {
  testing::internal::CaptureStderr();
  {
    ProgressBar bar("pull", 2000, ProgressUnit::kBytes, ProgressBar::Lines::kYes);
    bar.add_before(500);
    bar.add(1500);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "pull  [####################]  100%  2.0 kB of 2.0 kB  in 0:01\n");
}

}  // namespace
}  // namespace nereid
