// Checkpoints without their weights: enough to build engines that are filled later.
#pragma once

#include <filesystem>

#include "base/status.h"

namespace nereid::convert {

struct PruneOptions {
  std::filesystem::path checkpoint_dir;  // in the TensorRT-LLM checkpoint layout
  std::filesystem::path output_dir;      // see prune_checkpoint()
  bool all = false;                      // vectors (norms, biases) too, not only matrices
};

struct PruneReport {
  size_t num_removed = 0;
  uint64_t bytes_before = 0, bytes_after = 0;  // of all ranks' tensors
};

// Writes config.json with `is_pruned`, a rankN.safetensors for each rank with the tensors that
// stay, and copies of the tokenizer's files. The directory appears when it is complete, in place of
// an older checkpoint. InvalidArgument: another layout, or output_dir is checkpoint_dir or has
// other files.
StatusOr<PruneReport> prune_checkpoint(const PruneOptions& options);

}  // namespace nereid::convert
