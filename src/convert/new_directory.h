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
  // does not know, which is then named: nobody's file is removed. Unavailable with the system's
  // reason.
  static StatusOr<NewDirectory> create(const std::filesystem::path& path,
                                       bool (*is_ours)(std::string_view name));

  NewDirectory(NewDirectory&& other) noexcept;
  NewDirectory& operator=(NewDirectory&&) = delete;
  ~NewDirectory();  // removes the temporary directory unless finished

  // Where to write.
  const std::filesystem::path& path() const { return temporary_; }

  // Gives the directory its name, in place of what was there.
  Status finish();

 private:
  NewDirectory() = default;

  std::filesystem::path final_, temporary_;
};

}  // namespace nereid::convert
