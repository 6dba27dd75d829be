// Processes of several hosts as one server: one serves, the others join it through the network and
// run ranks for it.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/ranks/hosts/host_socket.h"
#include "runtime/ranks/launched_group.h"
#include "runtime/ranks/rank_worker.h"

namespace nereid::runtime {

inline constexpr uint16_t kJoinPort = 7600;
inline constexpr int32_t kMaxHosts = 64;

struct HostGroupOptions {
  int32_t size = 2;  // processes, this one included: [2, kMaxHosts]
  HostAddress address{.host = "0.0.0.0", .port = kJoinPort};
  std::filesystem::path token_file;
  HostTls tls;
  bool share_memory = true;                   // where all processes are on one host; else sockets
  Duration limit = std::chrono::minutes(10);  // until the last one has joined
};

// Waits until all have joined, and puts what the backends need of them into the environment
// (kJoinedHosts): no other thread may use that meanwhile. A process that ends, or sends nothing for
// 5 s, is given up with its ranks, and another one may join in its place. SIGTERM is sent to this
// process when a joined one is asked to stop. The end of the object ends the joined processes in
// order. DeadlineExceeded: one did not join; errors: read_host_secrets(), listen_at().
StatusOr<std::unique_ptr<LaunchedGroup>> lead_hosts(const HostGroupOptions& options);

struct HostWorkerOptions {
  HostAddress leader;
  std::filesystem::path token_file;
  HostTls tls;
  int32_t rank = 0;                                   // wanted; 0: any
  HostAddress address{.host = "0.0.0.0", .port = 0};  // where it takes ranks
  std::filesystem::path engine_dir;                   // see engine_opener_in()
  int num_threads = 0;                                // of a rank; 0: all cores, or a share of them
  Duration limit = std::chrono::minutes(10);          // until the leader answers
};

// Joins a leader and runs ranks for it until it ends. Returns the exit code, 0 if the leader has
// ended in order; the process must end then. Errors are logged. SIGINT and SIGTERM ask the leader
// to stop, the second one ends this process.
int serve_joined(const HostWorkerOptions& options);

}  // namespace nereid::runtime
