// Speculative decoding: draft tokens are computed with the known tokens of a step; accepted ones
// save steps, rejected ones cost their computation.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "exec/runner.h"
#include "exec/step_message.h"
#include "nereid/stats.h"
#include "runtime/clock.h"
#include "runtime/speculation/draft_choice.h"
#include "runtime/step_module.h"

namespace nereid::runtime {

// Request to a proposer for drafts of one sequence, with the answer.
struct DraftQuestion {
  const sched::Sequence* sequence = nullptr;
  int32_t most = 0;             // maximum number of drafts, > 0
  std::vector<TokenId> drafts;  // at most `most`
  // Draft tree (proposers with makes_trees()): see exec::StepArrays::parents. Empty: a chain.
  std::vector<int32_t> parents;
  bool is_behind = false;  // no drafts yet, because known tokens remain to be computed; ask again
                           // before the next plan
};

// Source of drafts. Called on the engine thread between steps: it sees tokens known to the host,
// and hidden states of completed steps.
class Proposer {
 public:
  // Wanted hidden states of the target model: inputs of its head.
  enum class States : uint8_t {
    kNone,
    kDrawn,  // of positions that tokens are sampled from
    kAll,    // of all positions of a step, as far as it has room for them
  };

  virtual ~Proposer() = default;

  // The clock of measured times; it must outlive the proposer. Without a call: steady_clock().
  void set_clock(const Clock& clock) { clock_ = &clock; }

  // The word of ExecutorConfig::speculation for it.
  virtual std::string_view name() const = 0;

  virtual States wanted_states() const { return States::kNone; }

  // Whether completed() reads RowResult::likeliest of rows with drafts.
  virtual bool wants_likeliest() const { return false; }

  // Result of a row before its commit: tokens, and the wanted states, which are the last of
  // `hidden`. Not called for beam search and grammar-constrained sequences.
  virtual void completed(const sched::ScheduledRow&, const exec::RowResult&) {}

  // Answers questions about distinct sequences, whose `drafts` are empty. Unless is_free(), each
  // sequence has new tokens since its last question, or was behind.
  virtual void propose(std::span<DraftQuestion> questions) = 0;

  // Before a plan: the running sequences in order. A proposer of States::kAll computes the states
  // of prompts in progress, so that they need not be kept.
  virtual void follow(std::span<const sched::Sequence* const>) {}

  // Seconds of the last propose() until all first drafts were there; 0: unknown or all at once.
  virtual double first_seconds() const { return 0; }

  // Drafts take almost no time: it is asked about all sequences before the choice of drafts. Other
  // proposers are asked after it.
  virtual bool is_free() const { return false; }

  // Whether answers may be trees: requires a runner with has_trees; draft i of every answer is the
  // same node of one tree shape.
  virtual bool makes_trees() const { return false; }

  // Default number of drafts per sequence and step; 0: the general default.
  virtual int32_t usual_drafts() const { return 0; }

  // The sequence has ended, or never started.
  virtual void forget(RequestId) {}

  // Device memory, for the executor's memory report.
  virtual std::vector<exec::MemoryItem> memory() const { return {}; }

 protected:
  Time now() const { return clock_->now(); }

 private:
  const Clock* clock_ = &steady_clock();
};

// Asks the proposer and hands its drafts to the scheduler.
class Speculation : public StepModule {
 public:
  struct Options {
    int32_t max_drafts = 8;  // per sequence and step
    // true: as many as pay by measured times (DraftChooser), possibly none; false: all.
    bool adapts = false;
    bool overlaps = false;  // steps are launched during the previous step
    // Drafts are cut before an id >= vocab_size (prompt table rows).
    int32_t vocab_size = std::numeric_limits<int32_t>::max();
    const Clock* clock = &steady_clock();  // for what the proposer takes; must outlive this
  };

  // `proposer`: null = no drafts; else it must outlive this.
  Speculation(Proposer* proposer, const Options& options);

  void open(const sched::SequenceSpec& spec, const Submit& request) override;
  void close(RequestId id) override;
  bool empty() const override { return states_.empty(); }

  // New drafts for each running sequence of which more is known than before.
  [[nodiscard]] bool offer(sched::Scheduler& scheduler, bool in_flight) override;

  // Requests the results of a row that the proposer needs; each hidden state takes a row of the
  // spare logits. Adds the tree of its drafts and the logits that they were drawn from.
  void write(const sched::ScheduledRow& row, const RowMessage& to) override;

  // The drafts that accepted and one more token.
  Status completed(const LandedRow& completed, EngineUpdate& update) override;
  void finished(const FinishedStep& step) override;

  const SpeculationCosts& costs() const { return costs_; }

  // Drafts tested and accepted since the start.
  void report(ExecutorStats& stats) const override;

 private:
  // Decayed counts: tested drafts (those behind an accepted draft), and accepted ones.
  struct AcceptanceCounts {
    double accepted = 0, tested = 0;
    void add(bool one_accepted, double keep) {
      accepted = keep * accepted + one_accepted;
      tested = keep * tested + 1;
    }
  };
  struct State {
    bool is_asked = false;   // asked before: its drafts are no longer the request's
    size_t num_known = 0;    // length of the sequence at the last question (proposers with a cost)
    size_t tested_at = 0;    // length of the sequence at its last draft test
    int64_t last_probe = 0;  // number of its last exploration
    AcceptanceCounts tested;
  };

  void add_draft_logits(const sched::ScheduledRow& row, const RowMessage& to) const;
  void find_candidates(sched::Scheduler& scheduler);
  void add_question(const sched::Sequence& sequence, int32_t most);
  double rate_of(const State& state) const;
  void find_chances();
  void note_places(size_t num_drafts, std::span<const int32_t> path);
  void answer_all();
  void decide();
  void explore();
  size_t probe_size() const;
  void note_exploration();
  void ask_chosen(sched::Scheduler& scheduler);
  void ask(std::span<DraftQuestion> questions);
  void measure_proposer(std::span<const DraftQuestion> questions, double seconds);
  void hand_over(const DraftQuestion& question, int32_t count, sched::Scheduler& scheduler);

  Proposer* const proposer_;
  const Options options_;
  absl::flat_hash_map<RequestId, State> states_;
  AcceptanceCounts overall_;               // all sequences together
  std::vector<AcceptanceCounts> in_tree_;  // by tree node, if the proposer makes trees
  std::vector<double> chances_;            // of in_tree_, not ascending
  DraftStats request_drafts_, proposer_drafts_;
  SpeculationCosts costs_;
  DraftChooser chooser_;
  // State of one offer(): num_questions_ questions, with a candidate each; the rest is reused.
  std::vector<DraftQuestion> questions_;
  size_t num_questions_ = 0;
  std::vector<DraftCandidate> candidates_;
  NextStep next_;
  // The last choice.
  bool none_paid_ = false;
  size_t num_unchosen_ = 0;  // steps since the last choice
  // The last measurement.
  bool was_busy_ = false;       // sequences were running at the last offer()
  double propose_seconds_ = 0;  // since the last step finished
  Time last_finished_{};
  // Exploration: drafts of sequences without drafts, to measure acceptance and cost.
  std::vector<size_t> exploration_;  // indices of questions
  int64_t num_probes_ = 0;
  bool probes_again_ = false;  // the same sequences get drafts in the next step too
  size_t num_probed_ = 0;      // handed over and not yet measured
  Expectation expected_;       // of the step without exploration
  Time next_probe_{};
  double probe_every_;  // interval / extra time of an exploration
};

}  // namespace nereid::runtime
