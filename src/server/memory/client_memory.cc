#include "server/memory/client_memory.h"

#include <atomic>

namespace nereid::server {
namespace {

struct Counter {
  NEREID_HoldMemoryFn_t hold;
  NEREID_ReleaseMemoryFn_t release;
  void* userp;
};

// Counters are never freed: each takes back what it has counted.
std::atomic<const Counter*> counter{nullptr};

}  // namespace

void ClientMemory::count_with(NEREID_HoldMemoryFn_t hold, NEREID_ReleaseMemoryFn_t release,
                              void* userp) {
  counter.store(hold == nullptr ? nullptr : new Counter{hold, release, userp});
}

TRITONSERVER_Error* ClientMemory::hold(size_t num_bytes) {
  const Counter* const c = counter.load();
  return c == nullptr ? nullptr : c->hold(c->userp, num_bytes);
}

void ClientMemory::release(size_t num_bytes) {
  if (const Counter* const c = counter.load()) c->release(c->userp, num_bytes);
}

}  // namespace nereid::server
