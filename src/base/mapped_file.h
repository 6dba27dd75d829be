// A read-only memory-mapped file. Somebody may make the file smaller meanwhile: see is_lost().
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
  // Bytes were touched that are not in the file any more; zeros took their place.
  bool is_lost() const { return region_ != nullptr && region_->is_lost(); }

 private:
  std::shared_ptr<GuardedRegion> region_;  // null: an empty file
  std::span<const std::byte> bytes_;
};

// Lets the system take back the memory of a part of a mapped file; it is read again when needed.
void forget_pages(std::span<const std::byte> mapped);

}  // namespace nereid
