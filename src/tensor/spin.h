// Short waits without the kernel, before a thread sleeps.
#pragma once

#include <thread>

namespace nereid {

inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Pauses before a thread sleeps that waits for one of `num_threads` busy threads: some tens of
// microseconds, longer than a step's serial parts and shorter than a scheduling quantum. With more
// threads than processors, spinning delays working threads.
inline int spin_rounds(int num_threads) {
  static const int num_processors = static_cast<int>(std::thread::hardware_concurrency());
  return num_threads <= num_processors ? 1000 : 20;
}

// Whether `done()` became true within `rounds` pauses.
template <class Done>
bool spin_until(int rounds, const Done& done) {
  for (int round = 0; round < rounds; ++round) {
    if (done()) return true;
    spin_pause();
  }
  return false;
}

}  // namespace nereid
