// Limits of the scheduler, and the blocks that a request can need.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "nereid/config.h"
#include "sched/cache_group.h"

namespace nereid::sched {

struct Limits {
  int32_t max_batch_size = 32;      // sequences (or beams) with memory: slots
  int32_t max_num_tokens = 2048;    // per step
  int32_t num_stages = 1;           // of the model's pipeline; with several, each input is known
  int32_t max_queue_size = 1024;    // sequences waiting for their first step
  int32_t max_sequence_length = 0;  // prompt + output tokens
  int32_t max_beam_width = 1;
  std::vector<BlockGroupConfig> groups;  // see are_valid()
  int32_t tokens_per_block = 32;
  bool enable_reuse = true;
  bool enable_partial_reuse = true;
  // The last token of a cached prefix is recomputed: a draft proposer reads its hidden state.
  bool renews_last_cached = false;
  int32_t offload_min_priority = 30;
  int32_t event_buffer_size = 0;
  // Rows of logits per step: one per running sequence, the rest for context logits. Values below
  // max_batch_size stand for max_batch_size.
  int32_t max_logits = 0;
  // Prompt positions per step with log-probabilities or attention scores, each times its sequence's
  // score_weight; one position always has room. 0: no limit.
  int32_t max_scored_tokens = 0;
  int32_t max_adapters = 0;       // distinct adapters of sequences that hold memory
  int32_t max_adapter_pages = 0;  // pages of these adapters together
  // Encoder inputs: positions of one; positions and parts per step; blocks of results. 0: none.
  int32_t max_encoder_length = 0, max_encoder_tokens = 0, max_encoder_parts = 0;
  int32_t num_encoder_blocks = 0;
  SchedulerConfig policy;  // kSwap: requires enable_reuse and a host pool

  int32_t num_logits_rows() const { return std::max(max_logits, max_batch_size); }
  bool any_window() const { return groups.back().window > 0; }
};

// Length (prompt included) at which a sequence ends: prompt + max_new_tokens within the limits.
// Without new tokens: prompt + 1, never reached by a token.
int32_t length_limit(const Limits& limits, int64_t num_prompt_tokens, int32_t max_new_tokens);

// Upper bound of a sequence's device blocks in one group: full prompt blocks once, all others once
// per beam; with a sliding window per beam the blocks that window, sinks and one chunk cover.
// `length_limit`: see above; the last token is never an input and has no cell.
int32_t worst_case_blocks(const Limits& limits, const BlockGroupConfig& group,
                          int32_t num_prompt_tokens, int32_t length_limit, int32_t beam_width);

// InvalidArgument with the numbers if such a request can never run. `num_sequences`: of the
// request, queued together.
Status check_demand(const Limits& limits, int64_t num_prompt_tokens, int32_t max_new_tokens,
                    int32_t beam_width, int32_t num_sequences);

}  // namespace nereid::sched
