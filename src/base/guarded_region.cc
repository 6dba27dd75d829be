#include "base/guarded_region.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <mutex>

namespace nereid {

// Slots are read by the signal handler, hence without a lock: a slot is in use
// while `end` is not 0.
struct GuardedRegion::Slot {
  std::atomic<uintptr_t> begin{0}, end{0};
  std::atomic<bool> is_lost{false};
};

namespace {

std::mutex slots_mutex;  // held while slots are taken and given back
std::array<GuardedRegion::Slot, 8192> slots;
struct sigaction next_action;
uintptr_t page_size;

// Calls the handler of SIGBUS that was installed before: each shared library may have a
// copy of this file.
void pass_on(int signal, siginfo_t* info, void* context) {
  if ((next_action.sa_flags & SA_SIGINFO) != 0) {
    next_action.sa_sigaction(signal, info, context);
  } else if (next_action.sa_handler != SIG_DFL && next_action.sa_handler != SIG_IGN) {
    next_action.sa_handler(signal);
  } else {
    ::sigaction(SIGBUS, &next_action, nullptr);  // the access is repeated and ends the process
  }
}

// Calls only functions that are async-signal-safe, and mmap(), a system call without
// state in the C library.
void on_bus_error(int signal, siginfo_t* info, void* context) {
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  for (auto& slot : slots) {
    const uintptr_t end = slot.end.load(std::memory_order_acquire);
    if (at >= end || at < slot.begin.load(std::memory_order_relaxed)) continue;
    const uintptr_t page = at & ~(page_size - 1);
    void* const zeros = ::mmap(reinterpret_cast<void*>(page), end - page, PROT_READ | PROT_WRITE,
                               MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (zeros == MAP_FAILED) break;
    slot.is_lost.store(true);
    return;
  }
  pass_on(signal, info, context);
}

void install_handler() {
  static const bool once = [] {
    page_size = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    struct sigaction action = {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    return ::sigaction(SIGBUS, &action, &next_action) == 0;
  }();
  static_cast<void>(once);
}

}  // namespace

StatusOr<std::shared_ptr<GuardedRegion>> GuardedRegion::map(int fd, uint64_t offset, uint64_t size,
                                                            Access access) {
  install_handler();
  std::shared_ptr<GuardedRegion> region(new GuardedRegion);
  region->skip_ = offset % page_size;
  const size_t pages = (region->skip_ + size + page_size - 1) / page_size;
  const bool writes = access == Access::kReadAndWrite;
  void* base =
      ::mmap(nullptr, pages * page_size, writes ? PROT_READ | PROT_WRITE : PROT_READ,
             writes ? MAP_SHARED : MAP_PRIVATE, fd, static_cast<off_t>(offset - region->skip_));
  if (base == MAP_FAILED) return internal_error("cannot map {} bytes", size);
  region->base_ = base;
  region->mapped_ = pages * page_size;
  std::lock_guard lock(slots_mutex);
  for (Slot& slot : slots) {
    if (slot.end.load() != 0) continue;
    slot.is_lost = false;
    slot.begin = reinterpret_cast<uintptr_t>(base);
    slot.end = reinterpret_cast<uintptr_t>(base) + region->mapped_;
    region->slot_ = &slot;
    return region;
  }
  return resource_exhausted("{} regions are mapped, no more are allowed", slots.size());
}

GuardedRegion::~GuardedRegion() {
  if (slot_ != nullptr) {
    std::lock_guard lock(slots_mutex);
    slot_->end = 0;
  }
  if (base_ != nullptr) ::munmap(base_, mapped_);
}

const std::atomic<bool>& GuardedRegion::is_lost() const { return slot_->is_lost; }

}  // namespace nereid
