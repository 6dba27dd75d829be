// Start and end of child processes.
#include "runtime/ranks/child_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

#include "comm/shared_memory.h"

extern char** environ;

namespace nereid::runtime {

StatusOr<ChildProcess> ChildProcess::start(const std::filesystem::path& program,
                                           const std::vector<std::string>& arguments, int first,
                                           std::span<const int> descriptors) {
  const int end = first + static_cast<int>(descriptors.size());
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  // Copies above all targets, so that no target replaces a descriptor that is still needed.
  std::vector<comm::Descriptor> copies;
  int error = 0;
  for (size_t i = 0; i < descriptors.size() && error == 0; ++i) {
    const int target = first + static_cast<int>(i);
    if (descriptors[i] < 0) {
      posix_spawn_file_actions_addclose(&actions, target);
      continue;
    }
    copies.emplace_back(::fcntl(descriptors[i], F_DUPFD_CLOEXEC, end));
    if (!copies.back()) error = errno;
    posix_spawn_file_actions_adddup2(&actions, copies.back().get(), target);
  }
  posix_spawn_file_actions_addclosefrom_np(&actions, end);
  std::vector<std::string> words = {program.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t id = -1;
  if (error == 0)
    error = ::posix_spawn(&id, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return unavailable("{}: {}", program.string(), std::strerror(error));
  return ChildProcess(id);
}

std::optional<std::string> ChildProcess::ended(Duration limit) {
  constexpr auto kPeriod = std::chrono::milliseconds(1);
  for (const Time start = now(); !exit_status_;) {
    int status = 0;
    const pid_t id = ::waitpid(id_, &status, WNOHANG);
    if (id == id_) {
      exit_status_ = status;
    } else if (id < 0 && errno != EINTR) {
      exit_status_ = -1;  // the system reaps children of this process by itself
    } else if (now() - start >= limit) {
      return std::nullopt;
    } else {
      std::this_thread::sleep_for(kPeriod);
    }
  }
  if (*exit_status_ == -1) return "has ended";
  if (WIFSIGNALED(*exit_status_))
    return fmt::format("was killed by signal {} ({})", WTERMSIG(*exit_status_),
                       ::strsignal(WTERMSIG(*exit_status_)));
  return fmt::format("has ended with exit code {}", WEXITSTATUS(*exit_status_));
}

void ChildProcess::kill() const {
  if (!exit_status_) ::kill(id_, SIGKILL);
}

}  // namespace nereid::runtime
