// Ranks of one model on joined processes: their groups, and the exchange of the serving process's
// own ranks with them.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "comm/shared_memory.h"
#include "exec/exchange.h"
#include "runtime/ranks/hosts/joined_process.h"
#include "runtime/ranks/launched_job.h"

namespace nereid::runtime {

// Where processes do not share memory, each group of ranks exchanges by itself: through the memory
// of the process that has all of them, else through sockets.
class HostRanks {
 public:
  struct Layout {
    int32_t tp = 1, pp = 1;
    std::vector<int32_t> processes;  // [tp * pp] of the ranks; those of process 0 come first
  };
  // `limit`: of a wait in an exchange through memory. Errors: of the secrets' files, of memory.
  static StatusOr<HostRanks> create(LaunchedJob job, Layout layout, Duration limit);

  // Ranks exchange through what this object has; else through segments of this host's memory.
  bool has_groups() const { return !job_.hosts->share_memory; }

  // Gives a rank to its process. `tensor`, `pipeline`: its segments, without groups. Unavailable:
  // the process has ended.
  StatusOr<JoinedProcess::Started> start(const WorkerStart& start, const comm::Descriptor* tensor,
                                         const comm::Descriptor* pipeline, Time deadline) const;

  // Connects the ranks of process 0 to their groups. After start() of every other rank.
  Status connect(Time deadline);
  // Communicators of a rank of process 0; once, after connect().
  exec::RankComms take_comms(int32_t rank) { return std::move(comms_[static_cast<size_t>(rank)]); }
  // Ends the exchange of process 0's ranks, and so that of those connected to them. Any thread.
  void abort(const Status& reason) const;

 private:
  struct Group {
    HostRankGroup ranks;
    comm::Descriptor segment;  // of a group of ranks of process 0
  };
  using Comm = std::unique_ptr<comm::Communicator> exec::RankComms::*;

  HostRanks(LaunchedJob job, Layout layout) : job_(std::move(job)), layout_(std::move(layout)) {}
  StatusOr<std::optional<Group>> group_of(int32_t first, int32_t step, int32_t count,
                                          Duration limit) const;
  Status connect(const Group& group, int32_t first, int32_t step, Comm comm, Time deadline);

  LaunchedJob job_;
  Layout layout_;
  HostSecrets secrets_;
  std::vector<std::optional<Group>> tensor_, pipeline_;  // [pp], [tp]; no value: one rank
  std::vector<comm::Descriptor> peers_;  // copies of the sockets of process 0's ranks
  std::vector<exec::RankComms> comms_;   // of process 0's ranks, until take_comms()
};

}  // namespace nereid::runtime
