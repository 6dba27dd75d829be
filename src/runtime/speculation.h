// Drafts: guesses of what sequences say next, computed beside the tokens that are known. Those that
// the sampler draws anyway are tokens won; the others cost what they took to compute.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sched/scheduler.h"

namespace nereid::runtime {

// Where guesses come from. Called on the engine thread between steps, so what it knows of a
// sequence are the tokens that the host knows.
class Proposer {
 public:
  virtual ~Proposer() = default;

  // Puts up to `most` > 0 guesses of what comes after the sequence's tokens into `drafts`, which is
  // empty. It has more tokens than when it was asked before.
  virtual void propose(const sched::Sequence& sequence, int32_t most,
                       std::vector<TokenId>& drafts) = 0;

  // The sequence has ended, or never began.
  virtual void forget(RequestId) {}
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

  Proposer* const proposer_;
  const Options options_;
  absl::flat_hash_map<RequestId, State> states_;
  std::vector<TokenId> drafts_;  // of the last question
};

}  // namespace nereid::runtime
