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
#include "nereid/config.h"
#include "nereid/stats.h"
#include "sched/block_pool.h"
#include "sched/sequence.h"
#include "sched/step_plan.h"

namespace nereid::sched {

struct Limits {
  int32_t max_batch_size = 32;      // sequences (beams: beams) that hold memory at once; also the
                                    // number of slots and of logits rows in a step
  int32_t max_num_tokens = 2048;    // per step
  int32_t max_queue_size = 1024;    // sequences that wait for their first step
  int32_t max_sequence_length = 0;  // prompt + output tokens
  int32_t max_beam_width = 1;
  int32_t num_blocks = 0;
  int32_t tokens_per_block = 32;
  bool enable_reuse = true;
  bool enable_partial_reuse = true;
  int32_t num_host_blocks = 0;
  int32_t offload_min_priority = 30;
  int32_t event_buffer_size = 0;
  int32_t attention_window = 0;  // positions a token sees, itself included; 0 = all
  int32_t sink_tokens = 0;       // leading positions that stay visible beyond the window
  SchedulerConfig policy;        // kSwap needs enable_reuse and num_host_blocks > 0
};

// One beam so far, or one finished hypothesis.
struct BeamNews {
  std::vector<TokenId> tokens;   // all generated ones
  std::vector<float> log_probs;  // of each; empty unless OutputConfig::return_log_probs
  float cum_log_prob = 0;        // their sum
  FinishReason reason = FinishReason::kNotFinished;
};

// What the client should see of one sequence after an event. Each accepted sequence gets exactly
// one with `finished`.
struct RowNews {
  RequestId id = 0;
  std::vector<TokenId> tokens;   // new output, in order; none with beams
  std::vector<float> log_probs;  // of `tokens`; empty unless OutputConfig::return_log_probs
  std::vector<std::vector<TokenLogProb>> top_log_probs;  // of `tokens`, likeliest first; empty
                                                         // unless OutputConfig::num_top_log_probs
  float sum_log_prob = 0;       // of `tokens`, never normalised: to be added to cum_log_prob
  std::vector<BeamNews> beams;  // with beams: all that are returned, best first; empty: no change
  bool finished = false;
  FinishReason reason = FinishReason::kNotFinished;  // set when finished without an error
  Status status;                                     // not OK: it failed; implies finished
  RequestMetrics metrics;                            // set when finished; without token times

  bool empty() const { return tokens.empty() && beams.empty() && !finished; }
};

// Counts since construction, except the first group.
struct SchedulerStats {
  int64_t num_running = 0, num_waiting = 0, num_paused = 0;  // paused: of the waiting ones
  int64_t blocks_total = 0, blocks_free = 0;
  int64_t host_blocks_total = 0, host_blocks_free = 0;
  int64_t blocks_reused = 0, blocks_missed = 0, num_preemptions = 0;
  int64_t blocks_allocated = 0, blocks_allocated_new = 0;  // with and without hits
  int64_t blocks_offloaded = 0, blocks_onboarded = 0;
  int64_t prompt_tokens =
      0;  // prompt positions planned, again after a preemption, without prefix hits
  int64_t generated_tokens = 0;  // kept output tokens
  int64_t num_finished = 0, num_cancelled = 0, num_timed_out = 0, num_failed = 0;
  int64_t num_started = 0;   // sequences that got their first row
  Duration queue_time = {};  // sum over those, from arrival to that row's plan
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

  // Queues the sequences of one request, all or none. InvalidArgument: can never run, with the
  // numbers (see validate); ResourceExhausted: queue full.
  Status submit(std::vector<SequenceSpec> group);
  Status submit(SequenceSpec spec);

  // The part of submit() that depends on nothing but the limits; for any thread.
  static Status validate(const Limits& limits, int64_t num_prompt_tokens, int32_t max_new_tokens,
                         int32_t beam_width = 1, int32_t num_sequences = 1);

  // The rows of the next step, oldest sequence first; empty when there is nothing to do before the
  // next commit.
  StepPlan plan(Time now);

  // The device has finished `row`; `drawn` is what it drew, null when the row does not sample. With
  // beams the news comes with the last beam's row.
  RowNews commit(const Row& row, const Drawn* drawn);

  // This row's result is no good (logits that are not finite): its sequence ends with `status` and
  // nothing of it is reused.
  RowNews abort(const Row& row, const Status& status);

  // The device failed the whole step: stands for commit() or abort() of all its rows. Their
  // sequences end with `status`, all others start over from their known tokens, and the prefix
  // cache is emptied: the step may have moved any block.
  std::vector<RowNews> fail(const StepPlan& plan, const Status& status);

  // Ends a sequence: by the client, or because a stop string was found in its text. No value:
  // unknown or already ended.
  std::optional<RowNews> cancel(RequestId id) { return end(id, FinishReason::kCancelled); }
  std::optional<RowNews> stop(RequestId id) { return end(id, FinishReason::kStopWords); }
  std::vector<RowNews> cancel_all();

  // Ends all sequences whose deadline has passed, waiting or running, with kTimedOut.
  std::vector<RowNews> expire(Time now);

  // Changes of the prefix cache since the last call, oldest first.
  std::vector<KvCacheEvent> take_events();

  // Every live sequence by id; `scheduled`: it has a row in flight.
  std::vector<RequestStats> request_stats() const;

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
