// Memory of one host that several processes map.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "base/status.h"

namespace nereid::comm {

// An open file descriptor, closed on destruction.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  // The caller closes it.
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// A mapping of a whole memory file.
class SharedMemory {
 public:
  // A new memory file of zeros (memfd), without a name in any file system; pages are taken when
  // they are first written. ResourceExhausted with the system's reason.
  static StatusOr<Descriptor> create(size_t bytes);

  // Maps all of it; the descriptor may be closed afterwards. Unavailable: a bad descriptor, memory.
  static StatusOr<std::shared_ptr<SharedMemory>> map(const Descriptor& file);

  SharedMemory(void* data, size_t bytes) : data_(data), bytes_(bytes) {}
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  size_t size() const { return bytes_; }

 private:
  void* data_;
  size_t bytes_;
};

}  // namespace nereid::comm
