// A process that joins a leader through the network: its connection to it, its ranks, its end.
#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
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
#include "base/log_limit.h"
#include "comm/shared_group.h"
#include "comm/socket_group.h"
#include "runtime/ranks/hosts/hello_threads.h"
#include "runtime/ranks/hosts/host_group.h"
#include "runtime/ranks/hosts/joined_process.h"
#include "runtime/ranks/rank_worker.h"
#include "tensor/cpu_probe.h"

namespace nereid::runtime {
namespace {

constexpr int kBeatMs = 1000;

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

// Segments of groups whose ranks are all in this process; the first of them makes it.
class OwnSegments {
 public:
  StatusOr<std::shared_ptr<comm::Descriptor>> find(const HostRankGroup& group) {
    const std::lock_guard lock(mutex_);
    std::erase_if(segments_, [](const auto& entry) { return entry.second.expired(); });
    if (const auto found = segments_.find(group.id); found != segments_.end())
      if (auto segment = found->second.lock()) return segment;
    ASSIGN_OR_RETURN(
        comm::Descriptor made,
        comm::create_shared_group(static_cast<int>(group.members.size()), comm::kMaxTimeLimit));
    auto segment = std::make_shared<comm::Descriptor>(std::move(made));
    segments_[group.id] = segment;
    return segment;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<comm::Descriptor>> segments_;  // guarded by mutex_
};

// The state that threads of connections and ranks share; it lives until the process ends.
struct WorkerState {
  HostWorkerOptions options;
  HostSecrets secrets;
  int default_threads = 0;
  Mailbox mailbox;
  OwnSegments segments;
};

StatusOr<comm::Descriptor> open_memory(const std::string& path) {
  comm::Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file) return unavailable("memory of the leader, {}: {}", path, std::strerror(errno));
  return file;
}

// The exchange of a rank, and what ends it from another thread.
class RankExchange {
 public:
  explicit RankExchange(WorkerState& state) : state_(state) {}

  // Joins a group: a segment of the leader, a group, or none of them.
  StatusOr<std::unique_ptr<comm::Communicator>> join(const std::string& memory,
                                                     const std::optional<HostRankGroup>& group,
                                                     int rank) {
    if (!memory.empty()) {
      ASSIGN_OR_RETURN(comm::Descriptor file, open_memory(memory));
      segments_.push_back(std::make_shared<comm::Descriptor>(std::move(file)));
      return comm::attach_shared_group(*segments_.back(), rank);
    }
    if (!group) return nullptr;
    const std::string& own = group->members[static_cast<size_t>(rank)];
    if (std::ranges::all_of(group->members, [&](const auto& member) { return member == own; })) {
      ASSIGN_OR_RETURN(segments_.emplace_back(), state_.segments.find(*group));
      return comm::attach_shared_group(*segments_.back(), rank);
    }
    ASSIGN_OR_RETURN(std::vector<comm::Descriptor> peers, connect(*group, rank));
    return comm::attach_socket_group(rank, std::move(peers));
  }

  void abort(const Status& reason) const {
    for (const comm::Descriptor& socket : sockets_) ::shutdown(socket.get(), SHUT_RDWR);
    for (const auto& segment : segments_) comm::abort_shared_group(*segment, reason).IgnoreError();
  }

 private:
  StatusOr<std::vector<comm::Descriptor>> connect(const HostRankGroup& group, int rank) {
    const Time deadline = now() + kMeetLimit;
    ASSIGN_OR_RETURN(std::vector<comm::Descriptor> peers,
                     dial_peers(group, rank, state_.secrets, deadline));
    for (int from = 0; from < rank; ++from) {
      ASSIGN_OR_RETURN(peers[static_cast<size_t>(from)],
                       state_.mailbox.take(peer_name(group.id, from, rank), deadline));
    }
    for (const comm::Descriptor& peer : peers) {
      if (!peer) continue;
      sockets_.emplace_back(::fcntl(peer.get(), F_DUPFD_CLOEXEC, 0));
      if (!sockets_.back()) return unavailable("a descriptor: {}", std::strerror(errno));
    }
    return peers;
  }

  WorkerState& state_;
  std::vector<comm::Descriptor> sockets_;  // copies
  std::vector<std::shared_ptr<comm::Descriptor>> segments_;
};

Status run_joined(WorkerState& state, JoinedRank rank, const std::string& id,
                  comm::Descriptor steps) {
  ASSIGN_OR_RETURN(comm::Descriptor beats, state.mailbox.take("beats " + id, now() + kMeetLimit));
  RankExchange exchange(state);
  exec::RankComms comms;
  ASSIGN_OR_RETURN(comms.tensor,
                   exchange.join(rank.tensor_memory, rank.tensor, rank.start.tensor_rank));
  ASSIGN_OR_RETURN(comms.pipeline,
                   exchange.join(rank.pipeline_memory, rank.pipeline, rank.start.stage));
  if (rank.start.num_threads == 0 && rank.start.device == "cpu")
    rank.start.num_threads = state.options.num_threads > 0
                                 ? state.options.num_threads
                                 : std::max(state.default_threads / rank.num_in_process, 1);
  // A rank that waits for one that the leader has given up does not read its channel.
  const auto close = [&] { exchange.abort(unavailable("the leader has given up the ranks")); };
  const LeaderLoss loss{.closed = close, .silent = [&] {
                          log_error("rank {}: the leader gave no sign of life for {} ms",
                                    rank.start.rank, rank.start.silence_ms);
                          std::_Exit(1);
                        }};
  const MakeOpener opener = [&] { return engine_opener_in(state.options.engine_dir); };
  return run_rank(rank.start, std::move(steps), std::move(beats), std::move(comms), opener, loss);
}

// Takes a connection by its kind; the thread of a rank runs until its end.
Status take(WorkerState& state, HostConnection connection) {
  const json::object& hello = connection.message;
  ASSIGN_OR_RETURN(const std::string kind, text_field(hello, "kind"));
  ASSIGN_OR_RETURN(const std::string id, text_field(hello, "id"));
  if (kind == "rank") {
    auto rank = joined_rank_of(hello);
    if (!rank.ok()) refuse_host(connection, rank.status());
    RETURN_IF_ERROR(rank.status());
    RETURN_IF_ERROR(send_frame(connection.socket, {{"process", ::getpid()}}));
    const int32_t number = rank->start.rank;
    const Status status = run_joined(state, *std::move(rank), id, std::move(connection.socket));
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
    const int got = ::poll(ends, std::size(ends), kBeatMs);
    if (got < 0 && errno != EINTR) return unavailable("poll: {}", std::strerror(errno));
    if (got < 0) return std::nullopt;
    if (now() >= next_beat_) {
      next_beat_ = now() + std::chrono::milliseconds(kBeatMs);
      send_frame(leader_, {{"beat", true}}).IgnoreError();  // its end is read below
    }
    if (ends[0].revents != 0) {
      const auto message = receive_frame(leader_, now() + std::chrono::seconds(1));
      if (message.ok()) return 0;
      return unavailable("the leader {} has ended", text_of(state_.options.leader));
    }
    if (ends[1].revents != 0) accept();
    if (ends[2].revents != 0) {
      signalfd_siginfo info{};
      if (::read(signals_.get(), &info, sizeof(info)) < 0) return std::nullopt;
      if (std::exchange(is_stopping_, true)) return 128 + static_cast<int>(info.ssi_signo);
      log_info("signal {}: asking the leader to stop", info.ssi_signo);
      send_frame(leader_, {{"stop", true}}).IgnoreError();
    }
    return std::nullopt;
  }

  void accept() {
    static LogLimit limit;
    auto socket = accept_socket(listener_);
    if (!socket.ok()) {
      limit.warn("{}", message(socket.status()));
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // it may be out of descriptors
      return;
    }
    hellos_.begin(*std::move(socket), state_.secrets, [state = &state_](auto met) {
      const Status status = met.ok() ? take(*state, *std::move(met)) : met.status();
      if (!status.ok()) limit.error("{}", message(status));
    });
  }

  WorkerState& state_;
  comm::Descriptor leader_, listener_, signals_;
  // Its threads may outlive this object, see serve_joined().
  HelloThreads& hellos_ = *new HelloThreads;
  Time next_beat_;
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
