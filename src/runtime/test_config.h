// Test only: configurations for the device that tests run on, folders.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/testing/test_device.h"
#include "nereid/config.h"

namespace nereid::runtime {

// One request's bits do not depend on those beside it: CPUs give that by themselves.
inline ExecutorConfig test_config() {
  ExecutorConfig config;
  config.device = test_device();
  config.deterministic = true;
  return config;
}

// Where this process's tests write: shards of a test program run side by side.
inline std::filesystem::path own_directory(const std::string& name) {
  return std::filesystem::path(testing::TempDir()) / fmt::format("{}_{}", name, getpid());
}

}  // namespace nereid::runtime
