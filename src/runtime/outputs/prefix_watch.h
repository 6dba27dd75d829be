// Outlines of the prefix tree, for Executor::prefix_trees(): made by the engine thread when asked.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/clock.h"
#include "nereid/stats.h"
#include "runtime/clock.h"

namespace nereid::runtime {

// Times are those of the engine's clock. Thread-safe.
class PrefixWatch {
 public:
  static constexpr auto kFresh = std::chrono::milliseconds(250);

  // Asks for an outline unless the newest is younger than kFresh or one is on its way. True: the
  // engine thread, which may sleep, has to be woken.
  bool ask(Time now);
  // The newest outline with its age, after waiting up to `patience` for one that is on its way.
  PrefixTreeOutline newest(const Clock& clock, std::chrono::milliseconds patience);

  // Engine thread: whether an outline is asked for; put() answers.
  bool is_asked() const { return is_asked_.load(std::memory_order_relaxed); }
  void put(PrefixTreeOutline outline, Time now);

 private:
  std::atomic<bool> is_asked_ = false;
  std::mutex mutex_;
  std::condition_variable came_;
  PrefixTreeOutline newest_;
  Time made_;  // of newest_, where its age is not below 0
};

}  // namespace nereid::runtime
