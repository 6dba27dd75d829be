#include "runtime/ranks/hosts/host_ranks.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/random_hex.h"
#include "comm/socket_group.h"

namespace nereid::runtime {

StatusOr<HostRanks> HostRanks::create(LaunchedJob job, int32_t tp, int32_t pp,
                                      std::vector<int32_t> participants) {
  HostRanks ranks(std::move(job));
  ranks.participants_ = std::move(participants);
  ASSIGN_OR_RETURN(ranks.secrets_,
                   read_host_secrets(ranks.job_.hosts->token_file, ranks.job_.hosts->tls));
  for (int32_t stage = 0; stage < pp && ranks.use_sockets(); ++stage)
    ranks.tensor_.push_back(ranks.group_of(stage * tp, 1, tp));
  for (int32_t rank = 0; rank < tp && ranks.use_sockets(); ++rank)
    ranks.pipeline_.push_back(ranks.group_of(rank, tp, pp));
  return ranks;
}

std::optional<HostRankGroup> HostRanks::group_of(int32_t first, int32_t step, int32_t count) const {
  if (count == 1) return std::nullopt;
  HostRankGroup group{.id = random_hex(), .members = {}};
  for (int32_t i = 0; i < count; ++i) {
    std::string& member = group.members.emplace_back();
    const int32_t rank = first + i * step;
    if (rank == 0) continue;
    const int32_t process = participants_[static_cast<size_t>(rank) - 1];
    member = text_of(job_.hosts->workers[static_cast<size_t>(process) - 1]);
  }
  return group;
}

StatusOr<JoinedProcess::Started> HostRanks::start(const WorkerStart& start,
                                                  const comm::Descriptor* tensor,
                                                  const comm::Descriptor* pipeline,
                                                  Time deadline) const {
  const auto path = [](const comm::Descriptor* segment) {
    return segment ? fmt::format("/proc/{}/fd/{}", ::getpid(), segment->get()) : std::string();
  };
  JoinedRank rank{.start = start,
                  .tensor_memory = path(tensor),
                  .pipeline_memory = path(pipeline),
                  .tensor = {},
                  .pipeline = {}};
  if (use_sockets()) {
    rank.tensor = tensor_[static_cast<size_t>(start.stage)];
    rank.pipeline = pipeline_[static_cast<size_t>(start.tensor_rank)];
  }
  const int32_t process = participants_[static_cast<size_t>(start.rank) - 1];
  return JoinedProcess::start(job_, process, secrets_, rank, deadline);
}

Status HostRanks::connect(Time deadline) {
  for (const auto& [group, comm] :
       {std::pair(&tensor_[0], &comms_.tensor), std::pair(&pipeline_[0], &comms_.pipeline)}) {
    if (!*group) continue;
    ASSIGN_OR_RETURN(auto sockets, dial_peers(**group, 0, secrets_, deadline));
    for (const comm::Descriptor& socket : sockets) {
      if (!socket) continue;
      peers_.emplace_back(::fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
      if (!peers_.back()) return unavailable("a descriptor: {}", std::strerror(errno));
    }
    ASSIGN_OR_RETURN(*comm, comm::attach_socket_group(0, std::move(sockets)));
  }
  return ok();
}

void HostRanks::abort() const {
  for (const comm::Descriptor& socket : peers_) ::shutdown(socket.get(), SHUT_RDWR);
}

}  // namespace nereid::runtime
