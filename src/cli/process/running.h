// The servers that run on this machine: each `nereid serve` leaves a note in the cache folder,
// which `nereid ps` reads.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace nereid::cli {

struct RunningServer {
  int pid = 0;
  int64_t started = 0;  // of the process, in clock ticks since the machine's start; see proc(5)
  int64_t since = 0;    // when its ports opened, seconds of Unix time
  std::string url;      // of its HTTP port
  std::string model;    // as requests name it
  std::string source;   // folder, file or hf:// as on its command line
};

// CACHE/run
std::filesystem::path running_dir();

// A server's note during its life. A folder that cannot be written leaves it out.
class RunningNote {
 public:
  RunningNote(const std::filesystem::path& dir, RunningServer server);
  ~RunningNote();
  RunningNote(const RunningNote&) = delete;
  RunningNote& operator=(const RunningNote&) = delete;

 private:
  std::filesystem::path path_;  // empty: none
};

// The servers whose process lives, the oldest first; notes of others are removed.
std::vector<RunningServer> running_servers(const std::filesystem::path& dir);

// When the process began, in clock ticks; nullopt: it has ended.
std::optional<int64_t> start_of_process(int pid);

}  // namespace nereid::cli
