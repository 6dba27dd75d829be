// A process of another host that runs a rank for this one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "comm/shared_memory.h"
#include "runtime/ranks/hosts/host_socket.h"
#include "runtime/ranks/rank_worker.h"
#include "runtime/ranks/worker_process.h"

namespace nereid::runtime {

// Frames of the leader's connections to a joined process, by "kind":
//   "rank"   id, arguments, memory or groups; answered with "process": Channel from then on
//   "beats"  id of the rank; answered: signs of life from then on
//   "peer"   id of a group, from, to: answered: an exchange of the two ranks from then on
// A group of ranks: where its members take connections, "" for those of the serving process. Each
// rank connects to those above it. With one address for all, memory of that process carries them.
struct HostRankGroup {
  std::string id;
  std::vector<std::string> members;  // [size] by rank in the group
};

// The parameters of a rank of a joined process. Memory: paths that are good on this host.
struct JoinedRank {
  WorkerStart start;
  int32_t num_in_process = 1;                  // ranks of the model in the same process
  std::string tensor_memory, pipeline_memory;  // shared segments; empty: none, or groups
  std::optional<HostRankGroup> tensor, pipeline;
};
json::object to_json(const JoinedRank& rank);
// DataLoss: it is none.
StatusOr<JoinedRank> joined_rank_of(const json::object& message);

class JoinedProcess final : public WorkerProcess {
 public:
  struct Started {
    comm::Descriptor steps, beats;
    std::unique_ptr<JoinedProcess> process;
  };
  // Gives a rank to the process at `address`. Errors: those of dial_host().
  static StatusOr<Started> start(const HostAddress& address, const HostSecrets& secrets,
                                 const JoinedRank& rank, Time deadline);

  pid_t id() const override { return id_; }  // on its host
  std::optional<std::string> ended(Duration limit) override;
  bool ended_well() const override { return true; }  // unknown here
  // Closes the connections, which ends the rank on its host.
  void kill() const override;

 private:
  JoinedProcess(pid_t id, std::string address, comm::Descriptor steps, comm::Descriptor beats)
      : id_(id), address_(std::move(address)), steps_(std::move(steps)), beats_(std::move(beats)) {}

  const pid_t id_;
  const std::string address_;
  const comm::Descriptor steps_, beats_;  // copies
};

// Connections of rank `rank` of a group to those above it, [size]; none for the others and for
// those of the serving process.
StatusOr<std::vector<comm::Descriptor>> dial_peers(const HostRankGroup& group, int rank,
                                                   const HostSecrets& secrets, Time deadline);

}  // namespace nereid::runtime
