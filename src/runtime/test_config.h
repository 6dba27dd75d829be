// Test only: a configuration for the device that tests run on.
#pragma once

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

}  // namespace nereid::runtime
