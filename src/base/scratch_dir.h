// A temporary folder, removed with its contents by the destructor. Creating one also removes the
// folders of processes that were killed.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "base/status.h"

namespace nereid {

class ScratchDir {
 public:
  // A new, empty folder in the first of $TMPDIR, /tmp, /dev/shm and /var/tmp in which files can be
  // written. Unavailable with the error of each.
  static StatusOr<ScratchDir> create();
  ScratchDir(ScratchDir&& other) noexcept
      : path_(std::exchange(other.path_, {})), lock_(std::exchange(other.lock_, -1)) {}
  ScratchDir& operator=(ScratchDir&&) = delete;
  ~ScratchDir();
  const std::filesystem::path& path() const { return path_; }

 private:
  ScratchDir(std::filesystem::path path, int lock) : path_(std::move(path)), lock_(lock) {}
  std::filesystem::path path_;
  int lock_;  // fd of the folder, locked: a process that can lock it may remove it
};

}  // namespace nereid
