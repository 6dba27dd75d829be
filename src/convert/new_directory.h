// A directory that appears completely or not at all.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/status.h"

namespace nereid::convert {

class NewDirectory {
 public:
  // Creates a temporary directory next to `path`, and the parents. Existing contents of `path` stay
  // until finish(). InvalidArgument: `path` is no directory, or has an entry unknown to `is_ours`
  // (named): foreign files are never removed. Unavailable with the system's reason.
  static StatusOr<NewDirectory> create(const std::filesystem::path& path,
                                       bool (*is_ours)(std::string_view name));

  // The same with the fixed temporary name `path` + ".partial", reusing one left by an earlier
  // process. Unavailable: another process uses it.
  static StatusOr<NewDirectory> resume(const std::filesystem::path& path,
                                       bool (*is_ours)(std::string_view name));

  NewDirectory(NewDirectory&& other) noexcept;
  NewDirectory& operator=(NewDirectory&&) = delete;
  ~NewDirectory();  // removes the temporary directory unless finished or kept

  // Directory to write to.
  const std::filesystem::path& path() const { return temporary_; }

  // Removes files left by an earlier process.
  Status clear();

  // Keeps the unfinished temporary directory for a later resume().
  void keep() { kept_ = true; }

  // Renames the directory to its final name, replacing the old one.
  Status finish();

 private:
  NewDirectory() = default;
  // Common part: checks the final name and creates the parents.
  static StatusOr<NewDirectory> name(const std::filesystem::path& path,
                                     bool (*is_ours)(std::string_view name));

  std::filesystem::path final_, temporary_;
  int lock_ = -1;  // of a resumable directory
  bool kept_ = false;
};

}  // namespace nereid::convert
