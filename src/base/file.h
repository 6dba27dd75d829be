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
  // reason. Never blocks.
  static StatusOr<OpenFile> open(const std::filesystem::path& path);
  // open() of a path that must lie below `root`: links that stay inside are followed, and no change
  // of the folders meanwhile leads out. InvalidArgument: it lies elsewhere.
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
  // The path as given to open(), for errors.
  const std::filesystem::path& path() const { return path_; }

 private:
  OpenFile(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}
  static StatusOr<OpenFile> take(int fd, const std::filesystem::path& path);

  int fd_;
  std::filesystem::path path_;
};

// A folder that files are read from.
class ReadFolder {
 public:
  // Files outside of a non-empty `root` are refused (see OpenFile::open_below).
  ReadFolder(std::filesystem::path path, std::filesystem::path root = {})
      : path_(std::move(path)), root_(std::move(root)) {}

  const std::filesystem::path& path() const { return path_; }
  // Whether the folder has an entry of that name.
  bool has(std::string_view name) const;
  StatusOr<OpenFile> open(std::string_view name) const;

 private:
  std::filesystem::path path_, root_;
};

// The whole file. NotFound / ResourceExhausted (larger than max_bytes) / Unavailable (read error).
StatusOr<std::string> read_file(const std::filesystem::path& path,
                                size_t max_bytes = size_t{1} << 30);
StatusOr<std::string> read_file(OpenFile file, size_t max_bytes);

// Renames a complete file or folder to its final name, replacing a file or an empty folder of that
// name. Bytes and name are on disk on return: after a crash of the machine either the old or the
// new one is there, whole.
Status rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);

// Writes a temporary file beside `path` and renames it durably: readers see the old file or the new
// one, never a part.
Status write_file_atomic(const std::filesystem::path& path, std::string_view bytes);

// $NEREID_CACHE_DIR, else $XDG_CACHE_HOME/nereid, else ~/.cache/nereid, else /tmp/nereid-<uid>.
std::filesystem::path cache_dir();

}  // namespace nereid
