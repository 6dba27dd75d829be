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
  bool restarts = false;  // see run_with_restarts()
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

// A process that mpirun or srun started beside others, of any hosts, which meet at process 0's
// address: `leader` counts for process 0, `worker` for the others.
struct LaunchedHosts {
  int32_t rank = 0;
  runtime::HostGroupOptions leader;
  runtime::HostWorkerOptions worker;
};
// Reads the launcher's variables, NEREID_JOIN, NEREID_JOIN_TOKEN_FILE and NEREID_JOIN_TLS_CERT,
// _KEY, _ROOT. No value: not launched, or not both of the first two. InvalidArgument: variables.
StatusOr<std::optional<LaunchedHosts>> launched_hosts(const LwsVariables& environment);

}  // namespace nereid::cli
