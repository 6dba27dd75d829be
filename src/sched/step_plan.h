// Plan of one step: a flat message from scheduler to step executor, and the result of each row.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "nereid/response.h"

namespace nereid::sched {

class Sequence;

// A block of one cache group: device blocks [0, num_blocks), then host blocks.
using BlockId = int32_t;
inline constexpr BlockId kNoBlock = -1;  // a hole: no later row attends to its positions

// Copy of a whole block, all layers of its group.
struct PlanCopy {
  BlockId from = kNoBlock, to = kNoBlock;
  int32_t group = 0;
  bool operator==(const PlanCopy&) const = default;
};

// One sequence's (or beam's) part of a step: positions [start, start + num_tokens).
struct ScheduledRow {
  Sequence* sequence =
      nullptr;       // owned by the scheduler; alive until the row is committed or aborted
  int32_t beam = 0;  // beam index; rows of one sequence are adjacent, in order
  int32_t slot = 0;  // in [0, max_batch_size): index of the device's per-sequence state
  int32_t start = 0;
  int32_t num_tokens = 0;
  bool samples = false;          // samples a token for position first_sampled(); beam search: the
                                 // 2 * width likeliest tokens
  bool input_on_device = false;  // the last input token is known to the device only (by `slot`)
  bool all_logits = false;       // returns logits, or hidden states, of every position of the row
  bool ends_prompt = false;      // reaches the end of a pooled sequence and ends it
  // The last num_drafts tokens are drafts, the first ones of Sequence::drafts(). Tokens are sampled
  // for positions first_sampled() to first_sampled() + number of accepted drafts.
  int32_t num_drafts = 0;
  bool needs_host = false;  // no later row of the sequence is planned before this one has completed

  int32_t end() const { return start + num_tokens; }
  int32_t first_sampled() const { return end() - num_drafts; }  // position; if the row samples
  int32_t num_logits() const {
    return all_logits ? num_tokens : samples ? 1 + num_drafts : ends_prompt ? 1 : 0;
  }
};

// An encoder input of a sequence.
struct PlannedEncode {
  const Sequence* sequence = nullptr;
  size_t input = 0;
  std::vector<BlockId> blocks;  // of its result
};

// A live sequence, for who watches the batch.
struct SequenceState {
  RequestId id = 0;
  Time arrival;
  int32_t prompt_tokens = 0;
  bool waits = false;        // has no slot
  bool was_started = false;  // had a slot: now it is paused, where it waits
};

struct StepPlan {
  std::vector<PlanCopy> copies;  // run in order before the step's rows
  // Host-pool copies to blocks that no row uses before Scheduler::onboarded(). They start after
  // `copies`, in the order of plans; no step waits for them.
  std::vector<PlanCopy> onboards;
  // Encoder inputs that are computed in front of the rows.
  std::vector<PlannedEncode> encodes;
  std::vector<ScheduledRow> rows;  // may be empty with onboards or encodes
  int32_t num_tokens = 0;          // sum over rows

  // An empty plan has no copies.
  bool empty() const { return rows.empty() && onboards.empty() && encodes.empty(); }
};

// Sampling result of a row.
struct SampledTokens {
  TokenId token = -1;       // beam search: the likeliest. Non-finite logits abort the row.
  float log_prob = 0;       // log-probability of `token` as reported to the client
  float full_log_prob = 0;  // log-probability before top-k and top-p; summed to cum_log_prob
  std::span<const TokenLogProb> top = {};  // likeliest first; searches: <= 2 * width
};

}  // namespace nereid::sched
