// A temporary folder.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <utility>

#include "base/status.h"

namespace nereid::cli {

// A new, empty folder; gone with all that is in it when this goes.
class ScratchDir {
 public:
  static StatusOr<ScratchDir> create() {
    std::string name = (std::filesystem::temp_directory_path() / "nereid-XXXXXX").string();
    if (!::mkdtemp(name.data())) return unavailable("{}: cannot create a folder", name);
    return ScratchDir(name);
  }
  ScratchDir(ScratchDir&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ~ScratchDir() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  explicit ScratchDir(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

}  // namespace nereid::cli
