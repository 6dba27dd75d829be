// Sets of texts that can be joined, cut and taken from each other.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/grammar/expr.h"
#include "text/grammar/work_limit.h"

namespace nereid::text {

// A regular set of texts over Unicode characters, as a deterministic automaton. From each of its
// states a text can still end, except where the set is empty.
class TextSet {
 public:
  static constexpr size_t kMaxStates = 20'000;

  static TextSet all() { return lengths(0, kUnbounded); }
  // Texts of `least` to `most` characters, each at most kMaxStates / 2.
  static TextSet lengths(int32_t least, int32_t most);
  static TextSet of_texts(const std::vector<std::string_view>& texts);
  // Of an automaton whose first state is the start: where each character leads, and which states
  // end.
  static TextSet of_steps(const std::vector<std::map<char32_t, int32_t>>& next,
                          const std::vector<bool>& ends);
  // Of an expression without rules. InvalidArgument: more than kMaxStates states or more work than
  // is left are needed.
  static StatusOr<TextSet> of(const Expr& expr, WorkLimit& work);

  // InvalidArgument as above.
  StatusOr<TextSet> both(const TextSet& other, WorkLimit& work) const {
    return combined(other, {.both = true}, work);
  }
  StatusOr<TextSet> without(const TextSet& other, WorkLimit& work) const {
    return combined(other, {.mine = true}, work);
  }
  StatusOr<TextSet> either(const TextSet& other, WorkLimit& work) const {
    return combined(other, {.both = true, .mine = true, .others = true}, work);
  }

  // Characters of the shortest and the longest text; kUnbounded: there is no longest. Of a set that
  // is not empty.
  std::pair<int32_t, int32_t> text_lengths() const;
  // States that are at most needed for those of the texts that have up to so many characters.
  int64_t num_states_within(int32_t most) const;

  bool empty() const { return states_.empty(); }
  size_t num_states() const { return states_.size(); }
  bool contains(std::string_view text) const;
  // The texts as they stand between the quotes of a JSON string, each spelled in one way. Adds
  // rules to `rules`. The set must not be empty.
  ExprPtr in_json(Rules& rules) const;

 private:
  struct Edge {
    char32_t first = 0, last = 0;
    int32_t to = 0;
  };
  struct State {
    std::vector<Edge> edges;  // ascending, without overlap
    bool ends = false;
  };

  // Texts that are kept: of both, of this alone, of the other alone.
  struct Kept {
    bool both = false, mine = false, others = false;
  };
  StatusOr<TextSet> combined(const TextSet& other, Kept kept, WorkLimit& work) const;
  // Of a text that leads to a state, characters: the fewest, and the most or kUnbounded.
  struct Distance {
    int32_t least = 0, most = 0;
  };
  std::vector<Distance> distances() const;
  // Drops states that lead to no end.
  void trim();

  std::vector<State> states_;  // the first is the start; none: the empty set
};

}  // namespace nereid::text
