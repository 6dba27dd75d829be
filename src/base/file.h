// Whole-file reads and atomic writes with errors that name the path.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace nereid {

// An open regular file.
class OpenFile {
 public:
  // NotFound, InvalidArgument (a directory, a FIFO, a device), or Unavailable with the system's
  // reason. Never waits.
  static StatusOr<OpenFile> open(const std::filesystem::path& path);
  // The same, but only where `path` leads to below `root`: links that stay inside are followed, and
  // no change of the folders meanwhile leads out. InvalidArgument: it lies elsewhere.
  static StatusOr<OpenFile> open_below(const std::filesystem::path& root,
                                       const std::filesystem::path& path);

  OpenFile(OpenFile&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}
  OpenFile& operator=(OpenFile&& other) noexcept {
    std::swap(fd_, other.fd_);
    path_.swap(other.path_);
    return *this;
  }
  ~OpenFile();

  int fd() const { return fd_; }
  size_t size() const;
  // As it was asked for; for errors.
  const std::filesystem::path& path() const { return path_; }

 private:
  OpenFile(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}
  static StatusOr<OpenFile> take(int fd, const std::filesystem::path& path);

  int fd_;
  std::filesystem::path path_;
};

// A folder whose files are read.
class ReadFolder {
 public:
  // With `root`, nothing is read that lies outside it (see OpenFile::open_below).
  ReadFolder(std::filesystem::path path, std::filesystem::path root = {})
      : path_(std::move(path)), root_(std::move(root)) {}

  const std::filesystem::path& path() const { return path_; }
  // Whether there is something of that name.
  bool has(std::string_view name) const;
  StatusOr<OpenFile> open(std::string_view name) const;

 private:
  std::filesystem::path path_, root_;
};

// The whole file. NotFound / ResourceExhausted (larger than max_bytes) / Unavailable (read error).
StatusOr<std::string> read_file(const std::filesystem::path& path,
                                size_t max_bytes = size_t{1} << 30);
StatusOr<std::string> read_file(OpenFile file, size_t max_bytes);

// Gives a complete file or folder its final name, in the place of a file or an empty folder of that
// name. Its bytes and the name are on the disk on return: a crash of the machine leaves the old or
// the new one, never half.
Status rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);

// Writes to a temporary name beside `path` and renames it durably: readers see the old file or the
// new one, never half.
Status write_file_atomic(const std::filesystem::path& path, std::string_view bytes);

// $NEREID_CACHE_DIR, else $XDG_CACHE_HOME/nereid, else ~/.cache/nereid, else /tmp/nereid-<uid>.
std::filesystem::path cache_dir();

}  // namespace nereid
