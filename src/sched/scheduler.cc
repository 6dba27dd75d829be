// Scheduler: planning makes no device call; memory comes back in one place, release_if_drained().
#include "sched/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace nereid::sched {
Scheduler::Scheduler(const Limits& limits)
    : limits_(limits),
      pool_({.num_blocks = limits.num_blocks,
             .tokens_per_block = limits.tokens_per_block,
             .enable_reuse = limits.enable_reuse,
             .enable_partial_reuse = false}) {
  NEREID_CHECK(limits.max_batch_size > 0 && limits.max_num_tokens > 0);
  NEREID_CHECK(limits.max_queue_size > 0 && limits.max_sequence_length > 0);
  for (int32_t slot = limits.max_batch_size; slot-- > 0;) free_slots_.push_back(slot);
}

Status Scheduler::validate(const Limits& limits, int64_t num_prompt_tokens, int32_t max_new_tokens,
                           int32_t beam_width, int32_t num_sequences) {
  if (beam_width < 1 || beam_width > limits.max_beam_width)
    return invalid_argument("beam_width: {} is not in [1, {}] (max_beam_width)", beam_width,
                            limits.max_beam_width);
  if (num_sequences < 1 || num_sequences > limits.max_queue_size)
    return invalid_argument(
        "{} sequences of one request never fit the queue of {} (max_queue_size)", num_sequences,
        limits.max_queue_size);
  if (num_prompt_tokens < 1) return invalid_argument("prompt: no tokens; at least 1 is needed");
  if (max_new_tokens < 1)
    return invalid_argument("max_tokens: {} is not allowed; at least 1 is needed", max_new_tokens);
  if (num_prompt_tokens >= limits.max_sequence_length)
    return invalid_argument(
        "prompt: {} tokens leave no room for output; max_sequence_length is {} (prompt + output)",
        num_prompt_tokens, limits.max_sequence_length);
  // The last token is never fed back, so its position needs no memory.
  const int64_t positions =
      std::min<int64_t>(num_prompt_tokens + max_new_tokens, limits.max_sequence_length) - 1;
  const int64_t capacity = int64_t{limits.num_blocks} * limits.tokens_per_block;
  if (positions > capacity)
    return invalid_argument(
        "prompt of {} tokens with max_tokens {} needs KV memory for {} tokens; there is memory for "
        "{} "
        "({} blocks of {})",
        num_prompt_tokens, max_new_tokens, positions, capacity, limits.num_blocks,
        limits.tokens_per_block);
  return ok();
}

Status Scheduler::submit(SequenceSpec spec) {
  std::vector<SequenceSpec> group;
  group.push_back(std::move(spec));
  return submit(std::move(group));
}

Status Scheduler::submit(std::vector<SequenceSpec> group) {
  const auto size = static_cast<int32_t>(group.size());
  NEREID_CHECK(size > 0);
  for (const SequenceSpec& spec : group) {
    RETURN_IF_ERROR(validate(limits_, static_cast<int64_t>(spec.prompt.size()), spec.max_new_tokens,
                             spec.sampling.beam_width, size));
    if (spec.id == 0 || sequences_.contains(spec.id))
      return invalid_argument("request id {} is not allowed: it must be new and not 0", spec.id);
  }
  if (num_queued_ + size > limits_.max_queue_size)
    return resource_exhausted("queue is full: {} requests wait, max_queue_size is {}", num_queued_,
                              limits_.max_queue_size);
  for (SequenceSpec& spec : group) {
    const RequestId id = spec.id;
    const int64_t longest = static_cast<int64_t>(spec.prompt.size()) + spec.max_new_tokens;
    const auto limit =
        static_cast<int32_t>(std::min<int64_t>(longest, limits_.max_sequence_length));
    auto sequence =
        std::make_unique<Sequence>(std::move(spec), limit, limits_.tokens_per_block, next_order_++);
    waiting_.push_back(sequence.get());
    ++num_queued_;
    sequences_.emplace(id, std::move(sequence));
  }
  return ok();
}

StepPlan Scheduler::plan(Time now) {
  StepPlan plan;
  pool_.expire(now);
  bool short_of_memory = false;
  plan_running(plan, short_of_memory);
  if (!short_of_memory) plan_waiting(plan, now);
  if (!plan.empty()) plan.copies = pool_.take_copies();
  NEREID_CHECK(!plan.empty() || num_inflight_ > 0 || idle());
  return plan;
}

// Victims come from the other end of running_, so that a planned row is never one.
void Scheduler::plan_running(StepPlan& plan, bool& short_of_memory) {
  for (size_t i = 0; i < running_.size() && budget(plan) > 0; ++i) {
    Sequence& sequence = *running_[i];
    // A preempted sequence is about to need its memory back: nobody new gets in before it.
    short_of_memory |= sequence.preempted_;
    if (sequence.draining() || sequence.at_limit()) continue;
    const int32_t n = std::min(budget(plan), sequence.length() - sequence.computed_);
    if (!make_room(sequence, sequence.computed_ + n, short_of_memory)) continue;
    add_row(plan, sequence, n);
  }
}

// False: `sequence` sits this step out, either until memory on its way back has arrived or, when it
// is the newest, until older ones have finished.
bool Scheduler::make_room(Sequence& sequence, int32_t num_tokens, bool& short_of_memory) {
  const size_t before = sequence.table_.blocks.size();
  while (!pool_.reserve(sequence.table_, sequence.computed_, num_tokens)) {
    short_of_memory = true;
    if (std::ranges::any_of(running_, &Sequence::draining)) return false;
    Sequence& victim = *running_.back();
    if (&victim == &sequence) return false;
    victim.preempted_ = true;
    ++victim.metrics_.num_preemptions;
    ++stats_.num_preemptions;
    release_if_drained(victim);
  }
  sequence.metrics_.allocated_blocks +=
      static_cast<int32_t>(sequence.table_.blocks.size() - before);
  return true;
}

void Scheduler::plan_waiting(StepPlan& plan, Time now) {
  while (!waiting_.empty() && !free_slots_.empty() && budget(plan) > 0) {
    Sequence& sequence = *waiting_.front();
    // The last token is always computed, or there would be no logits.
    Contents contents = sequence.contents();
    contents.tokens = contents.tokens.first(contents.tokens.size() - 1);
    const PrefixHit hit = pool_.match(contents);
    const int32_t cached = hit.num_tokens;
    const int32_t n = std::min(budget(plan), sequence.length() - cached);
    // The whole known text must fit, not just this chunk, and each running sequence may grow: or
    // else it would soon be preempted and computed again.
    const int32_t headroom = pool_.blocks_for(sequence.length()) - pool_.blocks_for(cached + n) +
                             static_cast<int32_t>(running_.size());
    if (!pool_.admit(sequence.table_, hit, contents, cached + n, headroom)) break;
    start(sequence, hit, now);
    add_row(plan, sequence, n);
  }
}

void Scheduler::start(Sequence& sequence, const PrefixHit& hit, Time now) {
  const int32_t num_hit = hit.num_reused();
  const auto num_blocks = static_cast<int32_t>(sequence.table_.blocks.size());
  waiting_.pop_front();
  running_.insert(std::ranges::upper_bound(running_, sequence.order_, {}, &Sequence::order_),
                  &sequence);
  sequence.slot_ = free_slots_.back();
  free_slots_.pop_back();
  sequence.computed_ = hit.num_tokens;
  sequence.metrics_.allocated_blocks += num_blocks - num_hit;
  stats_.blocks_reused += num_hit;
  if (sequence.started_) return;
  sequence.started_ = true;
  --num_queued_;
  sequence.metrics_.first_scheduled = now;
  sequence.metrics_.reused_blocks = num_hit;
}

void Scheduler::add_row(StepPlan& plan, Sequence& sequence, int32_t num_tokens) {
  Row row{.sequence = &sequence,
          .slot = sequence.slot_,
          .start = sequence.computed_,
          .num_tokens = num_tokens};
  row.samples = row.end() == sequence.length();
  row.input_on_device = row.end() > static_cast<int32_t>(sequence.tokens_.size());
  stats_.prompt_tokens += std::max(0, std::min(row.end(), sequence.num_prompt_) - row.start);
  sequence.computed_ = row.end();
  ++sequence.inflight_;
  ++num_inflight_;
  if (row.samples) ++sequence.unknown_;
  plan.rows.push_back(row);
  plan.num_tokens += num_tokens;
}

RowNews Scheduler::commit(const Row& row, const Drawn* drawn) {
  NEREID_CHECK((drawn != nullptr) == row.samples);
  Sequence& sequence = landed(row);
  RowNews news{.id = sequence.id()};
  if (!sequence.stopped_ && row.samples) {
    if (sequence.append(drawn->token)) {
      news.tokens.push_back(drawn->token);
      news.sum_log_prob = drawn->full_log_prob;
      if (sequence.spec_.output.return_log_probs) news.log_probs.push_back(drawn->log_prob);
      if (sequence.spec_.output.num_top_log_probs > 0)
        news.top_log_probs.emplace_back(drawn->top.begin(), drawn->top.end());
      ++stats_.generated_tokens;
    }
    if (sequence.reason_ != FinishReason::kNotFinished)
      finish(sequence, sequence.reason_, ok(), news);
  }
  // A row that flew on after the end has computed positions whose tokens were never kept; keys()
  // leaves them out.
  if (limits_.enable_reuse && !sequence.failed_)
    pool_.publish(sequence.table_, sequence.contents(), row.end());
  release_if_drained(sequence);
  return news;
}

RowNews Scheduler::abort(const Row& row, const Status& status) {
  NEREID_CHECK(!status.ok());
  Sequence& sequence = landed(row);
  RowNews news{.id = sequence.id()};
  sequence.failed_ = true;
  if (!sequence.stopped_) finish(sequence, FinishReason::kNotFinished, status, news);
  release_if_drained(sequence);
  return news;
}

std::vector<RowNews> Scheduler::fail(const StepPlan& plan, const Status& status) {
  std::vector<RowNews> all;
  for (const Row& row : plan.rows)
    if (RowNews news = abort(row, status); !news.empty()) all.push_back(std::move(news));
  return all;
}

std::vector<RowNews> Scheduler::expire(Time now) {
  std::vector<RequestId> late;
  for (const auto& [id, sequence] : sequences_)
    if (sequence->spec_.deadline && *sequence->spec_.deadline <= now) late.push_back(id);
  std::vector<RowNews> all;
  for (RequestId id : late)
    if (auto news = end(id, FinishReason::kTimedOut)) all.push_back(*std::move(news));
  return all;
}

std::vector<KvCacheEvent> Scheduler::take_events() { return {}; }

std::vector<RequestStats> Scheduler::request_stats() const {
  std::vector<RequestStats> all;
  for (const auto& [id, s] : sequences_) {
    RequestStats stats{.id = id};
    stats.stage = s->stopped_                     ? RequestStage::kGenerationComplete
                  : !s->started_                  ? RequestStage::kQueued
                  : s->computed_ < s->num_prompt_ ? RequestStage::kContextInProgress
                                                  : RequestStage::kGenerationInProgress;
    stats.context_prefill_position = std::min(s->computed_, s->num_prompt_);
    stats.num_generated_tokens = s->num_generated();
    stats.scheduled = s->inflight_ > 0;
    stats.paused = s->started_ && s->slot_ < 0;
    stats.alloc_total_blocks = s->metrics_.allocated_blocks + s->metrics_.reused_blocks;
    stats.alloc_new_blocks = s->metrics_.allocated_blocks;
    stats.reused_blocks = s->metrics_.reused_blocks;
    stats.missed_blocks = s->metrics_.missed_blocks;
    all.push_back(stats);
  }
  std::ranges::sort(all, {}, &RequestStats::id);
  return all;
}

std::vector<RowNews> Scheduler::cancel_all() {
  std::vector<RequestId> ids;
  for (const auto& [id, sequence] : sequences_) ids.push_back(id);
  std::ranges::sort(ids);
  std::vector<RowNews> all;
  for (RequestId id : ids)
    if (auto news = cancel(id)) all.push_back(*std::move(news));
  return all;
}

std::optional<RowNews> Scheduler::end(RequestId id, FinishReason reason) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end() || found->second->stopped_) return std::nullopt;
  Sequence& sequence = *found->second;
  RowNews news{.id = id};
  finish(sequence, reason, ok(), news);
  release_if_drained(sequence);
  return news;
}

void Scheduler::finish(Sequence& sequence, FinishReason reason, const Status& status,
                       RowNews& news) {
  sequence.stopped_ = true;
  sequence.reason_ = reason;
  news.finished = true;
  news.reason = reason;
  news.status = status;
  news.metrics = sequence.metrics_;
  if (!status.ok()) {
    ++stats_.num_failed;
  } else if (reason == FinishReason::kCancelled) {
    ++stats_.num_cancelled;
  } else if (reason == FinishReason::kTimedOut) {
    ++stats_.num_timed_out;
  } else {
    ++stats_.num_finished;
  }
}

Sequence& Scheduler::landed(const Row& row) {
  Sequence& sequence = *row.sequence;
  NEREID_CHECK(sequence.inflight_ > 0 && num_inflight_ > 0);
  --sequence.inflight_;
  --num_inflight_;
  if (row.samples) --sequence.unknown_;
  return sequence;
}

// The one place where memory comes back. May destroy `sequence`.
void Scheduler::release_if_drained(Sequence& sequence) {
  if (!sequence.draining() || sequence.inflight_ > 0) return;
  if (sequence.slot_ >= 0) {
    pool_.release(sequence.table_, sequence.failed_ ? Release::kForget : Release::kKeep);
    free_slots_.push_back(std::exchange(sequence.slot_, -1));
    std::erase(running_, &sequence);
    if (!sequence.stopped_) return wait_again(sequence);
  } else {
    std::erase(waiting_, &sequence);
    if (!sequence.started_) --num_queued_;
  }
  sequences_.erase(sequence.id());
}

void Scheduler::wait_again(Sequence& sequence) {
  NEREID_CHECK(sequence.unknown_ == 0);
  sequence.preempted_ = false;
  sequence.computed_ = 0;
  waiting_.insert(std::ranges::upper_bound(waiting_, sequence.order_, {}, &Sequence::order_),
                  &sequence);
}

SchedulerStats Scheduler::stats() const {
  SchedulerStats stats = stats_;
  stats.num_running = static_cast<int64_t>(running_.size());
  stats.num_waiting = static_cast<int64_t>(waiting_.size());
  stats.blocks_total = pool_.num_blocks();
  stats.blocks_free = pool_.num_free();
  return stats;
}

void Scheduler::check() const {
  int64_t held = 0, inflight = 0, queued = 0;
  std::vector<bool> slot_used(limits_.max_batch_size, false);
  for (int32_t slot : free_slots_) slot_used[slot] = true;
  for (const Sequence* s : running_) {
    NEREID_CHECK(s->slot_ >= 0 && !slot_used[s->slot_]);
    slot_used[s->slot_] = true;
    NEREID_CHECK(!s->draining() || s->inflight_ > 0);
    NEREID_CHECK(s->unknown_ <= s->inflight_ && s->computed_ <= s->length());
    held += static_cast<int64_t>(s->table_.blocks.size());
    inflight += s->inflight_;
  }
  for (const Sequence* s : waiting_) {
    NEREID_CHECK(s->slot_ < 0 && s->table_.blocks.empty() && !s->draining());
    NEREID_CHECK(s->inflight_ == 0 && s->unknown_ == 0 && s->computed_ == 0);
    queued += !s->started_;
  }
  NEREID_CHECK(running_.size() + free_slots_.size() == slot_used.size());
  NEREID_CHECK(running_.size() + waiting_.size() == sequences_.size());
  NEREID_CHECK(std::ranges::is_sorted(running_, {}, &Sequence::order_));
  NEREID_CHECK(std::ranges::is_sorted(waiting_, {}, &Sequence::order_));
  NEREID_CHECK(inflight == num_inflight_ && queued == num_queued_);
  pool_.check(held);
}

}  // namespace nereid::sched
