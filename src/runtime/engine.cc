// Engine: take commands, plan, launch, finish the step before; see README.md for the contract.
#include "runtime/engine.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace nereid::runtime {
namespace {

constexpr TokenId kOnDevice[] = {exec::kTokenOnDevice};

exec::StepRow to_step_row(const sched::Row& row) {
  const sched::Sequence& sequence = *row.sequence;
  exec::StepRow out{.slot = row.slot, .start = row.start, .num_logits = row.num_logits()};
  NEREID_CHECK(!row.input_on_device || row.num_tokens == 1);
  out.tokens = row.input_on_device ? std::span<const TokenId>(kOnDevice)
                                   : sequence.tokens().subspan(row.start, row.num_tokens);
  out.blocks = sequence.block_table();
  return out;
}

}  // namespace

Engine::Engine(exec::Runner& runner, Sampler& sampler, const sched::Limits& limits, bool overlap,
               Inbox& inbox, Outbox& outbox, Progress& progress)
    : runner_(runner),
      sampler_(sampler),
      overlap_(overlap),
      inbox_(inbox),
      outbox_(outbox),
      progress_(progress),
      sched_(limits) {
  report();
  thread_ = std::thread([this] { run(); });
}

Engine::~Engine() {
  inbox_.push(CancelAll{});
  inbox_.close();
  thread_.join();
}

void Engine::run() {
  std::optional<Step> flying;  // at most one step when the next is planned
  while (auto commands = inbox_.take_all(/*may_sleep=*/!flying && sched_.idle())) {
    for (Command& command : *commands) apply(command);
    sched::StepPlan plan = sched_.plan(now());
    std::optional<Step> next;
    if (!plan.empty()) next = launch(std::move(plan));
    if (overlap_ || !next) {
      if (flying) finish(*std::move(flying));
      flying = std::move(next);
    } else {
      finish(*std::move(next));
    }
    idle_ = !flying && sched_.idle();
    if (idle_) sched_.check();
    report();
  }
  if (flying) finish(*std::move(flying));
  NEREID_CHECK(sched_.idle());
  idle_ = true;
  sched_.check();
  report();
}

void Engine::apply(Command& command) {
  std::optional<sched::RowNews> news;
  if (auto* c = std::get_if<Submit>(&command)) {
    submit(std::move(c->spec));
  } else if (auto* c = std::get_if<Cancel>(&command)) {
    news = sched_.cancel(c->id);
  } else if (auto* c = std::get_if<StopStringFound>(&command)) {
    news = sched_.stop(c->id);
  } else {
    std::ranges::move(sched_.cancel_all(), std::back_inserter(news_));
  }
  if (news) news_.push_back(*std::move(news));
}

void Engine::submit(sched::SequenceSpec spec) {
  ++num_submitted_;
  sched::RowNews refusal{.id = spec.id, .finished = true};
  refusal.metrics.arrival = spec.arrival;
  refusal.status = sched_.submit(std::move(spec));
  if (refusal.status.ok()) return;
  ++num_refused_;
  news_.push_back(std::move(refusal));
}

Engine::Step Engine::launch(sched::StepPlan plan) {
  std::vector<exec::StepRow> rows;
  rows.reserve(plan.rows.size());
  for (const sched::Row& row : plan.rows) rows.push_back(to_step_row(row));
  const Time launched = now();
  std::vector<exec::BlockCopy> copies;
  copies.reserve(plan.copies.size());
  for (const sched::BlockCopy& copy : plan.copies) copies.push_back({copy.from, copy.to});
  auto sampling = sampler_.prepare(plan.rows);
  if (!sampling.ok())
    return {.plan = std::move(plan), .ticket = sampling.status(), .launched = launched};
  auto ticket = runner_.launch(rows, copies, std::move(sampling->hook));
  return {.plan = std::move(plan),
          .ticket = std::move(ticket),
          .area = sampling->area,
          .launched = launched};
}

void Engine::finish(Step step) {
  const Status status = step.ticket.ok() ? runner_.wait(*step.ticket) : step.ticket.status();
  const auto drawn = status.ok() ? sampler_.results(step.area) : std::span<const sched::Drawn>();
  figures_.last_step_context_tokens = figures_.last_step_generation_tokens = 0;
  const auto samples = std::ranges::count_if(step.plan.rows, &sched::Row::samples);
  NEREID_CHECK(!status.ok() || drawn.size() == static_cast<size_t>(samples));
  size_t next = 0;
  for (const sched::Row& row : step.plan.rows) {
    const bool generates = row.start >= row.sequence->num_prompt() && row.num_tokens == 1;
    (generates ? figures_.last_step_generation_tokens : figures_.last_step_context_tokens) +=
        row.num_tokens;
    if (!status.ok()) continue;
    if (!row.samples) {
      news_.push_back(sched_.commit(row, nullptr));
    } else if (const sched::Drawn& one = drawn[next++]; one.token >= 0) {
      news_.push_back(sched_.commit(row, &one));
    } else {
      news_.push_back(sched_.abort(
          row, internal_error("the model's output for position {} is not finite", row.end())));
    }
    if (news_.back().empty()) news_.pop_back();
  }
  if (!status.ok()) std::ranges::move(sched_.fail(step.plan, status), std::back_inserter(news_));
  const Time finished = now();
  ++figures_.num_steps;
  figures_.last_step_seconds = seconds(finished - std::max(step.launched, last_finish_));
  last_finish_ = finished;
}

// Figures go out before the news that clients see, so that a client that has its final response
// finds them up to date.
void Engine::report() {
  const sched::SchedulerStats s = sched_.stats();
  const int64_t left = num_submitted_ - sched_.num_queued();
  progress_.leave_queue(static_cast<int32_t>(left - std::exchange(num_left_queue_, left)));
  ExecutorStats stats = figures_;
  stats.num_active = s.num_running;
  stats.num_waiting =
      s.num_waiting - sched_.num_queued();  // those preempted; Progress adds the queued
  stats.kv_blocks_total = s.blocks_total;
  stats.kv_blocks_free = s.blocks_free;
  stats.kv_tokens_per_block = sched_.limits().tokens_per_block;
  stats.kv_blocks_reused = s.blocks_reused;
  stats.num_preemptions = s.num_preemptions;
  stats.prompt_tokens = s.prompt_tokens;
  stats.generated_tokens = s.generated_tokens;
  stats.num_finished = s.num_finished;
  stats.num_cancelled = s.num_cancelled;
  stats.num_failed = s.num_failed + num_refused_;
  stats.max_batch_size = sched_.limits().max_batch_size;
  progress_.publish(stats, idle_);
  if (!news_.empty()) outbox_.post({now(), std::exchange(news_, {})});
}

}  // namespace nereid::runtime
