#include "base/testing/wait.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <thread>

namespace nereid {
namespace {

// Context switches of each other thread, by thread id; nullopt while one runs or is runnable.
std::optional<std::map<std::string, std::string>> all_waiting() {
  std::map<std::string, std::string> switches;
  const std::string own = std::to_string(::gettid());
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    const std::string id = task.path().filename();
    if (id == own) continue;
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("State:") && line.find("S (") == std::string::npos) return std::nullopt;
      if (line.find("ctxt_switches:") != std::string::npos) switches[id] += line;
    }
  }
  return switches;
}

}  // namespace

bool eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// A thread woken in the middle of a round is runnable, or has more context switches, in the next.
bool wait_until_nothing_runs() {
  return eventually([] {
    const auto first = all_waiting();
    return first && first == all_waiting();
  });
}

}  // namespace nereid
