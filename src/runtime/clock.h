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

// The machine's monotonic clock. Not destroyed at the end of the process: the engine's thread of a
// hung device may read it then.
inline const Clock& steady_clock() {
  struct Steady : Clock {
    Time now() const override { return nereid::now(); }
  };
  static const Steady& clock = *new Steady;
  return clock;
}

}  // namespace nereid::runtime
