// Engine: apply commands, plan, launch, finish the step before; see README.md for the contract.
#include "runtime/engine.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "runtime/sequence_payload.h"

namespace nereid::runtime {
namespace {

constexpr TokenId kOnDevice[] = {exec::kTokenOnDevice};
// Between two looks at deadlines, where nothing but guides is waited for.
constexpr std::chrono::milliseconds kGuideWait(1);

}  // namespace

Engine::Engine(const Health& health, exec::Runner& runner, const EngineOptions& options,
               StepModules modules, Inbox& inbox, UpdateSink& updates, Progress& progress,
               StatsRings& rings)
    : health_(health),
      runner_(runner),
      clock_(*options.clock),
      inbox_(inbox),
      sink_(updates),
      progress_(progress),
      rings_(rings),
      sched_(options.limits),
      sampler_({.max_rows = options.limits.max_batch_size,
                .vocab_size = runner.vocab_size(),
                .normalize_log_probs = options.normalize_log_probs}),
      modules_(std::move(modules)) {
  for (const auto& module : modules_) module->attach(sched_);
  // One is filled, one is on its way, one is being delivered.
  constexpr int kNumLists = 3;
  for (int i = 0; i < kNumLists; ++i) {
    std::vector<EngineUpdate> list;
    list.reserve(static_cast<size_t>(options.limits.max_batch_size));
    sink_.keep_list(std::move(list));
  }
  updates_ = sink_.take_list();
  in_flight_.reserve(static_cast<size_t>(runner_.limits().depth));
  report();
}

bool Engine::take_commands(bool may_sleep) {
  const auto most = may_sleep && only_guides_ ? kGuideWait : std::chrono::milliseconds(0);
  return inbox_.take_all(commands_, may_sleep && in_flight_.empty() && sched_.idle(), most);
}

void Engine::turn() {
  for (Command& command : commands_) apply(command);
  commands_.clear();
  look_after_device();
  take_onboards(/*may_wait=*/false);
  post(sched_.expire(clock_.now()));
  const bool launches = launch_next();
  if (!in_flight_.empty() && (!launches || std::ssize(in_flight_) == runner_.limits().depth)) {
    finish_oldest();
  } else if (!launches && !onboards_.empty()) {
    report();
    take_onboards(/*may_wait=*/true);  // no row can run before
  }
  idle_ = in_flight_.empty() && sched_.idle();
  only_guides_ = !launches && in_flight_.empty() && onboards_.empty() && sched_.num_held() > 0;
  if (idle_) check_counts();
  report();
}

void Engine::finish() {
  while (!in_flight_.empty()) finish_oldest();
  while (!onboards_.empty()) take_onboards(/*may_wait=*/true);
  NEREID_CHECK(sched_.idle() && groups_.empty());
  for (const auto& module : modules_) NEREID_CHECK(module->empty());
  idle_ = true;
  sched_.check();
  report();
}

// After a device failure, ends all requests, also later ones, with its error.
void Engine::look_after_device() {
  const Status failure = health_.failure();
  if (failure.ok()) return;
  if (!std::exchange(device_failed_, true))
    log_error("{}; its model answers no more requests", message(failure));
  post(sched_.fail_all(failure));
}

// The pool audit visits every block, during which requests wait: at most once per period.
void Engine::check_counts() {
  constexpr auto kPeriod = std::chrono::seconds(1);
  const Time at = clock_.now();
  if (at - counts_checked_ < kPeriod) return;
  counts_checked_ = at;
  sched_.check();
}

void Engine::apply(Command& command) {
  if (auto* c = std::get_if<Submit>(&command)) {
    submit(std::move(*c));
  } else if (auto* c = std::get_if<Cancel>(&command)) {
    cancel(c->id);
  } else if (auto* c = std::get_if<StopStringFound>(&command)) {
    if (auto update = sched_.stop(c->id)) post({.row = *std::move(update)});
  } else if (auto* c = std::get_if<GrammarReady>(&command)) {
    take_guide(*c);
  } else if (auto* c = std::get_if<MaskMade>(&command)) {
    for (const auto& module : modules_)
      if (module->resume(c->id)) sched_.release(c->id);
  } else if (std::holds_alternative<CancelAll>(command)) {
    post(sched_.cancel_all());
  }
}

void Engine::submit(Submit command) {
  std::vector<sched::SequenceSpec> group = std::move(command.group);
  const RequestId first = group[0].id;
  const auto size = static_cast<int32_t>(group.size());
  const Time arrival = group[0].arrival;
  num_submitted_ += size;
  if (size > 1) groups_[first] = {.size = size, .num_open = size};
  for (const sched::SequenceSpec& spec : group)
    for (const auto& module : modules_) module->open(spec, command);
  const Status status = sched_.submit(std::move(group));
  for (int32_t i = 0; command.waits_for_guide && i < size; ++i)
    sched_.hold(first + static_cast<RequestId>(i));
  if (status.ok()) return;
  num_refused_ += size;
  for (int32_t i = 0; i < size; ++i) {
    sched::SequenceUpdate refusal{.id = first + static_cast<RequestId>(i), .finished = true};
    refusal.status = status;
    refusal.metrics.arrival = arrival;
    post({.row = std::move(refusal)});
  }
}

// Open sequences of a request.
int32_t Engine::num_sequences(RequestId id) const {
  const auto group = groups_.find(id);
  return group == groups_.end() ? 1 : group->second.size;
}

void Engine::take_guide(const GrammarReady& made) {
  const int32_t size = num_sequences(made.id);
  for (int32_t i = 0; i < size; ++i) {
    const RequestId id = made.id + static_cast<RequestId>(i);
    if (made.status.ok())
      sched_.release(id);
    else if (auto update = sched_.refuse(id, made.status))
      post({.row = *std::move(update)});
  }
}

void Engine::cancel(RequestId id) {
  const int32_t size = num_sequences(id);
  for (int32_t i = 0; i < size; ++i)
    if (auto update = sched_.cancel(id + static_cast<RequestId>(i)))
      post({.row = *std::move(update)});
}

void Engine::post(EngineUpdate update) {
  // Beams that do not stream have no update but what their prompt gives, until they end.
  if (update.row.empty() && !update.context_logits && !update.prompt_scores &&
      !update.attention_scores && !update.encoder_output)
    return;
  if (update.row.finished) close(update.row.id);
  updates_.push_back(std::move(update));
}

void Engine::post(std::vector<sched::SequenceUpdate> rows) {
  for (sched::SequenceUpdate& row : rows) post({.row = std::move(row)});
}

// A sequence has ended.
void Engine::close(RequestId id) {
  for (const auto& module : modules_) module->close(id);
  if (groups_.empty()) return;
  auto group = groups_.upper_bound(id);
  if (group == groups_.begin()) return;
  --group;
  if (id - group->first >= static_cast<RequestId>(group->second.size)) return;
  if (--group->second.num_open == 0) groups_.erase(group);
}

// Whether a next step can be launched while others are in flight. Not next to a step with drafts:
// the sequences without drafts would need more steps, each of which costs about as much as one for
// all. Not next to a step that waits for its masks.
bool Engine::launch_next() {
  for (const InFlightStep& step : in_flight_)
    if (step.has_drafts || step.waits_for_masks) return false;
  for (const auto& module : modules_)
    if (!module->offer(sched_, /*in_flight=*/!in_flight_.empty())) return false;
  sched::StepPlan plan = sched_.plan(clock_.now(), std::move(former_plan_));
  step_.clear();
  bool launches = !plan.empty();
  for (const auto& module : modules_) launches |= module->planned(plan, sched_, step_);
  if (launches)
    in_flight_.push_back(launch(std::move(plan)));
  else
    former_plan_ = std::move(plan);
  draw_oldest();
  return launches;
}

Engine::InFlightStep Engine::launch(sched::StepPlan plan) {
  const Time launched = clock_.now();
  write_message(plan);
  auto ticket = runner_.launch(message_);
  if (!plan.onboards.empty())
    onboards_.push_back(ticket.ok() ? std::nullopt : std::optional(ticket.status()));
  const bool has_drafts = std::ranges::any_of(
      plan.rows, [](const sched::ScheduledRow& row) { return row.num_drafts > 0; });
  const bool has_masks =
      std::ranges::any_of(step_.rows, [](const exec::StepRow& row) { return row.has_mask != 0; });
  return {.plan = std::move(plan),
          .has_drafts = has_drafts,
          .waits_for_masks = has_masks,
          .ticket = std::move(ticket),
          .launched = launched};
}

// Reports ended onboards to the scheduler; `may_wait`: waits for one if any is in flight.
void Engine::take_onboards(bool may_wait) {
  while (!onboards_.empty()) {
    std::optional<Status> ended = onboards_.front();
    if (!ended) ended = runner_.onboarded(may_wait);
    if (!ended) return;
    may_wait = false;
    onboards_.pop_front();
    if (!ended->ok())
      log_warn("cached blocks were not copied from the host, and are computed again: {}",
               message(*ended));
    sched_.onboarded(*ended);
  }
}

void Engine::finish_oldest() {
  InFlightStep oldest = std::move(in_flight_.front());
  in_flight_.erase(in_flight_.begin());
  finish_step(std::move(oldest));
  draw_oldest();
}

// Masks are made during the forward pass: they depend on the tokens of the completed step before.
void Engine::draw_oldest() {
  if (in_flight_.empty() || !std::exchange(in_flight_.front().waits_for_masks, false)) return;
  InFlightStep& step = in_flight_.front();
  if (!step.ticket.ok()) return;
  masks_.clear();
  for (const auto& module : modules_) module->mask(step.plan, masks_, step.late);
  for (const int32_t i : step.late) {
    const RequestId id = step.plan.rows[static_cast<size_t>(i)].sequence->id();
    sched_.hold(id);  // until the mask is made
    sched_.hold(id);  // until the row has completed
  }
  exec::encode(masks_, message_);
  runner_.draw(*step.ticket, message_);
}

void Engine::write_message(const sched::StepPlan& plan) {
  const size_t num_groups = sched_.limits().groups.size();
  for (const sched::PlanCopy& copy : plan.copies)
    step_.copies.push_back({copy.from, copy.to, copy.group});
  for (const sched::PlanCopy& copy : plan.onboards)
    step_.onboards.push_back({copy.from, copy.to, copy.group});
  int32_t spare_logits = runner_.limits().num_logits_rows();
  for (const sched::ScheduledRow& row : plan.rows) spare_logits -= row.num_logits();
  for (const sched::ScheduledRow& row : plan.rows) {
    exec::StepRow out{.slot = row.slot, .start = row.start, .num_logits = row.num_logits()};
    sampler_.add(row, out, step_);
    exec::PerGroup<std::span<const int32_t>> tables;
    for (size_t g = 0; g < num_groups; ++g) tables[g] = row.sequence->block_table(row.beam, g);
    const std::span<const TokenId> input = input_of(row);
    step_.add(out, input, tables, num_groups, sched_.limits().tokens_per_block);
    const RowMessage written{.out = step_.rows.back(),
                             .tokens = std::span(step_.tokens).last(input.size()),
                             .step = step_,
                             .spare_logits = spare_logits};
    for (const auto& module : modules_) module->write(row, written);
  }
  exec::encode(step_, message_);
}

// Valid until the next call.
std::span<const TokenId> Engine::input_of(const sched::ScheduledRow& row) {
  const sched::Sequence& sequence = *row.sequence;
  NEREID_CHECK(!row.input_on_device || row.num_tokens == 1);
  if (row.input_on_device) return kOnDevice;
  const auto known = sequence.tokens(row.beam).subspan(row.start, row.num_tokens - row.num_drafts);
  if (row.num_drafts == 0) return known;
  input_.assign(known.begin(), known.end());
  const auto drafts = sequence.drafts().first(row.num_drafts);
  input_.insert(input_.end(), drafts.begin(), drafts.end());
  return input_;
}

void Engine::finish_step(InFlightStep step) {
  const size_t num_before = updates_.size();
  const auto results = step.ticket.ok() ? runner_.wait(*step.ticket) : step.ticket.status();
  if (results.ok()) {
    if (!step.plan.encodes.empty())
      for (const auto& module : modules_) module->encoded(runner_.encoder_outputs());
    commit(step, *results);
  } else {
    const Status failure = health_.failure();
    post(sched_.fail(step.plan, failure.ok() ? results.status() : failure));
  }
  const FinishedStep finished{.plan = step.plan,
                              .launched = step.launched,
                              .finished = clock_.now(),
                              .failed = !results.ok(),
                              .scheduler = sched_,
                              .updates = std::span(updates_).subspan(num_before)};
  for (const auto& module : modules_) module->finished(finished);
  former_plan_ = std::move(step.plan);
}

void Engine::commit(const InFlightStep& step, exec::StepResult results) {
  NEREID_CHECK(results.size() == step.plan.rows.size());
  for (size_t i = 0; i < results.size(); ++i) {
    const sched::ScheduledRow& row = step.plan.rows[i];
    const exec::RowResult& result = results[i];
    const bool is_late = std::ranges::binary_search(step.late, static_cast<int32_t>(i));
    if (!result.status.ok()) {
      post({.row = sched_.abort(row, result.status)});
      continue;
    }
    NEREID_CHECK(result.drawn.empty() != row.samples);
    if (row.samples && result.drawn[0].token < 0 && !is_late) {
      fail_numerically(row);
      continue;
    }
    // Before the commit, which may destroy the sequence.
    EngineUpdate update;
    if (const Status status = land({row, result, is_late}, update); !status.ok()) {
      post({.row = sched_.abort(row, status)});
      continue;
    }
    const RequestId id = row.sequence->id();
    if (is_late) {
      update.row = sched_.undrawn(row);
      sched_.release(id);
    } else {
      update.row = sched_.commit(row, sampler_.drawn(row, result));
    }
    update.row.id = id;
    post(std::move(update));
  }
}

Status Engine::land(const LandedRow& completed, EngineUpdate& update) {
  for (const auto& module : modules_) RETURN_IF_ERROR(module->completed(completed, update));
  return ok();
}

void Engine::fail_numerically(const sched::ScheduledRow& row) {
  Status status;
  for (const auto& module : modules_)
    if (status.ok()) status = module->failure(row);
  if (status.ok() && payload_of(row).timestamp_rules)
    status = invalid_argument(
        "timestamp_rules leave no token for position {} that the request's biases and bans allow",
        row.first_sampled());
  const bool is_numeric = status.ok();
  if (is_numeric)
    status = internal_error(
        "the logits for position {} were not finite (NaN or infinity); only this request fails",
        row.first_sampled());
  sched::SequenceUpdate update = sched_.abort(row, status);
  // It may have ended by itself while the row was under way.
  num_numeric_failures_ += update.finished && is_numeric;
  post({.row = std::move(update)});
}

// Figures go out before the update that clients see, so that a client that has its final response
// finds them up to date.
void Engine::report() {
  for (KvCacheEvent& event : sched_.take_events()) rings_.events.push(std::move(event));
  const int64_t left = num_submitted_ - sched_.num_queued();
  progress_.leave_queue(static_cast<int32_t>(left - std::exchange(num_left_queue_, left)));
  ExecutorStats stats;
  for (const auto& module : modules_) module->report(stats);
  stats.num_failed += num_refused_;
  stats.num_numeric_failures = num_numeric_failures_;
  progress_.publish(stats, idle_);
  if (!updates_.empty()) sink_.post({clock_.now(), std::exchange(updates_, sink_.take_list())});
}

}  // namespace nereid::runtime
