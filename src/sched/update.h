// Updates of sequences from the scheduler to the engine, and the scheduler's statistics.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "base/clock.h"
#include "base/status.h"
#include "nereid/response.h"
#include "nereid/stats.h"

namespace nereid::sched {

// A live beam, or a finished hypothesis.
struct BeamUpdate {
  std::vector<TokenId> tokens;   // all generated tokens
  std::vector<float> log_probs;  // of each; empty unless OutputConfig::return_log_probs
  float cum_log_prob = 0;        // their sum, and that of the end id if one ended the hypothesis
  FinishReason reason = FinishReason::kNotFinished;
};

// Update of one sequence after an event. Each accepted sequence gets exactly one with `finished`.
struct SequenceUpdate {
  RequestId id = 0;
  absl::InlinedVector<TokenId, 2> tokens;  // new output, in order; none with beams
  std::vector<float> log_probs;  // of `tokens`; empty unless OutputConfig::return_log_probs
  std::vector<std::vector<TokenLogProb>> top_log_probs;  // of `tokens`, likeliest first; empty
                                                         // unless OutputConfig::num_top_log_probs
  // Log-probabilities of `tokens`, never normalised; they add up to cum_log_prob.
  absl::InlinedVector<float, 2> full_log_probs;
  // All hypotheses of a beam search to return, best first; empty: no change.
  std::vector<BeamUpdate> beams;
  bool finished = false;
  FinishReason reason = FinishReason::kNotFinished;  // set when finished without an error
  Status status;                                     // not OK: failed, implies finished
  RequestMetrics metrics;                            // so far; without token times

  bool empty() const { return tokens.empty() && beams.empty() && !finished; }
};

// Counts since construction; the first lines are current values.
struct SchedulerStats {
  int64_t num_running = 0, num_waiting = 0, num_paused = 0;  // num_paused: part of num_waiting
  std::array<KvGroupStats, kMaxKvGroups> groups;
  int64_t num_groups = 0;
  int64_t blocks_total = 0, blocks_free = 0;  // summed over groups
  int64_t host_blocks_total = 0, host_blocks_free = 0;

  int64_t blocks_reused = 0, blocks_missed = 0, num_preemptions = 0;
  int64_t blocks_allocated = 0, blocks_allocated_new = 0;  // hits included; hits excluded
  int64_t blocks_offloaded = 0, blocks_onboarded = 0;
  int64_t prompt_tokens =
      0;  // prompt positions planned, recomputation included, prefix hits excluded
  int64_t generated_tokens = 0;                     // kept output tokens
  int64_t num_drafts = 0, num_accepted_drafts = 0;  // computed; accepted
  int64_t num_finished = 0, num_cancelled = 0, num_timed_out = 0, num_failed = 0;
  int64_t num_started = 0;   // sequences that got their first row
  Duration queue_time = {};  // sum over those of (plan of the first row - arrival)
};

}  // namespace nereid::sched
