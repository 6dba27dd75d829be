// Runs of characters that a state set accepts whatever they are: a look-up by class and length
// replaces a walk over all tokens made of such characters.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "text/grammar/char_kinds.h"
#include "text/grammar/state_sets.h"

namespace nereid::text {

class CharRuns {
 public:
  // Every text of at most `length` characters of these classes may follow, also one that ends
  // inside a character, and none of them ends a call with an unknown caller.
  struct Run {
    CharKinds kinds = 0;
    int32_t length = 0;
    bool is_longest = false;  // no longer text of these classes may follow
  };

  explicit CharRuns(StateSets& sets) : sets_(sets) {}

  // The run of a state set; `may_make`: computes it if needed, which takes about a walk over
  // some hundred nodes.
  Run of(int32_t set, bool may_make);
  void clear() { runs_.clear(); }

 private:
  struct Known {
    bool is_made = false;
    Run run;
  };
  // By class, the state set after any of its characters; kNone: not the same after all of them.
  using Targets = std::array<int32_t, kNumCharKinds>;
  static constexpr int32_t kNone = -1;

  Run make(int32_t set);
  bool is_end(int32_t set, CharKinds kinds);
  Targets targets_of(int32_t set);
  int32_t behind_wide(int32_t set);

  StateSets& sets_;
  std::vector<Known> runs_;  // by state set
};

}  // namespace nereid::text
