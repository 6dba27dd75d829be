// Test only: a configuration for the test device.
#pragma once

#include "base/testing/test_device.h"
#include "nereid/config.h"

namespace nereid::runtime {

// Batch-invariant, so that a request's bits do not depend on others; CPUs always are.
inline ExecutorConfig test_config() {
  ExecutorConfig config;
  config.device = test_device();
  config.deterministic = true;
  config.max_prefill_ms = 0;  // the chunks of a test do not depend on the machine's speed
  return config;
}

}  // namespace nereid::runtime
