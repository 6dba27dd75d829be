// How many drafts a step should compute, and of which sequences.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/cost_table.h"

namespace nereid::runtime {

// What steps and drafts take, in seconds.
struct SpeculationCosts {
  CostTable step;   // by tokens
  CostTable draft;  // by sequences: one more draft of each of them; 0 = drafts cost nothing to get
  // By sequences: the first draft of each, for which the proposer catches up with what is known.
  // Without measurements it costs as much as one more.
  CostTable first_draft;
  // By rows: host work between two steps. One with drafts is waited for, so that nothing runs
  // beside it; one without has it hidden if steps overlap.
  CostTable host;
  bool overlaps = false;
};

// The next step without drafts, as far as it is known before it is planned.
struct NextStep {
  int32_t num_tokens = 0;
  int32_t num_drawing = 0;  // rows that reach the end of what is known, and so give a token
  int32_t room = 0;         // drafts that it takes at most
};

// A sequence that could have drafts.
struct DraftCandidate {
  double rate = 0;  // chance of a draft to hold if the one before it has held, [0, 1)
  // Not empty: of a tree, the chance of each draft to hold, not growing; so many as `most` at
  // least.
  std::span<const double> chances;
  int32_t most = 0;   // drafts that it can have
  int32_t count = 0;  // that it gets
};

// What is expected of a step.
struct Expectation {
  double tokens = 0, seconds = 0;
  double rate() const { return tokens / seconds; }
};

// Gives candidates the drafts with which the step is expected to give most tokens in a second: the
// j-th of a sequence holds with the chance rate^j, or with its chance in a tree; they are looked at
// in the order of that chance, and the best of all beginnings of that order is taken; none unless
// it is worth more than errors of measurement. A function of its arguments.
class DraftChooser {
 public:
  // Their `count` is 0 before. `costs.step` knows the step without drafts.
  Expectation choose(const SpeculationCosts& costs, const NextStep& next,
                     std::span<DraftCandidate> candidates);

 private:
  struct Draft {
    double chance = 0;
    int32_t depth = 0;  // from 1 on
    size_t candidate = 0;
  };

  std::vector<Draft> order_;  // memory that is used again
  std::vector<int32_t> num_at_depth_;
};

}  // namespace nereid::runtime
