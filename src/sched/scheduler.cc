// Scheduler: the life of a sequence from submit to its final update. release_if_drained() alone
// frees its memory.
#include "sched/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace nereid::sched {
namespace {

PoolConfig pool_config(const Limits& limits) {
  return {.groups = limits.groups,
          .tokens_per_block = limits.tokens_per_block,
          .enable_reuse = limits.enable_reuse,
          .enable_partial_reuse = limits.enable_partial_reuse,
          .offload_min_priority = limits.offload_min_priority,
          .event_buffer_size = limits.event_buffer_size};
}

std::vector<BeamUpdate> beam_updates(std::vector<Hypothesis> hypotheses, bool log_probs) {
  std::vector<BeamUpdate> all;
  for (Hypothesis& h : hypotheses) {
    BeamUpdate& update = all.emplace_back();
    update.tokens = std::move(h.tokens);
    if (log_probs) update.log_probs = std::move(h.log_probs);
    update.cum_log_prob = h.cum_log_prob;
    update.reason = h.reason;
  }
  return all;
}

}  // namespace

Scheduler::Scheduler(const Limits& limits)
    : limits_(limits),
      pool_(pool_config(limits)),
      encoders_(limits.num_encoder_blocks, limits.tokens_per_block) {
  NEREID_CHECK(limits.max_batch_size > 0 && limits.max_num_tokens > 0 && limits.num_stages > 0);
  NEREID_CHECK(limits.max_queue_size > 0 && limits.max_sequence_length > 0);
  for (int32_t slot = limits.max_batch_size; slot-- > 0;) free_slots_.push_back(slot);
}

Status Scheduler::submit(SequenceSpec spec) {
  std::vector<SequenceSpec> group;
  group.push_back(std::move(spec));
  return submit(std::move(group));
}

// A prompt that is not chunked needs all of its results at once.
Status Scheduler::check_encoder_inputs(const SequenceSpec& spec) const {
  int64_t blocks = 0, in_span = 0, lasting = 0;  // of results that are needed together
  const WholeSpan* before = nullptr;
  for (const EncoderSpec& input : spec.encoder_inputs) {
    if (input.length < 1 || input.length > limits_.max_encoder_length)
      return invalid_argument("encoder input: {} positions; 1 to {} are allowed", input.length,
                              limits_.max_encoder_length);
    if (input.num_parts < 1 || input.num_parts > limits_.max_encoder_parts)
      return invalid_argument("encoder input: {} parts; 1 to {} are allowed", input.num_parts,
                              limits_.max_encoder_parts);
    NEREID_CHECK(input.num_results > 0 && input.begin < input.end);
    const int64_t own = (input.num_results - 1) / limits_.tokens_per_block + 1;
    if (input.end == EncoderSpec::kAllTokens) {
      lasting += own;
      continue;
    }
    const WholeSpan* span = nullptr;
    for (const WholeSpan& one : spec.whole_spans)
      if (one.begin <= input.begin && input.begin < one.end) span = &one;
    in_span = span && span == before ? in_span + own : own;
    before = span;
    blocks = limits_.policy.enable_chunked_context ? std::max(blocks, in_span) : blocks + own;
  }
  blocks += lasting;
  if (blocks <= limits_.num_encoder_blocks) return ok();
  return invalid_argument("encoder inputs: their results need {} blocks of {}, there are {}",
                          blocks, limits_.tokens_per_block, limits_.num_encoder_blocks);
}

// InvalidArgument: a whole span is larger than a step, or its logits are more than a step has.
Status Scheduler::check_whole_spans(const SequenceSpec& spec) const {
  const bool wants_logits = spec.output.return_context_logits ||
                            spec.output.num_prompt_log_probs.has_value() ||
                            spec.output.pooling == Pooling::kMean;
  const int32_t logits = limits_.num_logits_rows() - limits_.max_batch_size + 1;
  const int32_t most = wants_logits ? std::min(max_step_tokens(), logits) : max_step_tokens();
  for (const WholeSpan& span : spec.whole_spans)
    if (const int32_t size = span.end - span.begin; size > most)
      return invalid_argument(
          "prompt: tokens [{}, {}) attend to one another and need one step, which has {} tokens{}; "
          "raise max_num_tokens to at least {}{}",
          span.begin, span.end, most, wants_logits ? " with logits" : "", size,
          wants_logits ? ", or ask for no logits of the prompt" : "");
  return ok();
}

Status Scheduler::submit(std::vector<SequenceSpec> group) {
  const auto size = static_cast<int32_t>(group.size());
  NEREID_CHECK(size > 0);
  for (const SequenceSpec& spec : group) {
    RETURN_IF_ERROR(validate(limits_, static_cast<int64_t>(spec.prompt.size()), spec.max_new_tokens,
                             spec.sampling.beam_width, size));
    if (spec.output.pooling.has_value() != (spec.max_new_tokens == 0))
      return invalid_argument("max_tokens: {} {} pooling", spec.max_new_tokens,
                              spec.output.pooling ? "with" : "without");
    RETURN_IF_ERROR(check_encoder_inputs(spec));
    RETURN_IF_ERROR(check_whole_spans(spec));
    if (spec.id == 0 || sequences_.contains(spec.id))
      return invalid_argument("request id {} is not allowed: it must be new and not 0", spec.id);
    NEREID_CHECK(spec.leader == 0 || (spec.leader == group[0].id && spec.sampling.beam_width == 1 &&
                                      spec.prompt.size() == group[0].prompt.size()));
  }
  if (num_queued_ + size > limits_.max_queue_size)
    return resource_exhausted("queue is full: {} requests wait, max_queue_size is {}", num_queued_,
                              limits_.max_queue_size);
  const uint64_t serial = num_requests_++;
  uint64_t index = 0;
  for (SequenceSpec& spec : group) {
    const RequestId id = spec.id;
    const auto num_prompt = static_cast<int32_t>(spec.prompt.size());
    const int32_t limit = length_limit(limits_, num_prompt, spec.max_new_tokens);
    std::vector<int32_t> worst;
    for (const BlockGroupConfig& group : limits_.groups)
      worst.push_back(
          worst_case_blocks(limits_, group, num_prompt, limit, spec.sampling.beam_width));
    if (spec.deadline) deadlines_.emplace(*spec.deadline, id);
    auto sequence = std::make_unique<Sequence>(std::move(spec), limit, limits_.tokens_per_block,
                                               order_key(serial, index++), std::move(worst));
    waiting_.insert(sequence.get());
    ++num_queued_;
    sequences_.emplace(id, std::move(sequence));
  }
  return ok();
}

void Scheduler::draft(RequestId id, std::span<const TokenId> tokens,
                      std::span<const int32_t> parents) {
  NEREID_CHECK(parents.empty() || parents.size() == tokens.size());
  const auto found = sequences_.find(id);
  if (found == sequences_.end() || found->second->stopped_ || found->second->searches()) return;
  found->second->drafts_.assign(tokens.begin(), tokens.end());
  found->second->draft_parents_.assign(parents.begin(), parents.end());
}

SequenceUpdate Scheduler::commit(const ScheduledRow& row, std::span<const SampledTokens> drawn) {
  const auto num_drawn = static_cast<int32_t>(drawn.size());
  NEREID_CHECK(row.samples ? num_drawn >= 1 && num_drawn <= 1 + row.num_drafts : num_drawn == 0);
  Sequence& sequence = completed(row);
  SequenceUpdate update{.id = sequence.id()};
  const int32_t num_accepted = std::max(0, num_drawn - 1);
  if (!sequence.spec().has_grammar) {
    stats_.num_drafts += row.num_drafts;
    stats_.num_accepted_drafts += num_accepted;
    sequence.metrics_.num_drafts += row.num_drafts;
    sequence.metrics_.num_accepted_drafts += num_accepted;
  }
  if (!sequence.tainted_) {
    sequence.committed_ = row.first_sampled() + num_accepted;
    if (row.num_drafts > 0) {
      sequence.computed_ = sequence.committed_;
      pool_.trim(sequence.beam_slots_[0].table, sequence.computed_);
    }
    if (row.all_logits) sequence.logits_done_ = row.end();
    publish(sequence);
    for (const SampledTokens& one : drawn)
      if (!sequence.stopped_) take_token(sequence, one, update);
    if (row.ends_prompt && !sequence.stopped_)
      finish(sequence, FinishReason::kLength, ok(), update);
    drop_unseen(sequence);
  }
  if (!update.empty()) update.metrics = sequence.metrics_;
  release_if_drained(sequence);
  return update;
}

SequenceUpdate Scheduler::abort(const ScheduledRow& row, const Status& status) {
  NEREID_CHECK(!status.ok());
  Sequence& sequence = completed(row);
  SequenceUpdate update{.id = sequence.id()};
  sequence.failed_ = true;
  if (!sequence.stopped_) finish(sequence, FinishReason::kNotFinished, status, update);
  release_if_drained(sequence);
  return update;
}

SequenceUpdate Scheduler::undrawn(const ScheduledRow& row) {
  NEREID_CHECK(row.samples && !row.sequence->searches());
  Sequence& sequence = completed(row);
  SequenceUpdate update{.id = sequence.id()};
  if (!sequence.tainted_) {
    NEREID_CHECK(sequence.inflight_ == 0 && sequence.unknown_ == 0);
    sequence.computed_ = sequence.committed_ = row.first_sampled() - 1;
    if (row.num_drafts > 0) pool_.trim(sequence.beam_slots_[0].table, row.first_sampled());
    if (row.all_logits) sequence.logits_done_ = row.end();
    publish(sequence);
    drop_unseen(sequence);
  }
  release_if_drained(sequence);
  return update;
}

void Scheduler::hold(RequestId id) {
  const auto found = sequences_.find(id);
  if (found != sequences_.end() && found->second->holds_++ == 0) ++num_held_;
}

void Scheduler::release(RequestId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  NEREID_CHECK(found->second->holds_ > 0);
  if (--found->second->holds_ == 0) --num_held_;
}

std::vector<SequenceUpdate> Scheduler::fail(const StepPlan& plan, const Status& status) {
  pool_.forget_everything();
  encoders_.forget_everything();
  std::vector<SequenceUpdate> all;
  for (const ScheduledRow& row : plan.rows)
    if (SequenceUpdate update = abort(row, status); !update.empty())
      all.push_back(std::move(update));
  // Blocks of the others may depend on copies and writes of the failed step.
  const std::vector<Sequence*> others = running_;
  for (Sequence* sequence : others) {
    sequence->tainted_ = true;
    if (!sequence->draining()) pause(*sequence);
  }
  return all;
}

void Scheduler::onboarded(const Status& status) {
  pool_.end_onboards(status.ok());
  const std::vector<Sequence*> all = running_;
  for (Sequence* const sequence : all) {
    if (!sequence->arriving_) continue;
    const BlockTable& table = sequence->beam_slots_[0].table;
    if (!status.ok() && !sequence->draining() && pool_.any_tainted(table)) pause(*sequence);
    if (pool_.is_arriving(table)) continue;
    sequence->arriving_ = false;
    --num_arriving_;
    if (sequence->draining()) {
      release_if_drained(*sequence);
    } else {
      drop_unseen(*sequence);
    }
  }
}

std::vector<SequenceUpdate> Scheduler::expire(Time now) {
  std::vector<SequenceUpdate> all;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    auto update = end(deadlines_.begin()->second, FinishReason::kTimedOut);
    NEREID_CHECK(update.has_value());
    all.push_back(*std::move(update));
  }
  return all;
}

std::vector<SequenceUpdate> Scheduler::cancel_all() {
  return end_all(FinishReason::kCancelled, ok());
}

std::vector<SequenceUpdate> Scheduler::fail_all(const Status& status) {
  NEREID_CHECK(!status.ok());
  return end_all(FinishReason::kNotFinished, status);
}

std::vector<SequenceUpdate> Scheduler::end_all(FinishReason reason, const Status& status) {
  std::vector<RequestId> ids;
  for (const auto& [id, sequence] : sequences_) ids.push_back(id);
  std::ranges::sort(ids);
  std::vector<SequenceUpdate> all;
  for (RequestId id : ids)
    if (auto update = end(id, reason, status)) all.push_back(*std::move(update));
  return all;
}

std::optional<SequenceUpdate> Scheduler::end(RequestId id, FinishReason reason,
                                             const Status& status) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end() || found->second->stopped_) return std::nullopt;
  Sequence& sequence = *found->second;
  SequenceUpdate update{.id = id};
  finish(sequence, reason, status, update);
  release_if_drained(sequence);
  return update;
}

void Scheduler::finish(Sequence& sequence, FinishReason reason, const Status& status,
                       SequenceUpdate& update) {
  if (sequence.running() && !sequence.draining()) ++num_draining_;
  sequence.stopped_ = true;
  sequence.reason_ = reason;
  if (sequence.spec_.deadline) deadlines_.erase({*sequence.spec_.deadline, sequence.id()});
  update.finished = true;
  update.reason = reason;
  update.status = status;
  update.metrics = sequence.metrics_;
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

void Scheduler::take_token(Sequence& sequence, const SampledTokens& drawn, SequenceUpdate& update) {
  if (sequence.searches()) {
    sequence.candidates_.emplace_back(drawn.top.begin(), drawn.top.end());
    // A preempted beam search starts over, so its last step is ignored.
    if (sequence.inflight_ == 0 && !sequence.preempted_) advance_beams(sequence, update);
    return;
  }
  sequence.check_drafts(drawn.token);
  if (sequence.append(drawn.token)) {
    update.tokens.push_back(drawn.token);
    update.full_log_probs.push_back(drawn.full_log_prob);
    if (sequence.spec_.output.return_log_probs) update.log_probs.push_back(drawn.log_prob);
    if (sequence.spec_.output.num_top_log_probs > 0)
      update.top_log_probs.emplace_back(drawn.top.begin(), drawn.top.end());
    ++stats_.generated_tokens;
  }
  if (sequence.reason_ != FinishReason::kNotFinished)
    finish(sequence, sequence.reason_, ok(), update);
}

void Scheduler::advance_beams(Sequence& sequence, SequenceUpdate& update) {
  BeamState& beams = sequence.beams_;
  if (beams.live.empty()) beams.live.push_back({.tokens = sequence.tokens_});
  const size_t num_old = beams.live.size();
  const BeamRules rules = sequence.beam_rules();
  advance(rules, sequence.candidates_, beams);
  sequence.candidates_.clear();
  if (beams.done || sequence.spec_.streams_beams) {
    const int32_t count = sequence.sampling().num_return_sequences.value_or(rules.width);
    update.beams =
        beam_updates(best_hypotheses(rules, beams, count), sequence.spec_.output.return_log_probs);
  }
  if (!beams.done) return branch(sequence, num_old);
  for (const BeamUpdate& beam : update.beams)
    stats_.generated_tokens += static_cast<int64_t>(beam.tokens.size());
  NEREID_CHECK(!update.beams.empty());
  finish(sequence, update.beams[0].reason, ok(), update);
}

// Each live beam shares its parent's blocks (copy on write).
void Scheduler::branch(Sequence& sequence, size_t num_old) {
  const std::vector<LiveBeam>& live = sequence.beams_.live;
  std::vector<BlockTable> old(num_old);
  std::vector<int32_t> uses(num_old, 0);
  for (size_t i = 0; i < num_old; ++i) old[i] = std::exchange(sequence.beam_slots_[i].table, {});
  for (const LiveBeam& beam : live) ++uses[beam.parent];
  for (size_t i = 0; i < num_old; ++i)
    if (uses[i] == 0) pool_.release(old[i], Release::kKeep);
  for (size_t i = 0; i < live.size(); ++i) {
    const int32_t parent = live[i].parent;
    sequence.beam_slots_[i].table = --uses[parent] == 0
                                        ? std::exchange(old[parent], {})
                                        : pool_.fork(old[parent], sequence.committed_);
  }
}

Sequence& Scheduler::completed(const ScheduledRow& row) {
  Sequence& sequence = *row.sequence;
  NEREID_CHECK(sequence.inflight_ > 0 && num_inflight_ > 0);
  --sequence.inflight_;
  --num_inflight_;
  if (row.ends_prompt || (row.samples && !sequence.searches())) --sequence.unknown_;
  sequence.num_host_rows_ -= row.needs_host;
  sequence.computed_ -= row.num_drafts;
  sequence.num_draft_positions_ -= row.num_drafts;
  return sequence;
}

// Positions computed after the end, whose tokens were not kept, are not published. A search
// publishes its prompt only.
void Scheduler::publish(Sequence& sequence) {
  if (!limits_.enable_reuse || sequence.failed_) return;
  const int32_t known =
      std::min(sequence.committed_, static_cast<int32_t>(sequence.tokens_.size()));
  const int32_t num_full = known / limits_.tokens_per_block;
  BlockTable& table = sequence.beam_slots_[0].table;
  if (num_full > table.num_published && !table.groups[0].has_holes)
    pool_.publish(table, sequence.contents(), known);
  remove_pending(sequence, num_full);
}

// Releases the blocks to which no later row attends.
void Scheduler::drop_unseen(Sequence& sequence) {
  if (!limits_.any_window()) return;
  for (Sequence::BeamSlot& beam_slot : sequence.beam_slots_)
    pool_.drop_unseen(beam_slot.table, sequence.committed_);
}

// Registers the sequence's full blocks from `computed_` on as pending prefix blocks.
void Scheduler::add_pending(Sequence& sequence) {
  if (!limits_.enable_reuse || !may_share() || limits_.groups[0].window > 0) return;
  const auto keys = sequence.keys();
  sequence.pending_from_ = sequence.computed_ / limits_.tokens_per_block;
  sequence.pending_to_ = std::max(sequence.pending_from_, static_cast<int32_t>(keys.size()));
  for (int32_t i = sequence.pending_from_; i < sequence.pending_to_; ++i)
    ++pending_blocks_[keys[i]];
}

// Removes pending blocks below block `to`: they were published, or never will be.
void Scheduler::remove_pending(Sequence& sequence, int32_t to) {
  for (; sequence.pending_from_ < std::min(to, sequence.pending_to_); ++sequence.pending_from_) {
    const auto found = pending_blocks_.find(sequence.keys_[sequence.pending_from_]);
    if (--found->second == 0) pending_blocks_.erase(found);
  }
}

void Scheduler::pause(Sequence& sequence) {
  sequence.preempted_ = true;
  ++num_draining_;
  ++sequence.metrics_.num_preemptions;
  ++stats_.num_preemptions;
  release_if_drained(sequence);
}

// The one place where memory is released. May destroy `sequence`.
void Scheduler::release_if_drained(Sequence& sequence) {
  if (!sequence.draining() || sequence.inflight_ > 0 || sequence.arriving_) return;
  if (sequence.running()) {
    release_memory(sequence);
    std::erase(running_, &sequence);
    --num_draining_;
    if (!sequence.stopped_) {
      NEREID_CHECK(sequence.unknown_ == 0);
      sequence.forget_beams();
      sequence.preempted_ = sequence.tainted_ = false;
      sequence.computed_ = sequence.committed_ = 0;
      waiting_.insert(&sequence);
      return;
    }
  } else {
    waiting_.erase(&sequence);
    if (!sequence.started_) --num_queued_;
  }
  if (sequence.holds_ > 0) --num_held_;
  sequences_.erase(sequence.id());
}

void Scheduler::release_memory(Sequence& sequence) {
  const bool tainted = sequence.failed_ || sequence.tainted_;
  remove_pending(sequence, sequence.pending_to_);
  BlockTable& table = sequence.beam_slots_[0].table;
  const int32_t known =
      std::min(sequence.committed_, static_cast<int32_t>(sequence.tokens_.size()));
  if (limits_.enable_reuse && !tainted && !sequence.searches() && known > 0)
    pool_.publish_tail(table, sequence.contents(), known);
  const bool swaps = !sequence.stopped_ && !sequence.searches() &&
                     limits_.policy.pause_policy == PausePolicy::kSwap;
  const Release how = tainted ? Release::kForget : swaps ? Release::kOffload : Release::kKeep;
  for (Sequence::BeamSlot& beam_slot : sequence.beam_slots_) {
    pool_.release(beam_slot.table, how);
    free_slots_.push_back(std::exchange(beam_slot.slot, -1));
  }
  drop_results(sequence);
}

}  // namespace nereid::sched
