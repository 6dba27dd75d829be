// StepRecorder: differences of the scheduler's counts between steps.
#include "runtime/step_recorder.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace nereid::runtime {
namespace {

double milliseconds(Duration d) { return 1e3 * seconds(d); }

int64_t num_ended(const sched::SchedulerStats& s) {
  return s.num_finished + s.num_cancelled + s.num_timed_out + s.num_failed;
}

void count_rows(const sched::StepPlan& plan, IterationStats& stats) {
  for (const sched::ScheduledRow& row : plan.rows) {
    const bool generates =
        row.start >= row.sequence->num_prompt() && row.num_tokens == 1 + row.num_drafts;
    if (!generates) stats.num_ctx_tokens += row.num_tokens;
    if (row.beam > 0) continue;  // a request counts once
    ++stats.num_scheduled_requests;
    ++(generates ? stats.num_gen_requests : stats.num_context_requests);
  }
}

void mark_scheduled(const sched::StepPlan& plan, std::vector<RequestStats>& requests) {
  absl::flat_hash_map<RequestId, RequestStats*> by_id;
  for (RequestStats& r : requests) {
    r.scheduled = false;
    // Each generating step yields one token.
    r.avg_num_decoded_tokens_per_iter = r.num_generated_tokens > 0 ? 1 : 0;
    by_id.emplace(r.id, &r);
  }
  for (const sched::ScheduledRow& row : plan.rows)
    if (const auto found = by_id.find(row.sequence->id()); found != by_id.end())
      found->second->scheduled = true;
}

void record_updates(std::span<const EngineUpdate> updates, std::vector<RequestStats>& requests) {
  absl::flat_hash_map<RequestId, RequestStats*> by_id;
  for (RequestStats& r : requests) by_id.emplace(r.id, &r);
  for (const EngineUpdate& n : updates) {
    const auto found = by_id.find(n.row.id);
    if (found == by_id.end()) continue;
    RequestStats& r = *found->second;
    r.num_generated_tokens += static_cast<int32_t>(n.row.tokens.size());
    if (n.row.finished) r.stage = RequestStage::kGenerationComplete;
  }
}

}  // namespace

bool StepRecorder::planned(const sched::StepPlan& plan, const sched::Scheduler& sched,
                           exec::StepMessage&) {
  if (plan.rows.empty()) return false;
  const sched::SchedulerStats now_planned = sched.stats();
  Open& open = open_.emplace_back();
  IterationStats& stats = open.stats;
  count_rows(plan, stats);
  open.num_generation_tokens = plan.num_tokens - stats.num_ctx_tokens;
  stats.num_new_active_requests =
      static_cast<int32_t>(now_planned.num_started - planned_.num_started);
  stats.new_active_requests_queue_latency_ms =
      milliseconds(now_planned.queue_time - planned_.queue_time);
  stats.num_paused_requests =
      static_cast<int32_t>(now_planned.num_preemptions - planned_.num_preemptions);
  stats.num_active_requests = static_cast<int32_t>(now_planned.num_running);
  stats.num_queued_requests = progress_.num_queued();  // on their way to the engine included
  planned_ = now_planned;
  if (!rings_.requests.enabled()) return false;
  open.requests = sched.request_stats();
  mark_scheduled(plan, open.requests);
  return false;
}

void StepRecorder::finished(const FinishedStep& step) {
  if (step.plan.rows.empty()) return;
  Open open = std::move(open_.front());
  open_.erase(open_.begin());
  const Duration latency = step.finished - std::max(step.launched, last_end_);
  last_end_ = step.finished;
  IterationStats& stats = open.stats;
  seconds_ = seconds(latency);
  num_context_tokens_ = stats.num_ctx_tokens;
  num_generation_tokens_ = open.num_generation_tokens;
  num_context_requests_ = stats.num_context_requests;
  num_generation_requests_ = stats.num_gen_requests;
  stats.iter = ++num_steps_;
  stats.iter_latency_ms = milliseconds(latency);
  const int64_t ended = num_ended(step.scheduler.stats());
  stats.num_completed_requests = static_cast<int32_t>(ended - std::exchange(num_ended_, ended));
  if (rings_.requests.enabled()) {
    record_updates(step.updates, open.requests);
    rings_.requests.push({.iter = stats.iter, .requests = std::move(open.requests)});
  }
  if (rings_.iterations.enabled()) push_iteration(std::move(stats), step);
}

void StepRecorder::push_iteration(IterationStats stats, const FinishedStep& step) {
  const sched::SchedulerStats s = step.scheduler.stats();
  const sched::Limits& limits = step.scheduler.limits();
  stats.timestamp = std::chrono::system_clock::now();
  stats.max_num_active_requests = stats.max_batch_size = limits.max_batch_size;
  stats.max_num_tokens = limits.max_num_tokens;
  stats.cpu_mem_usage = memory_.cpu;
  stats.gpu_mem_usage = memory_.gpu;
  stats.pinned_mem_usage = memory_.pinned;
  stats.kv_max_blocks = s.blocks_total;
  stats.kv_free_blocks = s.blocks_free;
  stats.kv_used_blocks = s.blocks_total - s.blocks_free;
  stats.kv_tokens_per_block = limits.tokens_per_block;
  stats.kv_alloc_total_blocks = s.blocks_allocated;
  stats.kv_alloc_new_blocks = s.blocks_allocated_new;
  stats.kv_reused_blocks = s.blocks_reused;
  stats.kv_missed_blocks = s.blocks_missed;
  if (const auto looked_up = s.blocks_reused + s.blocks_missed; looked_up > 0)
    stats.kv_cache_hit_rate = static_cast<double>(s.blocks_reused) / static_cast<double>(looked_up);
  int64_t num_drew = 0, num_tokens = 0;
  for (const EngineUpdate& n : step.updates) {
    if (n.row.tokens.empty()) continue;
    ++num_drew;
    num_tokens += static_cast<int64_t>(n.row.tokens.size());
  }
  if (num_drew > 0)
    stats.avg_num_decoded_tokens_per_iter =
        static_cast<double>(num_tokens) / static_cast<double>(num_drew);
  rings_.iterations.push(std::move(stats));
}

void StepRecorder::report(ExecutorStats& stats) const {
  stats.num_steps = num_steps_;
  stats.last_step_seconds = seconds_;
  stats.last_step_context_tokens = num_context_tokens_;
  stats.last_step_generation_tokens = num_generation_tokens_;
  stats.last_step_context_requests = num_context_requests_;
  stats.last_step_generation_requests = num_generation_requests_;
  report_scheduler(stats);
}

void StepRecorder::report_scheduler(ExecutorStats& stats) const {
  const sched::SchedulerStats s = sched_->stats();
  stats.num_active = s.num_running;
  // Preempted sequences; Progress adds the queued.
  stats.num_waiting = s.num_waiting - sched_->num_queued();
  stats.kv_blocks_total = s.blocks_total;
  stats.kv_blocks_free = s.blocks_free;
  stats.kv_tokens_per_block = sched_->limits().tokens_per_block;
  stats.kv_host_blocks_total = s.host_blocks_total;
  stats.kv_host_blocks_free = s.host_blocks_free;
  stats.kv_blocks_reused = s.blocks_reused;
  stats.kv_blocks_missed = s.blocks_missed;
  stats.kv_blocks_allocated = s.blocks_allocated;
  stats.kv_blocks_allocated_new = s.blocks_allocated_new;
  stats.kv_blocks_offloaded = s.blocks_offloaded;
  stats.kv_blocks_onboarded = s.blocks_onboarded;
  stats.kv_groups = s.groups;
  stats.num_kv_groups = s.num_groups;
  stats.num_preemptions = s.num_preemptions;
  stats.num_drafts = s.num_drafts;
  stats.num_accepted_drafts = s.num_accepted_drafts;
  stats.prompt_tokens = s.prompt_tokens;
  stats.generated_tokens = s.generated_tokens;
  stats.num_finished = s.num_finished;
  stats.num_cancelled = s.num_cancelled;
  stats.num_timed_out = s.num_timed_out;
  stats.num_failed = s.num_failed;
  stats.max_batch_size = sched_->limits().max_batch_size;
}

}  // namespace nereid::runtime
