// Host memory for backends that ask for pinned memory: page-aligned, bounded by the pool's size.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

#include "base/status.h"

namespace nereid::server {

// One for the process, since a memory manager names no server. Thread safe.
class PinnedPool {
 public:
  static PinnedPool& get();

  void resize(size_t max_bytes);  // buffers in use stay valid
  // Unavailable: fewer bytes are left in the pool.
  StatusOr<void*> allocate(size_t num_bytes);
  // False: `buffer` is not from this pool.
  bool free(void* buffer);

  size_t max_bytes() const;
  size_t used_bytes() const;

 private:
  mutable std::mutex mutex_;
  size_t max_bytes_ = size_t{256} << 20, used_bytes_ = 0;
  std::map<void*, size_t> sizes_;
};

}  // namespace nereid::server
