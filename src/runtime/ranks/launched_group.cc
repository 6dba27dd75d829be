// Process 0's side.
#include "runtime/ranks/launched_group.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "comm/shared_memory.h"
#include "runtime/ranks/group_leader.h"
#include "runtime/ranks/rendezvous.h"

namespace nereid::runtime {
namespace {

Status send_kind(const Peer& peer, PeerMessageKind kind) {
  return send_to(peer, std::as_bytes(std::span(&kind, 1)));
}

class JobLeader final : public GroupLeader {
 public:
  explicit JobLeader(LaunchedJob job)
      : job_(std::move(job)), peers_(static_cast<size_t>(job_.size)) {}

  ~JobLeader() override {
    end_watch();
    end_all();
  }

  Status open() {
    RETURN_IF_ERROR(wake_.open());
    if (job_.launcher_process > 0) {
      auto launcher = ProcessHandle::open(job_.launcher_process);
      if (launcher.ok()) launcher_.emplace(*std::move(launcher));
    }
    connect_all(/*is_last_time=*/false);
    watch([this, meet = now() + kMeetLimit] {
      const bool is_complete = connect_all(now() >= meet);
      if (look(is_complete ? -1 : kRetryMs)) request_stop_later();
    });
    return ok();
  }

 private:
  // Connects to processes that listen by now; true: no more are awaited.
  bool connect_all(bool is_last_time) {
    bool is_complete = true;
    for (int32_t rank = 1; rank < job_.size && !is_given_up_; ++rank) {
      auto& peer = peers_[static_cast<size_t>(rank)];
      if (peer) continue;
      auto connected = connect_to(job_, rank, now());
      Status status = connected.status();
      if (connected.ok()) {
        peer.emplace(*std::move(connected));
        status = send_kind(*peer, PeerMessageKind::kLead);
        if (!status.ok()) peer.reset();
      }
      if (status.ok()) continue;
      is_complete = false;
      if (is_last_time) log_error("{}", message(status));
    }
    is_given_up_ = is_given_up_ || is_last_time;
    return is_complete || is_given_up_;
  }

  // Waits for something to happen; true: this process is asked to stop.
  bool look(int wait_ms) {
    std::vector<pollfd> ends = {
        wake_.entry(),
        {.fd = launcher_ ? launcher_->descriptor() : -1, .events = POLLIN, .revents = 0}};
    std::vector<size_t> ranks;
    for (size_t rank = 1; rank < peers_.size(); ++rank) {
      if (!peers_[rank] || !peers_[rank]->socket) continue;
      ends.push_back({.fd = peers_[rank]->socket.get(), .events = POLLIN, .revents = 0});
      ranks.push_back(rank);
    }
    if (::poll(ends.data(), ends.size(), wait_ms) <= 0) return false;
    bool is_asked = false;
    if (ends[0].revents != 0) wake_.clear();
    if (ends[1].revents != 0) {
      log_warn("{}: the launcher has ended", text_of(job_));
      launcher_.reset();
      is_asked = true;
    }
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (ends[i + 2].revents == 0) continue;
      Peer& peer = *peers_[ranks[i]];
      if (receive_from(peer, Duration()).ok()) {
        is_asked = true;
      } else {
        if (!is_stopping_)
          log_error("process {} of {} (process id {}) has ended", ranks[i], job_.size,
                    peer.process.id());
        peer.socket = comm::Descriptor();
      }
    }
    return is_asked;
  }

  // `pkill tritonserver` reaches all processes: the request of another one may be known here by a
  // signal of its own, and a second signal would end running requests at once.
  void request_stop_later() {
    constexpr int kOwnSignalMs = 500;
    pollfd stopping = wake_.entry();
    if (!is_stopping_ && ::poll(&stopping, 1, kOwnSignalMs) < 0 && errno != EINTR) return;
    request_stop();
  }

  void end_all() {
    for (const auto& peer : peers_)
      if (peer && peer->socket) send_kind(*peer, PeerMessageKind::kEnd).IgnoreError();
    constexpr auto kExitLimit = std::chrono::seconds(5);
    const Time start = now();
    for (size_t rank = 1; rank < peers_.size(); ++rank) {
      if (!peers_[rank]) continue;
      const ProcessHandle& process = peers_[rank]->process;
      if (process.has_ended(std::max(Duration(), start + kExitLimit - now()))) continue;
      process.signal(SIGKILL);
      log_warn("process {} of {} (process id {}) did not end and was killed", rank, job_.size,
               process.id());
    }
  }

  static constexpr int kRetryMs = 50;

  const LaunchedJob job_;
  std::vector<std::optional<Peer>> peers_;  // by rank; used by the thread, then by the destructor
  std::optional<ProcessHandle> launcher_;
  bool is_given_up_ = false;
};

}  // namespace

StatusOr<std::unique_ptr<LaunchedGroup>> LaunchedGroup::lead(const LaunchedJob& job) {
  auto leader = std::make_unique<JobLeader>(job);
  RETURN_IF_ERROR(leader->open());
  return leader;
}

}  // namespace nereid::runtime
