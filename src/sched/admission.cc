// Scheduler: who is let in, and by which accounting of blocks.
#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "sched/scheduler.h"

namespace nereid::sched {

// Admits in order; no sequence passes one for which there is no room. When the first of those that
// run had no row in the last plan for lack of memory, none is admitted before it has one: a
// newcomer that waits for blocks from the host could not give back at once what it took.
void Scheduler::admit_waiting(const StepPlan& plan, Time now) {
  const bool is_static = limits_.policy.capacity_policy == CapacityPolicy::kStaticBatch;
  if (first_sat_out_last_ && !running_.empty() && can_go_on(*running_.front())) return;
  if (short_of_memory_ || waiting_.empty() || (is_static && !running_.empty())) return;
  const bool equal = limits_.policy.chunking_policy == ChunkingPolicy::kEqualProgress;
  const auto claim = [&](int32_t wanted) {
    return equal ? std::min(wanted, limits_.tokens_per_block) : wanted;
  };
  int64_t left = limits_.max_num_tokens - plan.num_tokens;
  for (const Share& share : shares_) left -= claim(share.wanted);
  int32_t num_skipped = 0;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    Sequence& sequence = **it++;  // admission takes it out of the set
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
    left -= claim(wanted);
  }
}

bool Scheduler::goes_before_running(const Sequence& sequence) const {
  return may_pause() && !running_.empty() && sequence.before(*running_.back());
}

// Pauses the last running sequence if it comes after `sequence`; true when memory is back at once.
bool Scheduler::pause_for(const Sequence& sequence) {
  if (num_draining_ > 0 || !goes_before_running(sequence)) return false;
  Sequence* victim = running_.back();
  std::erase_if(shares_, [&](const Share& share) { return share.sequence == victim; });
  pause(*victim);
  return num_draining_ == 0;
}

Scheduler::Admission Scheduler::try_admit(Sequence& sequence, Time now) {
  const Sequence* leader = live_leader(sequence);
  if (leader && settled(*leader) < sequence.num_prompt_) return Admission::kSkipped;
  const bool forks = leader && can_fork(*leader);
  if (!forks && still_delayed(sequence)) return Admission::kSkipped;
  if (free_slots_.size() < sequence.lanes_.size()) return Admission::kNoRoom;
  if (!has_place_for_adapter(sequence)) return Admission::kNoRoom;
  const PoolStats before = pool_.stats();
  PrefixHit hit;
  if (forks) {
    if (!fork(*leader, sequence)) return Admission::kNoRoom;
    hit.num_tokens = sequence.num_prompt_ - 1;
  } else {
    Contents contents = sequence.contents();
    // The last token is always computed, or there would be no logits.
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
    // A prompt that sequences of one request share counts as its first one found it.
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
  BlockTable& table = sequence.lanes_[0].table;
  if (pool_.admit(table, hit, contents, claims(sequence, hit.num_tokens))) return true;
  // A cached prefix can be longer than group 0 has room for beside it; its window never is.
  if (limits_.groups[0].window == 0 || !running_.empty() || hit.num_tokens == 0) return false;
  hit = {};
  return pool_.admit(table, hit, contents, claims(sequence, 0));
}

// Blocks for the whole known text; in a group with a sliding window, for its first chunk.
std::vector<Claim> Scheduler::claims(const Sequence& sequence, int32_t num_cached) const {
  std::vector<Claim> all;
  for (size_t g = 0; g < limits_.groups.size(); ++g) {
    int32_t through = sequence.length();
    if (limits_.groups[g].window > 0)
      through = std::min(through, num_cached + limits_.max_num_tokens);
    all.push_back({.num_tokens = through, .headroom = headroom_for(sequence, g, through)});
  }
  return all;
}

// The sequence whose prompt `sequence` will share, if it is still there.
const Sequence* Scheduler::live_leader(const Sequence& sequence) const {
  if (sequence.spec_.leader == 0 || sequence.started_ || !may_share()) return nullptr;
  const auto found = sequences_.find(sequence.spec_.leader);
  if (found == sequences_.end()) return nullptr;
  const Sequence& leader = *found->second;
  return leader.stopped_ || !leader.before(sequence) ? nullptr : &leader;
}

// Positions that steps before this one compute.
int32_t Scheduler::settled(const Sequence& sequence) const {
  return sequence.planned_at_ == serial_ ? sequence.planned_from_ : sequence.computed_;
}

// With a sliding window the leader may have given back what the prompt's last token sees.
bool Scheduler::can_fork(const Sequence& leader) const {
  if (!can_go_on(leader)) return false;
  for (size_t g = 0; g < limits_.groups.size(); ++g) {
    const int32_t seen = limits_.groups[g].first_seen(leader.num_prompt_ - 1);
    if (leader.lanes_[0].table.groups[g].num_passed > seen / limits_.tokens_per_block) return false;
  }
  return true;
}

// All of the prompt but its last token is shared; the block that this one goes to is its own.
bool Scheduler::fork(const Sequence& leader, Sequence& sequence) {
  const int32_t num_prompt = sequence.num_prompt_;
  for (size_t g = 0; g < limits_.groups.size(); ++g)
    if (pool_.num_free(g) < 1 + headroom_for(sequence, g, num_prompt)) return false;
  BlockTable& table = sequence.lanes_[0].table;
  table = pool_.fork(leader.lanes_[0].table, num_prompt - 1);
  NEREID_CHECK(pool_.reserve(table, num_prompt - 1, num_prompt));
  return true;
}

bool Scheduler::still_delayed(Sequence& sequence) const {
  return sequence.awaited_ != 0 && announced_.contains(sequence.awaited_) &&
         ++sequence.num_delays_ <= kMaxReuseDelays;
}

// Prompts that arrive together are computed once: the second waits for the blocks that the first is
// computing. Only new sequences wait, and not for ever.
bool Scheduler::is_delayed(Sequence& sequence, const PrefixHit& hit,
                           const Contents& contents) const {
  sequence.awaited_ = 0;
  if (sequence.started_ || sequence.wants_all_logits() || announced_.empty()) return false;
  const size_t missing = hit.blocks.size();
  if (missing >= contents.tokens.size() / static_cast<size_t>(limits_.tokens_per_block))
    return false;
  sequence.awaited_ = contents.keys[missing];
  return still_delayed(sequence);
}

// Device blocks that must stay free beside the `num_tokens` positions that are taken now.
int32_t Scheduler::headroom_for(const Sequence& sequence, size_t group, int32_t num_tokens) const {
  // Each running beam may grow, or else the newcomer would soon be paused again.
  if (may_pause()) return limits_.max_batch_size - static_cast<int32_t>(free_slots_.size());
  int64_t headroom = std::max(0, sequence.worst_blocks_[group] - pool_.blocks_for(num_tokens));
  for (const Sequence* other : running_) headroom += blocks_to_come(*other, group);
  return static_cast<int32_t>(std::min<int64_t>(headroom, INT32_MAX));
}

// What `sequence` can still come to need beyond the blocks that it holds.
int32_t Scheduler::blocks_to_come(const Sequence& sequence, size_t group) const {
  int64_t held = static_cast<int64_t>(sequence.block_table(0, group).size());
  if (sequence.num_lanes() > 1 || limits_.groups[group].window > 0) {
    std::vector<BlockId> distinct;
    for (int32_t i = 0; i < sequence.num_lanes(); ++i)
      std::ranges::copy_if(sequence.block_table(i, group), std::back_inserter(distinct),
                           [](BlockId id) { return id != kNoBlock; });
    std::ranges::sort(distinct);
    held = std::ranges::unique(distinct).begin() - distinct.begin();
  }
  return static_cast<int32_t>(std::max<int64_t>(0, sequence.worst_blocks_[group] - held));
}

// Host memory for all that the sequence may become, so that its steps take none.
void Scheduler::make_room_to_grow(Sequence& sequence) {
  const auto limit = static_cast<size_t>(sequence.limit_);
  const size_t num_blocks = limit / static_cast<size_t>(limits_.tokens_per_block) + 1;
  sequence.tokens_.reserve(limit);
  sequence.keys_.reserve(num_blocks);
  for (Sequence::Lane& lane : sequence.lanes_)
    for (BlockTable::Group& group : lane.table.groups) group.blocks.reserve(num_blocks);
}

void Scheduler::start(Sequence& sequence, int32_t num_cached, Time now) {
  waiting_.erase(&sequence);
  running_.insert(std::ranges::upper_bound(running_, &sequence, Before()), &sequence);
  for (Sequence::Lane& lane : sequence.lanes_) {
    lane.slot = free_slots_.back();
    free_slots_.pop_back();
  }
  sequence.computed_ = sequence.committed_ = num_cached;
  sequence.awaits_adapter_ = !has_adapter(sequence);
  make_room_to_grow(sequence);
  announce(sequence);
  sequence.arriving_ = pool_.is_arriving(sequence.lanes_[0].table);
  if (sequence.arriving_) {
    ++num_arriving_;  // none of its blocks is given back before they are there
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
