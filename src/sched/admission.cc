// Scheduler: admission of waiting sequences, and the block accounting of each capacity policy.
#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "sched/scheduler.h"

namespace nereid::sched {

// Waiting sequences are admitted in order; none overtakes one that lacks room. If the first running
// sequence got no row in the last plan for lack of memory, no sequence is admitted before it has
// one: a newcomer whose blocks arrive from the host pool cannot give them back at once.
void Scheduler::admit_waiting(const StepPlan& plan, Time now) {
  const bool is_static = limits_.policy.capacity_policy == CapacityPolicy::kStaticBatch;
  if (first_sat_out_last_ && !running_.empty() && can_go_on(*running_.front())) return;
  if (short_of_memory_ || waiting_.empty() || (is_static && !running_.empty())) return;
  const bool equal = limits_.policy.chunking_policy == ChunkingPolicy::kEqualProgress;
  const auto share_of = [&](int32_t wanted) {
    return equal ? std::min(wanted, limits_.tokens_per_block) : wanted;
  };
  int64_t left = prefill_room(plan);
  for (const Share& share : shares_) left -= share_of(share.wanted);
  int32_t num_skipped = 0;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    Sequence& sequence = **it++;  //     admission erases it from waiting_
    if (sequence.holds_ > 0) continue;
    if (left <= 0 && !is_static) return;
    if (free_slots_.empty() && !goes_before_running(sequence)) return;
    Admission admission = try_admit(sequence, now);
    while (admission == Admission::kNoRoom) {
      if (!pause_for(sequence)) return;
      admission = try_admit(sequence, now);
    }
    if (admission == Admission::kSkipped) {
      if (++num_skipped >= limits_.max_batch_size) return;
      continue;
    }
    if (sequence.arriving_ || sequence.awaits_adapter_) continue;
    const int32_t wanted = sequence.length() - sequence.computed_;
    shares_.push_back({.sequence = &sequence, .wanted = wanted});
    left -= share_of(wanted);
  }
}

bool Scheduler::goes_before_running(const Sequence& sequence) const {
  return may_pause() && !running_.empty() && sequence.before(*running_.back());
}

// Preempts the last running sequence if it comes after `sequence`; true if its memory is free now.
bool Scheduler::pause_for(const Sequence& sequence) {
  if (num_draining_ > 0 || !goes_before_running(sequence)) return false;
  Sequence* victim = running_.back();
  std::erase_if(shares_, [&](const Share& share) { return share.sequence == victim; });
  pause(*victim);
  return num_draining_ == 0;
}

Scheduler::Admission Scheduler::try_admit(Sequence& sequence, Time now) {
  if (!hold_lasting_results(sequence)) {
    drop_results(sequence);  // results of other inputs, held before
    return Admission::kNoRoom;
  }
  const Admission admission = try_admit_tokens(sequence, now);
  if (admission != Admission::kAdmitted) drop_results(sequence);
  return admission;
}

// Holds the results that all of its tokens read. False: no room.
bool Scheduler::hold_lasting_results(Sequence& sequence) {
  const std::vector<EncoderSpec>& inputs = sequence.spec_.encoder_inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].end != EncoderSpec::kAllTokens) continue;
    sequence.results_[i] =
        encoders_.hold(inputs[i].key, inputs[i].num_results, inputs[i].is_private);
    if (!sequence.results_[i]) return false;
  }
  return true;
}

void Scheduler::drop_result(Sequence& sequence, size_t input) {
  if (EncoderCache::Entry* const entry = std::exchange(sequence.results_[input], nullptr))
    encoders_.release(*entry);
}

void Scheduler::drop_results(Sequence& sequence) {
  for (size_t i = 0; i < sequence.results_.size(); ++i) drop_result(sequence, i);
  sequence.next_input_ = 0;
}

Scheduler::Admission Scheduler::try_admit_tokens(Sequence& sequence, Time now) {
  const Sequence* leader = live_leader(sequence);
  if (leader && num_settled(*leader) < sequence.num_prompt_) return Admission::kSkipped;
  const bool forks = leader && can_fork(*leader);
  if (!forks && still_delayed(sequence)) return Admission::kSkipped;
  if (free_slots_.size() < sequence.beam_slots_.size()) return Admission::kNoRoom;
  if (!has_place_for_adapter(sequence)) return Admission::kNoRoom;
  const PoolStats before = pool_.stats();
  PrefixHit hit;
  if (forks) {
    if (!fork(*leader, sequence)) return Admission::kNoRoom;
    hit.num_tokens = sequence.num_prompt_ - 1;
  } else {
    Contents contents = sequence.contents();
    // The last token is always computed: its logits are needed.
    contents.tokens = contents.tokens.first(contents.tokens.size() - 1);
    if (may_share() && !sequence.wants_all_logits()) hit = pool_.match(contents);
    if (is_delayed(sequence, hit, contents)) return Admission::kSkipped;
    if (limits_.renews_last_cached && hit.num_tokens > 0) {
      Contents shorter = contents;
      shorter.tokens = contents.tokens.first(static_cast<size_t>(hit.num_tokens) - 1);
      hit = pool_.match(shorter);
    }
    if (!admit(sequence, hit, contents)) return Admission::kNoRoom;
  }
  const PoolStats& after = pool_.stats();
  sequence.metrics_.allocated_blocks +=
      static_cast<int32_t>(after.alloc_total - before.alloc_total);
  sequence.onboarded_ += static_cast<int32_t>(after.onboarded - before.onboarded);
  if (!sequence.started_) {
    sequence.metrics_.reused_blocks = static_cast<int32_t>(after.reused - before.reused);
    sequence.metrics_.missed_blocks = static_cast<int32_t>(after.missed - before.missed);
    // Sequences of one request that share a prompt report the cached tokens of the first one.
    sequence.metrics_.cached_tokens = forks ? leader->metrics_.cached_tokens : hit.num_tokens;
  }
  start(sequence, hit.num_tokens, now);
  return Admission::kAdmitted;
}

bool Scheduler::has_place_for_adapter(const Sequence& sequence) const {
  if (sequence.spec_.adapter == 0) return true;
  absl::flat_hash_set<uint64_t> adapters = {sequence.spec_.adapter};
  int64_t pages = sequence.spec_.adapter_pages;
  for (const Sequence* other : running_)
    if (other->spec_.adapter != 0 && adapters.insert(other->spec_.adapter).second)
      pages += other->spec_.adapter_pages;
  return std::ssize(adapters) <= limits_.max_adapters && pages <= limits_.max_adapter_pages;
}

bool Scheduler::admit(Sequence& sequence, PrefixHit& hit, const Contents& contents) {
  BlockTable& table = sequence.beam_slots_[0].table;
  if (pool_.admit(table, hit, contents, reservations(sequence, hit.num_tokens))) return true;
  // Hit and window together can exceed the pool of a windowed group 0; the window alone never does.
  if (limits_.groups[0].window == 0 || !running_.empty() || hit.num_tokens == 0) return false;
  hit = {};
  return pool_.admit(table, hit, contents, reservations(sequence, 0));
}

// Blocks for all known tokens; in a group with a sliding window for the first chunk.
std::vector<Reservation> Scheduler::reservations(const Sequence& sequence,
                                                 int32_t num_cached) const {
  std::vector<Reservation> all;
  for (size_t g = 0; g < limits_.groups.size(); ++g) {
    int32_t through = sequence.length();
    if (limits_.groups[g].window > 0)
      through = std::min(through, num_cached + limits_.max_num_tokens);
    all.push_back({.num_tokens = through, .headroom = headroom_for(sequence, g, through)});
  }
  return all;
}

// The live sequence whose prompt `sequence` will share; null: none.
const Sequence* Scheduler::live_leader(const Sequence& sequence) const {
  if (sequence.spec_.leader == 0 || sequence.started_ || !may_share()) return nullptr;
  const auto found = sequences_.find(sequence.spec_.leader);
  if (found == sequences_.end()) return nullptr;
  const Sequence& leader = *found->second;
  return leader.stopped_ || !leader.before(sequence) ? nullptr : &leader;
}

// Positions that steps before the one being planned compute.
int32_t Scheduler::num_settled(const Sequence& sequence) const {
  return sequence.planned_at_ == serial_ ? sequence.planned_from_ : sequence.computed_;
}

// A leader with a sliding window may have released blocks that the prompt's last token reads.
bool Scheduler::can_fork(const Sequence& leader) const {
  if (!can_go_on(leader)) return false;
  for (size_t g = 0; g < limits_.groups.size(); ++g) {
    const int32_t seen = limits_.groups[g].first_seen(leader.num_prompt_ - 1);
    if (leader.beam_slots_[0].table.groups[g].num_passed > seen / limits_.tokens_per_block)
      return false;
  }
  return true;
}

// The prompt but its last token is shared; the block of the last token is copied on write.
bool Scheduler::fork(const Sequence& leader, Sequence& sequence) {
  const int32_t num_prompt = sequence.num_prompt_;
  for (size_t g = 0; g < limits_.groups.size(); ++g)
    if (pool_.num_free(g) < 1 + headroom_for(sequence, g, num_prompt)) return false;
  BlockTable& table = sequence.beam_slots_[0].table;
  table = pool_.fork(leader.beam_slots_[0].table, num_prompt - 1);
  NEREID_CHECK(pool_.reserve(table, num_prompt - 1, num_prompt));
  return true;
}

bool Scheduler::still_delayed(Sequence& sequence) const {
  return sequence.awaited_ != 0 && pending_blocks_.contains(sequence.awaited_) &&
         ++sequence.num_delays_ <= kMaxReuseDelays;
}

// Equal prompts that arrive together are computed once: a new sequence waits, for at most
// kMaxReuseDelays plans, for the blocks that another one is computing.
bool Scheduler::is_delayed(Sequence& sequence, const PrefixHit& hit,
                           const Contents& contents) const {
  sequence.awaited_ = 0;
  if (sequence.started_ || sequence.wants_all_logits() || pending_blocks_.empty()) return false;
  const size_t missing = hit.blocks.size();
  if (missing >= contents.tokens.size() / static_cast<size_t>(limits_.tokens_per_block))
    return false;
  sequence.awaited_ = contents.keys[missing];
  return still_delayed(sequence);
}

// Device blocks that must stay free beside those of `num_tokens` positions.
int32_t Scheduler::headroom_for(const Sequence& sequence, size_t group, int32_t num_tokens) const {
  // One block for each running beam, or the newcomer would soon be preempted.
  if (may_pause()) return limits_.max_batch_size - static_cast<int32_t>(free_slots_.size());
  int64_t headroom = std::max(0, sequence.worst_blocks_[group] - pool_.blocks_for(num_tokens));
  for (const Sequence* other : running_) headroom += blocks_to_come(*other, group);
  return static_cast<int32_t>(std::min<int64_t>(headroom, INT32_MAX));
}

// Blocks that `sequence` can still need: worst case minus held.
int32_t Scheduler::blocks_to_come(const Sequence& sequence, size_t group) const {
  int64_t held = static_cast<int64_t>(sequence.block_table(0, group).size());
  if (sequence.num_beams() > 1 || limits_.groups[group].window > 0) {
    std::vector<BlockId> distinct;
    for (int32_t i = 0; i < sequence.num_beams(); ++i)
      std::ranges::copy_if(sequence.block_table(i, group), std::back_inserter(distinct),
                           [](BlockId id) { return id != kNoBlock; });
    std::ranges::sort(distinct);
    held = std::ranges::unique(distinct).begin() - distinct.begin();
  }
  return static_cast<int32_t>(std::max<int64_t>(0, sequence.worst_blocks_[group] - held));
}

// Reserves host memory up to the sequence's length limit, so that later steps allocate nothing.
void Scheduler::make_room_to_grow(Sequence& sequence) {
  const auto limit = static_cast<size_t>(sequence.limit_);
  const size_t num_blocks = limit / static_cast<size_t>(limits_.tokens_per_block) + 1;
  sequence.tokens_.reserve(limit);
  sequence.keys_.reserve(num_blocks);
  for (Sequence::BeamSlot& beam_slot : sequence.beam_slots_)
    for (BlockTable::Group& group : beam_slot.table.groups) group.blocks.reserve(num_blocks);
}

void Scheduler::start(Sequence& sequence, int32_t num_cached, Time now) {
  waiting_.erase(&sequence);
  running_.insert(std::ranges::upper_bound(running_, &sequence, Before()), &sequence);
  for (Sequence::BeamSlot& beam_slot : sequence.beam_slots_) {
    beam_slot.slot = free_slots_.back();
    free_slots_.pop_back();
  }
  sequence.computed_ = sequence.committed_ = num_cached;
  sequence.awaits_adapter_ = !has_adapter(sequence);
  make_room_to_grow(sequence);
  add_pending(sequence);
  sequence.arriving_ = pool_.is_arriving(sequence.beam_slots_[0].table);
  if (sequence.arriving_) {
    ++num_arriving_;  // its blocks are kept until their copies have ended
  } else {
    drop_unseen(sequence);
  }
  if (sequence.started_) return;
  sequence.started_ = true;
  sequence.metrics_.first_scheduled = now;
  --num_queued_;
  ++stats_.num_started;
  stats_.queue_time += now - sequence.spec_.arrival;
}

}  // namespace nereid::sched
