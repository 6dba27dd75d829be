// Decides what each step computes: continuous batching with chunked prompts, prefix reuse, beams,
// priorities, deadlines and pauses.
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
#include "sched/news.h"
#include "sched/sequence.h"
#include "sched/step_plan.h"

namespace nereid::sched {

// Pure host logic for one thread. Plans may be launched before earlier ones are committed: a
// sequence's next token may then be known only to the device. Rows must be committed or aborted in
// the order in which they were planned.
//
// All live sequences have one order: priority, then place, which is the age of their request for
// its first sequences. The first of all is never paused and can always take what it needs, so every
// plan moves something forward; README.md has the bounds.
class Scheduler {
 public:
  // Each sequence of a request beyond the first kSequencesInPlace has its place behind
  // kRequestsBetween more of the requests that come later.
  static constexpr uint64_t kSequencesInPlace = 4, kRequestsBetween = 8;
  // Of sequence `index` of the request that came as number `serial`; no two are equal.
  static constexpr uint64_t place_of(uint64_t serial, uint64_t index) {
    const uint64_t beyond = index < kSequencesInPlace ? 0 : index - kSequencesInPlace + 1;
    return ((serial + beyond * kRequestsBetween) << 24) + index;
  }
  // Plans that a sequence waits, in all, for prompt blocks that others are computing.
  static constexpr int32_t kMaxReuseDelays = 256;

  explicit Scheduler(const Limits& limits);  // every limit > 0

  // Queues the sequences of one request, all or none. InvalidArgument: can never run, with the
  // numbers (see validate); ResourceExhausted: queue full.
  Status submit(std::vector<SequenceSpec> group);
  Status submit(SequenceSpec spec);

  // The part of submit() that depends on nothing but the limits; for any thread.
  static Status validate(const Limits& limits, int64_t num_prompt_tokens, int32_t max_new_tokens,
                         int32_t beam_width = 1, int32_t num_sequences = 1) {
    return check_demand(limits, num_prompt_tokens, max_new_tokens, beam_width, num_sequences);
  }

  // The rows of the next step; empty when there is nothing to do before the next commit(),
  // onboarded() or release(). Their logits, context logits included, are at most
  // Limits::num_logits_rows(). `former`: a plan that is over, whose memory is used again.
  StepPlan plan(Time now, StepPlan former = {});

  // Asked in plan() about the adapters of sequences that hold memory, until it says that they are
  // there: before that they have no rows. Null, as at first: adapters are always there.
  void set_adapter_check(std::function<bool(uint64_t adapter)> is_there) {
    is_adapter_there_ = std::move(is_there);
  }

  // Guesses what a sequence says after the tokens that the host knows. Its next row that samples
  // computes them too, as far as the step and its memory have room; it is planned when the host
  // knows all tokens. Ignored for those that have ended and for searches.
  // `parents`: of a tree, for each draft the number of the one it comes after, below its own, or -1
  // for the tokens known; drafts after the same one differ. Empty: each comes after the one before.
  void draft(RequestId id, std::span<const TokenId> tokens, std::span<const int32_t> parents = {});

  // The device has finished `row`; `drawn` is what it drew, empty when the row does not sample,
  // else the tokens of the drafts that hold (of a tree a path, which the device has brought to the
  // row's first positions) and one more. The positions of the other drafts are taken back. With
  // beams the news comes with the last beam's row.
  RowNews commit(const Row& row, std::span<const Drawn> drawn);

  // This row's result cannot be used (logits that are not finite): its sequence ends with `status`
  // and nothing of it is reused.
  RowNews abort(const Row& row, const Status& status);

  // What this row drew is not to be used, as its mask was not known; hold() was called before later
  // rows of its sequence could be planned. The last known token is computed again.
  RowNews undrawn(const Row& row);

  // No row of the sequence is planned until each hold() was released; others go past it. Ignored
  // for those that have ended.
  void hold(RequestId id);
  void release(RequestId id);
  int32_t num_held() const { return num_held_; }

  // The device failed the whole step: stands for commit() or abort() of all its rows. Their
  // sequences end with `status`, all others start over from their known tokens, and the prefix
  // cache is emptied: the step may have moved any block.
  std::vector<RowNews> fail(const StepPlan& plan, const Status& status);

  // The onboards of the first plan that has some and for which this was not called have ended, also
  // where the plan's step was never launched. Not OK: those that wait for their blocks start over
  // from known tokens.
  void onboarded(const Status& status);

  // Ends a sequence: by the client, or because a stop string was found in its text. No value:
  // unknown or already ended.
  std::optional<RowNews> cancel(RequestId id) { return end(id, FinishReason::kCancelled); }
  std::optional<RowNews> stop(RequestId id) { return end(id, FinishReason::kStopWords); }
  // The same for one that cannot go on.
  std::optional<RowNews> refuse(RequestId id, const Status& status) {
    return end(id, FinishReason::kNotFinished, status);
  }
  std::vector<RowNews> cancel_all();

  // There is no device any more: ends all sequences with `status`. Rows in flight are still
  // committed or aborted, without news.
  std::vector<RowNews> fail_all(const Status& status);

  // Ends all sequences whose deadline has passed, waiting or running, with kTimedOut.
  std::vector<RowNews> expire(Time now);

  // Changes of the prefix cache since the last call, oldest first.
  std::vector<KvCacheEvent> take_events() { return pool_.take_events(); }

  // Every live sequence by id; `scheduled`: it has a row in flight.
  std::vector<RequestStats> request_stats() const;

  // The sequences that hold memory, in order.
  std::span<const Sequence* const> running() const { return running_; }

  bool idle() const { return sequences_.empty(); }    // nothing waits, runs or is in flight
  int32_t num_queued() const { return num_queued_; }  // accepted and never started
  const Limits& limits() const { return limits_; }
  SchedulerStats stats() const;

  // Proves that blocks, slots and rows add up; ends the process when they do not. Callable at any
  // time.
  void check() const;

 private:
  struct Before {
    bool operator()(const Sequence* a, const Sequence* b) const { return a->before(*b); }
  };
  // A sequence that has more than one token to compute, or was just admitted.
  struct Share {
    Sequence* sequence = nullptr;
    int32_t wanted = 0;      // tokens it could use in this step
    int32_t num_tokens = 0;  // tokens it gets
  };
  enum class Admission { kAdmitted, kSkipped, kNoRoom };

  // scheduler.cc: life of a sequence
  std::optional<RowNews> end(RequestId id, FinishReason reason, const Status& status = ok());
  std::vector<RowNews> end_all(FinishReason reason, const Status& status);
  void finish(Sequence& sequence, FinishReason reason, const Status& status, RowNews& news);
  void take_token(Sequence& sequence, const Drawn& drawn, RowNews& news);
  void advance_beams(Sequence& sequence, RowNews& news);
  void branch(Sequence& sequence, size_t num_old);
  Sequence& landed(const Row& row);
  void publish(Sequence& sequence);
  void drop_unseen(Sequence& sequence);
  void announce(Sequence& sequence);
  void retract(Sequence& sequence, int32_t to);
  bool may_pause() const {
    return limits_.policy.capacity_policy == CapacityPolicy::kMaxUtilization;
  }
  void pause(Sequence& sequence);
  void release_if_drained(Sequence& sequence);
  void release_memory(Sequence& sequence);

  // planner.cc: one step
  static bool can_go_on(const Sequence& s) {
    return s.running() && !s.draining() && !s.arriving_ && !s.awaits_adapter_ && s.holds_ == 0;
  }
  bool has_adapter(const Sequence& s) const {
    return s.spec_.adapter == 0 || !is_adapter_there_ || is_adapter_there_(s.spec_.adapter);
  }
  void sort_running();
  void plan_decodes(StepPlan& plan);
  void plan_shares(StepPlan& plan);
  void share_in_turn(int32_t budget);
  void share_equally(int32_t budget);
  bool may_chunk(const Share& share) const;
  bool make_room(Sequence& sequence, int32_t num_tokens);
  bool reserve(Sequence& sequence, int32_t num_tokens);
  Sequence& last_to_serve() const;
  void add_rows(StepPlan& plan, Sequence& sequence, int32_t num_tokens);
  void plan_drafts(StepPlan& plan);
  int32_t num_drafts_for(const Sequence& sequence, const Row& row, int32_t most) const;

  // admission.cc: from waiting to running
  void admit_waiting(const StepPlan& plan, Time now);
  // With a window a shared block that one holder gives back does not come free, which the worst
  // case of those that may not be paused would have to count on.
  bool may_share() const { return !limits_.any_window() || may_pause(); }
  bool goes_before_running(const Sequence& sequence) const;
  bool pause_for(const Sequence& sequence);
  Admission try_admit(Sequence& sequence, Time now);
  bool has_place_for_adapter(const Sequence& sequence) const;
  bool admit(Sequence& sequence, PrefixHit& hit, const Contents& contents);
  const Sequence* live_leader(const Sequence& sequence) const;
  int32_t settled(const Sequence& sequence) const;
  bool can_fork(const Sequence& leader) const;
  bool fork(const Sequence& leader, Sequence& sequence);
  bool still_delayed(Sequence& sequence) const;
  bool is_delayed(Sequence& sequence, const PrefixHit& hit, const Contents& contents) const;
  std::vector<Claim> claims(const Sequence& sequence, int32_t num_cached) const;
  int32_t headroom_for(const Sequence& sequence, size_t group, int32_t num_tokens) const;
  int32_t blocks_to_come(const Sequence& sequence, size_t group) const;
  void make_room_to_grow(Sequence& sequence);
  void start(Sequence& sequence, int32_t num_cached, Time now);

  const Limits limits_;
  std::function<bool(uint64_t adapter)> is_adapter_there_;
  BlockPool pool_;
  absl::flat_hash_map<RequestId, std::unique_ptr<Sequence>> sequences_;  // owns; each runs or waits
  std::vector<Sequence*> running_;       // in order; hold slots and blocks
  std::set<Sequence*, Before> waiting_;  // hold nothing
  std::set<std::pair<Time, RequestId>> deadlines_;
  absl::flat_hash_map<BlockKey, int32_t> announced_;  // by how many the block is being computed
  std::vector<int32_t> free_slots_;
  uint64_t num_requests_ = 0;  // submitted ones
  uint64_t serial_ = 0;        // of the plan that is being made
  int32_t num_queued_ = 0;     // of waiting_, those that never started
  int32_t num_inflight_ = 0;   // rows planned and not yet committed or aborted
  int32_t num_draining_ = 0;   // of running_
  int32_t num_arriving_ = 0;   // of running_
  int32_t num_held_ = 0;       // of sequences_
  SchedulerStats stats_;

  // State of the plan that is being made.
  bool short_of_memory_ = false;
  bool first_sat_out_ = false;       // the first of running_, for lack of memory
  bool first_sat_out_last_ = false;  // in the plan before
  std::vector<Sequence*> decodes_;
  std::vector<Share> shares_;
};

}  // namespace nereid::sched
