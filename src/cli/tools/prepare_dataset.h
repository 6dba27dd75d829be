// Random requests for benchmarks: prepare_dataset.py, and trtllm-bench prepare-dataset.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace nereid::cli {

// JSON lines of the requests for `arguments`, to be written to `output` ("": stdout).
// `wants_help`: help instead.
struct PreparedDataset {
  std::string lines, output;
  bool wants_help = false;
};
StatusOr<PreparedDataset> prepare_dataset(const std::vector<std::string>& arguments);

// Writes the dataset; returns the exit code.
int run_prepare_dataset(const std::vector<std::string>& arguments);

}  // namespace nereid::cli
