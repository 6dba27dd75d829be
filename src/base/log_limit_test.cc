#include "base/log_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace nereid {
namespace {

using testing::ElementsAre;

TEST(LogLimit, AFewLinesInEachWindowAndACountOfTheOthers) {
  std::vector<std::string> lines;
  const auto keep = [&](const std::string& text) { lines.push_back(text); };
  LogLimit often(2, std::chrono::seconds(3600));
  for (int i = 0; i < 1000; ++i) often.write(keep, "line {}", i);
  EXPECT_THAT(lines, ElementsAre("line 0", "line 1"));

  lines.clear();
  LogLimit always(1, std::chrono::seconds(0));  // a window of 0 s: each line begins a new one
  for (int i = 0; i < 3; ++i) always.write(keep, "line {}", i);
  EXPECT_THAT(lines, ElementsAre("line 0", "line 1", "line 2"));

  lines.clear();
  LogLimit soon(1, std::chrono::seconds(1));
  const Time begin = now();
  while (lines.size() < 2 && now() < begin + std::chrono::seconds(60)) soon.write(keep, "again");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0], "again");
  EXPECT_THAT(lines[1], testing::MatchesRegex(
                            "again \\([1-9][0-9]* more messages like this were left out\\)"));
}

}  // namespace
}  // namespace nereid
