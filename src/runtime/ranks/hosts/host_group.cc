// The leader of processes that join through the network.
#include "runtime/ranks/hosts/host_group.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/log_limit.h"
#include "base/random_hex.h"
#include "comm/shared_memory.h"
#include "runtime/ranks/group_leader.h"
#include "runtime/ranks/hosts/hello_threads.h"
#include "runtime/ranks/launched_job.h"

namespace nereid::runtime {
namespace {

constexpr auto kAnswerLimit = std::chrono::seconds(5);
constexpr auto kExitLimit = std::chrono::seconds(5);
constexpr auto kSilenceLimit =
    std::chrono::seconds(5);  // of a process that sends a beat each second

struct Joined {
  comm::Descriptor socket;
  HostAddress address;  // where it takes ranks
  bool shares_memory = false;
  Duration silence{};
};

// Memory that a process of this host can open by its path.
class Probe {
 public:
  static StatusOr<Probe> create() {
    Probe probe;
    probe.text_ = random_hex();
    ASSIGN_OR_RETURN(probe.file_, comm::SharedMemory::create(probe.text_.size()));
    ASSIGN_OR_RETURN(const auto memory, comm::SharedMemory::map(probe.file_));
    std::memcpy(memory->data(), probe.text_.data(), probe.text_.size());
    return probe;
  }
  std::string path() const { return fmt::format("/proc/{}/fd/{}", ::getpid(), file_.get()); }
  const std::string& text() const { return text_; }

 private:
  comm::Descriptor file_;
  std::string text_;
};

// A file that other threads of this process read by its path while this one replaces its contents.
class Board {
 public:
  std::string path() const { return fmt::format("/proc/{}/fd/{}", ::getpid(), file_.get()); }
  Status write(const std::string& text) {
    comm::Descriptor file(::memfd_create("nereid-hosts", MFD_CLOEXEC));
    if (!file || ::write(file.get(), text.data(), text.size()) != std::ssize(text))
      return unavailable("a file in memory: {}", std::strerror(errno));
    // Readers have either file open.
    if (!file_)
      file_ = std::move(file);
    else if (::dup3(file.get(), file_.get(), O_CLOEXEC) < 0)
      return unavailable("a file in memory: {}", std::strerror(errno));
    return ok();
  }

 private:
  comm::Descriptor file_;
};

class HostLeader final : public GroupLeader {
 public:
  explicit HostLeader(const HostGroupOptions& options)
      : options_(options), workers_(static_cast<size_t>(options.size) - 1) {}

  ~HostLeader() override {
    end_watch();
    hellos_.reset();
    end_all();
  }

  Status open() {
    ASSIGN_OR_RETURN(secrets_, read_host_secrets(options_.token_file, options_.tls));
    ASSIGN_OR_RETURN(listener_, listen_at(options_.address));
    RETURN_IF_ERROR(wake_.open());
    ASSIGN_OR_RETURN(probe_, Probe::create());
    log_info("waiting at {} for {} to join",
             text_of(HostAddress{options_.address.host, local_port(listener_)}), num_missing());
    RETURN_IF_ERROR(publish());
    ::setenv(kJoinedHosts, board_.path().c_str(), 1);
    hellos_.emplace();
    watch([this] { look(); });
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, options_.limit, [this] { return num_missing() == 0; }))
      return deadline_exceeded(
          "hosts: {} of {} processes have not joined within {:.3g} s: start "
          "`nereid worker --join HOST:{}` on each other host",
          num_missing(), options_.size, seconds(options_.limit), local_port(listener_));
    is_complete_ = true;
    RETURN_IF_ERROR(publish());
    log_info("{} processes exchange through {}", options_.size,
             shares_memory() ? "the memory of this host" : "TCP");
    return ok();
  }

 private:
  // Number of places that no joined process has: they are free or reserved.
  size_t num_missing() const {
    return static_cast<size_t>(std::ranges::count_if(
        workers_, [](const auto& worker) { return !worker || !worker->socket; }));
  }

  bool shares_memory() const {
    return options_.share_memory && std::ranges::all_of(workers_, [](const auto& worker) {
             return worker && worker->shares_memory;
           });
  }

  // Reserves a place for a process that asked for `rank`, 0: any. AlreadyExists: it is taken.
  StatusOr<size_t> reserve(int64_t rank) {
    if (rank < 0 || rank >= options_.size)
      return invalid_argument("rank {} is not below the {} processes of --hosts", rank,
                              options_.size);
    const std::lock_guard lock(mutex_);
    auto place = workers_.begin() + (rank > 0 ? rank - 1 : 0);
    if (rank > 0 && *place) return already_exists("rank {} has joined already", rank);
    if (rank == 0) place = std::ranges::find_if(workers_, [](const auto& w) { return !w; });
    if (place == workers_.end())
      return already_exists("all {} processes have joined", options_.size);
    place->emplace();
    return static_cast<size_t>(place - workers_.begin());
  }

  // On a thread of `hellos_`.
  void take(StatusOr<HostConnection> connection) {
    static LogLimit limit;
    Status status = connection.status();
    if (status.ok()) {
      status = add(*connection);
      if (!status.ok()) refuse_host(*connection, status);
      if (!status.ok()) status = annotate(status, connection->host);
    }
    if (!status.ok()) limit.warn("a process that wanted to join was refused: {}", message(status));
  }

  Status add(HostConnection& connection) {
    ASSIGN_OR_RETURN(const std::string kind, text_field(connection.message, "kind"));
    if (kind != "join") return invalid_argument("'{}' is no request to join", kind);
    ASSIGN_OR_RETURN(const int64_t rank, number_field(connection.message, "rank"));
    ASSIGN_OR_RETURN(const int64_t port, number_field(connection.message, "port"));
    if (port < 1 || port > UINT16_MAX) return invalid_argument("port {} is none", port);
    ASSIGN_OR_RETURN(const size_t place, reserve(rank));
    const StatusOr<bool> shares_memory = compare_memory(connection, place);
    const std::lock_guard lock(mutex_);
    if (!shares_memory.ok()) {
      workers_[place].reset();
      return shares_memory.status();
    }
    workers_[place] = Joined{.socket = std::move(connection.socket),
                             .address = {connection.host, static_cast<uint16_t>(port)},
                             .shares_memory = *shares_memory};
    log_info("process {} of {} has joined from {}{}", place + 1, options_.size,
             text_of(workers_[place]->address), *shares_memory ? ", this host" : "");
    if (is_complete_) RETURN_IF_ERROR(publish());
    changed_.notify_all();
    wake_.notify();
    return ok();
  }

  // Sends a process its place; whether it shows the bytes of the probe, and so is on this host.
  StatusOr<bool> compare_memory(const HostConnection& connection, size_t place) const {
    RETURN_IF_ERROR(send_frame(connection.socket, {{"rank", static_cast<int64_t>(place) + 1},
                                                   {"size", options_.size},
                                                   {"memory", probe_.path()}}));
    ASSIGN_OR_RETURN(const json::object answer,
                     receive_frame(connection.socket, now() + kAnswerLimit));
    ASSIGN_OR_RETURN(const std::string seen, text_field(answer, "memory"));
    return seen == probe_.text();
  }

  // Writes who is here, for the backends.
  Status publish() {
    JoinedHosts hosts{.share_memory = shares_memory(),
                      .token_file = std::filesystem::absolute(options_.token_file),
                      .tls = options_.tls};
    for (const auto& worker : workers_) {
      hosts.workers.push_back(worker ? worker->address : HostAddress{});
      if (worker && worker->shares_memory) ++hosts.num_here;
    }
    return board_.write(joined_hosts_json(hosts));
  }

  // Waits for messages, ends and new connections.
  void look() {
    std::vector<pollfd> ends = {wake_.entry(),
                                {.fd = listener_.get(), .events = POLLIN, .revents = 0}};
    std::vector<size_t> places;
    {
      const std::lock_guard lock(mutex_);
      for (size_t i = 0; i < workers_.size(); ++i) {
        if (!workers_[i] || !workers_[i]->socket) continue;
        ends.push_back({.fd = workers_[i]->socket.get(), .events = POLLIN, .revents = 0});
        places.push_back(i);
      }
    }
    if (::poll(ends.data(), ends.size(), kLookMs) < 0) return;
    if (ends[0].revents != 0) wake_.clear();
    if (ends[1].revents != 0) accept();
    const Time at = now();
    // Time in which this process was suspended is no silence of the others.
    const Duration passed =
        std::min<Duration>(at - std::exchange(last_, at), 2 * std::chrono::milliseconds(kLookMs));
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < places.size(); ++i) hear(places[i], ends[i + 2].revents != 0, passed);
  }

  void accept() {
    auto socket = accept_socket(listener_);
    if (socket.ok() && !is_stopping_)
      hellos_->begin(*std::move(socket), secrets_,
                     [this](StatusOr<HostConnection> met) { take(std::move(met)); });
    if (socket.ok()) return;
    static LogLimit limit;
    limit.warn("{}", message(socket.status()));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // it may be out of descriptors
  }

  // A joined process that has or has not sent something within `passed`. Under mutex_.
  void hear(size_t place, bool has_sent, Duration passed) {
    Joined& worker = *workers_[place];
    worker.silence += passed;
    std::string end;
    if (has_sent) {
      const auto frame = receive_frame(worker.socket, now());
      if (!frame.ok())
        end = "has ended";
      else if (frame->contains("stop"))
        request_stop();
      worker.silence = {};
    } else if (worker.silence >= kSilenceLimit) {
      end =
          fmt::format("gives no sign of life for {:.3g} s and is given up", seconds(kSilenceLimit));
    }
    if (end.empty()) return;
    if (!is_stopping_)
      log_error("process {} of {} ({}) {}; another one may join in its place", place + 1,
                options_.size, text_of(worker.address), end);
    workers_[place].reset();
    if (!is_complete_) return;
    if (const Status status = publish(); !status.ok()) log_error("{}", message(status));
  }

  void end_all() {
    for (const auto& worker : workers_)
      if (worker && worker->socket) send_frame(worker->socket, {{"end", true}}).IgnoreError();
    const Time deadline = now() + kExitLimit;
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (!workers_[i] || !workers_[i]->socket) continue;
      Status end;
      while (end.ok()) end = receive_frame(workers_[i]->socket, deadline).status();
      if (end.code() == absl::StatusCode::kDeadlineExceeded)
        log_warn("process {} of {} ({}) does not end", i + 1, options_.size,
                 text_of(workers_[i]->address));
    }
  }

  static constexpr int kLookMs = 1000;

  const HostGroupOptions options_;
  HostSecrets secrets_;
  comm::Descriptor listener_;
  Probe probe_;
  Time last_ = now();  // of the thread's last look
  std::mutex mutex_;   // guards those below
  std::condition_variable changed_;
  std::vector<std::optional<Joined>> workers_;  // [size - 1] by rank - 1; without socket: reserved
  Board board_;
  bool is_complete_ = false;            // all have been here at once
  std::optional<HelloThreads> hellos_;  // used by the thread, then by the destructor
};

}  // namespace

StatusOr<std::unique_ptr<LaunchedGroup>> lead_hosts(const HostGroupOptions& options) {
  if (options.size < 2 || options.size > kMaxHosts)
    return invalid_argument("hosts: {} is not in [2, {}]", options.size, kMaxHosts);
  auto leader = std::make_unique<HostLeader>(options);
  RETURN_IF_ERROR(leader->open());
  return leader;
}

}  // namespace nereid::runtime
