#include "runtime/ranks/hosts/joined_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/random_hex.h"
#include "io/plan.h"

namespace nereid::runtime {
namespace {

StatusOr<comm::Descriptor> copy_of(const comm::Descriptor& descriptor) {
  comm::Descriptor copy(::fcntl(descriptor.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy) return unavailable("a descriptor: {}", std::strerror(errno));
  return copy;
}

json::value group_json(const std::optional<HostRankGroup>& group) {
  if (!group) return nullptr;
  json::array members;
  for (const std::string& member : group->members) members.emplace_back(member);
  return json::object{{"id", group->id}, {"members", std::move(members)}};
}

StatusOr<std::vector<std::string>> texts_of(const json::object& message, std::string_view name) {
  const json::value* const list = message.if_contains(name);
  if (!list || !list->is_array()) return data_loss("a message of processes has no list '{}'", name);
  std::vector<std::string> texts;
  for (const json::value& text : list->get_array()) {
    if (!text.is_string())
      return data_loss("list '{}' of a message has other values than texts", name);
    texts.emplace_back(text.get_string());
  }
  return texts;
}

StatusOr<std::optional<HostRankGroup>> group_of(const json::object& message,
                                                std::string_view name) {
  const json::value* const value = message.if_contains(name);
  if (!value || value->is_null()) return std::nullopt;
  if (!value->is_object()) return data_loss("'{}' of a message is no group", name);
  HostRankGroup group;
  ASSIGN_OR_RETURN(group.id, text_field(value->get_object(), "id"));
  ASSIGN_OR_RETURN(group.members, texts_of(value->get_object(), "members"));
  return group;
}

}  // namespace

json::object to_json(const JoinedRank& rank) {
  json::array arguments;
  for (const std::string& argument : worker_arguments(rank.start)) arguments.emplace_back(argument);
  return {{"arguments", std::move(arguments)},   {"num_in_process", rank.num_in_process},
          {"tensor_memory", rank.tensor_memory}, {"pipeline_memory", rank.pipeline_memory},
          {"tensor", group_json(rank.tensor)},   {"pipeline", group_json(rank.pipeline)}};
}

StatusOr<JoinedRank> joined_rank_of(const json::object& message) {
  JoinedRank rank;
  ASSIGN_OR_RETURN(const std::vector<std::string> arguments, texts_of(message, "arguments"));
  ASSIGN_OR_RETURN(rank.start, parse_worker_arguments(arguments));
  ASSIGN_OR_RETURN(const int64_t num_in_process, number_field(message, "num_in_process"));
  rank.num_in_process = static_cast<int32_t>(std::clamp<int64_t>(num_in_process, 1, io::kMaxRanks));
  ASSIGN_OR_RETURN(rank.tensor_memory, text_field(message, "tensor_memory"));
  ASSIGN_OR_RETURN(rank.pipeline_memory, text_field(message, "pipeline_memory"));
  ASSIGN_OR_RETURN(rank.tensor, group_of(message, "tensor"));
  ASSIGN_OR_RETURN(rank.pipeline, group_of(message, "pipeline"));
  const auto fits = [](const std::optional<HostRankGroup>& group, int32_t index) {
    return !group || (index >= 0 && index < std::ssize(group->members));
  };
  if (!fits(rank.tensor, rank.start.tensor_rank) || !fits(rank.pipeline, rank.start.stage))
    return data_loss("a rank that its groups do not have");
  return rank;
}

StatusOr<JoinedProcess::Started> JoinedProcess::start(const HostAddress& address,
                                                      const HostSecrets& secrets,
                                                      const JoinedRank& rank, Time deadline) {
  const auto dial = [&](json::object hello) {
    return dial_host(address, secrets, std::move(hello), deadline);
  };
  const std::string id = random_hex();
  json::object message = to_json(rank);
  message["kind"] = "rank";
  message["id"] = id;
  ASSIGN_OR_RETURN(HostConnection steps, dial(std::move(message)));
  ASSIGN_OR_RETURN(const int64_t process, number_field(steps.message, "process"));
  ASSIGN_OR_RETURN(HostConnection beats, dial({{"kind", "beats"}, {"id", id}}));
  ASSIGN_OR_RETURN(comm::Descriptor steps_copy, copy_of(steps.socket));
  ASSIGN_OR_RETURN(comm::Descriptor beats_copy, copy_of(beats.socket));
  Started started{
      .steps = std::move(steps.socket), .beats = std::move(beats.socket), .process = {}};
  started.process.reset(new JoinedProcess(static_cast<pid_t>(process), text_of(address),
                                          std::move(steps_copy), std::move(beats_copy)));
  return started;
}

std::optional<std::string> JoinedProcess::ended(Duration limit) {
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(limit).count();
  pollfd end{.fd = beats_.get(), .events = POLLRDHUP, .revents = 0};
  int got;
  while ((got = ::poll(&end, 1, static_cast<int>(std::clamp<int64_t>(ms, 0, 1 << 30)))) < 0 &&
         errno == EINTR) {
  }
  if (got <= 0) return std::nullopt;
  return fmt::format("at {} has closed its connection", address_);
}

void JoinedProcess::kill() const {
  for (const auto* const socket : {&steps_, &beats_}) ::shutdown(socket->get(), SHUT_RDWR);
}

StatusOr<std::vector<comm::Descriptor>> dial_peers(const HostRankGroup& group, int rank,
                                                   const HostSecrets& secrets, Time deadline) {
  std::vector<comm::Descriptor> peers(group.members.size());
  for (size_t to = static_cast<size_t>(rank) + 1; to < peers.size(); ++to) {
    if (group.members[to].empty()) continue;
    ASSIGN_OR_RETURN(const HostAddress address, parse_host_address(group.members[to]));
    json::object hello{
        {"kind", "peer"}, {"id", group.id}, {"from", rank}, {"to", static_cast<int64_t>(to)}};
    ASSIGN_OR_RETURN(HostConnection peer, dial_host(address, secrets, std::move(hello), deadline));
    peers[to] = std::move(peer.socket);
  }
  return peers;
}

}  // namespace nereid::runtime
