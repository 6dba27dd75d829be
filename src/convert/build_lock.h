// Who may build an engine of a cache directory.
#pragma once

#include <filesystem>
#include <string_view>

namespace nereid::convert {

// Held by the one builder of a key, among the threads and processes that share a cache directory.
// Released on destruction, and by the system when the process ends. Where locks do not work (some
// network file systems) builders merely do the same work twice: files are renamed into place.
class BuildLock {
 public:
  enum class Wait { kYes, kNo };

  // `key`: hex digits. Waits for the builder that holds it, or not.
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
