#include "runtime/ranks/launched_process.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/ranks/launched_group.h"
#include "runtime/ranks/rank_wire.h"

namespace nereid::runtime {
namespace {

// The processes that have answered. Each listens from then on as long as it lives.
class Answered {
 public:
  bool contains(const LaunchedJob& job, int32_t rank) {
    const std::lock_guard lock(mutex_);
    return all_.contains({job.key, rank});
  }
  void add(const LaunchedJob& job, int32_t rank) {
    const std::lock_guard lock(mutex_);
    all_.emplace(job.key, rank);
  }

 private:
  std::mutex mutex_;
  std::set<std::pair<std::string, int32_t>> all_;  // guarded by mutex_
};

Answered& answered() {
  static auto& all = *new Answered;
  return all;
}

}  // namespace

StatusOr<std::unique_ptr<LaunchedProcess>> LaunchedProcess::start(
    const LaunchedJob& job, int32_t participant, Time deadline, const WorkerStart& start,
    const WorkerDescriptors& descriptors, const comm::Descriptor& own_beats) {
  // One that has ended since is not waited for.
  if (answered().contains(job, participant)) deadline = now();
  ASSIGN_OR_RETURN(const Peer peer, connect_to(job, participant, deadline));
  answered().add(job, participant);
  comm::Descriptor beats(::fcntl(own_beats.get(), F_DUPFD_CLOEXEC, 0));
  if (!beats) return unavailable("a descriptor: {}", std::strerror(errno));
  Writer writer;
  writer(PeerMessageKind::kRank, worker_arguments(start));
  std::vector<int> sent = {descriptors.steps.get(), descriptors.beats.get()};
  for (const comm::Descriptor* const segment : {&descriptors.tensor, &descriptors.pipeline})
    if (*segment) sent.push_back(segment->get());
  RETURN_IF_ERROR(send_to(peer, writer.bytes(), sent));
  ASSIGN_OR_RETURN(ProcessHandle process, ProcessHandle::open(peer.process.id()));
  return std::unique_ptr<LaunchedProcess>(
      new LaunchedProcess(std::move(process), std::move(beats)));
}

std::optional<std::string> LaunchedProcess::ended(Duration limit) {
  if (how_) return how_;
  const Time end = now() + limit;
  pollfd ends[] = {{.fd = process_.descriptor(), .events = POLLIN, .revents = 0},
                   {.fd = beats_.get(), .events = POLLRDHUP, .revents = 0}};
  int got;
  do {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - now()).count();
    got = ::poll(ends, 2, static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return std::nullopt;
  // The sockets of a process are closed before it counts as ended.
  constexpr auto kBetween = std::chrono::milliseconds(200);
  how_ = process_.has_ended(kBetween) ? "has ended" : "has given up its rank";
  return how_;
}

}  // namespace nereid::runtime
