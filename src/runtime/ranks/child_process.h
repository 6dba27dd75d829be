// A child process with given descriptors.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace nereid::runtime {

class ChildProcess {
 public:
  // Starts `program`. descriptors[i] becomes descriptor first + i of the child; -1: none. Standard
  // input, output and error are inherited, no other descriptor. Unavailable: the system's reason.
  static StatusOr<ChildProcess> start(const std::filesystem::path& program,
                                      const std::vector<std::string>& arguments, int first,
                                      std::span<const int> descriptors);

  pid_t id() const { return id_; }
  // Waits up to `limit` for its end. The text is how it ended: "was killed by signal 9 (Killed)",
  // "has ended with exit code 1"; the same when asked again. No value: it has not ended.
  std::optional<std::string> ended(Duration limit);
  bool ended_well() const { return exit_status_ == 0; }  // exit code 0
  // SIGKILL, which also ends a suspended process; nothing if it has ended.
  void kill() const;

 private:
  explicit ChildProcess(pid_t id) : id_(id) {}

  pid_t id_;
  std::optional<int> exit_status_;  // of waitpid()
};

}  // namespace nereid::runtime
