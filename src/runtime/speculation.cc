// Speculation: whom to ask, when, and for how many.
#include "runtime/speculation.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "base/check.h"

namespace nereid::runtime {
namespace {

constexpr double kForget = 0.9;    // weight of what was, with each draft tested
constexpr double kWorth = 0.25;    // chance to hold from which on a draft pays
constexpr size_t kSilentFor = 64;  // tokens

}  // namespace

// With each draft its chance is that of the one before it times the rate.
int32_t Speculation::most_for(State& state, size_t num_running) const {
  if (!options_.adapts) return options_.max_drafts;
  if (state.num_known < state.silent_until) return 0;
  if (state.rate() < kWorth) {
    state = {.num_known = state.num_known, .silent_until = state.num_known + kSilentFor};
    return 0;
  }
  const double worth = std::log(kWorth) / std::log(std::min(state.rate(), 0.99));
  const auto room = static_cast<double>(options_.cheap_tokens) / static_cast<double>(num_running);
  return static_cast<int32_t>(
      std::min({worth, std::max(0.0, room - 1), static_cast<double>(options_.max_drafts)}));
}

void Speculation::offer(sched::Scheduler& scheduler) {
  if (!proposer_) return;
  num_questions_ = 0;
  for (const sched::Sequence* sequence : scheduler.running()) {
    if (!sequence->may_draft()) continue;
    if (sequence->num_generated() == 0 && !sequence->drafts().empty()) continue;  // the client's
    State& state = states_[sequence->id()];
    const size_t num_known = sequence->tokens().size();
    if (std::exchange(state.num_known, num_known) == num_known) continue;
    int32_t most = std::min(most_for(state, scheduler.running().size()),
                            sequence->spec().max_new_tokens - sequence->num_generated() - 1);
    // Its next row waits for the token that the device draws, so that drafts can come after it; all
    // but the first would be asked for again then.
    if (sequence->has_unknown()) most = std::min(most, 1);
    if (most <= 0) {
      scheduler.draft(sequence->id(), {});
      continue;
    }
    DraftQuestion& question = next_question();
    question.sequence = sequence;
    question.most = most;
  }
  if (num_questions_ == 0) return;
  const auto questions = std::span(questions_).first(num_questions_);
  proposer_->propose(questions);
  for (DraftQuestion& question : questions) answer(question, scheduler);
}

DraftQuestion& Speculation::next_question() {
  if (num_questions_ == questions_.size()) questions_.emplace_back();
  DraftQuestion& question = questions_[num_questions_++];
  question.drafts.clear();
  question.is_behind = false;
  return question;
}

void Speculation::answer(const DraftQuestion& question, sched::Scheduler& scheduler) {
  const auto& drafts = question.drafts;
  NEREID_CHECK(drafts.size() <= static_cast<size_t>(question.most));
  const RequestId id = question.sequence->id();
  if (question.is_behind) states_[id].num_known = 0;
  const auto end = std::ranges::find_if(
      drafts, [&](TokenId token) { return token < 0 || token >= options_.vocab_size; });
  scheduler.draft(id, std::span(drafts.begin(), end));
}

void Speculation::landed(const sched::Row& row, size_t num_drawn) {
  if (!proposer_ || row.num_drafts == 0) return;
  State& state = states_[row.sequence->id()];
  const size_t num_held = num_drawn - 1, num_drafts = static_cast<size_t>(row.num_drafts);
  for (size_t i = 0; i < std::min(num_held + 1, num_drafts); ++i) {
    state.held = kForget * state.held + (i < num_held);
    state.tested = kForget * state.tested + 1;
  }
}

void Speculation::forget(RequestId id) {
  if (!proposer_) return;
  states_.erase(id);
  proposer_->forget(id);
}

}  // namespace nereid::runtime
