// How the processes of a job find each other on a host: abstract Unix sockets, named by user, job
// and rank, and messages with descriptors.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "comm/shared_memory.h"
#include "runtime/ranks/launched_job.h"

namespace nereid::runtime {

// A process that is no child; ids that the system gives again do not confuse it.
class ProcessHandle {
 public:
  // Unavailable: it has ended, or has another process namespace.
  static StatusOr<ProcessHandle> open(pid_t process);

  pid_t id() const { return id_; }
  int descriptor() const { return descriptor_.get(); }  // readable when it has ended
  bool has_ended(Duration limit) const;                 // waits up to `limit` for its end
  void signal(int signal) const;                        // nothing if it has ended

 private:
  ProcessHandle(pid_t id, comm::Descriptor descriptor)
      : id_(id), descriptor_(std::move(descriptor)) {}

  pid_t id_;
  comm::Descriptor descriptor_;
};

// A connection to another process of this user.
struct Peer {
  comm::Descriptor socket;
  ProcessHandle process;
};

// The listening socket of the job's own rank. AlreadyExists: another process has it.
StatusOr<comm::Descriptor> listen_as(const LaunchedJob& job);
// A connection to another rank of the job, retried until `deadline`. DeadlineExceeded: it does not
// listen. PermissionDenied: a process of another user does.
StatusOr<Peer> connect_to(const LaunchedJob& job, int32_t rank, Time deadline);
// The next connection of a listening socket. PermissionDenied: of another user. Blocks.
StatusOr<Peer> accept_from(const comm::Descriptor& listener);

struct PeerMessage {
  std::vector<std::byte> bytes;
  std::vector<comm::Descriptor> descriptors;
};
inline constexpr size_t kMaxPeerBytes = size_t{16} << 10, kMaxPeerDescriptors = 8;

// Does not block. Unavailable: the peer has ended or does not read.
Status send_to(const Peer& peer, std::span<const std::byte> bytes,
               std::span<const int> descriptors = {});
// Waits up to `limit`. Unavailable: the peer has closed the connection. DeadlineExceeded. DataLoss:
// more bytes or descriptors than are allowed.
StatusOr<PeerMessage> receive_from(const Peer& peer, Duration limit);

}  // namespace nereid::runtime
