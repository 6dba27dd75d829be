// A process that joins a leader through the network: its connection to it, its ranks, its end.
#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "comm/shared_group.h"
#include "comm/socket_group.h"
#include "runtime/ranks/hosts/host_group.h"
#include "runtime/ranks/hosts/joined_process.h"
#include "runtime/ranks/rank_worker.h"
#include "tensor/cpu_probe.h"

namespace nereid::runtime {
namespace {

constexpr int kMaxConnections = 256;  // whose hello is read at once

// Connections that came before or after those that wait for them.
class Mailbox {
 public:
  void put(const std::string& name, comm::Descriptor socket) {
    const std::lock_guard lock(mutex_);
    sockets_.insert_or_assign(name, std::move(socket));
    arrived_.notify_all();
  }
  StatusOr<comm::Descriptor> take(const std::string& name, Time deadline) {
    std::unique_lock lock(mutex_);
    const auto is_here = [&] { return sockets_.contains(name); };
    if (!arrived_.wait_until(lock, deadline, is_here))
      return deadline_exceeded("no connection '{}' has come", name);
    return std::move(sockets_.extract(name).mapped());
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<std::string, comm::Descriptor> sockets_;  // guarded by mutex_
};

std::string peer_name(const std::string& group, int64_t from, int64_t to) {
  return fmt::format("{} {} {}", group, from, to);
}

// The state that threads of connections and ranks share; it lives until the process ends.
struct WorkerState {
  HostWorkerOptions options;
  HostSecrets secrets;
  int default_threads = 0;
  Mailbox mailbox;
  std::atomic<int> num_connections = 0;
};

StatusOr<comm::Descriptor> open_memory(const std::string& path) {
  comm::Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file) return unavailable("memory of the leader, {}: {}", path, std::strerror(errno));
  return file;
}

StatusOr<std::unique_ptr<comm::Communicator>> join_group(WorkerState& state,
                                                         const std::string& memory,
                                                         const std::optional<HostRankGroup>& group,
                                                         int rank) {
  if (!memory.empty()) {
    ASSIGN_OR_RETURN(const comm::Descriptor file, open_memory(memory));
    return comm::attach_shared_group(file, rank);
  }
  if (!group) return nullptr;
  const Time deadline = now() + kMeetLimit;
  ASSIGN_OR_RETURN(std::vector<comm::Descriptor> peers,
                   dial_peers(*group, rank, state.secrets, deadline));
  for (int from = 0; from < rank; ++from) {
    ASSIGN_OR_RETURN(peers[static_cast<size_t>(from)],
                     state.mailbox.take(peer_name(group->id, from, rank), deadline));
  }
  return comm::attach_socket_group(rank, std::move(peers));
}

Status run_joined(WorkerState& state, JoinedRank rank, const std::string& id,
                  comm::Descriptor steps) {
  ASSIGN_OR_RETURN(comm::Descriptor beats, state.mailbox.take("beats " + id, now() + kMeetLimit));
  exec::RankComms comms;
  ASSIGN_OR_RETURN(comms.tensor,
                   join_group(state, rank.tensor_memory, rank.tensor, rank.start.tensor_rank));
  ASSIGN_OR_RETURN(comms.pipeline,
                   join_group(state, rank.pipeline_memory, rank.pipeline, rank.start.stage));
  if (rank.start.num_threads == 0 && rank.start.device == "cpu")
    rank.start.num_threads =
        state.options.num_threads > 0 ? state.options.num_threads : state.default_threads;
  const LeaderLoss loss{.closed = nullptr, .silent = [&] {
                          log_error("rank {}: the leader gave no sign of life for {} ms",
                                    rank.start.rank, rank.start.silence_ms);
                          std::_Exit(1);
                        }};
  const MakeOpener opener = [&] { return engine_opener_in(state.options.engine_dir); };
  return run_rank(rank.start, std::move(steps), std::move(beats), std::move(comms), opener, loss);
}

// Takes a connection by its kind; the thread of a rank runs until its end.
Status take(WorkerState& state, comm::Descriptor socket) {
  ASSIGN_OR_RETURN(HostConnection connection, meet_host(std::move(socket), state.secrets));
  const json::object& hello = connection.message;
  ASSIGN_OR_RETURN(const std::string kind, text_field(hello, "kind"));
  ASSIGN_OR_RETURN(const std::string id, text_field(hello, "id"));
  if (kind == "rank") {
    auto rank = joined_rank_of(hello);
    if (!rank.ok()) refuse_host(connection, rank.status());
    RETURN_IF_ERROR(rank.status());
    RETURN_IF_ERROR(send_frame(connection.socket, {{"process", ::getpid()}}));
    --state.num_connections;
    const int32_t number = rank->start.rank;
    const Status status = run_joined(state, *std::move(rank), id, std::move(connection.socket));
    ++state.num_connections;
    return status.ok() ? ok() : annotate(status, fmt::format("rank {}", number));
  }
  std::string name = "beats " + id;
  if (kind == "peer") {
    ASSIGN_OR_RETURN(const int64_t from, number_field(hello, "from"));
    ASSIGN_OR_RETURN(const int64_t to, number_field(hello, "to"));
    name = peer_name(id, from, to);
  } else if (kind != "beats") {
    const Status status = invalid_argument("'{}' is no kind of connection", kind.substr(0, 64));
    refuse_host(connection, status);
    return status;
  }
  RETURN_IF_ERROR(send_frame(connection.socket, {{"ok", true}}));
  state.mailbox.put(name, std::move(connection.socket));
  return ok();
}

class JoinedWorker {
 public:
  explicit JoinedWorker(WorkerState& state) : state_(state) {}

  StatusOr<int> serve() {
    const HostWorkerOptions& options = state_.options;
    ASSIGN_OR_RETURN(state_.secrets, read_host_secrets(options.token_file, options.tls));
    ASSIGN_OR_RETURN(listener_, listen_at(options.address));
    RETURN_IF_ERROR(join());
    RETURN_IF_ERROR(take_signals());
    while (true) {
      ASSIGN_OR_RETURN(const std::optional<int> exit_code, look());
      if (exit_code) return *exit_code;
    }
  }

 private:
  Status join() {
    const HostWorkerOptions& options = state_.options;
    log_info("joining {}", text_of(options.leader));
    auto leader = dial_host(options.leader, state_.secrets,
                            {{"kind", "join"},
                             {"rank", options.rank},
                             {"port", static_cast<int64_t>(local_port(listener_))}},
                            now() + options.limit);
    if (!leader.ok()) return annotate(leader.status(), text_of(options.leader));
    ASSIGN_OR_RETURN(const int64_t rank, number_field(leader->message, "rank"));
    ASSIGN_OR_RETURN(const int64_t size, number_field(leader->message, "size"));
    ASSIGN_OR_RETURN(const std::string path, text_field(leader->message, "memory"));
    const std::string seen = read_memory(path);
    RETURN_IF_ERROR(send_frame(leader->socket, {{"memory", seen}}));
    leader_ = std::move(leader->socket);
    // On the leader's host the cores are shared with its ranks.
    const auto sharers =
        static_cast<int>(seen.empty() ? 1 : std::clamp<int64_t>(size, 1, kMaxHosts));
    state_.default_threads = std::max(num_usable_cores() / sharers, 1);
    log_info("process {} of {} works for {}", rank, size, text_of(options.leader));
    return ok();
  }

  // The bytes of the leader's probe; empty: it is on another host.
  static std::string read_memory(const std::string& path) {
    if (!path.starts_with("/proc/")) return {};
    constexpr size_t kBytes = 32;
    const comm::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    std::string text(kBytes, '\0');
    if (!file || ::pread(file.get(), text.data(), text.size(), 0) != ssize_t{kBytes}) return {};
    const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
    return std::ranges::all_of(text, is_digit) ? text : std::string();
  }

  Status take_signals() {
    sigset_t stops;
    sigemptyset(&stops);
    for (const int signal : {SIGINT, SIGTERM}) sigaddset(&stops, signal);
    ::pthread_sigmask(SIG_BLOCK, &stops, nullptr);
    ::signal(SIGHUP, SIG_IGN);  // the leader decides
    ::signal(SIGPIPE, SIG_IGN);
    signals_ = comm::Descriptor(::signalfd(-1, &stops, SFD_CLOEXEC));
    if (!signals_) return unavailable("a descriptor of signals: {}", std::strerror(errno));
    return ok();
  }

  // Waits for something to happen; the exit code when it was the end.
  StatusOr<std::optional<int>> look() {
    pollfd ends[] = {{.fd = leader_.get(), .events = POLLIN, .revents = 0},
                     {.fd = listener_.get(), .events = POLLIN, .revents = 0},
                     {.fd = signals_.get(), .events = POLLIN, .revents = 0}};
    if (::poll(ends, std::size(ends), -1) < 0) {
      if (errno == EINTR) return std::nullopt;
      return unavailable("poll: {}", std::strerror(errno));
    }
    if (ends[0].revents != 0) {
      const auto message = receive_frame(leader_, now() + std::chrono::seconds(1));
      if (message.ok()) return 0;
      return unavailable("the leader {} has ended", text_of(state_.options.leader));
    }
    if (ends[1].revents != 0) {
      if (const Status status = take_connection(); !status.ok()) log_warn("{}", message(status));
    }
    if (ends[2].revents != 0) {
      signalfd_siginfo info{};
      if (::read(signals_.get(), &info, sizeof(info)) < 0) return std::nullopt;
      if (std::exchange(is_stopping_, true)) return 128 + static_cast<int>(info.ssi_signo);
      log_info("signal {}: asking the leader to stop", info.ssi_signo);
      send_frame(leader_, {{"stop", true}}).IgnoreError();
    }
    return std::nullopt;
  }

  Status take_connection() {
    ASSIGN_OR_RETURN(comm::Descriptor socket, accept_socket(listener_));
    if (state_.num_connections >= kMaxConnections)
      return resource_exhausted("{} connections wait; one more is closed", kMaxConnections);
    ++state_.num_connections;
    std::thread([state = &state_, socket = std::move(socket)]() mutable {
      if (const Status status = take(*state, std::move(socket)); !status.ok())
        log_error("{}", message(status));
      --state->num_connections;
    }).detach();
    return ok();
  }

  WorkerState& state_;
  comm::Descriptor leader_, listener_, signals_;
  bool is_stopping_ = false;
};

}  // namespace

int serve_joined(const HostWorkerOptions& options) {
  // The threads of ranks may outlive this function.
  auto& state = *new WorkerState{.options = options, .secrets = {}, .mailbox = {}};
  const StatusOr<int> exit_code = JoinedWorker(state).serve();
  if (exit_code.ok()) return *exit_code;
  log_error("{}", message(exit_code.status()));
  return 1;
}

}  // namespace nereid::runtime
