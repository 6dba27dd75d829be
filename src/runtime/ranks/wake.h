// An event descriptor that wakes a thread in poll().
#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/log.h"
#include "base/status.h"
#include "comm/shared_memory.h"

namespace nereid::runtime {

class Wake {
 public:
  // Unavailable: the system's reason.
  Status open() {
    descriptor_ = comm::Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!descriptor_) return unavailable("an event descriptor: {}", std::strerror(errno));
    return ok();
  }
  // An entry for poll(), readable from notify() to clear().
  pollfd entry() const { return {.fd = descriptor_.get(), .events = POLLIN, .revents = 0}; }
  // Any thread. Does nothing before open().
  void notify() const {
    const uint64_t one = 1;
    if (descriptor_ && ::write(descriptor_.get(), &one, sizeof(one)) < 0)
      log_warn("an event descriptor: {}", std::strerror(errno));
  }
  void clear() const {
    uint64_t number = 0;
    if (::read(descriptor_.get(), &number, sizeof(number)) < 0 && errno != EAGAIN)
      log_warn("an event descriptor: {}", std::strerror(errno));
  }

 private:
  comm::Descriptor descriptor_;
};

}  // namespace nereid::runtime
