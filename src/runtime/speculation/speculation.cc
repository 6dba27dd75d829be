// Speculation: which sequences get drafts, when, and how many.
#include "runtime/speculation/speculation.h"

#include <algorithm>
#include <functional>
#include <span>
#include <utility>

#include "base/check.h"
#include "runtime/sequence_payload.h"

namespace nereid::runtime {
namespace {

// Decay of the counts of accepted and tested drafts, per test.
constexpr double kKeepOwn = 0.97, kKeepOverall = 0.995;
// Beta priors of acceptance rates as pseudo-counts. Sequence: kPriorOwn at the overall rate
// (kPriorProbed once it was explored); overall: kPriorOverall at 1/2.
constexpr double kPriorOwn = 12, kPriorProbed = 4, kPriorOverall = 4;
constexpr double kMostCertain = 0.98;

constexpr int32_t kProbeDrafts = 2;
constexpr size_t kSilentFor = 16;  // tokens without a test before exploration
// Time between explorations = factor * extra time of the last one: initially; maximum, reached by
// doubling while explorations change nothing.
constexpr double kProbeEvery = 100, kProbeSeldom = 800;
constexpr size_t kUnchosenShare = 4;  // After a choice without drafts, the next is made after
                                      // (sequences / kUnchosenShare) steps.
constexpr double kLeastProbe = 0.1;   // least extra time of an exploration / step time

bool draws_freely(const sched::SequenceSpec& spec) {
  return spec.sampling.beam_width == 1 && !spec.has_grammar;
}

}  // namespace

Speculation::Speculation(Proposer* proposer, const Options& options)
    : proposer_(proposer), options_(options), probe_every_(kProbeEvery) {
  if (proposer_) proposer_->set_clock(*options.clock);
  costs_.overlaps = options.overlaps;
}

bool Speculation::offer(sched::Scheduler& scheduler, bool in_flight) {
  was_busy_ = !scheduler.running().empty();
  if (!proposer_) return true;
  proposer_->follow(scheduler.running());
  find_candidates(scheduler);
  if (num_questions_ == 0) return true;
  if (proposer_->is_free()) answer_all();
  decide();
  const bool any = std::ranges::any_of(candidates_, [](const auto& c) { return c.count > 0; });
  if (any && in_flight) return false;
  if (any && options_.adapts) costs_.step.use(next_.num_tokens);
  note_exploration();
  ask_chosen(scheduler);
  return true;
}

// Finds sequences whose next row is one token (so that drafts can follow) and that have new tokens
// since their last drafts, and counts the other tokens of the next step.
void Speculation::find_candidates(sched::Scheduler& scheduler) {
  num_questions_ = 0;
  candidates_.clear();
  if (options_.adapts && proposer_->makes_trees()) find_chances();
  exploration_.clear();
  next_ = {};
  for (const sched::Sequence* sequence : scheduler.running()) {
    const int32_t num_pending = sequence->num_pending();
    next_.num_tokens += num_pending;
    if (num_pending <= sequence->beam_width()) next_.num_drawing += num_pending;
    if (num_pending != 1 || !sequence->may_draft() || sequence->spec().has_grammar) continue;
    if (sequence->num_generated() == 0 && !sequence->drafts().empty()) continue;  // the client's
    if (states_[sequence->id()].num_known == sequence->tokens().size()) continue;
    const int32_t left =
        sequence->spec().max_new_tokens - sequence->num_generated() - 1 - sequence->has_unknown();
    const int32_t most = std::min(options_.max_drafts, left);
    if (most <= 0) {
      scheduler.draft(sequence->id(), {});
    } else {
      add_question(*sequence, most);
    }
  }
  const sched::Limits& limits = scheduler.limits();
  if (scheduler.prefill_limit() > 0 && next_.num_drawing > 0)
    next_.num_tokens = std::min(next_.num_tokens, next_.num_drawing + scheduler.prefill_limit());
  next_.num_tokens = std::min(next_.num_tokens, limits.max_num_tokens);
  next_.room = std::min(limits.max_num_tokens - next_.num_tokens,
                        limits.num_logits_rows() - next_.num_drawing);
}

void Speculation::add_question(const sched::Sequence& sequence, int32_t most) {
  if (num_questions_ == questions_.size()) questions_.emplace_back();
  DraftQuestion& question = questions_[num_questions_++];
  question.sequence = &sequence;
  question.most = most;
  question.drafts.clear();
  question.parents.clear();
  question.is_behind = false;
  candidates_.push_back(
      {.rate = rate_of(states_[sequence.id()]), .chances = chances_, .most = most});
}

// Acceptance probability of tree node i: prior 1 / (i + 2), weight kPriorOverall.
void Speculation::find_chances() {
  in_tree_.resize(static_cast<size_t>(options_.max_drafts));
  chances_.resize(in_tree_.size());
  double least = kMostCertain;
  for (size_t i = 0; i < in_tree_.size(); ++i) {
    const double prior = 1.0 / static_cast<double>(i + 2);
    const double chance =
        (in_tree_[i].accepted + prior * kPriorOverall) / (in_tree_[i].tested + kPriorOverall);
    chances_[i] = least = std::min(least, chance);
  }
}

double Speculation::rate_of(const State& state) const {
  const double prior =
      (overall_.accepted + 0.5 * kPriorOverall) / (overall_.tested + kPriorOverall);
  const double weight = state.last_probe > 0 ? kPriorProbed : kPriorOwn;
  const double rate = (state.tested.accepted + prior * weight) / (state.tested.tested + weight);
  return std::min(rate, kMostCertain);
}

// If the host lacks a token that the device has sampled, the first draft is for its position.
void Speculation::answer_all() {
  const auto questions = std::span(questions_).first(num_questions_);
  for (DraftQuestion& question : questions) question.most += question.sequence->has_unknown();
  ask(questions);
  for (size_t i = 0; i < num_questions_; ++i) {
    const auto num_drafts = static_cast<int32_t>(questions[i].drafts.size());
    candidates_[i].most = std::max(0, num_drafts - questions[i].sequence->has_unknown());
  }
}

void Speculation::decide() {
  if (!options_.adapts) {
    for (DraftCandidate& c : candidates_) c.count = c.most;
    return;
  }
  // A step without drafts must be measured first.
  if (!costs_.step.knows(next_.num_drawing)) return;
  // A choice for many sequences takes time: after one without drafts it is skipped for some steps.
  if (!none_paid_ || ++num_unchosen_ >= candidates_.size() / kUnchosenShare) {
    expected_ = chooser_.choose(costs_, next_, candidates_);
    none_paid_ = std::ranges::all_of(candidates_, [](const auto& c) { return c.count == 0; });
    num_unchosen_ = 0;
    if (!none_paid_) probe_every_ = kProbeEvery;
  }
  const bool is_plain = next_.num_tokens == next_.num_drawing;
  if (is_plain && costs_.step.is_due(next_.num_tokens)) {  // measure it again
    for (DraftCandidate& c : candidates_) c.count = 0;
  } else if (is_plain && (probes_again_ || last_finished_ >= next_probe_)) {
    explore();
  }
}

// Explores the sequences without drafts for longest. A proposer with a cost is asked again in the
// next step, because in the first it also computes the backlog.
void Speculation::explore() {
  const auto silent_for = [this](size_t i) {
    const sched::Sequence& sequence = *questions_[i].sequence;
    return sequence.tokens().size() - states_[sequence.id()].tested_at;
  };
  int32_t room = next_.room;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    room -= candidates_[i].count;
    if (candidates_[i].count > 0 || candidates_[i].most == 0) continue;
    const bool is_next = probes_again_
                             ? states_[questions_[i].sequence->id()].last_probe == num_probes_
                             : silent_for(i) >= kSilentFor;
    if (is_next) exploration_.push_back(i);
  }
  if (const size_t size = probe_size(); !probes_again_ && exploration_.size() > size) {
    const auto end = exploration_.begin() + static_cast<ptrdiff_t>(size);
    std::ranges::partial_sort(exploration_, end, std::greater(), silent_for);
    exploration_.erase(end, exploration_.end());
  }
  for (const size_t i : exploration_) {
    candidates_[i].count = std::clamp(room, 0, std::min(candidates_[i].most, kProbeDrafts));
    room -= candidates_[i].count;
  }
  std::erase_if(exploration_, [this](size_t i) { return candidates_[i].count == 0; });
  if (exploration_.empty()) probes_again_ = false;
}

// 1, unless the proposer's time for about num_questions_ sequences is unmeasured: then twice the
// largest measured number.
size_t Speculation::probe_size() const {
  const CostTable& table = costs_.first_draft.largest() > 0 ? costs_.first_draft : costs_.draft;
  const bool is_known = table.knows(static_cast<int32_t>(num_questions_));
  return is_known ? 1 : std::max<size_t>(1, 2 * static_cast<size_t>(table.largest()));
}

// Records the exploration whose drafts are now handed over.
void Speculation::note_exploration() {
  if (exploration_.empty()) return;
  const bool is_new = !probes_again_;
  probes_again_ = is_new && !proposer_->is_free();
  num_probes_ += is_new;
  num_probed_ = exploration_.size();
  for (const size_t i : exploration_) {
    State& state = states_[questions_[i].sequence->id()];
    state.last_probe = num_probes_;
    state.tested.accepted /= 2, state.tested.tested /= 2;
  }
}

// Passes the chosen drafts to the scheduler; a free proposer's drafts are known already.
void Speculation::ask_chosen(sched::Scheduler& scheduler) {
  const auto questions = std::span(questions_).first(num_questions_);
  if (proposer_->is_free()) {
    for (size_t i = 0; i < questions.size(); ++i)
      hand_over(questions[i], candidates_[i].count, scheduler);
    return;
  }
  size_t num_chosen = 0;
  for (size_t i = 0; i < questions.size(); ++i) {
    questions[i].most = candidates_[i].count;
    if (candidates_[i].count > 0) {
      std::swap(questions[num_chosen++], questions[i]);
    } else {
      hand_over(questions[i], 0, scheduler);
    }
  }
  if (num_chosen == 0) return;
  const auto chosen = questions.first(num_chosen);
  const Time begin = options_.clock->now();
  ask(chosen);
  measure_proposer(chosen, seconds(options_.clock->now() - begin));
  for (const DraftQuestion& question : chosen) {
    State& state = states_[question.sequence->id()];
    if (question.drafts.empty() && !question.is_behind) {
      // No draft counts as a rejected one.
      state.tested.add(false, kKeepOwn);
      state.tested_at = question.sequence->tokens().size();
    }
    state.num_known = question.is_behind ? 0 : question.sequence->tokens().size();
    hand_over(question, question.most, scheduler);
  }
}

void Speculation::ask(std::span<DraftQuestion> questions) {
  proposer_->propose(questions);
  for (DraftQuestion& question : questions) {
    std::vector<TokenId>& drafts = question.drafts;
    NEREID_CHECK(drafts.size() <= static_cast<size_t>(question.most));
    NEREID_CHECK(question.parents.empty() || question.parents.size() == drafts.size());
    const auto end = std::ranges::find_if(
        drafts, [&](TokenId token) { return token < 0 || token >= options_.vocab_size; });
    drafts.erase(end, drafts.end());
    if (!question.parents.empty()) question.parents.resize(drafts.size());
  }
}

// Calls with a backlog (prompts) longer than a step's tokens are not typical and not measured.
void Speculation::measure_proposer(std::span<const DraftQuestion> questions, double seconds) {
  propose_seconds_ += seconds;
  int32_t depth = 0, sum = 0;
  for (const DraftQuestion& question : questions) {
    const size_t num_before = states_[question.sequence->id()].num_known;
    const size_t num_new = question.sequence->tokens().size() - num_before;
    if (num_before == 0 || num_new > static_cast<size_t>(options_.max_drafts) + 1) return;
    depth = std::max(depth, question.most);
    sum += question.most;
  }
  const double first = proposer_->first_seconds();
  const auto num_asked = static_cast<int32_t>(questions.size());
  if (first <= 0) {
    costs_.draft.add((sum + depth - 1) / depth, seconds / depth);
    return;
  }
  costs_.first_draft.add(num_asked, first);
  if (depth > 1)
    costs_.draft.add((sum - num_asked + depth - 2) / (depth - 1), (seconds - first) / (depth - 1));
}

void Speculation::hand_over(const DraftQuestion& question, int32_t count,
                            sched::Scheduler& scheduler) {
  const std::span<const TokenId> drafts = question.drafts;
  const std::span<const int32_t> parents = question.parents;
  const size_t num_drafts = std::min(drafts.size(), static_cast<size_t>(count));
  states_[question.sequence->id()].is_asked = true;
  scheduler.draft(question.sequence->id(), drafts.first(num_drafts),
                  parents.first(parents.empty() ? 0 : num_drafts));
}

void Speculation::open(const sched::SequenceSpec& spec, const Submit&) {
  states_.try_emplace(spec.id);
}

// Logits of the request's own drafts, which are for the first tokens.
void Speculation::add_draft_logits(const sched::ScheduledRow& row, const RowMessage& to) const {
  const std::span<const float> logits = payload_of(row).draft_logits;
  const auto state = states_.find(row.sequence->id());
  if (row.num_drafts == 0 || logits.empty() || (state != states_.end() && state->second.is_asked))
    return;
  const size_t width = logits.size() / row.sequence->spec().drafts.size();
  const auto first = static_cast<size_t>(row.first_sampled() - row.sequence->num_prompt());
  const auto own = logits.subspan(first * width, to.out.num_drafts * width);
  to.step.draft_logits.insert(to.step.draft_logits.end(), own.begin(), own.end());
  to.out.has_draft_logits = 1;
}

void Speculation::write(const sched::ScheduledRow& row, const RowMessage& to) {
  exec::StepRow& out = to.out;
  add_draft_logits(row, to);
  if (const auto parents = row.sequence->draft_parents(); !parents.empty() && row.num_drafts > 0) {
    const auto own = parents.first(static_cast<size_t>(row.num_drafts));
    out.has_tree = 1;
    to.step.parents.insert(to.step.parents.end(), own.begin(), own.end());
  }
  const sched::SequenceSpec& spec = row.sequence->spec();
  if (!proposer_ || !draws_freely(spec) || spec.output.pooling) return;
  if (row.num_drafts > 0) out.wants_likeliest = proposer_->wants_likeliest();
  const Proposer::States wanted = proposer_->wanted_states();
  if (wanted == Proposer::States::kDrawn && row.samples) out.num_hidden = 1 + row.num_drafts;
  if (wanted != Proposer::States::kAll) return;
  const int32_t more = row.num_tokens - out.num_logits;
  if (more <= to.spare_logits) {
    to.spare_logits -= more;
    out.num_logits = row.num_tokens;
  }
  out.num_hidden = out.num_logits;
}

Status Speculation::completed(const LandedRow& completed, EngineUpdate&) {
  const sched::ScheduledRow& row = completed.row;
  const auto found = states_.find(row.sequence->id());
  if (completed.is_late || found == states_.end()) return ok();  // it has ended
  if (proposer_ && draws_freely(row.sequence->spec())) proposer_->completed(row, completed.result);
  if (row.num_drafts == 0 || row.sequence->spec().has_grammar)
    return ok();  // forced tokens are not counted
  State& state = found->second;
  state.tested_at = static_cast<size_t>(row.first_sampled());
  const size_t num_accepted = completed.result.drawn.size() - 1;
  const size_t num_drafts = static_cast<size_t>(row.num_drafts);
  DraftStats& stats = state.is_asked ? proposer_drafts_ : request_drafts_;
  stats.num_drafts += row.num_drafts;
  stats.num_accepted += static_cast<int64_t>(num_accepted);
  ++stats.tests_by_accepted[std::min(num_accepted, stats.tests_by_accepted.size() - 1)];
  if (state.is_asked && !in_tree_.empty()) {
    note_places(num_drafts, completed.result.path);
    return ok();
  }
  for (size_t i = 0; i < std::min(num_accepted + 1, num_drafts); ++i) {
    state.tested.add(i < num_accepted, kKeepOwn);
    overall_.add(i < num_accepted, kKeepOverall);
  }
  return ok();
}

// Counts the accepted nodes of a draft tree.
void Speculation::note_places(size_t num_drafts, std::span<const int32_t> path) {
  size_t next = 0;  // index in `path`, which is ascending
  for (size_t i = 0; i < std::min(num_drafts, in_tree_.size()); ++i) {
    const bool accepted = next < path.size() && static_cast<size_t>(path[next]) == i;
    next += accepted;
    in_tree_[i].add(accepted, kKeepOverall);
  }
}

void Speculation::finished(const FinishedStep& step) {
  const sched::StepPlan& plan = step.plan;
  const Time launched = step.launched, finished = step.finished;
  if (step.failed || plan.rows.empty()) return;
  const Time previous = std::exchange(last_finished_, finished);
  const double proposed = std::exchange(propose_seconds_, 0);
  const bool is_beside = launched < previous;  // launched during the previous step
  int32_t num_drafts = 0;
  bool is_plain = true;  // no prefill row
  for (const sched::ScheduledRow& row : plan.rows) {
    num_drafts += row.num_drafts;
    is_plain = is_plain && row.samples && row.num_tokens == 1 + row.num_drafts;
  }
  // Steps without drafts overlap if they can; one that did not is an exception and not measured.
  const bool is_usual = is_beside || num_drafts > 0 || !options_.overlaps;
  if (is_plain && is_usual)
    costs_.step.add(plan.num_tokens, seconds(finished - std::max(launched, previous)));
  const double between = seconds(launched - previous) - proposed;
  if (is_plain && was_busy_ && !is_beside && between > 0)
    costs_.host.add(static_cast<int32_t>(plan.rows.size()), between);
  const size_t num_probed = num_drafts > 0 ? std::exchange(num_probed_, 0) : 0;
  if (num_probed == 0) return;
  const double usual = expected_.seconds;
  const double excess = std::max(seconds(finished - previous) - usual, kLeastProbe * usual);
  next_probe_ =
      std::max(next_probe_, finished) +
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(probe_every_ * excess));
  // Exploring several sequences measures the proposer's time and does not lengthen the interval.
  if (num_probed == 1 && !probes_again_) probe_every_ = std::min(2 * probe_every_, kProbeSeldom);
}

void Speculation::report(ExecutorStats& stats) const {
  stats.request_drafts = request_drafts_;
  stats.proposer_drafts = proposer_drafts_;
  if (proposer_) stats.proposer = proposer_->name();
}

void Speculation::close(RequestId id) {
  states_.erase(id);
  if (!proposer_) return;
  proposer_->forget(id);
}

}  // namespace nereid::runtime
