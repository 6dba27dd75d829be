#include "runtime/outputs/prefix_watch.h"

#include <algorithm>
#include <utility>

namespace nereid::runtime {

bool PrefixWatch::ask(Time now) {
  const std::lock_guard lock(mutex_);
  if (newest_.age >= 0 && now - made_ < kFresh) return false;
  return !is_asked_.exchange(true);
}

PrefixTreeOutline PrefixWatch::newest(const Clock& clock, std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  came_.wait_for(lock, patience, [&] { return !is_asked(); });
  PrefixTreeOutline outline = newest_;
  if (outline.age >= 0) outline.age = std::max(seconds(clock.now() - made_), 0.0);
  return outline;
}

void PrefixWatch::put(PrefixTreeOutline outline, Time now) {
  {
    const std::lock_guard lock(mutex_);
    newest_ = std::move(outline);
    newest_.age = 0;
    made_ = now;
    is_asked_ = false;
  }
  came_.notify_all();
}

}  // namespace nereid::runtime
