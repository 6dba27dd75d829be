// Scheduler: plans one step, from runnable sequences to rows. No device call.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "sched/scheduler.h"

namespace nereid::sched {

StepPlan Scheduler::plan(Time now, StepPlan former) {
  StepPlan plan = std::move(former);
  plan.rows.clear(), plan.copies.clear(), plan.onboards.clear(), plan.encodes.clear();
  plan.num_tokens = 0;
  pool_.expire(now);
  ++serial_;
  short_of_memory_ = false;
  first_sat_out_last_ = std::exchange(first_sat_out_, false);
  pass_inputs();
  sort_running();
  plan_decodes(plan);
  admit_waiting(plan, now);
  plan_encodes(plan);
  plan_shares(plan);
  plan_drafts(plan);
  plan.onboards = pool_.take_onboards();
  if (!plan.empty()) plan.copies = pool_.take_copies();
  NEREID_CHECK(!plan.empty() || num_inflight_ > 0 || num_arriving_ > 0 || num_held_ > 0 || idle() ||
               std::ranges::any_of(running_, &Sequence::awaits_adapter_));
  return plan;
}

// A model in stages computes as many steps at a time, each with its part of the tokens. Prompts
// that must not be chunked need whole steps, a search one row for each beam.
int32_t Scheduler::max_step_tokens() const {
  if (!limits_.policy.enable_chunked_context) return limits_.max_num_tokens;
  const int32_t part = (limits_.max_num_tokens - 1) / limits_.num_stages + 1;
  return std::max(part, std::min(limits_.max_beam_width, limits_.max_num_tokens));
}

// Tokens that prompts may have in the step being planned, once its decodes are.
int32_t Scheduler::prefill_room(const StepPlan& plan) const {
  const int32_t left = max_step_tokens() - plan.num_tokens;
  if (prefill_limit_ == 0 || !decodes_wait_ || !limits_.policy.enable_chunked_context) return left;
  return std::min(left, std::max(prefill_limit_, limits_.tokens_per_block));
}

// Decodes are planned before prefill, so that they never wait for a long prompt; an older prompt
// has one block of the step's tokens reserved. With stages, each of the steps in flight has its
// part of the decodes, whose inputs are known: sampled tokens do not reach the first stage.
void Scheduler::sort_running() {
  decodes_.clear();
  shares_.clear();
  int32_t left = max_step_tokens(), set_aside = 0;
  const auto decodes = [](const Sequence* s) { return s->length() - s->computed_ <= 1; };
  const auto num_decodes = std::ranges::count_if(running_, decodes);
  decodes_wait_ = std::ranges::any_of(
      running_, [&](const Sequence* s) { return decodes(s) && !s->draining() && !s->at_limit(); });
  auto rows_left = static_cast<int32_t>((num_decodes - 1) / limits_.num_stages + 1);
  for (Sequence* sequence : running_) {
    if (sequence->awaits_adapter_) sequence->awaits_adapter_ = !has_adapter(*sequence);
    // A preempted sequence needs memory soon: no new sequence is admitted before it.
    short_of_memory_ |= sequence->preempted_;
    if (!may_go_on(*sequence) || sequence->at_limit() || sequence->num_host_rows_ > 0) continue;
    if (limits_.num_stages > 1 && sequence->has_unknown()) continue;
    const int32_t n = sequence->length() - sequence->computed_;
    if (n > 1 || sequence->wants_all_logits() || num_ready(*sequence) == 0) {
      if (shares_.empty()) {
        const bool whole = !limits_.policy.enable_chunked_context;
        const int32_t start = sequence->computed_;
        const int32_t least = std::min(n, limits_.tokens_per_block);
        set_aside =
            std::min({left, n, whole ? n : whole_end(*sequence, start, start + least) - start});
      }
      shares_.push_back({.sequence = sequence, .wanted = n});
    } else if (!sequence->drafts_.empty() && sequence->inflight_ > 0) {
      continue;  // drafts wait for the tokens in flight
    } else if (const int32_t num_rows = sequence->num_beams();
               num_rows <= left - set_aside && rows_left-- > 0) {
      left -= num_rows;
      decodes_.push_back(sequence);
    }
  }
}

// Positions from computed_ on whose encoder results are there.
int32_t Scheduler::num_ready(const Sequence& s) {
  const std::vector<EncoderSpec>& inputs = s.spec_.encoder_inputs;
  for (size_t i = s.next_input_; i < inputs.size(); ++i) {
    if (inputs[i].end <= s.computed_ || (s.results_[i] && s.results_[i]->is_computed)) continue;
    return std::max(inputs[i].begin - s.computed_, 0);
  }
  return INT32_MAX;
}

// Drops the results whose tokens have been planned: later steps may write to their blocks. Rows
// that are computed again (Scheduler::undrawn) need theirs again.
void Scheduler::pass_inputs() {
  for (Sequence* s : running_) {
    const std::vector<EncoderSpec>& inputs = s->spec_.encoder_inputs;
    while (s->next_input_ > 0 && inputs[s->next_input_ - 1].end > s->computed_) --s->next_input_;
    for (; s->next_input_ < inputs.size() && inputs[s->next_input_].end <= s->computed_;
         ++s->next_input_)
      drop_result(*s, s->next_input_);
  }
}

// Encoder inputs of running sequences, in order, as far as the step has room for them: whole,
// because each of their positions attends to all. They are computed in front of the step's rows.
// Results that no row of the step can reach are not asked for.
void Scheduler::plan_encodes(StepPlan& plan) {
  int32_t tokens = limits_.max_encoder_tokens, parts = limits_.max_encoder_parts;
  if (tokens == 0) return;
  for (Sequence* sequence : running_) {
    const std::vector<EncoderSpec>& inputs = sequence->spec_.encoder_inputs;
    if (sequence->draining() || sequence->awaits_adapter_) continue;
    for (size_t i = sequence->next_input_; i < inputs.size(); ++i) {
      const bool is_far = inputs[i].begin - sequence->computed_ >= limits_.max_num_tokens;
      if (is_far && limits_.policy.enable_chunked_context) break;
      if (inputs[i].end <= sequence->computed_) continue;
      if (!sequence->results_[i] && !hold_result(*sequence, i)) return;
      EncoderCache::Entry& entry = *sequence->results_[i];
      if (entry.is_computed) continue;
      if (inputs[i].length > tokens || inputs[i].num_parts > parts) return;
      tokens -= inputs[i].length;
      parts -= inputs[i].num_parts;
      entry.is_computed = true;
      plan.encodes.push_back({sequence, i, entry.blocks});
    }
  }
}

// False: no room, and no later sequence has any to give.
bool Scheduler::hold_result(Sequence& sequence, size_t input) {
  const EncoderSpec& spec = sequence.spec_.encoder_inputs[input];
  EncoderCache::Entry*& entry = sequence.results_[input];
  do entry = encoders_.hold(spec.key, spec.num_results, spec.is_private);
  while (!entry && take_result_behind(sequence));
  return entry != nullptr;
}

// Takes a result from the last sequence behind `sequence` that holds one and has no row in this
// plan; it is computed again when it is needed.
bool Scheduler::take_result_behind(const Sequence& sequence) {
  for (size_t i = running_.size(); i-- > 0 && running_[i] != &sequence;) {
    Sequence& other = *running_[i];
    if (other.planned_at_ == serial_) continue;
    for (size_t j = other.results_.size(); j-- > 0;) {
      const bool lasts = other.spec_.encoder_inputs[j].end == EncoderSpec::kAllTokens;
      if (lasts || !other.results_[j]) continue;
      drop_result(other, j);
      return true;
    }
  }
  return false;
}

void Scheduler::plan_decodes(StepPlan& plan) {
  plan.rows.reserve(static_cast<size_t>(limits_.max_batch_size) - free_slots_.size());
  for (Sequence* sequence : decodes_)
    if (can_go_on(*sequence) && make_room(*sequence, sequence->computed_ + 1))
      add_rows(plan, *sequence, 1);
}

void Scheduler::plan_shares(StepPlan& plan) {
  // Sequences preempted by plan_decodes() are removed, and ones that wait for encoder results.
  const bool whole = !limits_.policy.enable_chunked_context;
  for (Share& share : shares_) {
    const int32_t ready = num_ready(*share.sequence), start = share.sequence->computed_;
    if (ready >= share.wanted) continue;
    const WholeSpan* const span = span_around(*share.sequence, start + ready);
    share.wanted = whole ? 0 : span ? std::max(span->begin - start, 0) : ready;
  }
  std::erase_if(shares_, [&](const Share& share) {
    return share.wanted == 0 || !may_go_on(*share.sequence);
  });
  // A sequence just admitted may come before running ones.
  std::ranges::sort(shares_, Before(), &Share::sequence);
  // One row of logits per slot in use; the remaining ones are for context logits.
  int32_t spare =
      limits_.num_logits_rows() - limits_.max_batch_size + static_cast<int32_t>(free_slots_.size());
  int32_t to_score = limits_.max_scored_tokens > 0 ? limits_.max_scored_tokens : INT32_MAX;
  bool is_first_scored = true;
  for (Share& share : shares_) {
    if (!share.sequence->wants_all_logits()) continue;
    const int32_t weight = share.sequence->spec().score_weight;
    if (share.sequence->scores_prompt()) {
      const int32_t least = is_first_scored ? 1 : 0;  // guarantees progress
      share.wanted = std::min(share.wanted, std::max(to_score / weight, least));
      if (share.wanted == 0) continue;
      is_first_scored = false;
    }
    share.wanted = whole_part(share, std::min(share.wanted, spare + 1), spare + 1);
    if (share.wanted == 0) continue;
    spare -= share.wanted - 1;
    if (share.sequence->scores_prompt()) to_score = std::max(0, to_score - share.wanted * weight);
  }
  const int32_t budget = prefill_room(plan), most = max_step_tokens() - plan.num_tokens;
  if (limits_.policy.chunking_policy == ChunkingPolicy::kEqualProgress &&
      limits_.policy.enable_chunked_context) {
    share_equally(budget, most);
  } else {
    share_in_turn(budget, most);
  }
  for (const Share& share : shares_) {
    Sequence& sequence = *share.sequence;
    if (share.num_tokens > 0 && can_go_on(sequence) &&
        make_room(sequence, sequence.computed_ + share.num_tokens))
      add_rows(plan, sequence, share.num_tokens);
  }
}

// The whole span that a row up to `end` would cut; null: none.
const WholeSpan* Scheduler::span_around(const Sequence& s, int32_t end) {
  const std::vector<WholeSpan>& spans = s.spec_.whole_spans;
  const auto found = std::ranges::find_if(
      spans, [end](const WholeSpan& span) { return span.begin < end && end < span.end; });
  return found == spans.end() ? nullptr : &*found;
}

// The end of a row of positions [start, end), moved out of a whole span: to its begin, or to its
// end if the row has no position in front of it.
int32_t Scheduler::whole_end(const Sequence& s, int32_t start, int32_t end) {
  const WholeSpan* const span = span_around(s, end);
  if (!span) return end;
  return span->begin > start ? span->begin : span->end;
}

// The first `num_tokens` of a share, more or fewer where they end inside a whole span; 0: these are
// more than `most`.
int32_t Scheduler::whole_part(const Share& share, int32_t num_tokens, int32_t most) {
  const int32_t start = share.sequence->computed_;
  if (num_tokens == 0) return 0;
  const int32_t count = whole_end(*share.sequence, start, start + num_tokens) - start;
  return count <= most ? count : 0;
}

// First come, first served. Chunks end at block ends, so that the next chunk writes whole blocks;
// the first share may get less than a block, and for a whole span all of the step's room `most`,
// which guarantees progress.
void Scheduler::share_in_turn(int32_t budget, int32_t most) {
  bool first = true;
  for (Share& share : shares_) {
    if (budget <= 0) return;
    int32_t n = std::min(share.wanted, budget);
    if (n < share.wanted && !share.sequence->wants_all_logits()) {
      if (!may_chunk(share)) return;
      const int32_t start = share.sequence->computed_;
      const int32_t aligned =
          (start + n) / limits_.tokens_per_block * limits_.tokens_per_block - start;
      n = aligned > 0 ? aligned : first ? n : 0;
    }
    n = whole_part(share, n, first ? most : budget);
    share.num_tokens = n;
    budget -= n;
    first = false;
  }
}

// Round robin, one block per turn, or a whole span. The first share gets at least what is left, for
// a whole span of the step's room `most`, which guarantees progress even if all others lack memory.
void Scheduler::share_equally(int32_t budget, int32_t most) {
  const int32_t size = limits_.tokens_per_block;
  int32_t left = budget;
  for (bool more = true; more;) {
    more = false;
    for (Share& share : shares_) {
      const int32_t start = share.sequence->computed_;
      const int32_t block_end = ((start + share.num_tokens) / size + 1) * size - start;
      int32_t unit = std::min(share.wanted, block_end) - share.num_tokens;
      const bool comes_first = &share == &shares_[0] && share.num_tokens == 0;
      if (comes_first) unit = std::min(unit, left);
      if (unit <= 0) continue;
      const int32_t from = start + share.num_tokens;
      unit = whole_end(*share.sequence, from, from + unit) - from;
      if (unit > (comes_first ? most : left)) continue;
      share.num_tokens += unit;
      left -= unit;
      more = true;
    }
  }
}

// Without chunked context only a resumed sequence longer than a step is chunked.
bool Scheduler::may_chunk(const Share& share) const {
  return limits_.policy.enable_chunked_context || share.wanted > limits_.max_num_tokens;
}

// False: `sequence` gets no row in this step. It waits for memory of draining sequences, for older
// sequences to finish, or for its own rows in flight.
bool Scheduler::make_room(Sequence& sequence, int32_t num_tokens) {
  const int64_t before = pool_.stats().alloc_total;
  bool enough = reserve(sequence, num_tokens);
  while (!enough) {
    short_of_memory_ = true;
    if (num_draining_ > 0 || !may_pause()) break;
    Sequence& victim = last_to_serve();
    if (&victim == &sequence) break;
    pause(victim);
    enough = reserve(sequence, num_tokens);
  }
  first_sat_out_ |= !enough && &sequence == running_.front();
  // Counts the prompt's blocks only: the figure does not depend on the output's length.
  if (num_tokens <= sequence.num_prompt_)
    sequence.metrics_.allocated_blocks += static_cast<int32_t>(pool_.stats().alloc_total - before);
  return enough;
}

// The next sequence to preempt: the last held one, because its memory is idle, else the last one.
Sequence& Scheduler::last_to_serve() const {
  const auto held = std::find_if(running_.rbegin(), running_.rend(),
                                 [](const Sequence* s) { return s->holds_ > 0 && !s->draining(); });
  return held == running_.rend() ? *running_.back() : **held;
}

// All beams or false; beams that got their blocks keep them.
bool Scheduler::reserve(Sequence& sequence, int32_t num_tokens) {
  for (int32_t i = 0; i < sequence.num_beams(); ++i)
    if (!pool_.reserve(sequence.beam_slots_[i].table, sequence.computed_, num_tokens)) return false;
  return true;
}

void Scheduler::add_rows(StepPlan& plan, Sequence& sequence, int32_t num_tokens) {
  const int32_t num_beams = sequence.num_beams();
  const int32_t num_known = static_cast<int32_t>(sequence.tokens().size());
  ScheduledRow row{.sequence = &sequence, .start = sequence.computed_, .num_tokens = num_tokens};
  const bool reaches_end = row.end() == sequence.length();
  row.samples = reaches_end && !sequence.pools();
  row.ends_prompt = reaches_end && sequence.pools();
  row.input_on_device = row.end() > num_known;
  row.all_logits = sequence.wants_all_logits();
  row.needs_host = sequence.searches();  // the host selects the next beams
  for (row.beam = 0; row.beam < num_beams; ++row.beam) {
    row.slot = sequence.beam_slots_[row.beam].slot;
    plan.rows.push_back(row);
  }
  stats_.prompt_tokens += std::max(0, std::min(row.end(), sequence.num_prompt_) - row.start);
  plan.num_tokens += num_beams * num_tokens;
  sequence.computed_ = row.end();
  sequence.planned_at_ = serial_;
  sequence.planned_from_ = row.start;
  sequence.inflight_ += num_beams;
  if (row.needs_host) sequence.num_host_rows_ += num_beams;
  num_inflight_ += num_beams;
  if (reaches_end && !sequence.searches()) ++sequence.unknown_;
}

// Adds drafts to rows whose tokens are on the host, from what is left of tokens, logits and blocks;
// no sequence is preempted for drafts.
void Scheduler::plan_drafts(StepPlan& plan) {
  int32_t logits = limits_.num_logits_rows();
  for (const ScheduledRow& row : plan.rows) logits -= row.num_logits();
  for (ScheduledRow& row : plan.rows) {
    Sequence& sequence = *row.sequence;
    if (sequence.drafts_.empty() || !row.samples || row.input_on_device || row.all_logits) continue;
    const int32_t most = std::min(logits, limits_.max_num_tokens - plan.num_tokens);
    const int32_t count = num_drafts_for(sequence, row, most);
    if (count <= 0) continue;
    NEREID_CHECK(pool_.reserve(sequence.beam_slots_[0].table, row.start, row.end() + count));
    row.num_tokens += count;
    row.num_drafts = count;
    row.needs_host = true;
    ++sequence.num_host_rows_;
    sequence.computed_ += count;
    sequence.num_draft_positions_ += count;
    plan.num_tokens += count;
    logits -= count;
  }
}

// At most limit - end - 1 drafts; blocks are taken only beyond one free block per running beam.
int32_t Scheduler::num_drafts_for(const Sequence& sequence, const ScheduledRow& row,
                                  int32_t most) const {
  int32_t count = std::min(
      {most, static_cast<int32_t>(sequence.drafts_.size()), sequence.limit_ - row.end() - 1});
  const int32_t num_used = limits_.max_batch_size - static_cast<int32_t>(free_slots_.size());
  for (size_t g = 0; g < limits_.groups.size(); ++g) {
    const auto held = static_cast<int32_t>(sequence.block_table(0, g).size());
    const int32_t spare = std::max(0, pool_.num_free(g) - num_used);
    count = std::min(count, (held + spare) * limits_.tokens_per_block - row.end());
  }
  return count;
}

}  // namespace nereid::sched
