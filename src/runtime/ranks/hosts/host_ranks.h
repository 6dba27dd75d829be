// Ranks of one model on joined processes: their groups, and the exchange of the serving process's
// own rank with them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "comm/shared_memory.h"
#include "exec/exchange.h"
#include "runtime/ranks/hosts/joined_process.h"
#include "runtime/ranks/launched_job.h"

namespace nereid::runtime {

class HostRanks {
 public:
  // `participants`: processes of the ranks from 1 on; rank 0 is here. Errors: read_host_secrets().
  static StatusOr<HostRanks> create(LaunchedJob job, int32_t tp, int32_t pp,
                                    std::vector<int32_t> participants);

  // Ranks exchange through sockets; else through segments of this host's memory.
  bool use_sockets() const { return !job_.hosts->share_memory; }

  // Gives a rank to its process. `tensor`, `pipeline`: its segments, without sockets.
  StatusOr<JoinedProcess::Started> start(const WorkerStart& start, const comm::Descriptor* tensor,
                                         const comm::Descriptor* pipeline, Time deadline) const;

  // Connects rank 0 to the ranks that exchange over sockets. After start() of every rank.
  Status connect(Time deadline);
  exec::RankComms take_comms() { return std::move(comms_); }
  // Ends the exchange of rank 0, and so that of the ranks connected to it. Any thread.
  void abort() const;

 private:
  explicit HostRanks(LaunchedJob job) : job_(std::move(job)) {}
  std::optional<HostRankGroup> group_of(int32_t first, int32_t step, int32_t count) const;

  LaunchedJob job_;
  std::vector<int32_t> participants_;
  HostSecrets secrets_;
  std::vector<std::optional<HostRankGroup>> tensor_, pipeline_;  // [pp], [tp]; no value: one rank
  std::vector<comm::Descriptor> peers_;                          // copies of rank 0's sockets
  exec::RankComms comms_;                                        // of rank 0, until take_comms()
};

}  // namespace nereid::runtime
