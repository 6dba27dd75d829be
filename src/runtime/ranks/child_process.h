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
#include "runtime/ranks/worker_process.h"

namespace nereid::runtime {

class ChildProcess final : public WorkerProcess {
 public:
  // Starts `program`. descriptors[i] becomes descriptor first + i of the child; -1: none. Standard
  // input, output and error are inherited, no other descriptor. Unavailable: the system's reason.
  static StatusOr<ChildProcess> start(const std::filesystem::path& program,
                                      const std::vector<std::string>& arguments, int first,
                                      std::span<const int> descriptors);

  pid_t id() const override { return id_; }
  std::optional<std::string> ended(Duration limit) override;
  bool ended_well() const override { return exit_status_ == 0; }  // exit code 0
  void kill() const override;

 private:
  explicit ChildProcess(pid_t id) : id_(id) {}

  pid_t id_;
  std::optional<int> exit_status_;  // of waitpid()
};

}  // namespace nereid::runtime
