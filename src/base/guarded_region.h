// A mapping of memory that another process may truncate at any time. An access behind the new
// end raises SIGBUS, which would end the process; the handler here maps zeros there and marks
// the region as lost.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "base/status.h"

namespace nereid {

class GuardedRegion {
 public:
  enum class Access { kRead, kReadAndWrite };

  // Maps `size` bytes, at least one, of `fd` from `offset`. ResourceExhausted: too many regions;
  // Internal: mmap() failed. The first call installs a handler of SIGBUS that passes on signals
  // outside of all regions.
  static StatusOr<std::shared_ptr<GuardedRegion>> map(int fd, uint64_t offset, uint64_t size,
                                                      Access access = Access::kReadAndWrite);
  ~GuardedRegion();
  GuardedRegion(const GuardedRegion&) = delete;
  GuardedRegion& operator=(const GuardedRegion&) = delete;

  char* data() const { return static_cast<char*>(base_) + skip_; }
  // Set once bytes behind the end were accessed: bytes read since then may be zeros, bytes
  // written may be lost.
  const std::atomic<bool>& is_lost() const;

  struct Slot;

 private:
  GuardedRegion() = default;
  void* base_ = nullptr;  // page-aligned start of the mapping
  size_t mapped_ = 0, skip_ = 0;
  Slot* slot_ = nullptr;
};

}  // namespace nereid
