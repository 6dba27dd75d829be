// A process that a rank runs in, as its leader sees it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/clock.h"

namespace nereid::runtime {

class WorkerProcess {
 public:
  virtual ~WorkerProcess() = default;

  virtual pid_t id() const = 0;
  // Waits up to `limit` for the end of the process, or of the rank in a process that goes on. The
  // text is how it ended: "was killed by signal 9 (Killed)", "has ended with exit code 1"; the same
  // when asked again. No value: it has not ended.
  virtual std::optional<std::string> ended(Duration limit) = 0;
  virtual bool ended_well() const = 0;
  // SIGKILL, which also ends a suspended process; nothing if it has ended.
  virtual void kill() const = 0;
};

}  // namespace nereid::runtime
