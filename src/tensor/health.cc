// Health: first failure of a device; Stall: time without progress.
#include "tensor/health.h"

#include <dlfcn.h>

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace nereid {
namespace {

constexpr int kSlices = 8;                              // polls per timeout
constexpr Duration kNoTimeout = std::chrono::hours(1);  // poll interval without a timeout

Duration with_extra(Duration timeout, double extra) {
  return timeout + std::chrono::duration_cast<Duration>(extra * timeout);
}

}  // namespace

// A new Status per caller: thread checkers cannot see the reference counting of a shared one.
Status Health::failure() const {
  if (state_ == State::kHealthy) return ok();
  std::lock_guard lock(mutex_);
  return Status(failure_.code(), failure_.message());
}

void Health::fail(const Status& error) { set(State::kFailed, error); }

void Health::hang(const Status& error) { set(State::kHung, error); }

void Health::set(State state, const Status& error) {
  NEREID_CHECK(!error.ok());
  std::lock_guard lock(mutex_);
  if (state <= state_) return;
  if (failure_.ok()) failure_ = unavailable("{} has failed: {}", name_(), message(error));
  if (state == State::kHung && hung_) hung_();
  state_ = state;
}

Stall::Stall(const Health& health, double extra)
    : health_(health),
      timeout_(with_extra(health.timeout(), extra)),
      slice_(timeout_ > Duration() ? timeout_ / kSlices : kNoTimeout),
      seen_(health.progress()) {}

bool Stall::over(Time at) {
  const uint64_t progress = health_.progress();
  if (progress != seen_) {
    seen_ = progress;
    restart(at);
    return false;
  }
  idle_ += std::min(at - last_, slice_);
  last_ = at;
  return timeout_ > Duration() && idle_ >= timeout_;
}

void Stall::restart(Time at) {
  idle_ = {};
  last_ = at;
}

Status Stall::error() const {
  return unavailable("it has made no progress for {:.3g} s (device_timeout_secs)",
                     seconds(timeout_));
}

void keep_for_ever(std::shared_ptr<void> object) {
  static std::mutex& mutex = *new std::mutex;
  static auto& kept = *new std::vector<std::shared_ptr<void>>;
  // Hung threads execute code of this library, which must stay mapped.
  Dl_info self = {};
  if (::dladdr(reinterpret_cast<const void*>(&keep_for_ever), &self) != 0)
    ::dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
  std::lock_guard lock(mutex);
  kept.push_back(std::move(object));
}

}  // namespace nereid
