// Test only: a small scheduler's limits and the requests that scheduler tests send it.
#pragma once

#include "sched/scheduler.h"

namespace nereid::sched {

inline Limits limits(int32_t max_beam_width = 1) {
  return {.max_batch_size = 4,
          .max_num_tokens = 64,
          .max_queue_size = 8,
          .max_sequence_length = 128,
          .max_beam_width = max_beam_width,
          .groups = {{.num_blocks = 32}},
          .tokens_per_block = 4};
}

// A prompt of the ids first, first + 1, ...
inline SequenceSpec spec(RequestId id, int num_prompt, int max_new = 4, TokenId first = 100) {
  SequenceSpec s{.id = id, .max_new_tokens = max_new};
  for (int i = 0; i < num_prompt; ++i) s.prompt.push_back(first + i);
  return s;
}

// The step's result for a row of one token.
inline std::span<const SampledTokens> given(const ScheduledRow& row, const SampledTokens& drawn) {
  return {&drawn, row.samples ? size_t{1} : 0};
}

}  // namespace nereid::sched
