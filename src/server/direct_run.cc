// See direct_run.h.
#include "server/direct_run.h"

namespace nereid::server {

std::optional<size_t> DirectRun::claim() {
  if (num_quick_.load(std::memory_order_relaxed) < kProof) return std::nullopt;
  for (size_t i = 0; i < busy_.size(); ++i) {
    if (busy_[i].try_lock()) return i;
  }
  return std::nullopt;
}

void DirectRun::leave(size_t instance, uint64_t duration_ns) {
  busy_[instance].unlock();
  if (duration_ns > kQuickNs) {
    num_quick_.store(0, std::memory_order_relaxed);
  } else if (num_quick_.load(std::memory_order_relaxed) < kProof) {
    num_quick_.fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace nereid::server
