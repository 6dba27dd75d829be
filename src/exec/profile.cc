// Accumulation of call times.
#include "exec/profile.h"

#include <algorithm>

namespace nereid::exec {

Profile::Profile(const std::vector<ProfileEntry>& entries) {
  for (const ProfileEntry& entry : entries)
    times_.push_back({.op = entry.op, .kernel = entry.kernel, .shape = entry.shape});
}

void Profile::add(int32_t entry, double seconds, uint64_t bytes, double flops,
                  const std::vector<double>& busy) {
  std::lock_guard lock(mutex_);
  OpTime& time = times_[static_cast<size_t>(entry)];
  ++time.num_calls;
  time.seconds += seconds;
  time.bytes += bytes;
  time.flops += flops;
  time.busy.resize(std::max(time.busy.size(), busy.size()));
  for (size_t i = 0; i < busy.size(); ++i) time.busy[i] += busy[i];
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
