// A runner of a small made-up plan with the reference kernels.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>

#include "exec/test_engine.h"
#include "exec/test_harness.h"
#include "kernels/open.h"

namespace nereid::exec {

inline const RunnerLimits kLimits = roomy_limits(4, 32, 64, 4);

struct CleanUp : ::testing::Environment {
  void TearDown() override { std::filesystem::remove_all(test_directory()); }
};
[[maybe_unused]] inline const auto* const kCleanUp =
    ::testing::AddGlobalTestEnvironment(new CleanUp);

class RunnerTest : public ::testing::Test {
 protected:
  const std::filesystem::path engine_ = write_engine(small_plan(), "runner_test");
  Harness harness_{engine_, kLimits, kernels::open_device("cpu", {.num_threads = 2})};
};

inline const Ids kPrompt = {1, 5, 9, 2, 30, 31, 0, 7, 7, 8, 11};

}  // namespace nereid::exec
