// Number of drafts of each sequence in a step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/speculation/cost_table.h"

namespace nereid::runtime {

// Measured times in seconds.
struct SpeculationCosts {
  CostTable step;   // by tokens
  CostTable draft;  // by sequences: one more draft of each; 0 = drafts are free
  // By sequences: the first draft of each, for which the proposer computes all new known tokens.
  // Unmeasured: the cost of one more draft.
  CostTable first_draft;
  // By rows: host time between two steps. It adds to steps with drafts; for steps without drafts it
  // is hidden if steps overlap.
  CostTable host;
  bool overlaps = false;
};

// The next step without drafts, as far as it is known before planning.
struct NextStep {
  int32_t num_tokens = 0;
  int32_t num_drawing = 0;  // rows that reach the end of the known tokens and yield a token
  int32_t room = 0;         // maximum number of drafts
};

// A sequence that can have drafts.
struct DraftCandidate {
  double rate = 0;  // acceptance probability of a draft after an accepted one, [0, 1)
  // Draft tree: acceptance probability of drafts, not ascending; >= `most` entries. Empty: chain.
  std::span<const double> chances;
  int32_t most = 0;   // maximum number of drafts
  int32_t count = 0;  // result: number of drafts
};

// Expected result of a step.
struct Expectation {
  double tokens = 0, seconds = 0;
  double rate() const { return tokens / seconds; }
};

// Selects the number of drafts of each candidate that maximises expected tokens per second. P(draft
// j accepted) = rate^j, or chances[j] in a tree; the best prefix of all drafts in descending order
// of P is taken, or none unless the gain exceeds measurement errors (kWorth). A pure function.
class DraftChooser {
 public:
  // Precondition: `count` = 0 in all candidates; `costs.step` has the cost without drafts.
  Expectation choose(const SpeculationCosts& costs, const NextStep& next,
                     std::span<DraftCandidate> candidates);

 private:
  struct Draft {
    double chance = 0;
    int32_t depth = 0;  // from 1 on
    size_t candidate = 0;
  };

  std::vector<Draft> order_;  // reused memory
  std::vector<int32_t> num_at_depth_;
};

}  // namespace nereid::runtime
