// The processes of a job as one server: process 0 serves, the others run ranks for it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/ranks/launched_job.h"
#include "runtime/ranks/rank_worker.h"

namespace nereid::runtime {

inline constexpr Duration kMeetLimit = std::chrono::seconds(60);  // processes wait for each other

// First byte of a message from process 0 to another one.
enum class PeerMessageKind : uint8_t {
  kLead,  // the connection stays; its end without kEnd is the death of process 0
  kEnd,   // on that connection: process 0 ends in order
  kRank,  // worker_arguments() as a list of texts; valid descriptors of WorkerDescriptors
};

// Process 0's connections to the others. SIGTERM is sent to this process when another one is asked
// to stop, or when the launcher has ended.
class LaunchedGroup {
 public:
  // Connects in the background. To be called when SIGTERM is blocked, as it is for a server, and
  // before the first model is loaded. Unavailable: the system's reason.
  static StatusOr<std::unique_ptr<LaunchedGroup>> lead(const LaunchedJob& job);
  // The others end in order; those that do not are killed.
  virtual ~LaunchedGroup() = default;

  // This process stops already: nothing more asks it to.
  virtual void is_stopping() = 0;
};

// A process above 0: runs ranks, each on threads of its own, until process 0 ends. SIGINT and
// SIGTERM, and the end of the launcher, ask process 0 to stop. Returns the exit code: 0 if it has
// ended in order; the process must end then. Errors, when process 0 does not come within
// `meet_limit`, are logged.
int serve_launched(const LaunchedJob& job, const MakeOpener& opener = engine_opener,
                   Duration meet_limit = kMeetLimit);

}  // namespace nereid::runtime
