#include "cli/process/restarts.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/scratch_dir.h"

namespace nereid::cli {
namespace {

class Restarts : public ::testing::Test {
 protected:
  // Adds a line for each start; the number of lines.
  int note() const {
    std::ofstream(path_, std::ios::app) << ::getpid() << "\n";
    return static_cast<int>(lines().size());
  }
  std::vector<std::string> lines() const {
    std::vector<std::string> all;
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) all.push_back(line);
    return all;
  }

  const ScratchDir scratch_ = ScratchDir::create().value();
  const std::filesystem::path path_ = scratch_.path() / "starts";
  const RestartDelays soon_{.first = std::chrono::milliseconds(1),
                            .last = std::chrono::milliseconds(8)};
};

TEST_F(Restarts, AFailedProcessIsStartedAgainUntilItEndsWell) {
  const auto run = [&] {
    const int starts = note();
    if (starts == 1) return 1;
    if (starts == 2) ::raise(SIGKILL);
    return starts < 5 ? 3 : 0;
  };
  EXPECT_EQ(run_with_restarts(run, soon_), 0);
  EXPECT_EQ(lines().size(), 5u);
}

// Runs in a child of the test, whose exit code it returns.
TEST_F(Restarts, ASignalIsPassedOnAndEndsTheRestarts) {
  const pid_t parent = ::fork();
  if (parent == 0) {
    const auto run = [&]() -> int {
      ::signal(SIGTERM, [](int) { ::_exit(7); });
      note();
      while (true) ::pause();
    };
    ::_exit(run_with_restarts(run, soon_));
  }
  while (lines().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ::kill(parent, SIGTERM);
  int status = 0;
  ASSERT_EQ(::waitpid(parent, &status, 0), parent);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(lines().size(), 1u);
}

TEST_F(Restarts, TheChildEndsWithTheProcess) {
  const pid_t parent = ::fork();
  if (parent == 0) {
    const auto run = [&]() -> int {
      note();
      while (true) ::pause();
    };
    ::_exit(run_with_restarts(run, soon_));
  }
  while (lines().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ::kill(parent, SIGKILL);
  ASSERT_EQ(::waitpid(parent, nullptr, 0), parent);
  const auto process = static_cast<pid_t>(std::stol(lines().at(0)));
  // The child becomes one of init, which may take its exit code late.
  const auto runs = [&] {
    std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
    std::string text;
    return std::getline(stat, text) && text.find(") Z") == std::string::npos;
  };
  for (int i = 0; i < 10'000 && runs(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_FALSE(runs());
}

}  // namespace
}  // namespace nereid::cli
