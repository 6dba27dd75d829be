#include "base/random_hex.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

namespace nereid {
namespace {

TEST(RandomHex, DigitsOf128BitsThatDiffer) {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::string text = random_hex();
    EXPECT_EQ(text.size(), 32u);
    EXPECT_EQ(text.find_first_not_of("0123456789abcdef"), std::string::npos) << text;
    seen.insert(text);
  }
  EXPECT_EQ(seen.size(), 1000u);
}

// No state of the process determines the next name: a forked copy makes others.
TEST(RandomHex, KeepsNoState) {
  random_hex();
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string text = random_hex();
    _exit(write(pipe_ends[1], text.data(), text.size()) == 32 ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  std::string of_child(32, ' ');
  EXPECT_EQ(read(pipe_ends[0], of_child.data(), 32), 32);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_NE(of_child, random_hex());
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

}  // namespace
}  // namespace nereid
