// Makes log-probabilities of prompts from the logits that steps bring, so that nobody has to keep
// the logits of a whole prompt.
#pragma once

#include <memory>
#include <span>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "nereid/response.h"
#include "sched/step_plan.h"

namespace nereid::runtime {

class PromptScorer {
 public:
  // A sequence whose prompt is scored has begun; `num_top` likeliest tokens are kept at each
  // position.
  void open(RequestId id, int32_t num_top);

  // What a row gave of its positions, f32 [num_tokens, vocab]; sequences that are not open are left
  // alone. A position that comes again, as after a preemption, takes the place of what it gave
  // before. The row that ends the prompt fills `scores`. ResourceExhausted: no memory; Internal:
  // the logits of a position are not finite.
  Status add(const sched::Row& row, std::span<const float> logits,
             std::shared_ptr<const PromptLogProbs>& scores);

  void forget(RequestId id) { open_.erase(id); }
  bool empty() const { return open_.empty(); }

 private:
  absl::flat_hash_map<RequestId, PromptLogProbs> open_;
};

// Positions that are scored per step at most, at least one: 4 Mi logits, so that steps of others
// run between the pieces of a long prompt.
int32_t most_scored_tokens(int32_t vocab_size);

// Most bytes that the log-probabilities of a prompt take.
int64_t prompt_log_prob_bytes(int64_t num_prompt, int32_t num_top);

}  // namespace nereid::runtime
