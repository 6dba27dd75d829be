// A directory that appears whole or not at all.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/status.h"

namespace nereid::convert {

class NewDirectory {
 public:
  // Creates a temporary directory beside `path`, and its parents. What is at `path` already stays
  // until finish(). InvalidArgument when that is not a directory, or has an entry that `is_ours`
  // does not know, which is then named: no foreign file is removed. Unavailable with the system's
  // reason.
  static StatusOr<NewDirectory> create(const std::filesystem::path& path,
                                       bool (*is_ours)(std::string_view name));

  // Likewise, but the temporary directory has a name of its own, `path` and ".partial", and is the
  // one that an earlier process left behind, if one did. Unavailable while another process has it.
  static StatusOr<NewDirectory> resume(const std::filesystem::path& path,
                                       bool (*is_ours)(std::string_view name));

  NewDirectory(NewDirectory&& other) noexcept;
  NewDirectory& operator=(NewDirectory&&) = delete;
  ~NewDirectory();  // removes the temporary directory unless finished, or kept

  // Where to write.
  const std::filesystem::path& path() const { return temporary_; }

  // Removes what an earlier process left there.
  Status clear();

  // Leaves the temporary directory for a later resume() when it is not finished.
  void keep() { kept_ = true; }

  // Gives the directory its name, in place of what was there.
  Status finish();

 private:
  NewDirectory() = default;
  // What both ways begin with: the final name, free of files of others, and its parents.
  static StatusOr<NewDirectory> name(const std::filesystem::path& path,
                                     bool (*is_ours)(std::string_view name));

  std::filesystem::path final_, temporary_;
  int lock_ = -1;  // of a resumable directory
  bool kept_ = false;
};

}  // namespace nereid::convert
