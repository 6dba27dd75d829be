#include "server/memory/pinned_pool.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace nereid::server {

PinnedPool& PinnedPool::get() {
  static PinnedPool* pool = new PinnedPool;  // outlives backends that free at exit
  return *pool;
}

void PinnedPool::resize(size_t max_bytes) {
  std::lock_guard lock(mutex_);
  max_bytes_ = max_bytes;
}

StatusOr<void*> PinnedPool::allocate(size_t num_bytes) {
  std::lock_guard lock(mutex_);
  if (used_bytes_ > max_bytes_ || num_bytes > max_bytes_ - used_bytes_) {
    return unavailable(
        "failed to allocate pinned system memory: {} bytes asked for, {} of the pool's {} are in "
        "use",
        num_bytes, used_bytes_, max_bytes_);
  }
  void* buffer = nullptr;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (posix_memalign(&buffer, page, std::max<size_t>(num_bytes, 1)) != 0) {
    return unavailable("failed to allocate pinned system memory: out of memory for {} bytes",
                       num_bytes);
  }
  used_bytes_ += num_bytes;
  sizes_[buffer] = num_bytes;
  return buffer;
}

bool PinnedPool::free(void* buffer) {
  {
    std::lock_guard lock(mutex_);
    const auto it = sizes_.find(buffer);
    if (it == sizes_.end()) return false;
    used_bytes_ -= it->second;
    sizes_.erase(it);
  }
  std::free(buffer);
  return true;
}

size_t PinnedPool::max_bytes() const {
  std::lock_guard lock(mutex_);
  return max_bytes_;
}

size_t PinnedPool::used_bytes() const {
  std::lock_guard lock(mutex_);
  return used_bytes_;
}

}  // namespace nereid::server
