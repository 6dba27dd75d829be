// A launched process above 0: its connection to process 0, its ranks, its end.
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "comm/shared_memory.h"
#include "runtime/ranks/launched_group.h"
#include "runtime/ranks/rank_wire.h"
#include "runtime/ranks/rank_worker.h"
#include "runtime/ranks/rendezvous.h"

namespace nereid::runtime {
namespace {

constexpr auto kMessageLimit = std::chrono::seconds(1);  // from a connection to its message

class LaunchedWorker {
 public:
  LaunchedWorker(LaunchedJob job, const MakeOpener& opener, Duration meet_limit)
      : job_(std::move(job)), opener_(opener), meet_limit_(meet_limit), meet_(now() + meet_limit) {}

  StatusOr<int> serve() {
    ASSIGN_OR_RETURN(listener_, listen_as(job_));
    RETURN_IF_ERROR(take_signals());
    if (job_.launcher_process > 0) {
      auto launcher = ProcessHandle::open(job_.launcher_process);
      if (launcher.ok()) launcher_.emplace(*std::move(launcher));
    }
    while (true) {
      ASSIGN_OR_RETURN(const std::optional<int> exit_code, look());
      if (exit_code) return *exit_code;
    }
  }

 private:
  Status take_signals() {
    sigset_t stops;
    sigemptyset(&stops);
    for (const int signal : {SIGINT, SIGTERM}) sigaddset(&stops, signal);
    ::pthread_sigmask(SIG_BLOCK, &stops, nullptr);
    ::signal(SIGHUP, SIG_IGN);  // process 0 decides
    ::signal(SIGPIPE, SIG_IGN);
    signals_ = comm::Descriptor(::signalfd(-1, &stops, SFD_CLOEXEC));
    if (!signals_) return unavailable("a descriptor of signals: {}", std::strerror(errno));
    return ok();
  }

  // Waits for something to happen; the exit code when it was the end.
  StatusOr<std::optional<int>> look() {
    pollfd ends[] = {
        {.fd = listener_.get(), .events = POLLIN, .revents = 0},
        {.fd = leader_ ? leader_->socket.get() : -1, .events = POLLIN, .revents = 0},
        {.fd = signals_.get(), .events = POLLIN, .revents = 0},
        {.fd = launcher_ ? launcher_->descriptor() : -1, .events = POLLIN, .revents = 0},
        {.fd = !leader_ && user_ ? user_->descriptor() : -1, .events = POLLIN, .revents = 0}};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(meet_ - now()).count();
    const int limit = leader_ || user_ ? -1 : static_cast<int>(std::max<int64_t>(left, 0));
    const int got = ::poll(ends, std::size(ends), limit);
    if (got < 0 && errno != EINTR) return unavailable("poll: {}", std::strerror(errno));
    if (got == 0)
      return deadline_exceeded(
          "process 0 of {} ({}) has not connected within {:.3g} s: all processes of the job must "
          "run the same command of nereid",
          job_.size, job_.launcher, seconds(meet_limit_));
    if (got < 0) return std::nullopt;
    if (ends[1].revents != 0) return ended_by_leader();
    if (ends[4].revents != 0) {
      log_error("{}: process id {}, which used the ranks, has ended", text_of(job_), user_->id());
      return 1;
    }
    // Before signals: process 0 must be known for one that comes behind its connection.
    if (ends[0].revents != 0) {
      if (const Status status = take_connection(); !status.ok()) log_warn("{}", message(status));
      return std::nullopt;
    }
    if (ends[2].revents != 0) {
      signalfd_siginfo info{};
      if (::read(signals_.get(), &info, sizeof(info)) < 0) return std::nullopt;
      if (!leader_) return 128 + static_cast<int>(info.ssi_signo);
      ask_to_stop(fmt::format("signal {}", info.ssi_signo));
    }
    if (ends[3].revents != 0) {
      launcher_.reset();
      if (!leader_) return unavailable("the launcher has ended");
      ask_to_stop("the launcher has ended");
    }
    return std::nullopt;
  }

  int ended_by_leader() {
    const auto received = receive_from(*leader_, Duration());
    if (received.ok() && received->bytes[0] == std::byte(PeerMessageKind::kEnd)) return 0;
    log_error("{}: process 0 (process id {}) has ended", text_of(job_), leader_->process.id());
    return 1;
  }

  void ask_to_stop(std::string_view reason) {
    log_info("{}: {}: asking process 0 to stop", text_of(job_), reason);
    const std::byte any{};
    send_to(*leader_, {&any, 1}).IgnoreError();
  }

  Status take_connection() {
    ASSIGN_OR_RETURN(Peer peer, accept_from(listener_));
    ASSIGN_OR_RETURN(PeerMessage received, receive_from(peer, kMessageLimit));
    Reader reader(received.bytes);
    PeerMessageKind kind{};
    reader(kind);
    switch (kind) {
      case PeerMessageKind::kLead:
        if (leader_) return already_exists("process {} leads already", leader_->process.id());
        leader_.emplace(std::move(peer));
        log_info("{}: works for process 0 (process id {})", text_of(job_), leader_->process.id());
        return ok();
      case PeerMessageKind::kRank: {
        std::vector<std::string> arguments;
        reader(arguments);
        RETURN_IF_ERROR(reader.finish());
        if (!user_) {
          ASSIGN_OR_RETURN(ProcessHandle user, ProcessHandle::open(peer.process.id()));
          user_.emplace(std::move(user));
        }
        return start_rank(arguments, std::move(received.descriptors), std::move(peer.process));
      }
      default:
        return data_loss("a message of an unknown kind from process {}", peer.process.id());
    }
  }

  Status start_rank(const std::vector<std::string>& arguments, std::vector<comm::Descriptor> sent,
                    ProcessHandle leader) {
    ASSIGN_OR_RETURN(WorkerStart start, parse_worker_arguments(arguments));
    if (sent.size() != size_t{2} + start.has_tensor + start.has_pipeline)
      return data_loss("{} descriptors for a rank", sent.size());
    if (start.num_threads == 0 && start.device == "cpu") start.num_threads = launched_threads(job_);
    WorkerDescriptors descriptors{.steps = std::move(sent[0]), .beats = std::move(sent[1])};
    if (start.has_tensor) descriptors.tensor = std::move(sent[2]);
    if (start.has_pipeline) descriptors.pipeline = std::move(sent.back());
    // The thread ends before process 0 does in an ordinary stop, and with this process otherwise.
    std::thread([start, leader = std::move(leader), descriptors = std::move(descriptors),
                 opener = opener_]() mutable {
      const LeaderLoss loss{.closed = nullptr, .silent = [&] {
                              log_error(
                                  "process id {} gave no sign of life for {} ms and is killed",
                                  leader.id(), start.silence_ms);
                              leader.signal(SIGKILL);
                            }};
      const Status status = run_rank(start, std::move(descriptors), opener, loss);
      if (!status.ok()) log_error("rank {}: {}", start.rank, status.ToString());
    }).detach();
    return ok();
  }

  const LaunchedJob job_;
  const MakeOpener opener_;
  const Duration meet_limit_;
  const Time meet_;
  comm::Descriptor listener_, signals_;
  std::optional<Peer> leader_;
  std::optional<ProcessHandle> user_;  // has given a rank; a program that leads no job, but uses it
  std::optional<ProcessHandle> launcher_;
};

}  // namespace

int serve_launched(const LaunchedJob& job, const MakeOpener& opener, Duration meet_limit) {
  const StatusOr<int> exit_code = LaunchedWorker(job, opener, meet_limit).serve();
  if (exit_code.ok()) return *exit_code;
  log_error("{}: {}", text_of(job), message(exit_code.status()));
  return 1;
}

}  // namespace nereid::runtime
