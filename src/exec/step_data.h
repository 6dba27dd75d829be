// The integers that describe one step to the kernels, packed into one block so that a step needs a
// single copy to the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "exec/runner.h"
#include "exec/step_message.h"

namespace nereid::exec {

// Sizes of one step and where its arrays are. The arrays are filled in host memory by pack(); at()
// gives the same arrays in a copy of the block elsewhere.
struct StepData {
  int32_t num_rows = 0;
  int32_t num_tokens = 0;
  int32_t num_logits = 0;
  int32_t num_embeddings = 0;
  int32_t max_blocks = 0;                 // columns of the block tables
  int32_t max_length = 0;                 // longest sequence after the step
  int64_t num_positions = 0;              // sum of the sequences' lengths after the step
  const int32_t* tokens = nullptr;        // [num_tokens]; as in kernels::StepView
  const int32_t* positions = nullptr;     // [num_tokens]
  const int32_t* row_of_token = nullptr;  // [num_tokens]
  const int32_t* row_begin = nullptr;     // [num_rows + 1]
  const int32_t* logit_tokens = nullptr;  // [num_logits] token index whose logits are wanted
  const int32_t* after = nullptr;         // [num_tokens]; null: no row has a tree
  const int32_t* cells = nullptr;         // likewise
  // Where the adapters of tokens and of rows of logits are, -1: none; null: the step has none.
  const int32_t* adapters = nullptr;        // [num_tokens]
  const int32_t* logit_adapters = nullptr;  // [num_logits]
  const int32_t* block_tables = nullptr;    // [groups, num_rows, max_blocks], unused entries 0
  // Not in the block: the caller that runs the step says where they are. Null: none.
  const BF16* embeddings = nullptr;
  size_t bytes = 0;  // used part of the block

  const int32_t* block_table(int32_t group) const {
    return block_tables + int64_t{group} * num_rows * max_blocks;
  }

  // Bytes that any step within the limits fits in.
  static size_t max_bytes(const RunnerLimits& limits, size_t num_groups);

  // Checks the rows, their tokens and their blocks against limits and vocabulary and writes the
  // arrays to `block` (max_bytes large). InvalidArgument names the row; nothing is usable then.
  static StatusOr<StepData> pack(const StepView& message, std::span<const CacheGroup> groups,
                                 const RunnerLimits& limits, int32_t vocab_size, std::byte* block);

  // The same step with the arrays in `copy`, a copy of the block at `block`.
  StepData at(const std::byte* block, const std::byte* copy) const;
};

}  // namespace nereid::exec
