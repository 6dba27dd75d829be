#include "cli/process/joined.h"

#include <charconv>
#include <string_view>

#include "runtime/ranks/launched_job.h"

namespace nereid::cli {
namespace {

constexpr const char *kGroupSize = "LWS_GROUP_SIZE", *kWorkerIndex = "LWS_WORKER_INDEX",
                     *kLeaderAddress = "LWS_LEADER_ADDRESS";

std::string_view text_of(const LwsVariables& environment, const char* name) {
  const char* const value = environment(name);
  return value ? value : "";
}

// A variable's number; 0: it is not set.
StatusOr<int32_t> number_of(const LwsVariables& environment, const char* name) {
  const std::string_view text = text_of(environment, name);
  if (text.empty()) return 0;
  int32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0)
    return invalid_argument("{}: '{}' is no number", name, text);
  return number;
}

Status check_token(const JoinFlags& join, const char* flag) {
  if (!join.token_file.empty()) return ok();
  return invalid_argument(
      "{} is missing: a file with a secret text that all processes of the group share, as from "
      "`openssl rand -hex 32`",
      flag);
}

}  // namespace

StatusOr<std::optional<runtime::HostGroupOptions>> host_group_options(
    const HostFlags& flags, const LwsVariables& environment) {
  int32_t size = flags.hosts;
  if (size == 0) {
    ASSIGN_OR_RETURN(size, number_of(environment, kGroupSize));
    ASSIGN_OR_RETURN(const int32_t index, number_of(environment, kWorkerIndex));
    if (size > 1 && index > 0)
      return invalid_argument(
          "{} is {}: only process 0 of a LeaderWorkerSet serves; run `nereid worker` in the "
          "others, or set --hosts 1",
          kWorkerIndex, index);
  }
  if (size < 2) {
    if (!flags.join.token_file.empty())
      return invalid_argument("--join-token-file needs --hosts with 2 or more processes");
    return std::nullopt;
  }
  RETURN_IF_ERROR(check_token(flags.join, "--join-token-file"));
  runtime::HostGroupOptions options{.size = size,
                                    .token_file = flags.join.token_file,
                                    .tls = flags.join.tls,
                                    .share_memory = flags.exchange != "tcp",
                                    .limit = std::chrono::seconds(flags.join.timeout_seconds)};
  ASSIGN_OR_RETURN(options.address, runtime::parse_host_address(flags.address));
  return options;
}

StatusOr<runtime::HostWorkerOptions> host_worker_options(const WorkerFlags& flags,
                                                         const LwsVariables& environment) {
  RETURN_IF_ERROR(check_token(flags.join, "--token-file"));
  runtime::HostWorkerOptions options{.token_file = flags.join.token_file,
                                     .tls = flags.join.tls,
                                     .rank = flags.rank,
                                     .engine_dir = flags.engine_dir,
                                     .num_threads = flags.num_threads,
                                     .limit = std::chrono::seconds(flags.join.timeout_seconds)};
  std::string leader = flags.leader;
  if (leader.empty()) leader = text_of(environment, kLeaderAddress);
  if (leader.empty())
    return invalid_argument("--join is missing: the HOST:PORT of `nereid serve --hosts N`");
  if (leader.find(':') == std::string::npos) leader += fmt::format(":{}", runtime::kJoinPort);
  ASSIGN_OR_RETURN(options.leader, runtime::parse_host_address(leader));
  ASSIGN_OR_RETURN(options.address, runtime::parse_host_address(flags.address));
  if (options.rank == 0) {
    ASSIGN_OR_RETURN(options.rank, number_of(environment, kWorkerIndex));
  }
  return options;
}

StatusOr<std::optional<LaunchedHosts>> launched_hosts(const LwsVariables& environment) {
  const std::string_view leader = text_of(environment, runtime::kJoin),
                         token = text_of(environment, runtime::kJoinTokenFile);
  if (leader.empty() || token.empty()) return std::nullopt;
  ASSIGN_OR_RETURN(const auto job,
                   runtime::read_launched_job(environment, /*may_span_hosts=*/true));
  if (!job || job->hosts) return std::nullopt;
  WorkerFlags flags{.leader = std::string(leader), .rank = job->rank};
  flags.join.token_file = token;
  flags.join.tls = {.cert = text_of(environment, "NEREID_JOIN_TLS_CERT"),
                    .key = text_of(environment, "NEREID_JOIN_TLS_KEY"),
                    .root = text_of(environment, "NEREID_JOIN_TLS_ROOT")};
  LaunchedHosts hosts{.rank = job->rank, .leader = {}, .worker = {}};
  const auto worker = host_worker_options(flags, environment);
  if (!worker.ok()) return annotate(worker.status(), runtime::kJoin);
  hosts.worker = *worker;
  hosts.worker.num_threads = runtime::launched_threads(*job);
  hosts.leader = {.size = job->size,
                  .address = {.host = "0.0.0.0", .port = hosts.worker.leader.port},
                  .token_file = flags.join.token_file,
                  .tls = flags.join.tls};
  return hosts;
}

}  // namespace nereid::cli
