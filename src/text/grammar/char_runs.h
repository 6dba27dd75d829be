// Which long texts may follow a set of states, whatever they say: a look at a few bytes in place of
// a walk along all tokens that are made of such characters.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "text/grammar/char_kinds.h"
#include "text/grammar/state_sets.h"

namespace nereid::text {

class CharRuns {
 public:
  // Every text of at most `length` characters of these kinds may follow, also one that ends within
  // a character, and none of them ends a call that is not known.
  struct Run {
    CharKinds kinds = 0;
    int32_t length = 0;
    bool is_longest = false;  // no longer one may follow
  };

  explicit CharRuns(StateSets& sets) : sets_(sets) {}

  // Of a set; `may_make`: also where it is not known yet, which takes as long as a walk along some
  // hundred nodes.
  Run of(int32_t set, bool may_make);
  void clear() { runs_.clear(); }

 private:
  struct Known {
    bool is_made = false;
    Run run;
  };
  // By kind, the set behind any of its characters; kNone: not the same one behind all.
  using Targets = std::array<int32_t, kNumCharKinds>;
  static constexpr int32_t kNone = -1;

  Run make(int32_t set);
  bool is_end(int32_t set, CharKinds kinds);
  Targets targets_of(int32_t set);
  int32_t behind_wide(int32_t set);

  StateSets& sets_;
  std::vector<Known> runs_;  // by set
};

}  // namespace nereid::text
