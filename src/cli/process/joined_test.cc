#include "cli/process/joined.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace nereid::cli {
namespace {

using ::testing::HasSubstr;

LwsVariables variables(const std::map<std::string, std::string>& all) {
  return [all](const char* name) {
    const auto found = all.find(name);
    return found == all.end() ? nullptr : found->second.c_str();
  };
}

TEST(Joined, ALeaderTakesItsSizeFromTheFlagOrTheLeaderWorkerSet) {
  HostFlags flags;
  EXPECT_FALSE(host_group_options(flags, variables({})).value());
  EXPECT_FALSE(host_group_options(flags, variables({{"LWS_GROUP_SIZE", "1"}})).value());
  flags.join.token_file = "token";
  const auto lws = variables({{"LWS_GROUP_SIZE", "3"}, {"LWS_WORKER_INDEX", "0"}});
  EXPECT_EQ(host_group_options(flags, lws).value()->size, 3);
  flags.hosts = 2;
  flags.address = "[::1]:7";
  flags.exchange = "tcp";
  const auto options = host_group_options(flags, lws).value().value();
  EXPECT_EQ(options.size, 2);
  EXPECT_EQ(options.address.host, "::1");
  EXPECT_EQ(options.address.port, 7);
  EXPECT_FALSE(options.share_memory);
}

TEST(Joined, ALeaderRefusesByName) {
  const auto refusal = [](const HostFlags& flags, const std::map<std::string, std::string>& lws) {
    return host_group_options(flags, variables(lws)).status().ToString();
  };
  HostFlags flags;
  flags.hosts = 2;
  EXPECT_THAT(refusal(flags, {}), HasSubstr("--join-token-file is missing"));
  flags.join.token_file = "token";
  flags.address = "nowhere";
  EXPECT_THAT(refusal(flags, {}), HasSubstr("'nowhere' is no address"));
  flags = {.join = {.token_file = "token"}};
  EXPECT_THAT(refusal(flags, {}), HasSubstr("--join-token-file needs --hosts"));
  EXPECT_THAT(refusal(flags, {{"LWS_GROUP_SIZE", "2"}, {"LWS_WORKER_INDEX", "1"}}),
              HasSubstr("LWS_WORKER_INDEX is 1: only process 0"));
  EXPECT_THAT(refusal(flags, {{"LWS_GROUP_SIZE", "two"}}),
              HasSubstr("LWS_GROUP_SIZE: 'two' is no number"));
}

TEST(Joined, AWorkerTakesLeaderAndRankFromFlagsOrTheLeaderWorkerSet) {
  const auto lws = variables({{"LWS_LEADER_ADDRESS", "x-0.x.default"}, {"LWS_WORKER_INDEX", "2"}});
  WorkerFlags flags;
  EXPECT_THAT(host_worker_options(flags, lws).status().ToString(),
              HasSubstr("--token-file is missing"));
  flags.join.token_file = "token";
  EXPECT_THAT(host_worker_options(flags, variables({})).status().ToString(),
              HasSubstr("--join is missing"));
  auto options = host_worker_options(flags, lws).value();
  EXPECT_EQ(runtime::text_of(options.leader), "x-0.x.default:7600");
  EXPECT_EQ(options.rank, 2);
  flags.leader = "10.0.0.1:99";
  flags.rank = 1;
  options = host_worker_options(flags, lws).value();
  EXPECT_EQ(runtime::text_of(options.leader), "10.0.0.1:99");
  EXPECT_EQ(options.rank, 1);
}

TEST(Joined, LaunchedProcessesOfSeveralHostsMeetAtTheFirstOnesAddress) {
  std::map<std::string, std::string> all = {{"SLURM_STEP_NUM_TASKS", "4"},
                                            {"SLURM_STEP_NUM_NODES", "2"},
                                            {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                                            {"SLURM_STEP_ID", "0"},
                                            {"SLURM_JOB_ID", "17"},
                                            {"SLURM_PROCID", "3"}};
  EXPECT_FALSE(launched_hosts(variables(all)).value());
  all["NEREID_JOIN"] = "node1:7700";
  EXPECT_FALSE(launched_hosts(variables(all)).value()) << "no token";
  all["NEREID_JOIN_TOKEN_FILE"] = "token";
  const LaunchedHosts hosts = launched_hosts(variables(all)).value().value();
  EXPECT_EQ(hosts.rank, 3);
  EXPECT_EQ(hosts.worker.rank, 3);
  EXPECT_EQ(hosts.worker.leader.host, "node1");
  EXPECT_EQ(hosts.leader.size, 4);
  EXPECT_EQ(hosts.leader.address.port, 7700);
  EXPECT_EQ(hosts.leader.token_file, "token");
  all["NEREID_JOIN"] = "node1:x";
  EXPECT_THAT(launched_hosts(variables(all)).status().ToString(),
              HasSubstr("NEREID_JOIN: 'node1:x'"));
  all["NEREID_JOIN"] = "node1:7700";
  all.erase("SLURM_STEP_ID");
  EXPECT_FALSE(launched_hosts(variables(all)).value()) << "not launched";
}

}  // namespace
}  // namespace nereid::cli
