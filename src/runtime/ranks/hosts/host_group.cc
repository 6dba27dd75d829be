// The leader of processes that join through the network.
#include "runtime/ranks/hosts/host_group.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/random_hex.h"
#include "comm/shared_memory.h"
#include "runtime/ranks/group_leader.h"
#include "runtime/ranks/launched_job.h"

namespace nereid::runtime {
namespace {

constexpr auto kAnswerLimit = std::chrono::seconds(5);
constexpr auto kExitLimit = std::chrono::seconds(5);

struct Joined {
  comm::Descriptor socket;
  HostAddress address;  // where it takes ranks
  bool shares_memory = false;
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

class HostLeader final : public GroupLeader {
 public:
  explicit HostLeader(const HostGroupOptions& options)
      : options_(options), workers_(static_cast<size_t>(options.size) - 1) {}

  ~HostLeader() override {
    end_watch();
    end_all();
  }

  Status open() {
    ASSIGN_OR_RETURN(const HostSecrets secrets,
                     read_host_secrets(options_.token_file, options_.tls));
    ASSIGN_OR_RETURN(const comm::Descriptor listener, listen_at(options_.address));
    RETURN_IF_ERROR(wake_.open());
    log_info("waiting at {} for {} to join",
             text_of(HostAddress{options_.address.host, local_port(listener)}), num_missing());
    ASSIGN_OR_RETURN(const Probe probe, Probe::create());
    const Time deadline = now() + options_.limit;
    while (num_missing() > 0) {
      pollfd end{.fd = listener.get(), .events = POLLIN, .revents = 0};
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now()).count();
      const int got = ::poll(&end, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
      if (got < 0 && errno != EINTR) return unavailable("poll: {}", std::strerror(errno));
      if (got == 0)
        return deadline_exceeded(
            "hosts: {} of {} processes have not joined within {:.3g} s: start "
            "`nereid worker --join HOST:{}` on each other host",
            num_missing(), options_.size, seconds(options_.limit), local_port(listener));
      if (got < 0) continue;
      forget_ended();
      if (const Status status = take(listener, secrets, probe); !status.ok())
        log_warn("a process that wanted to join was refused: {}", message(status));
    }
    publish();
    watch([this] { look(); });
    return ok();
  }

 private:
  size_t num_missing() const {
    return static_cast<size_t>(
        std::ranges::count_if(workers_, [](const auto& worker) { return !worker; }));
  }

  // The place of a process that asked for `rank`, 0: any. AlreadyExists: it is taken.
  StatusOr<size_t> place_for(int64_t rank) const {
    if (rank < 0 || rank >= options_.size)
      return invalid_argument("rank {} is not below the {} processes of --hosts", rank,
                              options_.size);
    if (rank > 0 && !workers_[static_cast<size_t>(rank) - 1]) return static_cast<size_t>(rank) - 1;
    if (rank > 0) return already_exists("rank {} has joined already", rank);
    const auto free = std::ranges::find_if(workers_, [](const auto& worker) { return !worker; });
    return static_cast<size_t>(free - workers_.begin());
  }

  Status take(const comm::Descriptor& listener, const HostSecrets& secrets, const Probe& probe) {
    ASSIGN_OR_RETURN(comm::Descriptor socket, accept_socket(listener));
    ASSIGN_OR_RETURN(HostConnection connection, meet_host(std::move(socket), secrets));
    const Status status = add(connection, probe);
    if (!status.ok()) refuse_host(connection, status);
    return annotate_host(connection, status);
  }

  static Status annotate_host(const HostConnection& connection, const Status& status) {
    return status.ok() ? status : annotate(status, connection.host);
  }

  Status add(HostConnection& connection, const Probe& probe) {
    ASSIGN_OR_RETURN(const std::string kind, text_field(connection.message, "kind"));
    if (kind != "join") return invalid_argument("'{}' is no request to join", kind);
    ASSIGN_OR_RETURN(const int64_t rank, number_field(connection.message, "rank"));
    ASSIGN_OR_RETURN(const int64_t port, number_field(connection.message, "port"));
    if (port < 1 || port > UINT16_MAX) return invalid_argument("port {} is none", port);
    ASSIGN_OR_RETURN(const size_t place, place_for(rank));
    RETURN_IF_ERROR(send_frame(connection.socket, {{"rank", static_cast<int64_t>(place) + 1},
                                                   {"size", options_.size},
                                                   {"memory", probe.path()}}));
    ASSIGN_OR_RETURN(const json::object answer,
                     receive_frame(connection.socket, now() + kAnswerLimit));
    ASSIGN_OR_RETURN(const std::string seen, text_field(answer, "memory"));
    Joined joined{.socket = std::move(connection.socket),
                  .address = {connection.host, static_cast<uint16_t>(port)},
                  .shares_memory = seen == probe.text()};
    log_info("process {} of {} has joined from {}{}", place + 1, options_.size,
             text_of(joined.address), joined.shares_memory ? ", this host" : "");
    workers_[place] = std::move(joined);
    return ok();
  }

  // Drops processes that have closed their connection while others are waited for.
  void forget_ended() {
    for (auto& worker : workers_) {
      if (!worker) continue;
      pollfd end{.fd = worker->socket.get(), .events = POLLIN, .revents = 0};
      if (::poll(&end, 1, 0) > 0) worker.reset();
    }
  }

  void publish() const {
    JoinedHosts hosts{.share_memory = options_.share_memory,
                      .token_file = std::filesystem::absolute(options_.token_file),
                      .tls = options_.tls};
    for (const auto& worker : workers_) {
      hosts.workers.push_back(worker->address);
      hosts.share_memory = hosts.share_memory && worker->shares_memory;
    }
    log_info("{} processes exchange through {}", options_.size,
             hosts.share_memory ? "the memory of this host" : "TCP");
    ::setenv(kJoinedHosts, joined_hosts_json(hosts).c_str(), 1);
  }

  void look() {
    std::vector<pollfd> ends = {wake_.entry()};
    for (const auto& worker : workers_)
      ends.push_back({.fd = worker->socket.get(), .events = POLLIN, .revents = 0});
    if (::poll(ends.data(), ends.size(), -1) <= 0) return;
    if (ends[0].revents != 0) wake_.clear();
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (ends[i + 1].revents == 0) continue;
      Joined& worker = *workers_[i];
      if (receive_frame(worker.socket, now()).ok()) {
        request_stop();
        continue;
      }
      if (!is_stopping_)
        log_error("process {} of {} ({}) has ended", i + 1, options_.size, text_of(worker.address));
      worker.socket = comm::Descriptor();
    }
  }

  void end_all() {
    for (const auto& worker : workers_)
      if (worker && worker->socket) send_frame(worker->socket, {{"end", true}}).IgnoreError();
    const Time deadline = now() + kExitLimit;
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (!workers_[i] || !workers_[i]->socket) continue;
      if (receive_frame(workers_[i]->socket, deadline).status().code() ==
          absl::StatusCode::kDeadlineExceeded)
        log_warn("process {} of {} ({}) does not end", i + 1, options_.size,
                 text_of(workers_[i]->address));
    }
  }

  const HostGroupOptions options_;
  std::vector<std::optional<Joined>> workers_;  // [size - 1] by rank - 1; used by the thread
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
