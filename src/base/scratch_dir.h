// A temporary folder, gone with all that is in it when this goes. What processes left behind that
// were killed is removed when one is made.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "base/status.h"

namespace nereid {

class ScratchDir {
 public:
  // A new, empty folder in $TMPDIR, /tmp, /dev/shm or /var/tmp: the first of them in which files
  // can be written. Unavailable with what each says.
  static StatusOr<ScratchDir> create();
  ScratchDir(ScratchDir&& other) noexcept
      : path_(std::exchange(other.path_, {})), lock_(std::exchange(other.lock_, -1)) {}
  ScratchDir& operator=(ScratchDir&&) = delete;
  ~ScratchDir();
  const std::filesystem::path& path() const { return path_; }

 private:
  ScratchDir(std::filesystem::path path, int lock) : path_(std::move(path)), lock_(lock) {}
  std::filesystem::path path_;
  int lock_;  // the folder, open and locked: a process that can lock it may remove it
};

}  // namespace nereid
