#include "cli/triton/launch_triton_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace nereid::cli {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Pair;

StatusOr<LaunchPlan> plan(const std::vector<std::string>& words) {
  ASSIGN_OR_RETURN(const Args args, Args::parse(kLaunchTable, words));
  return plan_launch(args, "/opt/bin");
}

TEST(Launch, OneRank) {
  const auto got = plan({"--world_size=1", "--model_repo", "/r"});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(got->command, ElementsAre("/opt/bin/tritonserver", "--model-repository=/r",
                                        "--grpc-port=8001", "--http-port=8000",
                                        "--metrics-port=8002", "--disable-auto-complete-config",
                                        "--backend-config=python,shm-region-prefix-name=prefix0_"));
  EXPECT_TRUE(got->environment.empty());
}

TEST(Launch, EveryOptionReachesTheServer) {
  ::setenv("NVIDIA_TRITON_SERVER_VERSION", "24.12", 1);
  const auto got = plan({"--model_repo=/r", "--tritonserver=/t", "--grpc_port=1", "--http_port=2",
                         "--metrics_port=3", "--log", "--log-file=l", "--multi-model",
                         "--multimodal_gpu0_cuda_mem_pool_bytes=5", "--oversubscribe",
                         "--exit_timeout=9", "--tensorrt_llm_model_name=a,b", "-f", "--no-mpi"});
  ::unsetenv("NVIDIA_TRITON_SERVER_VERSION");
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->command[0], "/t");
  EXPECT_THAT(got->command,
              IsSupersetOf({"--grpc-port=1", "--http-port=2", "--metrics-port=3", "--log-verbose=3",
                            "--log-file=l", "--cuda-memory-pool-byte-size=0:5",
                            "--pinned-memory-pool-byte-size=0", "--enable-peer-access=false",
                            "--exit-timeout-secs=9"}));
  EXPECT_THAT(got->environment, Contains(Pair("TRTLLM_ORCHESTRATOR", "1")));
}

TEST(Launch, SeveralRanksAreRefusedByName) {
  const auto refused = [](const std::vector<std::string>& words) {
    return std::string(message(plan(words).status()));
  };
  EXPECT_THAT(refused({"--world_size=4"}), HasSubstr("--world_size 4"));
  EXPECT_THAT(refused({"--world_size", "two"}), HasSubstr("invalid int value: 'two'"));
  EXPECT_THAT(refused({"--world_size=2", "--no-mpi"}),
              HasSubstr("world size must be 1 when using no-mpi"));
  EXPECT_THAT(refused({"--multi-model", "--disable-spawn-processes"}),
              HasSubstr("--disable-spawn-processes"));
  EXPECT_THAT(refused({"--trtllm_llmapi_launch"}), HasSubstr("--trtllm_llmapi_launch"));
  EXPECT_THAT(refused({"--http_port=70000"}), HasSubstr("--http_port"));
  EXPECT_THAT(refused({"--nonsense"}), HasSubstr("unrecognized arguments: --nonsense"));
  EXPECT_THAT(refused({"--m"}), HasSubstr("ambiguous option"));
  EXPECT_THAT(refused({"--log=1"}), HasSubstr("ignored explicit argument '1'"));
  EXPECT_THAT(refused({"--model_repo"}), HasSubstr("expected one argument"));
}

}  // namespace
}  // namespace nereid::cli
