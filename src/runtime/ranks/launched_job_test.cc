#include "runtime/ranks/launched_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tensor/cpu_probe.h"

namespace nereid::runtime {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Values = std::map<std::string, std::string>;

StatusOr<std::optional<LaunchedJob>> read(const Values& values) {
  return read_launched_job([&](const char* name) {
    const auto it = values.find(name);
    return it == values.end() ? nullptr : it->second.c_str();
  });
}

void expect_job(const Values& values, const std::string& launcher, int32_t rank, int32_t size) {
  const auto job = read(values);
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_TRUE(job->has_value()) << launcher;
  EXPECT_EQ((*job)->launcher, launcher);
  EXPECT_EQ((*job)->rank, rank);
  EXPECT_EQ((*job)->size, size);
  EXPECT_FALSE((*job)->key.empty());
}

const Values kOpenMpi = {{"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_RANK", "3"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                         {"PMIX_NAMESPACE", "1299054593"}};
const Values kSlurm = {{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_NTASKS", "8"},
                       {"SLURM_PROCID", "1"},         {"SLURM_JOB_ID", "17"},
                       {"SLURM_STEP_ID", "0"},        {"SLURM_STEP_NUM_NODES", "1"}};

Values with(Values values, const std::string& name, const std::string& value) {
  values[name] = value;
  return values;
}

TEST(LaunchedJob, EveryLauncherIsRead) {
  expect_job(kOpenMpi, "Open MPI", 3, 4);
  expect_job({{"PMI_SIZE", "2"}, {"PMI_RANK", "0"}}, "PMI", 0, 2);
  expect_job(kSlurm, "Slurm", 1, 2);
  expect_job({{"SLURM_NTASKS", "3"}, {"SLURM_PROCID", "2"}, {"SLURM_STEP_ID", "0"}}, "Slurm", 2, 3);
  expect_job({{kLaunchedSize, "2"}, {kLaunchedRank, "1"}, {kLaunchedKey, "abc"}}, "nereid", 1, 2);
}

TEST(LaunchedJob, OneProcessIsNoJob) {
  EXPECT_EQ(read({}).value(), std::nullopt);
  EXPECT_EQ(read({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}).value(),
            std::nullopt);
  EXPECT_EQ(read({{"PMI_SIZE", "?"}}).value(), std::nullopt);
  // A shell inside a Slurm allocation, not one of its tasks.
  EXPECT_EQ(read({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}).value(), std::nullopt);
}

TEST(LaunchedJob, MpirunInsideASlurmTaskCounts) {
  Values both = kSlurm;
  both.insert(kOpenMpi.begin(), kOpenMpi.end());
  expect_job(both, "Open MPI", 3, 4);
  both = with(kSlurm, "PMI_SIZE", "3");
  expect_job(with(both, "PMI_RANK", "2"), "PMI", 2, 3);
}

TEST(LaunchedJob, KeysAreOfTheJob) {
  EXPECT_EQ(read(kOpenMpi).value()->key,
            read(with(kOpenMpi, "OMPI_COMM_WORLD_RANK", "0")).value()->key);
  EXPECT_NE(read(kOpenMpi).value()->key, read(with(kOpenMpi, "PMIX_NAMESPACE", "2")).value()->key);
  EXPECT_NE(read(kSlurm).value()->key, read(with(kSlurm, "SLURM_STEP_ID", "1")).value()->key);
}

TEST(LaunchedJob, SeveralHostsAndWrongRanksAreRefused) {
  const auto refusal = [](const Values& values) { return read(values).status().ToString(); };
  EXPECT_THAT(refusal(with(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "2")),
              AllOf(HasSubstr("UNIMPLEMENTED"), HasSubstr("4 processes on several hosts"),
                    HasSubstr("OMPI_COMM_WORLD_LOCAL_SIZE=2")));
  EXPECT_THAT(refusal(with(kSlurm, "SLURM_STEP_NUM_NODES", "2")),
              HasSubstr("SLURM_STEP_NUM_NODES=2"));
  EXPECT_THAT(refusal(with(kOpenMpi, "OMPI_COMM_WORLD_RANK", "4")),
              HasSubstr("OMPI_COMM_WORLD_RANK is '4'"));
  EXPECT_THAT(refusal(with(kSlurm, "SLURM_PROCID", "")), HasSubstr("SLURM_PROCID is ''"));
}

TEST(LaunchedJob, ThreadsAreAShareOfTheCores) {
  EXPECT_EQ(launched_threads({.rank = 0, .size = 1000}), 1);
  EXPECT_EQ(launched_threads({.rank = 0, .size = 1}), num_usable_cores());
}

}  // namespace
}  // namespace nereid::runtime
