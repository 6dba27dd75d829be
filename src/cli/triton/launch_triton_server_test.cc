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
using testing::Not;
using testing::Pair;
using testing::UnorderedElementsAre;

StatusOr<LaunchPlan> plan(const std::vector<std::string>& words, bool has_mpirun = true) {
  ASSIGN_OR_RETURN(const Args args, Args::parse(kLaunchTable, words));
  return plan_launch(args, {.bin = "/opt/bin", .has_mpirun = has_mpirun, .num_gpus = 2});
}

const std::vector<std::string> kPorts = {"--grpc-port=8001", "--http-port=8000",
                                         "--metrics-port=8002"};

std::vector<std::string> joined(const std::vector<std::vector<std::string>>& parts) {
  std::vector<std::string> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::vector<std::string> last_words(int rank) {
  return {"--disable-auto-complete-config",
          "--backend-config=python,shm-region-prefix-name=prefix" + std::to_string(rank) + "_"};
}

TEST(Launch, OneRank) {
  const std::vector<std::string> server =
      joined({{"/opt/bin/tritonserver", "--model-repository=/r"}, kPorts, kPorts, last_words(0)});
  for (const auto& [words, has_mpirun] :
       {std::pair(std::vector<std::string>{"--world_size=1", "--model_repo", "/r"}, false),
        std::pair(std::vector<std::string>{"--model_repo=/r", "--no-mpi"}, true)}) {
    const auto got = plan(words, has_mpirun);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_THAT(got->commands, ElementsAre(server));
    EXPECT_TRUE(got->environment.empty());
  }
  EXPECT_THAT(plan({"--model_repo=/r"})->commands,
              ElementsAre(joined({{"mpirun", "--allow-run-as-root", "-n", "1"}, server, {":"}})));
}

// srun starts the launcher for each rank.
TEST(Launch, ATaskIsTheServerOfItsRank) {
  const auto of_task = [](const std::vector<std::string>& words, const LaunchTask& task) {
    const Args args = Args::parse(kLaunchTable, words).value();
    return plan_launch(args, {.bin = "/opt/bin", .has_mpirun = true, .task = task});
  };
  const auto got = of_task({"--oversubscribe", "--model_repo=/r"}, {"Slurm", 1, 2});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_TRUE(got->stays);
  EXPECT_THAT(got->commands,
              ElementsAre(joined({{"/opt/bin/tritonserver", "--model-repository=/r"},
                                  kPorts,
                                  {"--model-control-mode=explicit", "--load-model=tensorrt_llm"},
                                  kPorts,
                                  last_words(1)})));
  EXPECT_TRUE(of_task({"--world_size=2"}, {"Slurm", 0, 2}).ok());
  EXPECT_THAT(of_task({"--world_size=4"}, {"Slurm", 0, 2}).status().ToString(),
              HasSubstr("--world_size 4: Slurm started 2 tasks"));
  EXPECT_TRUE(of_task({"--multi-model"}, {"Slurm", 0, 1}).ok());
  EXPECT_THAT(of_task({"--multi-model"}, {"Slurm", 0, 2}).status().ToString(),
              HasSubstr("--multi-model: Slurm started 2 tasks"));
  EXPECT_THAT(of_task({"--multi-model", "--disable-spawn-processes"}, {"Slurm", 0, 2})->environment,
              Contains(Pair("TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES", "0")));
}

TEST(Launch, SeveralRanks) {
  const auto got = plan({"--world_size=2", "--model_repo=/r", "--tritonserver=/t",
                         "--oversubscribe", "--tensorrt_llm_model_name=a,b", "--log",
                         "--log-file=l", "--multimodal_gpu0_cuda_mem_pool_bytes=5"});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(
      got->commands,
      ElementsAre(joined({{"mpirun", "--allow-run-as-root", "--oversubscribe"},
                          {"-n", "1", "/t", "--model-repository=/r"},
                          kPorts,
                          {"--log-verbose=3", "--log-file=l"},
                          {"--cuda-memory-pool-byte-size=0:5"},
                          kPorts,
                          last_words(0),
                          {":", "-n", "1", "/t", "--model-repository=/r"},
                          kPorts,
                          {"--model-control-mode=explicit", "--load-model=a", "--load-model=b"},
                          kPorts,
                          last_words(1),
                          {":"}})));
  EXPECT_THAT(got->environment, ElementsAre(Pair("OMPI_MCA_odls_base_sigkill_timeout", "3")));
}

TEST(Launch, SeveralRanksWithoutMpirun) {
  const auto got = plan({"--world_size=4", "--model_repo=/r"}, /*has_mpirun=*/false);
  ASSERT_TRUE(got.ok()) << got.status();
  ASSERT_EQ(got->commands.size(), 4u);
  EXPECT_THAT(got->commands[0], Not(Contains("--load-model=tensorrt_llm")));
  EXPECT_THAT(got->commands[3],
              IsSupersetOf({"/opt/bin/tritonserver", "--load-model=tensorrt_llm",
                            "--backend-config=python,shm-region-prefix-name=prefix3_"}));
}

TEST(Launch, SeveralModels) {
  ::setenv("NVIDIA_TRITON_SERVER_VERSION", "24.12", 1);
  auto got = plan({"--multi-model", "--model_repo=/r", "--exit_timeout=9", "-f"});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(got->commands[0],
              IsSupersetOf({"--pinned-memory-pool-byte-size=0", "--enable-peer-access=false",
                            "--cuda-memory-pool-byte-size=0:0", "--cuda-memory-pool-byte-size=1:0",
                            "--exit-timeout-secs=9"}));
  EXPECT_THAT(got->environment,
              UnorderedElementsAre(Pair("TRTLLM_ORCHESTRATOR", "1"),
                                   Pair("TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES", "1"),
                                   Pair("OMPI_MCA_odls_base_sigkill_timeout", "11")));
  got = plan({"--multi-model", "--disable-spawn-processes", "--world_size=3", "--model_repo=/r"});
  ::unsetenv("NVIDIA_TRITON_SERVER_VERSION");
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(got->environment, Contains(Pair("TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES", "0")));
  EXPECT_THAT(got->commands[0], Not(Contains("--pinned-memory-pool-byte-size=0")));
}

TEST(Launch, ThePrefixOfRanks) {
  EXPECT_THAT(plan({"--trtllm_llmapi_launch", "--no-mpi"})->commands[0],
              testing::Contains("/opt/bin/trtllm-llmapi-launch"));
}

TEST(Launch, WrongOptionsAreRefusedByName) {
  const auto refused = [](const std::vector<std::string>& words) {
    return std::string(message(plan(words).status()));
  };
  EXPECT_THAT(refused({"--world_size=0"}), HasSubstr("--world_size"));
  EXPECT_THAT(refused({"--world_size", "two"}), HasSubstr("invalid int value: 'two'"));
  EXPECT_THAT(refused({"--world_size=2", "--no-mpi"}),
              HasSubstr("world size must be 1 when using no-mpi"));
  EXPECT_THAT(refused({"--world_size=2", "--multi-model"}), HasSubstr("--world_size 2"));
  EXPECT_THAT(refused({"--http_port=70000"}), HasSubstr("--http_port"));
  EXPECT_THAT(refused({"--nonsense"}), HasSubstr("unrecognized arguments: --nonsense"));
  EXPECT_THAT(refused({"--m"}), HasSubstr("ambiguous option"));
  EXPECT_THAT(refused({"--log=1"}), HasSubstr("ignored explicit argument '1'"));
  EXPECT_THAT(refused({"--model_repo"}), HasSubstr("expected one argument"));
}

}  // namespace
}  // namespace nereid::cli
