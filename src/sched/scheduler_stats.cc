// Scheduler: statistics and pool audit.
#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "sched/scheduler.h"

namespace nereid::sched {
namespace {

RequestStage stage_of(bool stopped, bool started, bool in_context) {
  if (stopped) return RequestStage::kGenerationComplete;
  if (!started) return RequestStage::kQueued;
  return in_context ? RequestStage::kContextInProgress : RequestStage::kGenerationInProgress;
}

}  // namespace

std::vector<RequestStats> Scheduler::request_stats() const {
  std::vector<RequestStats> all;
  for (const auto& [id, s] : sequences_) {
    const RequestMetrics& metrics = s->metrics_;
    RequestStats& stats = all.emplace_back();
    stats.id = id;
    stats.stage = stage_of(s->stopped_, s->started_, s->computed_ < s->num_prompt_);
    stats.context_prefill_position = std::min(s->computed_, s->num_prompt_);
    stats.num_generated_tokens = s->num_generated();
    stats.scheduled = s->inflight_ > 0;
    stats.paused = s->started_ && !s->running();
    stats.alloc_total_blocks = metrics.allocated_blocks;
    stats.alloc_new_blocks = metrics.allocated_blocks - s->onboarded_;
    stats.reused_blocks = metrics.reused_blocks;
    stats.missed_blocks = metrics.missed_blocks;
    if (const int32_t looked_up = metrics.reused_blocks + metrics.missed_blocks; looked_up > 0)
      stats.kv_cache_hit_rate = static_cast<double>(metrics.reused_blocks) / looked_up;
  }
  std::ranges::sort(all, {}, &RequestStats::id);
  return all;
}

std::vector<SequenceState> Scheduler::sequences() const {
  std::vector<SequenceState> all;
  for (const auto& [id, s] : sequences_)
    if (!s->stopped_)
      all.push_back({id, s->spec_.arrival, s->num_prompt_, !s->running(), s->started_});
  std::ranges::sort(all, {}, &SequenceState::id);
  return all;
}

SchedulerStats Scheduler::stats() const {
  SchedulerStats stats = stats_;
  stats.num_running = static_cast<int64_t>(running_.size());
  stats.num_waiting = static_cast<int64_t>(waiting_.size());
  stats.num_paused = stats.num_waiting - num_queued_;
  for (size_t g = 0; g < pool_.num_groups(); ++g) {
    const BlockGroup& group = pool_.group(g);
    stats.groups[stats.num_groups++] = {.window = group.config().window,
                                        .blocks_total = group.config().num_blocks,
                                        .blocks_free = group.num_free(),
                                        .blocks_held_most = group.most_held(),
                                        .host_blocks_total = group.config().num_host_blocks,
                                        .host_blocks_free = group.num_host_free()};
    stats.blocks_total += group.config().num_blocks;
    stats.blocks_free += group.num_free();
    stats.host_blocks_total += group.config().num_host_blocks;
    stats.host_blocks_free += group.num_host_free();
  }
  const PoolStats& pool = pool_.stats();
  stats.blocks_reused = pool.reused;
  stats.blocks_missed = pool.missed;
  stats.blocks_allocated = pool.alloc_total;
  stats.blocks_allocated_new = pool.alloc_new;
  stats.blocks_offloaded = pool.offloaded;
  stats.blocks_onboarded = pool.onboarded;
  return stats;
}

void Scheduler::check() const {
  encoders_.check();
  int32_t encoder_holders = 0;
  int64_t held = 0, inflight = 0, queued = 0, pending = 0, draining = 0, deadlines = 0;
  int64_t arriving = 0, on_hold = 0;
  std::vector<bool> slot_used(limits_.max_batch_size, false);
  for (int32_t slot : free_slots_) slot_used[slot] = true;
  size_t num_slots = free_slots_.size();
  absl::flat_hash_set<uint64_t> adapters;
  int64_t adapter_pages = 0;
  for (const Sequence* s : running_) {
    if (s->spec_.adapter != 0 && adapters.insert(s->spec_.adapter).second)
      adapter_pages += s->spec_.adapter_pages;
    for (const Sequence::BeamSlot& beam_slot : s->beam_slots_) {
      NEREID_CHECK(beam_slot.slot >= 0 && !slot_used[beam_slot.slot]);
      slot_used[beam_slot.slot] = true;
      held += beam_slot.table.num_held();
    }
    num_slots += s->beam_slots_.size();
    for (size_t i = 0; i < s->results_.size(); ++i) {
      NEREID_CHECK(s->results_[i] || s->spec_.encoder_inputs[i].end != EncoderSpec::kAllTokens);
      encoder_holders += s->results_[i] != nullptr;
    }
    NEREID_CHECK(!s->draining() || s->inflight_ > 0 || s->arriving_);
    NEREID_CHECK(s->arriving_ == pool_.is_arriving(s->beam_slots_[0].table));
    NEREID_CHECK(!s->arriving_ || s->inflight_ == 0);
    arriving += s->arriving_;
    NEREID_CHECK(s->unknown_ <= s->inflight_);
    // Positions past the end are not kept.
    NEREID_CHECK(s->stopped_ || s->computed_ <= s->length() + s->num_draft_positions_);
    NEREID_CHECK(s->num_host_rows_ <= s->inflight_ &&
                 (s->num_draft_positions_ == 0 || s->num_host_rows_ == 1));
    NEREID_CHECK(s->committed_ <= s->computed_);
    inflight += s->inflight_;
    draining += s->draining();
    pending += s->pending_to_ - s->pending_from_;
  }
  NEREID_CHECK(encoder_holders == encoders_.num_holders());
  NEREID_CHECK(std::ssize(adapters) <= limits_.max_adapters &&
               adapter_pages <= limits_.max_adapter_pages);
  for (const Sequence* s : waiting_) {
    for (const Sequence::BeamSlot& beam_slot : s->beam_slots_)
      NEREID_CHECK(beam_slot.slot < 0 && beam_slot.table.empty());
    NEREID_CHECK(s->inflight_ == 0 && s->unknown_ == 0 && s->computed_ == 0 && !s->draining());
    NEREID_CHECK(std::ranges::all_of(s->results_, [](const auto* r) { return !r; }));
    NEREID_CHECK(!s->arriving_);
    NEREID_CHECK(s->pending_to_ == s->pending_from_);
    queued += !s->started_;
  }
  for (const auto& [key, count] : pending_blocks_) pending -= count;
  for (const auto& [id, s] : sequences_) {
    deadlines += s->spec_.deadline && !s->stopped_;
    on_hold += s->holds_ > 0;
  }
  NEREID_CHECK(on_hold == num_held_);
  NEREID_CHECK(pending == 0 && draining == num_draining_ && arriving == num_arriving_);
  NEREID_CHECK(deadlines == static_cast<int64_t>(deadlines_.size()));
  NEREID_CHECK(num_slots == slot_used.size());
  NEREID_CHECK(running_.size() + waiting_.size() == sequences_.size());
  NEREID_CHECK(std::ranges::is_sorted(running_, Before()));
  NEREID_CHECK(inflight == num_inflight_ && queued == num_queued_);
  pool_.check(held);
}

}  // namespace nereid::sched
