// The scheduler: plans the rows of each step (continuous batching with chunked prefill, prefix
// cache, beam search, priorities, deadlines, preemption).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/status.h"
#include "nereid/stats.h"
#include "sched/block_pool.h"
#include "sched/capacity.h"
#include "sched/sequence.h"
#include "sched/step_plan.h"
#include "sched/update.h"

namespace nereid::sched {

// Pure host logic for one thread. A plan may be launched before earlier ones are committed: the
// next token of a sequence may be known to the device only. Rows are committed or aborted in the
// order in which they were planned.
//
// Live sequences are ordered by (priority, place); a request's first sequences have the place of
// its arrival. The first sequence is never preempted and can always take what it needs, so every
// plan makes progress; README.md has the bounds.
class Scheduler {
 public:
  // Sequence i >= kSequencesInPlace of a request is placed behind (i - kSequencesInPlace + 1) *
  // kRequestsBetween later requests.
  static constexpr uint64_t kSequencesInPlace = 4, kRequestsBetween = 8;
  // The place of sequence `index` of request number `serial`; unique.
  static constexpr uint64_t order_key(uint64_t serial, uint64_t index) {
    const uint64_t beyond = index < kSequencesInPlace ? 0 : index - kSequencesInPlace + 1;
    return ((serial + beyond * kRequestsBetween) << 24) + index;
  }
  // Maximum number of plans for which a sequence waits for pending prefix blocks.
  static constexpr int32_t kMaxReuseDelays = 256;

  explicit Scheduler(const Limits& limits);  // every limit > 0

  // Queues all sequences of one request or none. InvalidArgument: it can never run (validate());
  // ResourceExhausted: the queue is full.
  Status submit(std::vector<SequenceSpec> group);
  Status submit(SequenceSpec spec);

  // The checks of submit() that depend on the limits only; thread-safe.
  static Status validate(const Limits& limits, int64_t num_prompt_tokens, int32_t max_new_tokens,
                         int32_t beam_width = 1, int32_t num_sequences = 1) {
    return check_demand(limits, num_prompt_tokens, max_new_tokens, beam_width, num_sequences);
  }

  // The rows of the next step; empty: nothing to do before the next commit(), onboarded() or
  // release(). Sum of their logits <= Limits::num_logits_rows(). `former`: a finished plan whose
  // memory is reused.
  StepPlan plan(Time now, StepPlan former = {});

  // Most prefill tokens of a step while running sequences decode (they wait for the whole step); at
  // least a block. 0 = no limit, and also without chunked context.
  void limit_prefill(int32_t num_tokens) { prefill_limit_ = num_tokens; }
  int32_t prefill_limit() const { return prefill_limit_; }

  // Called in plan() for sequences with an adapter until it returns true; before that they get no
  // rows. Null (default): adapters are always loaded.
  void set_adapter_check(std::function<bool(uint64_t adapter)> is_there) {
    is_adapter_there_ = std::move(is_there);
  }

  // Draft tokens: proposals for the positions after the tokens on the host. The next row that
  // samples computes them as far as step and memory have room, once the host has all tokens.
  // Ignored for ended sequences and beam search.
  // `parents` (draft tree): parents[i] < i is the draft before draft i, -1 the last known token;
  // siblings differ. Empty: a chain.
  void draft(RequestId id, std::span<const TokenId> tokens, std::span<const int32_t> parents = {});

  // `row` has completed. `drawn`: empty if the row does not sample, else the accepted drafts (of a
  // tree: a path, moved by the device to the row's first positions) and one more token. The
  // positions of rejected drafts are released. Beam search: the last beam's row has the update.
  SequenceUpdate commit(const ScheduledRow& row, std::span<const SampledTokens> drawn);

  // The result of `row` is unusable (logits not finite): the sequence ends with `status`, and its
  // blocks are not reused.
  SequenceUpdate abort(const ScheduledRow& row, const Status& status);

  // The tokens of `row` are discarded because its grammar mask was missing; hold() was called
  // before later rows of the sequence were planned. The last known token is computed again.
  SequenceUpdate undrawn(const ScheduledRow& row);

  // No row of the sequence is planned while it is held (hold() calls > release() calls); others
  // overtake it. Ignored for ended sequences.
  void hold(RequestId id);
  void release(RequestId id);
  int32_t num_held() const { return num_held_; }

  // The device failed the whole step: replaces commit() or abort() of all its rows. Their sequences
  // end with `status`, all others restart from their known tokens, and the prefix cache is emptied,
  // because the step may have moved any block.
  std::vector<SequenceUpdate> fail(const StepPlan& plan, const Status& status);

  // Ends the onboards of the oldest plan that has some and was not ended yet, whether or not its
  // step was launched. Not OK: sequences with these blocks restart from their known tokens.
  void onboarded(const Status& status);

  // Ends a sequence: cancelled by the client, or at a stop string. No value: unknown or ended.
  std::optional<SequenceUpdate> cancel(RequestId id) { return end(id, FinishReason::kCancelled); }
  std::optional<SequenceUpdate> stop(RequestId id) { return end(id, FinishReason::kStopWords); }
  // Ends a sequence with an error.
  std::optional<SequenceUpdate> refuse(RequestId id, const Status& status) {
    return end(id, FinishReason::kNotFinished, status);
  }
  std::vector<SequenceUpdate> cancel_all();

  // The device is lost: ends all sequences with `status`. Rows in flight are still committed or
  // aborted, without updates.
  std::vector<SequenceUpdate> fail_all(const Status& status);

  // Ends all sequences past their deadline with kTimedOut.
  std::vector<SequenceUpdate> expire(Time now);

  // Changes of the prefix cache since the last call, oldest first.
  std::vector<KvCacheEvent> take_events() { return pool_.take_events(); }

  // All live sequences by id; `scheduled`: has a row in flight.
  std::vector<RequestStats> request_stats() const;

  // All live sequences, by id.
  std::vector<SequenceState> sequences() const;

  PrefixTreeOutline prefix_tree() const { return pool_.outline(); }

  // The sequences with slots and blocks, in order.
  std::span<const Sequence* const> running() const { return running_; }

  bool idle() const { return sequences_.empty(); }    // no sequence waits, runs or is in flight
  int32_t num_queued() const { return num_queued_; }  // accepted, never started
  const Limits& limits() const { return limits_; }
  SchedulerStats stats() const;
  const EncoderCache& encoder_cache() const { return encoders_; }

  // Pool audit: ends the process unless blocks, slots and rows add up. Callable at any time.
  void check() const;

 private:
  Status check_encoder_inputs(const SequenceSpec& spec) const;
  Status check_whole_spans(const SequenceSpec& spec) const;
  struct Before {
    bool operator()(const Sequence* a, const Sequence* b) const { return a->before(*b); }
  };
  // The part of a step's tokens for a sequence with more than one token to compute.
  struct Share {
    Sequence* sequence = nullptr;
    int32_t wanted = 0;      // tokens left to compute
    int32_t num_tokens = 0;  // tokens granted
  };
  enum class Admission { kAdmitted, kSkipped, kNoRoom };

  // scheduler.cc: life of a sequence
  std::optional<SequenceUpdate> end(RequestId id, FinishReason reason, const Status& status = ok());
  std::vector<SequenceUpdate> end_all(FinishReason reason, const Status& status);
  void finish(Sequence& sequence, FinishReason reason, const Status& status,
              SequenceUpdate& update);
  void take_token(Sequence& sequence, const SampledTokens& drawn, SequenceUpdate& update);
  void advance_beams(Sequence& sequence, SequenceUpdate& update);
  void branch(Sequence& sequence, size_t num_old);
  Sequence& completed(const ScheduledRow& row);
  void publish(Sequence& sequence);
  void drop_unseen(Sequence& sequence);
  void add_pending(Sequence& sequence);
  void remove_pending(Sequence& sequence, int32_t to);
  bool may_pause() const {
    return limits_.policy.capacity_policy == CapacityPolicy::kMaxUtilization;
  }
  void pause(Sequence& sequence);
  void release_if_drained(Sequence& sequence);
  void release_memory(Sequence& sequence);

  // planner.cc: one step
  static bool may_go_on(const Sequence& s) {
    return s.running() && !s.draining() && !s.arriving_ && !s.awaits_adapter_ && s.holds_ == 0;
  }
  static bool can_go_on(const Sequence& s) { return may_go_on(s) && num_ready(s) > 0; }
  static int32_t num_ready(const Sequence& s);
  bool has_adapter(const Sequence& s) const {
    return s.spec_.adapter == 0 || !is_adapter_there_ || is_adapter_there_(s.spec_.adapter);
  }
  void sort_running();
  int32_t max_step_tokens() const;
  int32_t prefill_room(const StepPlan& plan) const;
  void pass_inputs();
  void plan_encodes(StepPlan& plan);
  bool hold_result(Sequence& sequence, size_t input);
  bool take_result_behind(const Sequence& sequence);
  void drop_result(Sequence& sequence, size_t input);
  void plan_decodes(StepPlan& plan);
  void plan_shares(StepPlan& plan);
  static const WholeSpan* span_around(const Sequence& s, int32_t end);
  static int32_t whole_end(const Sequence& s, int32_t start, int32_t end);
  static int32_t whole_part(const Share& share, int32_t num_tokens, int32_t most);
  void share_in_turn(int32_t budget, int32_t most);
  void share_equally(int32_t budget, int32_t most);
  bool may_chunk(const Share& share) const;
  bool make_room(Sequence& sequence, int32_t num_tokens);
  bool reserve(Sequence& sequence, int32_t num_tokens);
  Sequence& last_to_serve() const;
  void add_rows(StepPlan& plan, Sequence& sequence, int32_t num_tokens);
  void plan_drafts(StepPlan& plan);
  int32_t num_drafts_for(const Sequence& sequence, const ScheduledRow& row, int32_t most) const;

  // admission.cc: from waiting to running
  void admit_waiting(const StepPlan& plan, Time now);
  // With a window, a block shared by several holders stays taken when one of them releases it; the
  // worst-case accounting of GUARANTEED_NO_EVICT cannot bound that.
  bool may_share() const { return !limits_.any_window() || may_pause(); }
  bool goes_before_running(const Sequence& sequence) const;
  bool pause_for(const Sequence& sequence);
  Admission try_admit(Sequence& sequence, Time now);
  Admission try_admit_tokens(Sequence& sequence, Time now);
  bool hold_lasting_results(Sequence& sequence);
  void drop_results(Sequence& sequence);
  bool has_place_for_adapter(const Sequence& sequence) const;
  bool admit(Sequence& sequence, PrefixHit& hit, const Contents& contents);
  const Sequence* live_leader(const Sequence& sequence) const;
  int32_t num_settled(const Sequence& sequence) const;
  bool can_fork(const Sequence& leader) const;
  bool fork(const Sequence& leader, Sequence& sequence);
  bool still_delayed(Sequence& sequence) const;
  bool is_delayed(Sequence& sequence, const PrefixHit& hit, const Contents& contents) const;
  std::vector<Reservation> reservations(const Sequence& sequence, int32_t num_cached) const;
  int32_t headroom_for(const Sequence& sequence, size_t group, int32_t num_tokens) const;
  int32_t blocks_to_come(const Sequence& sequence, size_t group) const;
  void make_room_to_grow(Sequence& sequence);
  void start(Sequence& sequence, int32_t num_cached, Time now);

  const Limits limits_;
  std::function<bool(uint64_t adapter)> is_adapter_there_;
  BlockPool pool_;
  EncoderCache encoders_;
  absl::flat_hash_map<RequestId, std::unique_ptr<Sequence>> sequences_;  // owner
  std::vector<Sequence*> running_;       // in order; with slots and blocks
  std::set<Sequence*, Before> waiting_;  // without slots and blocks
  std::set<std::pair<Time, RequestId>> deadlines_;
  absl::flat_hash_map<BlockKey, int32_t> pending_blocks_;  // pending prefix block -> number of
                                                           // sequences computing it
  std::vector<int32_t> free_slots_;
  uint64_t num_requests_ = 0;  // submitted requests
  uint64_t serial_ = 0;        // number of the plan being made
  int32_t num_queued_ = 0;     // part of waiting_: never started
  int32_t num_inflight_ = 0;   // rows planned and not yet committed or aborted
  int32_t num_draining_ = 0;   // part of running_
  int32_t num_arriving_ = 0;   // part of running_
  int32_t num_held_ = 0;       // part of sequences_
  int32_t prefill_limit_ = 0;  // tokens, see limit_prefill()
  SchedulerStats stats_;

  // State of the plan being made.
  bool decodes_wait_ = false;  // a running sequence decodes, in this step or behind it
  bool short_of_memory_ = false;
  bool first_sat_out_ = false;       // running_.front() lacked memory
  bool first_sat_out_last_ = false;  // the same in the plan before
  std::vector<Sequence*> decodes_;
  std::vector<Share> shares_;
};

}  // namespace nereid::sched
