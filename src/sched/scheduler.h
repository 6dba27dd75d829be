// Decides what each step computes: continuous batching with chunked prompts, prefix reuse and
// preemption by recompute.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/status.h"
#include "sched/block_pool.h"
#include "sched/sequence.h"
#include "sched/step_plan.h"

namespace nereid::sched {

struct Limits {
  int32_t max_batch_size = 32;      // sequences that hold memory at once; also the number of slots
  int32_t max_num_tokens = 2048;    // per step
  int32_t max_queue_size = 1024;    // sequences that wait for their first step
  int32_t max_sequence_length = 0;  // prompt + output tokens
  int32_t num_blocks = 0;
  int32_t tokens_per_block = 32;
  bool enable_reuse = true;
};

// What the client should see of one sequence after an event. Each accepted sequence gets exactly
// one with `finished`.
struct RowNews {
  RequestId id = 0;
  std::vector<TokenId> tokens;  // new output, in order
  bool finished = false;
  FinishReason reason = FinishReason::kNotFinished;  // set when finished without an error
  Status status;                                     // not OK: it failed; implies finished
  RequestMetrics metrics;                            // set when finished; without token times

  bool empty() const { return tokens.empty() && !finished; }
};

// Counts since construction, except the first group.
struct SchedulerStats {
  int64_t num_running = 0, num_waiting = 0;
  int64_t blocks_total = 0, blocks_free = 0;
  int64_t blocks_reused = 0, num_preemptions = 0;
  int64_t prompt_tokens =
      0;  // prompt positions planned, again after a preemption, without prefix hits
  int64_t generated_tokens = 0;  // kept output tokens
  int64_t num_finished = 0, num_cancelled = 0, num_failed = 0;
};

// Pure host logic for one thread. Plans may be launched before earlier ones are committed: a
// sequence's next token may then be known only to the device. Rows must be committed or aborted in
// the order in which they were planned.
//
// The first running sequence can always take what it needs from newer ones, so every plan moves
// something forward.
class Scheduler {
 public:
  explicit Scheduler(const Limits& limits);  // every limit > 0

  // Queues. InvalidArgument: can never run, with the numbers (see validate); ResourceExhausted:
  // queue full.
  Status submit(SequenceSpec spec);

  // The part of submit() that depends on nothing but the limits; for any thread.
  static Status validate(const Limits& limits, int64_t num_prompt_tokens, int32_t max_new_tokens);

  // The rows of the next step, oldest sequence first; empty when there is nothing to do before the
  // next commit.
  StepPlan plan(Time now);

  // The device has finished `row`; `drawn` holds its token if it samples, else nothing.
  RowNews commit(const Row& row, std::span<const TokenId> drawn);

  // The device failed `row`; its sequence ends with `status` and nothing of it is reused.
  RowNews abort(const Row& row, const Status& status);

  // Ends a sequence: by the client, or because a stop string was found in its text. No value:
  // unknown or already ended.
  std::optional<RowNews> cancel(RequestId id) { return end(id, FinishReason::kCancelled); }
  std::optional<RowNews> stop(RequestId id) { return end(id, FinishReason::kStopWords); }
  std::vector<RowNews> cancel_all();

  bool idle() const { return sequences_.empty(); }    // nothing waits, runs or is in flight
  int32_t num_queued() const { return num_queued_; }  // accepted and never started
  const Limits& limits() const { return limits_; }
  SchedulerStats stats() const;

  // Proves that blocks, slots and rows add up; ends the process when they do not. Callable at any
  // time.
  void check() const;

 private:
  std::optional<RowNews> end(RequestId id, FinishReason reason);
  void plan_running(StepPlan& plan, bool& short_of_memory);
  void plan_waiting(StepPlan& plan, Time now);
  bool make_room(Sequence& sequence, int32_t num_tokens, bool& short_of_memory);
  void start(Sequence& sequence, const PrefixHit& hit, Time now);
  void add_row(StepPlan& plan, Sequence& sequence, int32_t num_tokens);
  int32_t budget(const StepPlan& plan) const { return limits_.max_num_tokens - plan.num_tokens; }
  void finish(Sequence& sequence, FinishReason reason, const Status& status, RowNews& news);
  Sequence& landed(const Row& row);
  void release_if_drained(Sequence& sequence);
  void wait_again(Sequence& sequence);

  const Limits limits_;
  BlockPool pool_;
  absl::flat_hash_map<RequestId, std::unique_ptr<Sequence>> sequences_;  // owns; each runs or waits
  std::vector<Sequence*> running_;  // oldest first; hold a slot and blocks
  std::deque<Sequence*> waiting_;   // oldest first; hold nothing
  std::vector<int32_t> free_slots_;
  uint64_t next_order_ = 0;
  int32_t num_queued_ = 0;    // of waiting_, those that never started
  int32_t num_inflight_ = 0;  // rows planned and not yet committed or aborted
  SchedulerStats stats_;
};

}  // namespace nereid::sched
