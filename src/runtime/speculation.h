// Drafts: guesses of what sequences say next, computed beside the tokens that are known. Those that
// the sampler draws anyway are tokens won; the others cost what they took to compute.
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
#include "runtime/draft_choice.h"
#include "runtime/step_module.h"

namespace nereid::runtime {

// What comes after the tokens of a sequence, and the answer.
struct DraftQuestion {
  const sched::Sequence* sequence = nullptr;
  int32_t most = 0;             // guesses wanted, > 0
  std::vector<TokenId> drafts;  // up to `most` of them
  // Empty: each draft comes after the one before it. Else, from a proposer that makes trees, one
  // for each draft: see exec::StepArrays::parents.
  std::vector<int32_t> parents;
  bool is_behind = false;  // none yet: ask again before the next plan, tokens or not
};

// Where guesses come from. Called on the engine thread between steps, so what it knows of a
// sequence are the tokens that the host knows, and hidden states of the steps that have landed.
class Proposer {
 public:
  // Hidden states of the model that tests the guesses, as what enters its head.
  enum class States : uint8_t {
    kNone,
    kDrawn,  // of the positions that tokens are drawn from
    kAll,    // of every position that a step computes, as far as it has room for them
  };

  virtual ~Proposer() = default;

  // What times are measured by; it must outlive the proposer. Without a call: steady_clock().
  void set_clock(const Clock& clock) { clock_ = &clock; }

  // The word of ExecutorConfig::speculation for it.
  virtual std::string_view name() const = 0;

  virtual States wanted_states() const { return States::kNone; }

  // Whether landed() reads RowResult::likeliest of rows with drafts.
  virtual bool wants_likeliest() const { return false; }

  // What a row gave, before the scheduler takes note of it: tokens, and the states that are wanted,
  // the last of the result's `hidden`. Not of beams, nor of what a grammar holds.
  virtual void landed(const sched::Row&, const exec::RowResult&) {}

  // Answers questions about different sequences, whose `drafts` are empty. Unless the proposer is
  // free, each sequence has more tokens than when it was asked about before, or was behind then.
  virtual void propose(std::span<DraftQuestion> questions) = 0;

  // Before a plan: the sequences that run, in order. A proposer of States::kAll computes what it
  // can of those whose prompt is still being computed, so that their states need not be kept.
  virtual void follow(std::span<const sched::Sequence* const>) {}

  // Seconds of the last propose() until each answer had its first guess; 0: all guesses come
  // together, or the proposer does not tell.
  virtual double first_seconds() const { return 0; }

  // Its guesses take next to no time. So it is asked about all sequences before it is decided which
  // of its guesses are computed; any other one is asked for those that will be.
  virtual bool is_free() const { return false; }

  // Whether answers may have parents: then the runner must take trees, and the i-th guess of each
  // answer stands at the same place of the same tree.
  virtual bool makes_trees() const { return false; }

  // Guesses of a sequence in a step where the configuration says nothing; 0: as many as usual.
  virtual int32_t usual_drafts() const { return 0; }

  // The sequence has ended, or never began.
  virtual void forget(RequestId) {}

  // What it holds on the device, as lines of the executor's table.
  virtual std::vector<exec::MemoryItem> memory() const { return {}; }

 protected:
  Time now() const { return clock_->now(); }

 private:
  const Clock* clock_ = &steady_clock();
};

// Asks the proposer and hands its guesses to the scheduler.
class Speculation : public StepModule {
 public:
  struct Options {
    int32_t max_drafts = 8;  // of a sequence in a step
    // As many as pay by what was measured (see DraftChooser), down to none. Else as many as there
    // are.
    bool adapts = false;
    bool overlaps = false;  // a step is launched while the one before it runs
    // Guesses end before an id that is outside, such as one of a prompt table's rows.
    int32_t vocab_size = std::numeric_limits<int32_t>::max();
    const Clock* clock = &steady_clock();  // for what the proposer takes; must outlive this
  };

  // `proposer`: null = nothing is guessed; else it must outlive this.
  Speculation(Proposer* proposer, const Options& options);

  void open(const sched::SequenceSpec& spec, const Submit& request) override;
  void close(RequestId id) override;
  bool empty() const override { return states_.empty(); }

  // New drafts for each running sequence of which more is known than before.
  [[nodiscard]] bool offer(sched::Scheduler& scheduler, bool in_flight) override;

  // Asks for what the proposer wants to know of a row; each hidden state takes a row of the spare
  // logits. Adds the tree of its drafts and the logits that they were drawn from.
  void write(const sched::Row& row, const RowMessage& to) override;

  // The drafts that held and one more token.
  Status landed(const LandedRow& landed, SequenceNews& news) override;
  void finished(const FinishedStep& step) override;

  const SpeculationCosts& costs() const { return costs_; }

  // What was tested since the start.
  void report(ExecutorStats& stats) const override;

 private:
  // Drafts whose draft before held, and of those the ones that held; older ones count less.
  struct Tested {
    double held = 0, tested = 0;
    void add(bool one_held, double keep) {
      held = keep * held + one_held;
      tested = keep * tested + 1;
    }
  };
  struct State {
    bool is_asked = false;   // so its drafts are no longer those of the request
    size_t num_known = 0;    // tokens, when a proposer that is not free was asked
    size_t tested_at = 0;    // tokens known when its drafts were tested last
    int64_t last_probe = 0;  // the number of the last probe that it was in
    Tested tested;
  };

  void add_draft_logits(const sched::Row& row, const RowMessage& to) const;
  void find_candidates(sched::Scheduler& scheduler);
  void add_question(const sched::Sequence& sequence, int32_t most);
  double rate_of(const State& state) const;
  void find_chances();
  void note_places(size_t num_drafts, std::span<const int32_t> path);
  void answer_all();
  void decide();
  void probe();
  size_t probe_size() const;
  void note_probe();
  void ask_chosen(sched::Scheduler& scheduler);
  void ask(std::span<DraftQuestion> questions);
  void measure_proposer(std::span<const DraftQuestion> questions, double seconds);
  void hand_over(const DraftQuestion& question, int32_t count, sched::Scheduler& scheduler);

  Proposer* const proposer_;
  const Options options_;
  absl::flat_hash_map<RequestId, State> states_;
  Tested overall_;               // of all sequences
  std::vector<Tested> in_tree_;  // the same by the place in the tree, if the proposer makes trees
  std::vector<double> chances_;  // of these, not growing
  DraftStats request_drafts_, proposer_drafts_;
  SpeculationCosts costs_;
  DraftChooser chooser_;
  // Of the call. Questions are the first num_questions_, the others keep their memory; each has a
  // candidate.
  std::vector<DraftQuestion> questions_;
  size_t num_questions_ = 0;
  std::vector<DraftCandidate> candidates_;
  NextStep next_;
  // What was chosen last.
  bool none_paid_ = false;
  size_t num_unchosen_ = 0;  // steps since then that were not chosen for
  // What was measured last.
  bool was_busy_ = false;       // sequences were running at the last offer
  double propose_seconds_ = 0;  // since the last step finished
  Time last_finished_{};
  // Of steps in which sequences have drafts only to see whether they hold now, and what they cost.
  std::vector<size_t> probed_;  // their places among the questions
  int64_t num_probes_ = 0;
  bool probes_again_ = false;  // those of the last probe have drafts in the next step, too
  size_t num_probed_ = 0;      // that were handed over and not measured
  Expectation expected_;       // of the step without them
  Time next_probe_{};
  double probe_every_;  // times the time that a probe takes in addition
};

}  // namespace nereid::runtime
