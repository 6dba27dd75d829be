// Memory of a plan under given limits; one computation for allocation, reports and the number of KV
// blocks in a budget.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "exec/runner.h"
#include "io/plan.h"

namespace nereid::exec {

// InvalidArgument naming the field if a limit is out of range for the model. `num_blocks` may be 0,
// for memory_table() and num_blocks_that_fit().
Status check_limits(const io::Plan& plan, const RunnerLimits& limits);

// Columns of a block table: max_sequence_length / block_tokens, rounded up.
int32_t blocks_per_sequence(const RunnerLimits& limits);

// Cache groups of the plan's attention layers, keyed by (window, KV heads, head dim, latent). A
// window >= the model's max_positions counts as 0 (full attention). Order: full attention, then
// descending window; ties by first layer. With Plan::caches all stages have the same groups, some
// without layers. `limits`: window and sink are used.
std::vector<CacheGroup> cache_groups(const io::Plan& plan, const RunnerLimits& limits);

// Cache group of a decoder's cross attention; no layers: it has none.
CacheGroup cross_group(const io::Plan& plan);
// Bytes of a block of that group.
size_t cross_block_bytes(const io::Plan& plan, const RunnerLimits& limits);
// Blocks of the longest encoder input.
int32_t cross_blocks_per_input(const RunnerLimits& limits);

// Whether a rope table of the plan reads components of positions.
bool reads_components(const io::Plan& plan);
// Width of an external embedding; 0: a stage without embeddings.
int32_t embedding_width(const io::Plan& plan);
// Columns of a row of the feature pool.
int32_t feature_width(const io::Plan& plan);
// Bytes of a block of an encoder's features, bf16.
size_t feature_block_bytes(const io::Plan& plan, const RunnerLimits& limits);

// Upper bound of a sequence's blocks in a group: with a sliding window those of the window, the
// sinks and one step of max_tokens.
int32_t blocks_held_per_sequence(const RunnerLimits& limits, const CacheGroup& group);

// Window of a layer with `window` under limits.window; 0 = full attention.
int32_t window_of(int32_t window, const RunnerLimits& limits);

// Bytes of the arena for values with one row per token, or per row of logits.
size_t arena_bytes(const io::Plan& plan, const RunnerLimits& limits, io::RowCount extent);
// Bytes of values between fused products (fused_calls.h); 0 on a CPU, which has no fused calls.
size_t fused_bytes(const io::Plan& plan, const DeviceInfo& device);
// Floats of one rope table; bytes of all tables, end to end.
size_t rope_table_floats(const io::RopeTable& rope, const RunnerLimits& limits);
size_t rope_table_bytes(const io::Plan& plan, const RunnerLimits& limits);

inline constexpr size_t kUploadAlignment = 16;  // of each upload in a sampler's staging

// Bytes of sampling state for all slots. Device: `rows`, `params`, `results`, `history` (tokens so
// far). Host, per step in flight: `staging` (a step's uploads), `results` and `top` (the likeliest
// tokens of each row).
struct SamplingBytes {
  size_t rows = 0, params = 0, results = 0, top = 0, history = 0, staging = 0;
  size_t total(int32_t depth) const;
};
SamplingBytes sampling_bytes(const RunnerLimits& limits);

// Memory of a runner and its sampler on a device; the host part of the KV cache ("host ...", one
// line per group) comes last. Precondition: check_limits().
std::vector<MemoryItem> memory_table(const io::Plan& plan, const RunnerLimits& limits,
                                     const DeviceInfo& device);

// Blocks of each group for `bytes`, in proportion to `shares`.
PerGroup<int32_t> divide_blocks(const std::vector<CacheGroup>& groups, const RunnerLimits& limits,
                                const PerGroup<int64_t>& shares, size_t bytes);

// Largest numbers of KV blocks such that memory_table() fits in `budget_bytes`; limits.num_blocks
// is ignored, num_host_blocks are outside the budget. The groups' proportions are those of a full
// batch of the longest sequences that fit, at least of one sequence of max_sequence_length; a
// smaller batch of longer sequences exhausts the group with the largest window first.
// ResourceExhausted with the table: no room for one sequence of max_sequence_length.
StatusOr<PerGroup<int32_t>> num_blocks_that_fit(const io::Plan& plan, const RunnerLimits& limits,
                                                const DeviceInfo& device, size_t budget_bytes);

}  // namespace nereid::exec
