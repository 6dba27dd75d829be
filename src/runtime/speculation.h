// Drafts: guesses of what sequences say next, computed beside the tokens that are known. Those that
// the sampler draws anyway are tokens won; the others cost what they took to compute.
#pragma once

#include <cstdint>
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
  };

  // `proposer`: null = nothing is guessed; else it must outlive this.
  Speculation(Proposer* proposer, const Options& options)
      : proposer_(proposer), options_(options) {}

  // Before a plan: new drafts for each running sequence of which more is known than before.
  void offer(sched::Scheduler& scheduler);

  void forget(RequestId id);

 private:
  struct State {
    size_t num_known = 0;  // tokens, when the proposer was asked
  };

  Proposer* const proposer_;
  const Options options_;
  absl::flat_hash_map<RequestId, State> states_;
  std::vector<TokenId> drafts_;  // of the last question
};

}  // namespace nereid::runtime
