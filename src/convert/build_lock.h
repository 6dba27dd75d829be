// Mutual exclusion of engine builders in a cache directory.
#pragma once

#include <filesystem>
#include <string_view>

namespace nereid::convert {

// Held by the single builder of a key, across threads and processes. Released on destruction and at
// process exit. Where locks are unsupported (some network file systems), work is done twice: files
// are renamed into place.
class BuildLock {
 public:
  enum class Wait { kYes, kNo };

  // `key`: hex digits. Waits for the current holder, or not.
  BuildLock(const std::filesystem::path& dir, std::string_view key, Wait wait = Wait::kYes);
  BuildLock(const BuildLock&) = delete;
  BuildLock& operator=(const BuildLock&) = delete;
  ~BuildLock();
  bool held() const { return held_; }

 private:
  int fd_ = -1;
  bool held_ = false;
};

}  // namespace nereid::convert
