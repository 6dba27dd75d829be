// Pruned checkpoints, without weights: enough to build engines that are refitted later.
#pragma once

#include <filesystem>

#include "base/status.h"

namespace nereid::convert {

struct PruneOptions {
  std::filesystem::path checkpoint_dir;  // in the TensorRT-LLM layout
  std::filesystem::path output_dir;      // see prune_checkpoint()
  bool all = false;                      // removes vectors (norms, biases) too, not only matrices
};

struct PruneReport {
  size_t num_removed = 0;
  uint64_t bytes_before = 0, bytes_after = 0;  // of the tensors of all ranks
};

// Writes config.json with `is_pruned`, rankN.safetensors with the kept tensors, and the tokenizer
// files. The directory appears when complete, replacing an older checkpoint. InvalidArgument:
// another layout; output_dir is checkpoint_dir or has other files.
StatusOr<PruneReport> prune_checkpoint(const PruneOptions& options);

}  // namespace nereid::convert
