#include "cli/process/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace nereid::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Status check(const std::map<std::string, std::string>& variables) {
  return check_ranks([&](const char* name) {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  });
}

TEST(Ranks, SeveralProcessesAreRefusedWithBothNumbers) {
  const auto expect_refused = [](const std::map<std::string, std::string>& variables,
                                 const char* name) {
    EXPECT_THAT(std::string(message(check(variables))),
                AllOf(HasSubstr("process 1 of 2"), HasSubstr(name), HasSubstr("by 1 process")));
  };
  expect_refused({{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}},
                 "OMPI_COMM_WORLD_SIZE=2");
  expect_refused({{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}}, "PMI_SIZE=2");
  expect_refused({{"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "1"}, {"SLURM_STEP_ID", "0"}},
                 "SLURM_NTASKS=2");
}

TEST(Ranks, OneProcessIsFine) {
  EXPECT_TRUE(check({}).ok());
  EXPECT_TRUE(check({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}).ok());
  EXPECT_TRUE(check({{"PMI_SIZE", "?"}}).ok());
  // A shell inside a Slurm allocation, not one of its tasks.
  EXPECT_TRUE(check({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}).ok());
}

}  // namespace
}  // namespace nereid::cli
