#include "runtime/grammars/grammar_masks.h"

#include <algorithm>
#include <cmath>

#include "runtime/grammars/token_bans.h"
#include "runtime/sequence_payload.h"
#include "sched/sequence.h"

namespace nereid::runtime {
namespace {

// A single forced token does not pay for a step without overlap.
constexpr int32_t kLeastForced = 2, kMostForced = 32;
// Decay per test, and prior counts of the acceptance rate of forced tokens (9 of 10).
constexpr double kKeptOfTests = 0.99, kPriorTested = 10, kPriorAccepted = 9;
constexpr double kWorth = 1.05;  // required gain of tokens per second

}  // namespace

bool GrammarMasks::offer(sched::Scheduler& scheduler, bool in_flight) {
  if (!jumps_ahead_ || states_.empty()) return true;
  find_forced(scheduler);
  if (!pays(scheduler.running().size()))
    for (Forced& one : forced_) one.tokens.clear();
  else if (in_flight)
    return false;
  for (const Forced& one : forced_) {
    one.state->num_asked = one.num_known;
    scheduler.draft(one.id, one.tokens);
  }
  return true;
}

// Finds forced tokens of each sequence with new tokens since the last call.
void GrammarMasks::find_forced(const sched::Scheduler& scheduler) {
  forced_.clear();
  text::StepBudget effort{.steps = turn_steps_, .waits = false};
  int32_t room =
      scheduler.limits().num_logits_rows() - static_cast<int32_t>(scheduler.running().size());
  for (const sched::Sequence* sequence : scheduler.running()) {
    if (sequence->num_pending() != 1 || !sequence->may_draft()) continue;
    const auto found = states_.find(sequence->id());
    if (found == states_.end()) continue;
    State& state = found->second;
    if (state.job || state.num_asked == sequence->tokens().size()) continue;
    if (!catch_up(state, *sequence, effort)) continue;
    const int32_t num_unknown = sequence->has_unknown();
    const int32_t left = sequence->spec().max_new_tokens - sequence->num_generated() - 1;
    const int32_t most = std::min({kMostForced, room, left - num_unknown});
    Forced one{.id = sequence->id(),
               .state = &state,
               .num_known = sequence->tokens().size(),
               .num_unknown = num_unknown};
    if (most >= kLeastForced && state.failure.ok())
      one.tokens = state.output.forced(static_cast<size_t>(num_unknown + most), effort);
    if (std::ssize(one.tokens) < num_unknown + kLeastForced) one.tokens.clear();
    room -= static_cast<int32_t>(one.tokens.size());
    forced_.push_back(std::move(one));
  }
}

// Where they are as many as the running sequences, one step gives as much as two. Fewer should give
// more tokens in a second than the next step would without them.
bool GrammarMasks::pays(size_t num_rows) const {
  const double rate = (num_accepted_ + kPriorAccepted) / (num_tested_ + kPriorTested);
  int32_t num_forced = 0;
  double num_expected = 0;
  for (const Forced& one : forced_) {
    const auto count = std::max<int32_t>(0, std::ssize(one.tokens) - one.num_unknown);
    num_forced += count;
    num_expected += rate * (1 - std::pow(rate, count)) / (1 - rate);
  }
  const auto rows = static_cast<int32_t>(num_rows);
  if (num_forced == 0 || num_forced >= rows) return num_forced > 0;
  if (!costs_.step.knows(rows)) return false;
  const double host = costs_.host.at(rows);
  const double plain = costs_.step.at(rows) + (costs_.overlaps ? 0 : host);
  const double jumping = costs_.step.at(rows + num_forced) + host;  // nothing runs beside it
  return (rows + num_expected) * plain > kWorth * rows * jumping;
}

Status GrammarMasks::completed(const LandedRow& completed, EngineUpdate&) {
  const sched::ScheduledRow& row = completed.row;
  if (completed.is_late || row.num_drafts == 0 || !row.sequence->spec().has_grammar) return ok();
  const auto num_accepted = static_cast<double>(completed.result.drawn.size() - 1);
  num_accepted_ = kKeptOfTests * num_accepted_ + num_accepted;
  num_tested_ = kKeptOfTests * num_tested_ + std::min<double>(num_accepted + 1, row.num_drafts);
  return ok();
}

void GrammarMasks::write(const sched::ScheduledRow& row, const RowMessage& to) {
  if (!row.samples || !row.sequence->spec().has_grammar) return;
  states_.try_emplace(row.sequence->id(), State{text::ConstrainedOutput(payload_of(row).guide)});
  to.out.has_mask = 1;
}

void GrammarMasks::mask(const sched::StepPlan& plan, exec::Masks& masks,
                        std::vector<int32_t>& late) {
  text::StepBudget effort{.steps = turn_steps_, .waits = false};
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const sched::ScheduledRow& row = plan.rows[i];
    const sched::Sequence& sequence = *row.sequence;
    if (!row.samples || !sequence.spec().has_grammar) continue;
    const auto found = states_.find(sequence.id());
    if (found == states_.end()) continue;  // the sequence has ended
    if (sequence.tokens().size() != static_cast<size_t>(row.first_sampled())) continue;
    const size_t num_words = masks.words.size();
    if (!fill(found->second, row, effort, masks)) {
      masks.words.resize(num_words);
      for (int32_t k = 0; k <= row.num_drafts; ++k) add_mask(masks);
      begin_job(found->second, sequence);
      late.push_back(static_cast<int32_t>(i));
    }
    if (masks.words.size() > num_words) masks.rows.push_back(static_cast<int32_t>(i));
  }
}

// False: the effort is used up.
bool GrammarMasks::catch_up(State& state, const sched::Sequence& sequence,
                            text::StepBudget& effort) {
  const auto output = sequence.tokens().subspan(static_cast<size_t>(sequence.num_prompt()));
  for (; state.num_matched < output.size() && state.failure.ok(); ++state.num_matched) {
    const Status status = state.output.accept(output[state.num_matched], effort);
    if (absl::IsUnavailable(status)) return false;
    state.failure = status;
    state.mask.clear();
  }
  return true;
}

// Adds the masks of one row; false: the effort is used up before the first.
bool GrammarMasks::fill(State& state, const sched::ScheduledRow& row, text::StepBudget& effort,
                        exec::Masks& masks) const {
  if (!catch_up(state, *row.sequence, effort)) return false;
  if (row.num_drafts == 0 && state.failure.ok() && !state.output.limits_next()) return true;
  const std::span<uint32_t> mask = add_mask(masks);
  if (!state.mask.empty() && state.failure.ok()) {
    std::ranges::copy(state.mask, mask.begin());
  } else if (state.failure.ok()) {
    const Status status = state.output.fill_mask(mask, row.sequence->spec().end_ids, effort);
    if (absl::IsUnavailable(status)) return false;
    state.failure = status;
  }
  if (row.num_drafts > 0) add_drafts(state, row, effort, masks);
  return true;
}

// Adds the masks behind a row's drafts. After an error, or without effort, a mask is empty, which
// rejects all further drafts.
void GrammarMasks::add_drafts(const State& state, const sched::ScheduledRow& row,
                              text::StepBudget& effort, exec::Masks& masks) const {
  text::ConstrainedOutput ahead = state.output;
  Status status = state.failure;
  for (const TokenId draft : row.sequence->drafts().first(static_cast<size_t>(row.num_drafts))) {
    if (status.ok()) status = ahead.accept(draft, effort);
    const std::span<uint32_t> mask = add_mask(masks);
    if (status.ok()) status = ahead.fill_mask(mask, row.sequence->spec().end_ids, effort);
    if (!status.ok()) std::ranges::fill(mask, 0u);
  }
}

// A mask without tokens.
std::span<uint32_t> GrammarMasks::add_mask(exec::Masks& masks) const {
  const auto num_words = static_cast<size_t>(kernels::mask_words(vocab_size_));
  masks.words.resize(masks.words.size() + num_words);
  return std::span(masks.words).last(num_words);
}

void GrammarMasks::begin_job(State& state, const sched::Sequence& sequence) {
  const auto output = sequence.tokens().subspan(static_cast<size_t>(sequence.num_prompt()));
  const auto unmatched = output.subspan(state.num_matched);
  state.job = std::make_shared<MaskJob>(sequence.id(), std::move(state.output));
  state.job->tokens.assign(unmatched.begin(), unmatched.end());
  state.job->end_ids = sequence.spec().end_ids;
  state.job->mask.resize(static_cast<size_t>(kernels::mask_words(vocab_size_)));
  worker_.add(state.job);
}

bool GrammarMasks::resume(RequestId id) {
  const auto found = states_.find(id);
  if (found == states_.end() || !found->second.job) return false;
  State& state = found->second;
  const std::shared_ptr<MaskJob> job = std::exchange(state.job, nullptr);
  state.output = std::move(job->output);
  state.num_matched += job->tokens.size();
  state.failure = job->status;
  state.mask = std::move(job->mask);
  state.slow_steps += job->steps;
  const int64_t most = kSlowSteps + kSlowStepsPerToken * static_cast<int64_t>(state.num_matched);
  if (state.failure.ok() && state.slow_steps > most)
    state.failure = invalid_argument(
        "guided_decoding: the grammar took {} steps to check {} tokens, and {} are allowed for so "
        "many; a less ambiguous one takes fewer",
        state.slow_steps, state.num_matched, most);
  return true;
}

void GrammarMasks::close(RequestId id) {
  const auto found = states_.find(id);
  if (found == states_.end()) return;
  if (found->second.job) found->second.job->is_dropped = true;
  states_.erase(found);
}

std::vector<uint32_t> GrammarMasks::next_mask(const sched::Sequence& sequence) {
  const auto found = states_.find(sequence.id());
  if (found == states_.end() || found->second.job || !found->second.failure.ok()) return {};
  text::ConstrainedOutput& output = found->second.output;
  if (!output.limits_next()) return {};
  std::vector<uint32_t> mask = found->second.mask;
  if (!mask.empty()) return mask;
  mask.resize(static_cast<size_t>(kernels::mask_words(vocab_size_)));
  text::StepBudget effort{.steps = turn_steps_, .waits = false};
  if (!output.fill_mask(mask, sequence.spec().end_ids, effort).ok()) mask.clear();
  return mask;
}

Status GrammarMasks::failure(const sched::ScheduledRow& row) {
  const sched::Sequence& sequence = *row.sequence;
  const auto found = states_.find(sequence.id());
  if (found != states_.end() && !found->second.failure.ok()) return found->second.failure;
  if (sequence.tokens().size() != static_cast<size_t>(row.first_sampled())) return ok();
  const TokenBits left =
      tokens_left(sequence.spec(), sequence.num_prompt(), sequence.tokens(), vocab_size_);
  return check_some_left(left, next_mask(sequence), row.first_sampled());
}

}  // namespace nereid::runtime
