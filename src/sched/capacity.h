// How much the scheduler may use, and how many blocks a request can come to need.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "nereid/config.h"
#include "sched/cache_group.h"

namespace nereid::sched {

struct Limits {
  int32_t max_batch_size = 32;      // sequences (beams: beams) that hold memory at once; also the
                                    // number of slots
  int32_t max_num_tokens = 2048;    // per step
  int32_t max_queue_size = 1024;    // sequences that wait for their first step
  int32_t max_sequence_length = 0;  // prompt + output tokens
  int32_t max_beam_width = 1;
  std::vector<CacheGroup> groups;  // of the model's cache; see are_valid()
  int32_t tokens_per_block = 32;
  bool enable_reuse = true;
  bool enable_partial_reuse = true;
  // The last token of a cached prefix is computed again: a proposer of drafts reads its state.
  bool renews_last_cached = false;
  int32_t offload_min_priority = 30;
  int32_t event_buffer_size = 0;
  // Rows of logits per step: one for each running sequence, the others for context logits. Smaller
  // than max_batch_size: as many as that.
  int32_t max_logits = 0;
  // Positions of prompts per step whose log-probabilities are made; 0: as many as there are.
  int32_t max_scored_tokens = 0;
  int32_t max_adapters = 0;       // different adapters of sequences that hold memory at once
  int32_t max_adapter_pages = 0;  // of all of these together
  SchedulerConfig policy;         // kSwap needs enable_reuse and a host pool

  int32_t num_logits_rows() const { return std::max(max_logits, max_batch_size); }
  bool any_window() const { return groups.back().window > 0; }
};

// Length at which a sequence ends, prompt included. Without new tokens it ends once its prompt is
// computed; the position behind it stands for that.
int32_t length_limit(const Limits& limits, int64_t num_prompt_tokens, int32_t max_new_tokens);

// Device blocks of one group that a sequence holds at most, however its beams branch: the full
// blocks of the prompt once, all others once for each beam; with a sliding window what the window,
// the sinks and one chunk cover. `length_limit`: see above; the last token is never fed back and
// needs no memory.
int32_t worst_case_blocks(const Limits& limits, const CacheGroup& group, int32_t num_prompt_tokens,
                          int32_t length_limit, int32_t beam_width);

// Whether such a request can ever run: InvalidArgument with the numbers if not. `num_sequences`:
// of one request, queued together.
Status check_demand(const Limits& limits, int64_t num_prompt_tokens, int32_t max_new_tokens,
                    int32_t beam_width, int32_t num_sequences);

}  // namespace nereid::sched
