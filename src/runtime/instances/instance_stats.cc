#include "runtime/instances/instance_stats.h"

#include <algorithm>
#include <string_view>

namespace nereid::runtime {
namespace {

void add_drafts(DraftStats& to, const DraftStats& from) {
  to.num_drafts += from.num_drafts;
  to.num_accepted += from.num_accepted;
  for (size_t i = 0; i < to.tests_by_accepted.size(); ++i)
    to.tests_by_accepted[i] += from.tests_by_accepted[i];
}

void add_adapters(AdapterStats& to, const AdapterStats& from) {
  to.num_places += from.num_places;
  to.num_places_used += from.num_places_used;
  to.num_pages += from.num_pages;
  to.num_pages_used += from.num_pages_used;
  to.num_held += from.num_held;
  to.bytes += from.bytes;
  to.max_bytes += from.max_bytes;
  to.num_hits += from.num_hits;
  to.num_misses += from.num_misses;
  to.num_evictions += from.num_evictions;
  to.num_loads += from.num_loads;
}

void add_groups(ExecutorStats& to, const ExecutorStats& from) {
  to.num_kv_groups = std::max(to.num_kv_groups, from.num_kv_groups);
  for (size_t g = 0; g < static_cast<size_t>(from.num_kv_groups); ++g) {
    KvGroupStats& group = to.kv_groups[g];
    const KvGroupStats& other = from.kv_groups[g];
    group.window = other.window;
    group.blocks_total += other.blocks_total;
    group.blocks_free += other.blocks_free;
    group.blocks_held_most += other.blocks_held_most;
    group.host_blocks_total += other.host_blocks_total;
    group.host_blocks_free += other.host_blocks_free;
  }
}

void add_figures(ExecutorStats& to, const ExecutorStats& from) {
  for (size_t i = 0; i < static_cast<size_t>(from.num_module_figures); ++i) {
    const ModuleFigure& figure = from.module_figures[i];
    ModuleFigure* const end = to.module_figures.data() + to.num_module_figures;
    ModuleFigure* const same =
        std::find_if(to.module_figures.data(), end,
                     [&](const ModuleFigure& other) { return other.name == figure.name; });
    if (same == end)
      to.add_figure(figure.name, figure.value);
    else
      same->value += figure.value;
  }
}

// Adds figures of the moment.
void add_levels(ExecutorStats& to, const ExecutorStats& from) {
  to.num_active += from.num_active;
  to.num_waiting += from.num_waiting;
  to.kv_blocks_total += from.kv_blocks_total;
  to.kv_blocks_free += from.kv_blocks_free;
  to.kv_host_blocks_total += from.kv_host_blocks_total;
  to.kv_host_blocks_free += from.kv_host_blocks_free;
  to.last_step_context_tokens += from.last_step_context_tokens;
  to.last_step_generation_tokens += from.last_step_generation_tokens;
  to.last_step_context_requests += from.last_step_context_requests;
  to.last_step_generation_requests += from.last_step_generation_requests;
  to.last_step_seconds = std::max(to.last_step_seconds, from.last_step_seconds);
  to.max_batch_size += from.max_batch_size;
}

}  // namespace

void add_stats(ExecutorStats& to, const ExecutorStats& from) {
  add_levels(to, from);
  to.kv_tokens_per_block = std::max(to.kv_tokens_per_block, from.kv_tokens_per_block);
  to.kv_blocks_reused += from.kv_blocks_reused;
  to.kv_blocks_missed += from.kv_blocks_missed;
  to.kv_blocks_allocated += from.kv_blocks_allocated;
  to.kv_blocks_allocated_new += from.kv_blocks_allocated_new;
  to.kv_blocks_offloaded += from.kv_blocks_offloaded;
  to.kv_blocks_onboarded += from.kv_blocks_onboarded;
  to.num_steps += from.num_steps;
  to.num_preemptions += from.num_preemptions;
  to.prompt_tokens += from.prompt_tokens;
  to.generated_tokens += from.generated_tokens;
  to.num_drafts += from.num_drafts;
  to.num_accepted_drafts += from.num_accepted_drafts;
  add_drafts(to.request_drafts, from.request_drafts);
  add_drafts(to.proposer_drafts, from.proposer_drafts);
  if (to.proposer.empty()) to.proposer = from.proposer;
  to.num_finished += from.num_finished;
  to.num_cancelled += from.num_cancelled;
  to.num_timed_out += from.num_timed_out;
  to.num_failed += from.num_failed;
  to.num_numeric_failures += from.num_numeric_failures;
  add_groups(to, from);
  add_adapters(to.adapters, from.adapters);
  add_figures(to, from);
}

ExecutorStats counts_of(const ExecutorStats& stats) {
  ExecutorStats counts = stats, none;
  counts.num_active = counts.num_waiting = 0;
  counts.kv_blocks_total = counts.kv_blocks_free = 0;
  counts.kv_host_blocks_total = counts.kv_host_blocks_free = 0;
  counts.last_step_context_tokens = counts.last_step_generation_tokens = 0;
  counts.last_step_context_requests = counts.last_step_generation_requests = 0;
  counts.last_step_seconds = 0;
  counts.max_batch_size = 0;
  counts.kv_groups = none.kv_groups;
  counts.adapters = {.num_hits = stats.adapters.num_hits,
                     .num_misses = stats.adapters.num_misses,
                     .num_evictions = stats.adapters.num_evictions,
                     .num_loads = stats.adapters.num_loads};
  return counts;
}

void add_others(IterationStats& step, std::span<const IterationStats> others) {
  for (const IterationStats& other : others) {
    step.num_active_requests += other.num_active_requests;
    step.num_queued_requests += other.num_queued_requests;
    step.max_num_active_requests += other.max_num_active_requests;
    step.cpu_mem_usage += other.cpu_mem_usage;
    step.gpu_mem_usage += other.gpu_mem_usage;
    step.pinned_mem_usage += other.pinned_mem_usage;
    step.kv_max_blocks += other.kv_max_blocks;
    step.kv_free_blocks += other.kv_free_blocks;
    step.kv_used_blocks += other.kv_used_blocks;
    step.kv_alloc_total_blocks += other.kv_alloc_total_blocks;
    step.kv_alloc_new_blocks += other.kv_alloc_new_blocks;
    step.kv_reused_blocks += other.kv_reused_blocks;
    step.kv_missed_blocks += other.kv_missed_blocks;
  }
  const int64_t found = step.kv_reused_blocks, looked_up = found + step.kv_missed_blocks;
  if (looked_up > 0)
    step.kv_cache_hit_rate = static_cast<double>(found) / static_cast<double>(looked_up);
}

}  // namespace nereid::runtime
