// Accumulation of call times.
#include "exec/profile.h"

#include <algorithm>

namespace nereid::exec {

Profile::Profile(const std::vector<ProfileEntry>& entries) {
  for (const ProfileEntry& entry : entries)
    times_.push_back({entry.op, entry.kernel, entry.shape, 0, 0, 0});
}

void Profile::add(int32_t entry, double seconds, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  OpTime& time = times_[static_cast<size_t>(entry)];
  ++time.num_calls;
  time.seconds += seconds;
  time.bytes += bytes;
}

std::vector<OpTime> Profile::times() const {
  std::vector<OpTime> out;
  {
    std::lock_guard lock(mutex_);
    for (const OpTime& time : times_)
      if (time.num_calls > 0) out.push_back(time);
  }
  std::sort(out.begin(), out.end(),
            [](const OpTime& a, const OpTime& b) { return a.seconds > b.seconds; });
  return out;
}

}  // namespace nereid::exec
