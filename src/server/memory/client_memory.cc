#include "server/memory/client_memory.h"

#include <atomic>
#include <mutex>

namespace nereid::server {
namespace {

struct Counter {
  NEREID_HoldMemoryFn_t hold;
  NEREID_ReleaseMemoryFn_t release;
  void* userp;
  const Counter* previous;
};

// The counter in use. Counters are never freed, since release() may still use an earlier one.
std::atomic<const Counter*> counter{nullptr};
std::mutex mutex;
const Counter* newest = nullptr;  // all counters, linked by `previous`

}  // namespace

void ClientMemory::count_with(NEREID_HoldMemoryFn_t hold, NEREID_ReleaseMemoryFn_t release,
                              void* userp) {
  std::lock_guard lock(mutex);
  if (hold != nullptr) newest = new Counter{hold, release, userp, newest};
  counter.store(hold != nullptr ? newest : nullptr);
}

TRITONSERVER_Error* ClientMemory::hold(size_t num_bytes) {
  const Counter* const c = counter.load();
  return c == nullptr ? nullptr : c->hold(c->userp, num_bytes);
}

void ClientMemory::release(size_t num_bytes) {
  if (const Counter* const c = counter.load()) c->release(c->userp, num_bytes);
}

}  // namespace nereid::server
