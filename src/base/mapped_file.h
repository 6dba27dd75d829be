// A read-only memory-mapped file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "base/status.h"

namespace nereid {

class MappedFile {
 public:
  // NotFound, or Unavailable with the system's reason. An empty file maps to an empty span.
  static StatusOr<MappedFile> open(const std::filesystem::path& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Lets the system take back the memory of a part of a mapped file; it is read again when needed.
void forget_pages(std::span<const std::byte> mapped);

}  // namespace nereid
