#include "runtime/ranks/rendezvous.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "base/hash.h"

namespace nereid::runtime {
namespace {

struct Address {
  sockaddr_un address{};
  socklen_t length = 0;
};

Address address_of(const LaunchedJob& job, int32_t rank) {
  const std::string name = fmt::format("nereid.{}.{}.{}", ::getuid(), hex64(hash64(job.key)), rank);
  Address out;
  out.address.sun_family = AF_UNIX;
  // Behind a zero byte: abstract, without a file.
  std::memcpy(out.address.sun_path + 1, name.data(), name.size());
  out.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return out;
}

StatusOr<comm::Descriptor> new_socket() {
  comm::Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket) return unavailable("a socket: {}", std::strerror(errno));
  return socket;
}

int milliseconds(Duration limit) {
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(limit).count();
  return static_cast<int>(std::clamp<int64_t>(ms, 0, 1 << 30));
}

// Whether the descriptor is readable or closed within `limit`.
bool is_ready(int descriptor, Duration limit) {
  const Time end = now() + limit;
  pollfd wanted{.fd = descriptor, .events = POLLIN, .revents = 0};
  int got;
  while ((got = ::poll(&wanted, 1, milliseconds(end - now()))) < 0 && errno == EINTR) {
  }
  return got > 0;
}

// The process at the other end; of a connected socket, that which listened.
StatusOr<Peer> peer_of(comm::Descriptor socket) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    return unavailable("credentials of a process: {}", std::strerror(errno));
  if (credentials.uid != ::getuid())
    return Status(absl::StatusCode::kPermissionDenied,
                  fmt::format("process {} is of user {}, not of {}", credentials.pid,
                              credentials.uid, ::getuid()));
  ASSIGN_OR_RETURN(ProcessHandle process, ProcessHandle::open(credentials.pid));
  return Peer{std::move(socket), std::move(process)};
}

}  // namespace

StatusOr<ProcessHandle> ProcessHandle::open(pid_t process) {
  // glibc 2.36 declares its functions of process descriptors for C only.
  comm::Descriptor descriptor(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  if (!descriptor) return unavailable("process {}: {}", process, std::strerror(errno));
  return ProcessHandle(process, std::move(descriptor));
}

bool ProcessHandle::has_ended(Duration limit) const { return is_ready(descriptor_.get(), limit); }

void ProcessHandle::signal(int signal) const {
  ::syscall(SYS_pidfd_send_signal, descriptor_.get(), signal, nullptr, 0);
}

StatusOr<comm::Descriptor> listen_as(const LaunchedJob& job) {
  ASSIGN_OR_RETURN(comm::Descriptor socket, new_socket());
  const Address own = address_of(job, job.rank);
  const auto* const address = reinterpret_cast<const sockaddr*>(&own.address);
  if (::bind(socket.get(), address, own.length) != 0) {
    if (errno == EADDRINUSE)
      return already_exists("{}: another process of the job '{}' has this rank", text_of(job),
                            job.key);
    return unavailable("{}: {}", text_of(job), std::strerror(errno));
  }
  if (::listen(socket.get(), SOMAXCONN) != 0)
    return unavailable("{}: {}", text_of(job), std::strerror(errno));
  return socket;
}

StatusOr<Peer> connect_to(const LaunchedJob& job, int32_t rank, Time deadline) {
  constexpr auto kPeriod = std::chrono::milliseconds(20);
  const Address other = address_of(job, rank);
  const auto* const address = reinterpret_cast<const sockaddr*>(&other.address);
  while (true) {
    ASSIGN_OR_RETURN(comm::Descriptor socket, new_socket());
    if (::connect(socket.get(), address, other.length) == 0) return peer_of(std::move(socket));
    if (errno != ECONNREFUSED && errno != EINTR && errno != EAGAIN)
      return unavailable("process {} of {} ({}): {}", rank, job.size, job.launcher,
                         std::strerror(errno));
    if (now() >= deadline)
      return deadline_exceeded(
          "process {} of {} ({}) does not answer: all processes of the job must run the same "
          "command of nereid",
          rank, job.size, job.launcher);
    std::this_thread::sleep_for(kPeriod);
  }
}

StatusOr<Peer> accept_from(const comm::Descriptor& listener) {
  comm::Descriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket) return unavailable("a connection: {}", std::strerror(errno));
  return peer_of(std::move(socket));
}

Status send_to(const Peer& peer, std::span<const std::byte> bytes,
               std::span<const int> descriptors) {
  iovec part{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxPeerDescriptors)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(head), descriptors.data(), descriptors.size_bytes());
  }
  if (::sendmsg(peer.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
    return unavailable("process {}: {}", peer.process.id(), std::strerror(errno));
  return ok();
}

StatusOr<PeerMessage> receive_from(const Peer& peer, Duration limit) {
  if (!is_ready(peer.socket.get(), limit))
    return deadline_exceeded("process {} sends nothing", peer.process.id());
  PeerMessage out{.bytes = std::vector<std::byte>(kMaxPeerBytes), .descriptors = {}};
  iovec part{.iov_base = out.bytes.data(), .iov_len = out.bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxPeerDescriptors)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t got = ::recvmsg(peer.socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); got >= 0 && head;
       head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = CMSG_LEN(0); at + sizeof(int) <= head->cmsg_len; at += sizeof(int)) {
      int descriptor = -1;
      std::memcpy(&descriptor, reinterpret_cast<char*>(head) + at, sizeof(descriptor));
      out.descriptors.emplace_back(descriptor);
    }
  }
  if (got < 0) return unavailable("process {}: {}", peer.process.id(), std::strerror(errno));
  if (got == 0) return unavailable("process {} has closed the connection", peer.process.id());
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
    return data_loss("process {} sends more than {} bytes or {} descriptors", peer.process.id(),
                     kMaxPeerBytes, kMaxPeerDescriptors);
  out.bytes.resize(static_cast<size_t>(got));
  return out;
}

}  // namespace nereid::runtime
