// A process that is started again when it fails.
#pragma once

#include <functional>

#include "base/clock.h"

namespace nereid::cli {

struct RestartDelays {
  Duration first = std::chrono::seconds(1);  // doubled by each failure in a row
  Duration last = std::chrono::seconds(60);  // a process that has run for so long starts anew
};

// Calls `run` in a child process, again after it has failed, and returns its exit code once that is
// 0, or after SIGTERM or SIGINT, which are passed on. The child ends with this process. To be
// called before any thread starts.
int run_with_restarts(const std::function<int()>& run, const RestartDelays& delays = {});

}  // namespace nereid::cli
