// Random requests for benchmarks: prepare_dataset.py, and trtllm-bench prepare-dataset.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace nereid::cli {

// JSON lines of the requests that `arguments` ask for; where they go is in `output` ("": stdout).
// Help instead of them: `wants_help`.
struct PreparedDataset {
  std::string lines, output;
  bool wants_help = false;
};
StatusOr<PreparedDataset> prepare_dataset(const std::vector<std::string>& arguments);

// Writes them. The exit code.
int run_prepare_dataset(const std::vector<std::string>& arguments);

}  // namespace nereid::cli
