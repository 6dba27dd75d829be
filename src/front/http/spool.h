// Bodies of requests that are kept in a file instead of memory while they arrive.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace nereid::front {

// A body up to this size stays in memory.
inline constexpr size_t kSpoolBytes = size_t{1} << 20;
// Bytes that gather before they are written.
inline constexpr size_t kSpoolWriteBytes = size_t{256} << 10;

// The bytes of a file without a name, mapped.
class SpooledBody {
 public:
  SpooledBody(const char* data, size_t size) : data_(data), size_(size) {}
  ~SpooledBody();
  SpooledBody(const SpooledBody&) = delete;
  SpooledBody& operator=(const SpooledBody&) = delete;
  std::string_view bytes() const { return {data_, size_}; }

 private:
  const char* data_;
  size_t size_;
};

// A file without a name in $TMPDIR, else /tmp or /var/tmp, that only this process can read; it is
// gone with the object, also after a crash.
class Spool {
 public:
  Spool() = default;
  Spool(Spool&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), size_(std::exchange(other.size_, 0)) {}
  Spool& operator=(Spool&&) = delete;
  ~Spool();

  size_t size() const { return size_; }
  // Appends, and empties `text`. Unavailable with the system's reason: no folder, no room.
  Status take(std::string& text);
  // All appended bytes. Unavailable: they cannot be mapped.
  StatusOr<std::shared_ptr<const SpooledBody>> finish();

 private:
  Status open();

  int fd_ = -1;
  size_t size_ = 0;
};

}  // namespace nereid::front
