// How much memory a plan needs under given limits; the same numbers decide allocation, reports and
// how many KV blocks fit in a budget.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "exec/runner.h"
#include "io/plan.h"

namespace nereid::exec {

// InvalidArgument naming the field when a limit is out of range for the model. `num_blocks` may be
// 0 here: what memory_table() and num_blocks_that_fit() take.
Status check_limits(const io::Plan& plan, const RunnerLimits& limits);

// Columns of a block table for max_sequence_length positions.
int32_t blocks_per_sequence(const RunnerLimits& limits);

// The layers by what they look back at and by the shape of their keys and values, as the plan's
// attention calls have it; the group that looks back furthest comes first, then the one that has
// the first layer. A window that no sequence outgrows is none. `limits`: window and sink count.
std::vector<CacheGroup> cache_groups(const io::Plan& plan, const RunnerLimits& limits);

// Most blocks of a group that one sequence holds at a time: with a window, those behind it are
// given back, but a step of max_tokens may have to be computed before that.
int32_t blocks_held_per_sequence(const RunnerLimits& limits, const CacheGroup& group);

// The window that tokens of a layer with `window` have under the limits; 0 = all positions.
int32_t window_of(int32_t window, const RunnerLimits& limits);

// Bytes of the arena of values that have so many rows (tokens, or rows of logits).
size_t arena_bytes(const io::Plan& plan, const RunnerLimits& limits, io::Extent extent);
// Bytes of what a plan's products hand to each other in steps of few tokens (fused_calls.h); 0 on a
// CPU, which always runs the plan's own calls.
size_t fused_bytes(const io::Plan& plan, const DeviceInfo& device);
// Floats of one rope table, and bytes of all, end to end.
size_t rope_table_floats(const io::RopeTable& rope, const RunnerLimits& limits);
size_t rope_table_bytes(const io::Plan& plan, const RunnerLimits& limits);

inline constexpr size_t kUploadAlignment = 16;  // of each piece of a sampler's staging

// What sampling keeps for all slots, in bytes. On the device: `rows`, `params`, `results` and
// `history` (tokens so far). In host memory, for each step in flight: `staging` (what every step
// may upload), `results` again and `top` (lists of likeliest tokens).
struct SamplingBytes {
  size_t rows = 0, params = 0, results = 0, top = 0, history = 0, staging = 0;
  size_t total(int32_t depth) const;
};
SamplingBytes sampling_bytes(const RunnerLimits& limits);

// Everything that a runner and its sampler hold on a device, the host's part of the KV
// cache ("host ...") last, a line for each group; `limits` must
// have passed check_limits().
std::vector<MemoryItem> memory_table(const io::Plan& plan, const RunnerLimits& limits,
                                     const DeviceInfo& device);

// Blocks of each group for `bytes`, in proportion to `shares`.
PerGroup<int32_t> divide_blocks(const std::vector<CacheGroup>& groups, const RunnerLimits& limits,
                                const PerGroup<int64_t>& shares, size_t bytes);

// Most KV blocks of each group such that all of memory_table() fits in `budget_bytes`;
// limits.num_blocks is not looked at, its num_host_blocks are not part of the budget. The groups
// share in proportion to what a full batch holds of them, of sequences as long as possible, but at
// least one of max_sequence_length: with fewer and longer ones the group that looks back furthest
// runs out first. ResourceExhausted with the table when the budget does not even hold the blocks of
// one sequence of max_sequence_length.
StatusOr<PerGroup<int32_t>> num_blocks_that_fit(const io::Plan& plan, const RunnerLimits& limits,
                                                const DeviceInfo& device, size_t budget_bytes);

}  // namespace nereid::exec
