// A mapping of memory that somebody else may make smaller at any time. Touching what has gone
// raises SIGBUS, which would end the process; here zeros take its place, and the region says so.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "base/status.h"

namespace nereid {

class GuardedRegion {
 public:
  enum class Access { kRead, kReadAndWrite };

  // Maps `size` bytes, at least one, of `fd` from `offset`. ResourceExhausted when there are too
  // many; Internal when the kernel refuses. The first one installs a handler of SIGBUS that passes
  // on what is not about a region.
  static StatusOr<std::shared_ptr<GuardedRegion>> map(int fd, uint64_t offset, uint64_t size,
                                                      Access access = Access::kReadAndWrite);
  ~GuardedRegion();
  GuardedRegion(const GuardedRegion&) = delete;
  GuardedRegion& operator=(const GuardedRegion&) = delete;

  char* data() const { return static_cast<char*>(base_) + skip_; }
  // Bytes were touched that were not there any more: what was read since may be zeros, what was
  // written may be lost.
  const std::atomic<bool>& is_lost() const;

  struct Slot;

 private:
  GuardedRegion() = default;
  void* base_ = nullptr;  // begins at a page
  size_t mapped_ = 0, skip_ = 0;
  Slot* slot_ = nullptr;
};

}  // namespace nereid
