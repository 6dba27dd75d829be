// Processes of several hosts: one serves, the others join it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "base/status.h"
#include "runtime/ranks/hosts/host_group.h"

namespace nereid::cli {

// Flags that `nereid serve` and `nereid worker` have in common.
struct JoinFlags {
  std::filesystem::path token_file;
  runtime::HostTls tls;
  int32_t timeout_seconds = 600;
};

struct HostFlags {
  int32_t hosts = 0;  // processes; 0: of the LeaderWorkerSet, else 1
  std::string address = "0.0.0.0:7600";
  std::string exchange = "auto";  // auto | tcp
  JoinFlags join;
};

struct WorkerFlags {
  std::string leader;                 // HOST[:PORT]; empty: of the LeaderWorkerSet
  int32_t rank = 0;                   // 0: of the LeaderWorkerSet, else any
  std::string address = "0.0.0.0:0";  // where it takes ranks
  std::filesystem::path engine_dir;
  int32_t num_threads = 0;
  JoinFlags join;
};

// Variables that Kubernetes' LeaderWorkerSet gives each container: LWS_GROUP_SIZE,
// LWS_WORKER_INDEX, LWS_LEADER_ADDRESS. `environment`: getenv or a test's replacement.
using LwsVariables = std::function<const char*(const char* name)>;

// Options of a leader; no value: this process serves alone. InvalidArgument: flags or variables.
StatusOr<std::optional<runtime::HostGroupOptions>> host_group_options(
    const HostFlags& flags, const LwsVariables& environment);
StatusOr<runtime::HostWorkerOptions> host_worker_options(const WorkerFlags& flags,
                                                         const LwsVariables& environment);

}  // namespace nereid::cli
