// The processes that a launcher (mpirun, srun) started for one command.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "runtime/ranks/hosts/host_socket.h"

namespace nereid::runtime {

// Processes of a job that have joined this one through the network, see host_group.h.
struct JoinedHosts {
  // Addresses where the processes from 1 on take ranks; port 0: it has ended, and no other has
  // joined in its place.
  std::vector<HostAddress> workers;
  bool share_memory = false;  // all are on this host
  int32_t num_here = 1;       // on this host, with this one
  std::filesystem::path token_file;
  HostTls tls;
};

struct LaunchedJob {
  int32_t rank = 0, size = 1;
  std::string key;       // equal in all processes of a job, another one in other jobs of the host
  std::string launcher;  // "Open MPI", "PMI", "Slurm", "nereid", "nereid serve --hosts"
  // The process that started them, whose end ends them; 0: unknown, or it ends before them.
  pid_t launcher_process = 0;
  int32_t num_on_host = 0;  // processes of the job on this host; 0: unknown
  std::optional<JoinedHosts> hosts;
};

// Variables that launch_triton_server sets without mpirun. It ends before the processes.
inline constexpr const char *kLaunchedSize = "NEREID_LAUNCHED_SIZE",
                            *kLaunchedRank = "NEREID_LAUNCHED_RANK",
                            *kLaunchedKey = "NEREID_LAUNCHED_KEY";

// Variables of a job whose processes are on several hosts: process 0's HOST:PORT, the file with the
// token. See cli/process/joined.h.
inline constexpr const char *kJoin = "NEREID_JOIN", *kJoinTokenFile = "NEREID_JOIN_TOKEN_FILE";

// The variable with the path of a file with the joined processes, joined_hosts_json(): backends are
// libraries of their own. The file changes when a process ends, or joins.
inline constexpr const char* kJoinedHosts = "NEREID_JOINED_HOSTS";
std::string joined_hosts_json(const JoinedHosts& hosts);

// The variables of joined processes, of Open MPI, of PMI (Hydra), of Slurm's tasks and of
// launch_triton_server. No value: none of them, or one process. Unimplemented: processes on several
// hosts, unless `may_span_hosts`. InvalidArgument: a rank that is not below the size.
// `environment`: getenv, or a test's.
using Environment = std::function<const char*(const char* name)>;
StatusOr<std::optional<LaunchedJob>> read_launched_job(const Environment& environment,
                                                       bool may_span_hosts = false);

// The job of this process.
StatusOr<std::optional<LaunchedJob>> launched_job();

// Compute threads for a process of the job: all cores that the launcher has bound it to, but at
// most its share of the launcher's cores on this host. Joined processes: a share of this host's.
int launched_threads(const LaunchedJob& job);

// Open MPI binds each process, also the only one, to a core by default, which suits processes with
// one thread. Gives this thread and those that it starts the launcher's cores then.
void leave_default_binding();

// "process 1 of 4 (Open MPI)"
std::string text_of(const LaunchedJob& job);

}  // namespace nereid::runtime
