// The step loop: one thread owns the scheduler and the runner of a model instance. Up to
// RunnerLimits::depth steps are in flight: with more than one, a step is launched before the
// previous step's results are read.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/status.h"
#include "exec/runner.h"
#include "exec/step_message.h"
#include "runtime/adapter_places.h"
#include "runtime/guides.h"
#include "runtime/inbox.h"
#include "runtime/outbox.h"
#include "runtime/pooler.h"
#include "runtime/progress.h"
#include "runtime/prompt_scorer.h"
#include "runtime/sampler.h"
#include "runtime/speculation.h"
#include "runtime/step_recorder.h"
#include "runtime/watchdog.h"
#include "sched/scheduler.h"

namespace nereid::runtime {

struct EngineOptions {
  sched::Limits limits;
  bool normalize_log_probs = true;    // see ExecutorConfig
  MemoryTotals memory;                // for the statistics
  std::span<const float> score_head;  // [labels, hidden_size]; must outlive the engine
  bool jumps_ahead = true;            // see ExecutorConfig::enable_jump_ahead
  int64_t guide_steps = Guides::kTurnSteps;
  Proposer* proposer = nullptr;  // of drafts; must outlive the engine
  Speculation::Options speculation;
};

class Engine {
 public:
  // Starts the thread. All references must outlive the engine.
  Engine(const Health& health, Watchdog& watchdog, exec::Runner& runner,
         const EngineOptions& options, Inbox& inbox, Outbox& outbox, Progress& progress,
         StatsRings& rings);
  ~Engine();  // cancels what still runs, then joins

 private:
  // A step on the device, or one whose launch failed; both end in finish().
  struct Step {
    sched::StepPlan plan;
    bool has_drafts = false;
    bool waits_for_masks = false;  // before it draws
    std::vector<int32_t> late;     // numbers of rows that draw nothing, as their masks take longer
    StatusOr<exec::Ticket> ticket;
    StepRecorder::Open record;
  };

  using ContextLogits = std::shared_ptr<const std::vector<float>>;

  // Several sequences of one request.
  struct Group {
    int32_t size = 0;  // their ids follow that of the first
    int32_t num_open = 0;
  };

  void run();
  bool begin_turn();
  void look_after_device();
  void check_counts();
  void apply(Command& command);
  void submit(Submit command);
  void cancel(RequestId id);
  void take_guide(const GuideMade& made);
  int32_t num_sequences(RequestId id) const;
  bool launch_next();
  Step launch(sched::StepPlan plan);
  bool load_adapters();
  void write_message(const sched::StepPlan& plan);
  void draw_oldest();
  std::span<const TokenId> input_of(const sched::Row& row);
  void add_embeddings(const sched::SequenceSpec& spec);
  void finish_oldest();
  void take_onboards(bool may_wait);
  void finish(Step step);
  void commit(const Step& step, exec::StepResult results);
  void fail_numerically(const sched::Row& row);
  Status copy_logits(const sched::Row& row, const exec::RowResult& result, SequenceNews& news);
  ContextLogits take_context_logits(const sched::Row& row, std::span<const float> logits);
  void tell(SequenceNews news);
  void tell(std::vector<sched::RowNews> rows);
  void close(RequestId id);
  void report();
  size_t vocab() const { return static_cast<size_t>(runner_.vocab_size()); }

  const Health& health_;
  Watchdog& watchdog_;
  exec::Runner& runner_;
  Inbox& inbox_;
  Outbox& outbox_;
  Progress& progress_;
  StatsRings& rings_;
  sched::Scheduler sched_;
  Sampler sampler_;
  Guides guides_;
  Pooler pooler_;
  PromptScorer prompt_scorer_;
  Speculation speculation_;
  AdapterPlaces adapters_;
  StepRecorder recorder_;
  // Steps in flight, oldest first; less than the runner's depth when the next is planned.
  std::vector<Step> flying_;
  // Launched plans with unreported onboards, oldest first: the launch's error, or no value if the
  // runner will report them.
  std::deque<std::optional<Status>> onboards_;
  std::vector<SequenceNews> news_;  // of this turn, not yet posted
  // Memory that every turn uses again.
  std::vector<Command> commands_;
  sched::StepPlan former_plan_;
  exec::Step step_;             // of the message
  exec::Masks masks_;           // of the step that draws
  std::vector<TokenId> input_;  // of a row with drafts or embeddings
  std::vector<AdapterPlaces::Use> adapter_uses_;
  std::vector<std::byte> message_;     // the last one
  std::map<RequestId, Group> groups_;  // by the first one's id, while one of them is open
  // f32 [prompt, vocab] of sequences with context logits, until the prompt is complete.
  absl::flat_hash_map<RequestId, std::vector<float>> context_logits_;
  int64_t num_refused_ = 0;     // accepted, then refused by the scheduler
  int64_t num_submitted_ = 0;   // taken from the inbox
  int64_t num_left_queue_ = 0;  // of those, reported as no longer queued
  bool idle_ = true;
  bool only_guides_ = false;    // nothing can be done before a guide or a mask is made
  bool device_failed_ = false;  // and the log says so
  Time counts_checked_{};
  std::thread thread_;
};

}  // namespace nereid::runtime
