// The host memory that backends ask for as "pinned": page-aligned, bounded by the pool's size.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

#include "base/status.h"

namespace nereid::server {

// One per process, because a memory manager names no server. Thread safe.
class PinnedPool {
 public:
  static PinnedPool& get();

  void resize(size_t max_bytes);  // what is out stays out
  // Unavailable when the pool has not that much left.
  StatusOr<void*> allocate(size_t num_bytes);
  // False: not from here.
  bool free(void* buffer);

  size_t max_bytes() const;
  size_t used_bytes() const;

 private:
  mutable std::mutex mutex_;
  size_t max_bytes_ = size_t{256} << 20, used_bytes_ = 0;
  std::map<void*, size_t> sizes_;
};

}  // namespace nereid::server
