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

// How often each other thread has given up its processor, by id; nullopt while one runs or could
// run.
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

// A thread that was woken in the middle of a round runs, or has run, in the next one.
bool wait_until_nothing_runs() {
  return eventually([] {
    const auto first = all_waiting();
    return first && first == all_waiting();
  });
}

}  // namespace nereid
