// Checking and packing of a step's rows.
#include "exec/step_data.h"

#include <algorithm>

#include "base/round_up.h"
#include "exec/memory.h"

namespace nereid::exec {
namespace {

constexpr size_t kAlignment = 64;

constexpr size_t padded(size_t num_ints) {
  return round_up(num_ints * sizeof(int32_t), kAlignment);
}

// The blocks of group number `g`, for positions up to `end`.
Status check_blocks(const StepRow& row, size_t g, const CacheGroup& group, int64_t end,
                    const RunnerLimits& limits) {
  const std::span<const int32_t> blocks = row.blocks[g];
  const int64_t num_blocks = (end - 1) / limits.block_tokens + 1;
  if (static_cast<int64_t>(blocks.size()) < num_blocks)
    return invalid_argument("{} blocks do not cover {} positions", blocks.size(), end);
  for (int64_t i = 0; i < num_blocks; ++i) {
    const int32_t block = blocks[i];
    if (block >= 0 && block < limits.num_blocks[g]) continue;
    const int64_t begin = i * limits.block_tokens;
    if (block == kNoBlock && group.is_unseen(begin, begin + limits.block_tokens, row.start))
      continue;
    return invalid_argument("block {} is not in [0, {})", block, limits.num_blocks[g]);
  }
  return ok();
}

Status check_row(const StepRow& row, std::span<const CacheGroup> groups, const RunnerLimits& limits,
                 int32_t vocab_size) {
  if (row.slot < 0 || row.slot >= limits.max_rows)
    return invalid_argument("slot {} is not in [0, {})", row.slot, limits.max_rows);
  if (row.tokens.empty()) return invalid_argument("no tokens");
  const int64_t end = int64_t{row.start} + static_cast<int64_t>(row.tokens.size());
  if (row.start < 0 || end > limits.max_sequence_length)
    return invalid_argument("positions [{}, {}) are not in [0, {})", row.start, end,
                            limits.max_sequence_length);
  for (size_t i = 0; i < row.tokens.size(); ++i) {
    const int32_t token = row.tokens[i];
    const bool on_device = token == kTokenOnDevice && i + 1 == row.tokens.size();
    if (!on_device && (token < 0 || token >= vocab_size))
      return invalid_argument("token {} is not in [0, {})", token, vocab_size);
  }
  if (row.num_logits != 0 && row.num_logits != 1 &&
      row.num_logits != static_cast<int32_t>(row.tokens.size()))
    return invalid_argument("{} logits of {} tokens; allowed are none, 1 and all", row.num_logits,
                            row.tokens.size());
  for (size_t g = 0; g < groups.size(); ++g)
    RETURN_IF_ERROR(check_blocks(row, g, groups[g], end, limits));
  return ok();
}

// Rounded up by at most a quarter, so that steps of one shape stay alike while sequences grow.
int32_t table_width(int32_t num_blocks, int32_t most) {
  int32_t unit = 1;
  while (8 * unit <= num_blocks) unit *= 2;
  return std::min((num_blocks + unit - 1) / unit * unit, most);
}

}  // namespace

size_t StepData::max_bytes(const RunnerLimits& limits, size_t num_groups) {
  const size_t rows = limits.max_rows, tokens = limits.max_tokens;
  return 3 * padded(tokens) + padded(rows + 1) + padded(limits.num_logits_rows()) +
         padded(num_groups * rows * blocks_per_sequence(limits));
}

StatusOr<StepData> StepData::pack(std::span<const StepRow> rows, std::span<const CacheGroup> groups,
                                  const RunnerLimits& limits, int32_t vocab_size,
                                  std::byte* block) {
  StepData step;
  if (rows.empty() || rows.size() > static_cast<size_t>(limits.max_rows))
    return invalid_argument("a step of {} rows; 1 to {} are allowed", rows.size(), limits.max_rows);
  size_t num_tokens = 0;
  int64_t num_logits = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (Status status = check_row(rows[i], groups, limits, vocab_size); !status.ok())
      return annotate(status, fmt::format("row {}", i));
    const auto end = static_cast<int32_t>(rows[i].start + rows[i].tokens.size());
    num_tokens += rows[i].tokens.size();
    num_logits += rows[i].num_logits;
    step.max_length = std::max(step.max_length, end);
    step.num_positions += end;
  }
  if (num_tokens > static_cast<size_t>(limits.max_tokens))
    return invalid_argument("a step of {} tokens; at most {} are allowed", num_tokens,
                            limits.max_tokens);
  if (num_logits > limits.num_logits_rows())
    return invalid_argument("a step of {} logits; at most {} are allowed", num_logits,
                            limits.num_logits_rows());
  step.num_logits = static_cast<int32_t>(num_logits);
  step.num_rows = static_cast<int32_t>(rows.size());
  step.num_tokens = static_cast<int32_t>(num_tokens);
  step.max_blocks =
      table_width((step.max_length - 1) / limits.block_tokens + 1, blocks_per_sequence(limits));

  const auto take = [&](size_t num_ints) {
    auto* const ints = reinterpret_cast<int32_t*>(block + step.bytes);
    step.bytes += padded(num_ints);
    return ints;
  };
  int32_t* const tokens = take(num_tokens);
  int32_t* const positions = take(num_tokens);
  int32_t* const row_of_token = take(num_tokens);
  int32_t* const row_begin = take(rows.size() + 1);
  int32_t* const logit_tokens = take(step.num_logits);
  int32_t* const block_tables = take(groups.size() * rows.size() * step.max_blocks);

  int32_t token = 0, logit = 0;
  for (int32_t r = 0; r < step.num_rows; ++r) {
    const StepRow& row = rows[r];
    row_begin[r] = token;
    const auto count = static_cast<int32_t>(row.tokens.size());
    for (int32_t i = 0; i < count; ++i, ++token) {
      tokens[token] = row.tokens[i] == kTokenOnDevice ? -1 - row.slot : row.tokens[i];
      positions[token] = row.start + i;
      row_of_token[token] = r;
    }
    for (int32_t i = row.num_logits; i > 0; --i) logit_tokens[logit++] = token - i;
    const int32_t num_blocks = (row.start + count - 1) / limits.block_tokens + 1;
    for (size_t g = 0; g < groups.size(); ++g) {
      const auto index = static_cast<int64_t>(g) * step.num_rows + r;
      int32_t* const table = block_tables + index * step.max_blocks;
      std::copy_n(row.blocks[g].begin(), num_blocks, table);
      std::fill(table + num_blocks, table + step.max_blocks, 0);
    }
  }
  row_begin[step.num_rows] = token;
  step.tokens = tokens;
  step.positions = positions;
  step.row_of_token = row_of_token;
  step.row_begin = row_begin;
  step.logit_tokens = logit_tokens;
  step.block_tables = block_tables;
  return step;
}

StepData StepData::at(const std::byte* block, const std::byte* copy) const {
  StepData moved = *this;
  for (const int32_t** array : {&moved.tokens, &moved.positions, &moved.row_of_token,
                                &moved.row_begin, &moved.logit_tokens, &moved.block_tables}) {
    const auto offset = reinterpret_cast<const std::byte*>(*array) - block;
    *array = reinterpret_cast<const int32_t*>(copy + offset);
  }
  return moved;
}

}  // namespace nereid::exec
