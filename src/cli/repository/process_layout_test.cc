#include "cli/repository/process_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/testing/fake_gpus.h"
#include "base/testing/source_dir.h"
#include "config/engine_options.h"

namespace nereid::cli {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

ExecutorConfig on_cpu(const char* tensor_parallel = "1") {
  ExecutorConfig config = config::served_defaults();
  config.device = "cpu";
  config.tensor_parallel = tensor_parallel;
  return config;
}

ProcessLayout layout_of(const ExecutorConfig& config) {
  return process_layout(source_dir() + "/models/quickstart", config);
}

std::string fault_of(const ExecutorConfig& config) {
  return std::string(message(layout_of(config).fault));
}

TEST(ProcessLayout, SaysWhereTheRanksRun) {
  ExecutorConfig config = on_cpu();
  EXPECT_EQ(layout_of(config).text, "1 rank, in the server's process, on cpu");
  EXPECT_TRUE(layout_of(config).fault.ok());
  config = on_cpu("2");
  EXPECT_EQ(layout_of(config).text,
            "2 ranks (tensor_parallel 2), threads of the server's process, on cpu");
  config.pipeline_parallel = 2;
  config.rank_processes = true;
  EXPECT_EQ(layout_of(config).text,
            "4 ranks (tensor_parallel 2, pipeline_parallel 2), leader mode: the server's process "
            "and others that it starts, on cpu");
  config = on_cpu("2");
  config.process_mode = "orchestrator";
  config.num_instances = 2;
  EXPECT_EQ(layout_of(config).text,
            "2 instances of 2 ranks (tensor_parallel 2), orchestrator mode: processes that the "
            "server starts, on cpu");
  EXPECT_TRUE(layout_of(config).fault.ok());
  EXPECT_THAT(layout_of(on_cpu("auto")).text, StartsWith("as few ranks as the model fits on"));
}

TEST(ProcessLayout, FaultsAreThoseOfALoad) {
  EXPECT_THAT(fault_of(on_cpu("zero")), HasSubstr("tensor_parallel"));
  ExecutorConfig config = on_cpu("2");
  config.participant_ids = "0,1";
  EXPECT_THAT(fault_of(config), HasSubstr("neither mpirun nor srun has started several processes; "
                                          "start at least 2, as with `mpirun -n 2`"));
  config.participant_ids = "0,1,2";
  EXPECT_THAT(fault_of(config), HasSubstr("'0,1,2' are 3 processes, but the model has 2 ranks"));
  config.participant_ids = "1,2";
  EXPECT_THAT(fault_of(config), HasSubstr("in process mode leader the first one is 0"));
  config.process_mode = "orchestrator";
  EXPECT_THAT(fault_of(config), HasSubstr("start at least 3, as with `mpirun -n 3`"));
  EXPECT_EQ(layout_of(config).text,
            "2 ranks (tensor_parallel 2), orchestrator mode: launched processes 1,2, on cpu");
  EXPECT_THAT(fault_of(on_cpu("3")), HasSubstr("cannot be divided among 3"));
  config = on_cpu();
  config.pipeline_parallel = 9;
  EXPECT_THAT(fault_of(config), HasSubstr("pp: 9 stages, but the model has 6 layers"));
  config = on_cpu("2");
  config.device = "auto";
  config.devices = "cuda:0-1";
  const FakeGpus fake("0");
  setenv("NEREID_CUDA_LIBRARY", (build_dir() + "/test_plugins/libnereid_hanging_plugin.so").c_str(),
         1);  // has one GPU
  EXPECT_THAT(fault_of(config), HasSubstr("devices: rank 1: device 'cuda:1' does not exist: 1 "
                                          "GPU(s) are visible"));
  EXPECT_THAT(layout_of(config).text, EndsWith(", on cuda:0-1, which is not there"));
  unsetenv("NEREID_CUDA_LIBRARY");
}

TEST(ProcessLayout, TheMachineHasCoresAndGpus) {
  const FakeGpus fake("10");
  const std::string line = machine_line();
  EXPECT_THAT(line, StartsWith("machine: "));
  EXPECT_THAT(line, EndsWith(std::string(", cuda:0 NVIDIA A10 (") + kFakeA10 +
                             "), cuda:1 NVIDIA H200 (" + kFakeH200 + ")"));
}

}  // namespace
}  // namespace nereid::cli
