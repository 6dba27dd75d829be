// The time as the engine, its modules and the executor read it: tests and replays give their own.
#pragma once

#include "base/clock.h"

namespace nereid::runtime {

// Safe from many threads.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time now() const = 0;
};

// The machine's monotonic clock.
inline const Clock& steady_clock() {
  struct Steady : Clock {
    Time now() const override { return nereid::now(); }
  };
  static const Steady clock;
  return clock;
}

}  // namespace nereid::runtime
