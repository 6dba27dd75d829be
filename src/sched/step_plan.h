// What one step computes: a small flat message from the scheduler to the executor of steps, and
// what comes back for each row.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nereid/response.h"

namespace nereid::sched {

class Sequence;

// A block of one cache group: those of the device are [0, num_blocks), the host pool's follow.
using BlockId = int32_t;
inline constexpr BlockId kNoBlock = -1;  // a hole: positions that no later row will look at

// A whole block's contents, all layers of its group.
struct BlockCopy {
  BlockId from = kNoBlock, to = kNoBlock;
  int32_t group = 0;
  bool operator==(const BlockCopy&) const = default;
};

// One sequence's (or one beam's) share of a step: positions [start, start + num_tokens).
struct Row {
  Sequence* sequence =
      nullptr;       // owned by the scheduler; alive until the row is committed or aborted
  int32_t beam = 0;  // which of the sequence's beams; those of one step are neighbours, in order
  int32_t slot = 0;  // device slot in [0, max_batch_size); holds the row's per-sequence state
  int32_t start = 0;
  int32_t num_tokens = 0;
  bool samples = false;  // reaches the end: a token is drawn, for position first_drawn(); with
                         // beams the likeliest 2 * width tokens are wanted instead
  bool input_on_device = false;  // the last input token is known only to the device (slot `slot`)
  bool all_logits = false;       // context logits: logits of every position of the row; or hidden
                                 // states of all of them
  bool ends_prompt = false;      // reaches the end of a sequence that is only pooled: it ends it
  // How many of its last tokens are guesses, the first of Sequence::drafts(). For each that holds
  // one token more is drawn, for positions first_drawn() and on.
  int32_t num_drafts = 0;
  bool needs_host = false;  // no later row of its sequence is planned before this one has landed

  int32_t end() const { return start + num_tokens; }
  int32_t first_drawn() const { return end() - num_drafts; }  // position, if it samples
  int32_t num_logits() const {
    return all_logits ? num_tokens : samples ? 1 + num_drafts : ends_prompt ? 1 : 0;
  }
};

struct StepPlan {
  std::vector<BlockCopy> copies;  // executed in order, before anything of the step is computed
  // From the host pool to blocks that no row has before Scheduler::onboarded() was called for them.
  // They begin when `copies` are made, in order with those of other plans, and no step waits.
  std::vector<BlockCopy> onboards;
  std::vector<Row> rows;   // may be none beside onboards
  int32_t num_tokens = 0;  // sum over rows

  // Then there are no copies either.
  bool empty() const { return rows.empty() && onboards.empty(); }
};

// What the device made of a row that samples.
struct Drawn {
  TokenId token = -1;       // beams: the likeliest. Rows whose logits are not finite are aborted
  float log_prob = 0;       // of `token`, as the client wants to see it
  float full_log_prob = 0;  // of `token`, never normalised over the kept ones: what sums add up
  std::span<const TokenLogProb> top = {};  // likeliest first; beams: up to 2 * width candidates
};

}  // namespace nereid::sched
