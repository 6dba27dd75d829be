// Monotonic time. Scheduling code takes Time values as arguments so that tests can move the clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace nereid {

using Time = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

inline Time now() { return std::chrono::steady_clock::now(); }

// Nanoseconds on the steady clock, the unit of the Triton statistics calls.
inline uint64_t now_ns() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now().time_since_epoch()).count());
}

inline double seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace nereid
