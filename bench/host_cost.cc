// What the host does for each step, without a model: plan, write and stage the message, commit
// what was drawn, and turn the update into responses. The device part (sampling from fixed logits)
// runs between the measured phases.
#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <array>
#include <atomic>
#include <cmath>
#include <memory>
#include <thread>

#include "exec/slot_sampler.h"
#include "exec/step_data.h"
#include "exec/step_message.h"
#include "kernels/open.h"
#include "runtime/outputs/outbox.h"
#include "runtime/progress.h"
#include "runtime/requests/sampler.h"
#include "runtime/sequence_payload.h"
#include "sched/scheduler.h"
#include "stopwatch.h"

namespace nereid::bench {
namespace {

struct Options {
  int32_t sequences = 256;
  int32_t prompt = 128;
  int32_t steps = 512;
  int32_t vocab = 512;  // of the logits that are drawn from between the phases
  int core = -1;
};

// How the sequences draw.
struct Mix {
  const char* name;
  void (*set)(sched::SequenceSpec&, int32_t i);
};

void greedy(sched::SequenceSpec&, int32_t) {}

void usual(sched::SequenceSpec& s, int32_t i) {
  s.sampling.temperature = 0.8f;
  s.sampling.top_p = 0.95f;
  s.sampling.seed = static_cast<uint64_t>(i);
}

// A quarter each: greedy, top-p, penalties, log-probs with the five likeliest tokens.
void mixed(sched::SequenceSpec& s, int32_t i) {
  if (i % 4 >= 1) usual(s, i);
  if (i % 4 == 2) {
    s.sampling.repetition_penalty = 1.1f;
    s.sampling.frequency_penalty = 0.2f;
    const auto payload = std::make_shared<runtime::SequencePayload>();
    payload->bad_words = {{5, 6}, {7}};
    s.payload = payload;
    s.stop_words = {{9, 10, 9, 10}, {11, 12, 13, 11}};  // so long that chance never draws them
  }
  if (i % 4 != 3) return;
  s.output.return_log_probs = true;
  s.output.num_top_log_probs = 5;
}

constexpr Mix kMixes[] = {{"greedy", greedy}, {"top-p", usual}, {"mixed", mixed}};

enum Phase { kPlan, kPrepare, kCommit, kPost, kOutbox, kNumPhases };
constexpr std::array<const char*, kNumPhases> kPhaseNames = {"plan", "prepare", "commit", "post",
                                                             "outbox thread"};

// CPU time of a thread: what others do on the core meanwhile does not count.
double cpu_seconds(clockid_t thread = CLOCK_THREAD_CPUTIME_ID) {
  timespec t{};
  clock_gettime(thread, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// The host's half of an executor, driven by hand.
class Host {
 public:
  static StatusOr<std::unique_ptr<Host>> create(const Options& o, const Mix& mix) {
    auto host = std::unique_ptr<Host>(new Host(o, mix));
    RETURN_IF_ERROR(host->start());
    return host;
  }

  // One step; adds each phase's time in us.
  Status step(std::array<std::vector<double>, kNumPhases>& us) {
    const double began = cpu_seconds();
    sched::StepPlan plan = scheduler_.plan(now());
    const double planned = cpu_seconds();
    RETURN_IF_ERROR(prepare(plan));
    const double staged = cpu_seconds();
    RETURN_IF_ERROR(draw(plan));
    const double drawn = cpu_seconds();
    runtime::UpdateBatch batch = commit(plan);
    const double committed = cpu_seconds();
    const auto expected = num_called_.load() + static_cast<int64_t>(batch.updates.size());
    const double outbox_before = outbox_seconds();
    const double ready = cpu_seconds();
    outbox_->post(std::move(batch));
    const double posted = cpu_seconds();
    while (num_called_.load() < expected) std::this_thread::yield();
    const double values[] = {planned - began, staged - planned, committed - drawn, posted - ready,
                             outbox_seconds() - outbox_before};
    for (int p = 0; p < kNumPhases; ++p) us[p].push_back(values[p] * 1e6);
    return ok();
  }

  int64_t num_running() const { return scheduler_.stats().num_running; }

 private:
  Host(const Options& o, const Mix& mix)
      : options_(o), mix_(mix), scheduler_(limits(o)), logits_(size_t(o.sequences) * o.vocab) {}

  static sched::Limits limits(const Options& o) {
    const int32_t length = o.prompt + o.steps + 64;
    return {.max_batch_size = o.sequences,
            .max_num_tokens = 8192,
            .max_queue_size = o.sequences,
            .max_sequence_length = length,
            .groups = {{.num_blocks = o.sequences * (length / 32 + 1)}},
            .tokens_per_block = 32};
  }

  Status start() {
    ASSIGN_OR_RETURN(device_, kernels::open_device("cpu", {.num_threads = 1}));
    ASSIGN_OR_RETURN(stream_, device_.device->create_stream());
    sampler_ = std::make_unique<runtime::Sampler>(
        runtime::Sampler::Options{.max_rows = options_.sequences, .vocab_size = options_.vocab});
    runner_limits_ = {.max_rows = options_.sequences,
                      .max_tokens = 8192,
                      .max_sequence_length = scheduler_.limits().max_sequence_length,
                      .num_blocks = scheduler_.limits().groups[0].num_blocks,
                      .block_tokens = scheduler_.limits().tokens_per_block};
    step_data_.resize(exec::StepData::max_bytes(runner_limits_, groups_.size()));
    ASSIGN_OR_RETURN(slot_sampler_, exec::SlotSampler::create(*device_.device, device_.registry, {},
                                                              runner_limits_, options_.vocab));
    slot_tokens_.resize(static_cast<size_t>(options_.sequences));
    for (size_t i = 0; i < logits_.size(); ++i)
      logits_[i] = static_cast<float>(philox(1, i, 0)[0] >> 8) * 0x1p-22f;
    outbox_ = std::make_unique<runtime::Outbox>(nullptr, inbox_, progress_);
    for (int32_t i = 0; i < options_.sequences; ++i) RETURN_IF_ERROR(submit(i));
    std::array<std::vector<double>, kNumPhases> prompts;
    while (scheduler_.stats().num_running < options_.sequences) RETURN_IF_ERROR(step(prompts));
    return ok();
  }

  Status submit(int32_t i) {
    const auto id = static_cast<RequestId>(i + 1);
    runtime::Subscription subscription;
    subscription.id = id;
    subscription.streaming = true;
    subscription.callback = [this](Response) {
      if (num_called_++ == 0) pthread_getcpuclockid(pthread_self(), &outbox_clock_);
    };
    progress_.opened();
    outbox_->open(std::move(subscription));
    sched::SequenceSpec spec;
    spec.id = id;
    for (int32_t k = 0; k < options_.prompt; ++k)
      spec.prompt.push_back((i * 31 + k * 7) % options_.vocab);
    spec.max_new_tokens = options_.steps + 60;
    mix_.set(spec, i);
    spec.arrival = now();
    return scheduler_.submit(std::move(spec));
  }

  double outbox_seconds() const { return num_called_ > 0 ? cpu_seconds(outbox_clock_) : 0; }

  // From the plan to what the device reads, as the engine and the runner do it.
  Status prepare(const sched::StepPlan& plan) {
    constexpr int32_t kOnDevice[] = {exec::kTokenOnDevice};
    step_.clear();
    for (const sched::ScheduledRow& row : plan.rows) {
      exec::StepRow out{.slot = row.slot, .start = row.start, .num_logits = row.num_logits()};
      sampler_->add(row, out, step_);
      const auto tokens = row.input_on_device
                              ? std::span<const int32_t>(kOnDevice)
                              : row.sequence->tokens().subspan(row.start, row.num_tokens);
      step_.add(out, tokens, row.sequence->block_table(), 1, runner_limits_.block_tokens);
    }
    exec::encode(step_, message_);
    ASSIGN_OR_RETURN(const exec::StepMessageView view, exec::decode(message_));
    RETURN_IF_ERROR(
        exec::StepData::pack(view, groups_, runner_limits_, options_.vocab, step_data_.data())
            .status());
    return slot_sampler_->stage(view, 0);
  }

  // The device: the same logits for each row.
  Status draw(const sched::StepPlan& plan) {
    int64_t rows = 0;
    for (const sched::ScheduledRow& row : plan.rows) rows += row.num_logits();
    ASSIGN_OR_RETURN(const auto event, stream_->submit([&](Stream& stream) -> Status {
      RETURN_IF_ERROR(slot_sampler_->send(0, stream));
      return slot_sampler_->run(0, View::matrix(logits_.data(), DType::kF32, rows, options_.vocab),
                                slot_tokens_.data(), stream);
    }));
    return event->wait();
  }

  runtime::UpdateBatch commit(const sched::StepPlan& plan) {
    runtime::UpdateBatch batch;
    const exec::StepResult results = slot_sampler_->results(0);
    for (size_t i = 0; i < results.size(); ++i) {
      sched::SequenceUpdate update =
          scheduler_.commit(plan.rows[i], sampler_->drawn(plan.rows[i], results[i]));
      if (!update.empty()) batch.updates.push_back({.row = std::move(update)});
    }
    return batch;
  }

  const Options options_;
  const Mix mix_;
  sched::Scheduler scheduler_;
  std::vector<float> logits_;
  std::vector<int32_t> slot_tokens_;
  kernels::OpenedDevice device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<runtime::Sampler> sampler_;
  exec::RunnerLimits runner_limits_;
  const std::vector<exec::CacheGroup> groups_ = std::vector<exec::CacheGroup>(1);
  std::unique_ptr<exec::SlotSampler> slot_sampler_;
  exec::StepMessage step_;
  std::vector<std::byte> message_, step_data_;
  runtime::Progress progress_;
  runtime::Inbox inbox_;
  std::atomic<int64_t> num_called_ = 0;
  clockid_t outbox_clock_ = 0;               // of the outbox thread, from its first callback on
  std::unique_ptr<runtime::Outbox> outbox_;  // destroyed first: joins its thread
};

Status measure(const Options& o) {
  fmt::print("{} sequences, us for each step, medians of {} steps (90th percentile)\n", o.sequences,
             o.steps);
  for (const Mix& mix : kMixes) {
    ASSIGN_OR_RETURN(const auto host, Host::create(o, mix));
    std::array<std::vector<double>, kNumPhases> us;
    for (int32_t i = 0; i < o.steps; ++i) RETURN_IF_ERROR(host->step(us));
    if (host->num_running() != o.sequences)
      return internal_error("{} of {} sequences still run", host->num_running(), o.sequences);
    std::vector<double> all(static_cast<size_t>(o.steps));
    std::string line = fmt::format("{:>8}:", mix.name);
    for (int p = 0; p < kNumPhases; ++p) {
      for (size_t i = 0; i < all.size(); ++i) all[i] += us[p][i];
      std::ranges::sort(us[p]);
      line += fmt::format(" {} {:.1f} ({:.1f}),", kPhaseNames[p], us[p][us[p].size() / 2],
                          us[p][us[p].size() * 9 / 10]);
    }
    fmt::print("{} all {:.1f}\n", line, median(all));
  }
  return ok();
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  nereid::bench::Options o;
  CLI::App app("the host's cost of a step: scheduler, sampling bookkeeping, outbox");
  app.add_option("--sequences", o.sequences, "running at once")->capture_default_str();
  app.add_option("--prompt", o.prompt, "tokens of each prompt")->capture_default_str();
  app.add_option("--steps", o.steps, "decode steps measured")->capture_default_str();
  app.add_option("--core", o.core, "keeps all threads on this core")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (o.core >= 0) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(o.core, &cores);
    sched_setaffinity(0, sizeof(cores), &cores);
  }
  const nereid::Status status = nereid::bench::measure(o);
  if (!status.ok()) fmt::print(stderr, "host_cost: {}\n", nereid::message(status));
  return status.ok() ? 0 : 1;
}
