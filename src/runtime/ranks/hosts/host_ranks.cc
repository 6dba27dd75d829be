#include "runtime/ranks/hosts/host_ranks.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/random_hex.h"
#include "comm/shared_group.h"
#include "comm/socket_group.h"

namespace nereid::runtime {
namespace {

constexpr auto kDialLimit = std::chrono::seconds(10);  // a joined process listens already

}  // namespace

StatusOr<HostRanks> HostRanks::create(LaunchedJob job, Layout layout, Duration limit) {
  HostRanks ranks(std::move(job), std::move(layout));
  ASSIGN_OR_RETURN(ranks.secrets_,
                   read_host_secrets(ranks.job_.hosts->token_file, ranks.job_.hosts->tls));
  if (!ranks.has_groups()) return ranks;
  const int32_t tp = ranks.layout_.tp, pp = ranks.layout_.pp;
  for (int32_t stage = 0; stage < pp; ++stage) {
    ASSIGN_OR_RETURN(ranks.tensor_.emplace_back(), ranks.group_of(stage * tp, 1, tp, limit));
  }
  for (int32_t rank = 0; rank < tp; ++rank) {
    ASSIGN_OR_RETURN(ranks.pipeline_.emplace_back(), ranks.group_of(rank, tp, pp, limit));
  }
  return ranks;
}

StatusOr<std::optional<HostRanks::Group>> HostRanks::group_of(int32_t first, int32_t step,
                                                              int32_t count, Duration limit) const {
  if (count == 1) return std::nullopt;
  Group group{.ranks = {.id = random_hex(), .members = {}}, .segment = {}};
  for (int32_t i = 0; i < count; ++i) {
    const int32_t process = layout_.processes[static_cast<size_t>(first + i * step)];
    group.ranks.members.push_back(
        process == 0 ? "" : text_of(job_.hosts->workers[static_cast<size_t>(process) - 1]));
  }
  if (group.ranks.members.back().empty()) {
    ASSIGN_OR_RETURN(group.segment, comm::create_shared_group(count, limit));
  }
  return group;
}

StatusOr<JoinedProcess::Started> HostRanks::start(const WorkerStart& start,
                                                  const comm::Descriptor* tensor,
                                                  const comm::Descriptor* pipeline,
                                                  Time deadline) const {
  const int32_t process = layout_.processes[static_cast<size_t>(start.rank)];
  const HostAddress& address = job_.hosts->workers[static_cast<size_t>(process) - 1];
  if (address.port == 0)
    return unavailable("process {} of {} has ended, and no other has joined in its place", process,
                       job_.size);
  const auto path = [](const comm::Descriptor* segment) {
    return segment ? fmt::format("/proc/{}/fd/{}", ::getpid(), segment->get()) : std::string();
  };
  JoinedRank rank{
      .start = start,
      .num_in_process = static_cast<int32_t>(std::ranges::count(layout_.processes, process)),
      .tensor_memory = path(tensor),
      .pipeline_memory = path(pipeline),
      .tensor = {},
      .pipeline = {}};
  const auto ranks_of = [](const std::optional<Group>& group) {
    return group ? std::optional(group->ranks) : std::nullopt;
  };
  if (has_groups()) {
    rank.tensor = ranks_of(tensor_[static_cast<size_t>(start.stage)]);
    rank.pipeline = ranks_of(pipeline_[static_cast<size_t>(start.tensor_rank)]);
  }
  return JoinedProcess::start(address, secrets_, rank,
                              std::min<Time>(deadline, now() + kDialLimit));
}

Status HostRanks::connect(Time deadline) {
  comms_.resize(layout_.processes.size());
  for (int32_t stage = 0; stage < std::ssize(tensor_); ++stage)
    if (const auto& group = tensor_[static_cast<size_t>(stage)])
      RETURN_IF_ERROR(connect(*group, stage * layout_.tp, 1, &exec::RankComms::tensor, deadline));
  for (int32_t rank = 0; rank < std::ssize(pipeline_); ++rank)
    if (const auto& group = pipeline_[static_cast<size_t>(rank)])
      RETURN_IF_ERROR(connect(*group, rank, layout_.tp, &exec::RankComms::pipeline, deadline));
  return ok();
}

// The ranks of process 0 are the first ones of each group.
Status HostRanks::connect(const Group& group, int32_t first, int32_t step, Comm comm,
                          Time deadline) {
  const auto& members = group.ranks.members;
  const auto num_own = static_cast<int32_t>(std::ranges::count(members, std::string()));
  std::vector<std::vector<comm::Descriptor>> sockets(static_cast<size_t>(num_own));
  for (int32_t i = 0; i < num_own && !group.segment; ++i) {
    ASSIGN_OR_RETURN(sockets[static_cast<size_t>(i)],
                     dial_peers(group.ranks, i, secrets_, deadline));
    for (int32_t j = 0; j < i; ++j) {
      int ends[2];
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return unavailable("a pair of sockets: {}", std::strerror(errno));
      sockets[static_cast<size_t>(i)][static_cast<size_t>(j)] = comm::Descriptor(ends[0]);
      sockets[static_cast<size_t>(j)][static_cast<size_t>(i)] = comm::Descriptor(ends[1]);
    }
  }
  for (int32_t i = 0; i < num_own; ++i) {
    auto& own = comms_[static_cast<size_t>(first + i * step)].*comm;
    if (group.segment) {
      ASSIGN_OR_RETURN(own, comm::attach_shared_group(group.segment, i));
      continue;
    }
    for (const comm::Descriptor& socket : sockets[static_cast<size_t>(i)]) {
      if (!socket) continue;
      peers_.emplace_back(::fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
      if (!peers_.back()) return unavailable("a descriptor: {}", std::strerror(errno));
    }
    ASSIGN_OR_RETURN(own, comm::attach_socket_group(i, std::move(sockets[static_cast<size_t>(i)])));
  }
  return ok();
}

void HostRanks::abort(const Status& reason) const {
  for (const comm::Descriptor& socket : peers_) ::shutdown(socket.get(), SHUT_RDWR);
  for (const auto* const groups : {&tensor_, &pipeline_}) {
    for (const auto& group : *groups) {
      if (!group || !group->segment) continue;
      if (const Status status = comm::abort_shared_group(group->segment, reason); !status.ok())
        log_error("{}", message(status));
    }
  }
}

}  // namespace nereid::runtime
