// Drafts: guesses of what sequences say next, computed beside the tokens that are known. Those that
// the sampler draws anyway are tokens won; the others cost what they took to compute.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "exec/runner.h"
#include "sched/scheduler.h"

namespace nereid::runtime {

// What comes after the tokens of a sequence, and the answer.
struct DraftQuestion {
  const sched::Sequence* sequence = nullptr;
  int32_t most = 0;             // guesses wanted, > 0
  std::vector<TokenId> drafts;  // up to `most` of them
  bool is_behind = false;       // none yet: ask again before the next plan, tokens or not
};

// Where guesses come from. Called on the engine thread between steps, so what it knows of a
// sequence are the tokens that the host knows.
class Proposer {
 public:
  virtual ~Proposer() = default;

  // Answers questions about different sequences, whose `drafts` are empty. Each sequence has more
  // tokens than when it was asked about before, or was behind then.
  virtual void propose(std::span<DraftQuestion> questions) = 0;

  // The sequence has ended, or never began.
  virtual void forget(RequestId) {}

  // What it holds on the device, as lines of the executor's table.
  virtual std::vector<exec::MemoryItem> memory() const { return {}; }
};

// Asks the proposer and hands its guesses to the scheduler. Owned by the engine.
class Speculation {
 public:
  struct Options {
    int32_t max_drafts = 8;  // of a sequence in a step
    // Fewer where they seldom hold, none where the step is full without them.
    bool adapts = false;
    int32_t cheap_tokens = 16;  // of a step: up to so many, one more costs little
    // Guesses end before an id that is outside, such as one of a prompt table's rows.
    int32_t vocab_size = std::numeric_limits<int32_t>::max();
  };

  // `proposer`: null = nothing is guessed; else it must outlive this.
  Speculation(Proposer* proposer, const Options& options)
      : proposer_(proposer), options_(options) {}

  // Before a plan: new drafts for each running sequence of which more is known than before.
  void offer(sched::Scheduler& scheduler);

  // A row is about to be committed with so many tokens, the drafts that held and one more.
  void landed(const sched::Row& row, size_t num_drawn);

  void forget(RequestId id);

 private:
  struct State {
    size_t num_known = 0;         // tokens, when the proposer was asked
    size_t silent_until = 0;      // so many are known: drafts have not paid
    double held = 1, tested = 2;  // drafts, older ones counting less; at first even chances
    double rate() const { return held / tested; }
  };

  int32_t most_for(State& state, size_t num_running) const;
  DraftQuestion& next_question();
  void answer(const DraftQuestion& question, sched::Scheduler& scheduler);

  Proposer* const proposer_;
  const Options options_;
  absl::flat_hash_map<RequestId, State> states_;
  std::vector<DraftQuestion> questions_;  // the first num_questions_; the others keep their memory
  size_t num_questions_ = 0;
};

}  // namespace nereid::runtime
