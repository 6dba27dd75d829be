// A read-only memory-mapped file. Another process may truncate it meanwhile: see is_lost().
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

#include "base/file.h"
#include "base/guarded_region.h"
#include "base/status.h"

namespace nereid {

class MappedFile {
 public:
  // Errors as OpenFile::open(). An empty file maps to an empty span.
  static StatusOr<MappedFile> open(const std::filesystem::path& path);
  static StatusOr<MappedFile> open(const OpenFile& opened);

  std::span<const std::byte> bytes() const { return bytes_; }
  // Whether bytes behind the file's new end were accessed; they read as zeros.
  bool is_lost() const { return region_ != nullptr && region_->is_lost(); }

 private:
  std::shared_ptr<GuardedRegion> region_;  // null: an empty file
  std::span<const std::byte> bytes_;
};

// Lets the system take back the memory of a part of a mapped file (madvise); the next access
// reads the file again.
void forget_pages(std::span<const std::byte> mapped);

}  // namespace nereid
