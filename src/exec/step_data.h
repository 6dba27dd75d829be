// The integers of one step for the kernels, packed into one block: a single copy to the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "exec/runner.h"
#include "exec/step_message.h"

namespace nereid::exec {

// A call of kernels::CrossScores, beside the cross attention of its layer.
struct ScoreCall {
  int32_t layer = 0, head = 0;
  int32_t first_token = 0, num_tokens = 0, num_positions = 0;
  float* out = nullptr;  // device, [num_tokens, num_positions]
};

// Counts of a step and pointers to its arrays. pack() fills them in host memory; at() maps them to
// a copy of the block.
struct StepData {
  static constexpr size_t kAlignment = 64;  // of each array in the block, in bytes

  int32_t num_rows = 0;
  int32_t num_tokens = 0;
  int32_t num_logits = 0;
  int32_t num_embeddings = 0;
  int32_t max_blocks = 0;                 // columns of the block tables
  int32_t max_length = 0;                 // longest sequence after the step
  int64_t num_positions = 0;              // sum of sequence lengths after the step
  const int32_t* tokens = nullptr;        // [num_tokens]; as in kernels::BatchView
  const int32_t* positions = nullptr;     // [num_tokens]
  const int32_t* row_of_token = nullptr;  // [num_tokens]
  const int32_t* row_begin = nullptr;     // [num_rows + 1]
  const int32_t* logit_tokens = nullptr;  // [num_logits] token index of each row of logits
  const int32_t* blends = nullptr;        // [num_logits] kernels::BlendedRow; null: none
  const int32_t* after = nullptr;         // [num_tokens]; null: no draft tree
  const int32_t* cells = nullptr;         // [num_tokens]; null: no draft tree
  const int32_t* last = nullptr;          // [num_tokens]; null: each token's own position
  const int32_t* components = nullptr;    // [num_tokens, kernels::kPositionComponents], or null
  // Adapter slots of tokens and of rows of logits, -1: none; null: no adapter in the step.
  const int32_t* adapters = nullptr;        // [num_tokens]
  const int32_t* logit_adapters = nullptr;  // [num_logits]
  const int32_t* block_tables = nullptr;    // [groups, num_rows, max_blocks], unused entries 0
  // Cross attention; null: the model has none.
  const int32_t* cross_lengths = nullptr;  // [num_rows]
  const int32_t* cross_table = nullptr;    // [num_rows, max_cross_blocks], unused entries 0
  int32_t max_cross_blocks = 0;
  const int32_t* cross_mask = nullptr;  // bits [num_tokens, cross_mask_words]; null: no row has any
  int32_t cross_mask_words = 0;
  // Outside the block, set by the caller. Null: none.
  const BF16* embeddings = nullptr;
  const BF16* features = nullptr;  // [num_features, feature_width]: the feature pool
  int32_t num_features = 0, feature_width = 0;
  std::span<const ScoreCall> scores = {};
  size_t bytes = 0;  // used bytes of the block

  const int32_t* block_table(int32_t group) const {
    return block_tables + int64_t{group} * num_rows * max_blocks;
  }

  // Bytes for any step within the limits.
  static size_t max_bytes(const RunnerLimits& limits, size_t num_groups);

  // Checks rows, tokens and blocks and writes the arrays to `block` (max_bytes). InvalidArgument
  // names the row; the block is then unusable.
  static StatusOr<StepData> pack(const StepMessageView& message, std::span<const CacheGroup> groups,
                                 const RunnerLimits& limits, int32_t vocab_size, std::byte* block);

  // The same step with its arrays in `copy`, a copy of `block`.
  StepData at(const std::byte* block, const std::byte* copy) const;
};

}  // namespace nereid::exec
