// Sets of texts with union, intersection and difference.
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

// A regular set of texts over Unicode characters, as a deterministic automaton. From every state an
// end is reachable, unless the set is empty.
class TextSet {
 public:
  static constexpr size_t kMaxStates = 20'000;

  static TextSet all() { return lengths(0, kUnbounded); }
  // Texts of `least` to `most` characters, each at most kMaxStates / 2.
  static TextSet lengths(int32_t least, int32_t most);
  static TextSet of_texts(const std::vector<std::string_view>& texts);
  // The set of an automaton with start state 0: transitions by character, and end states.
  static TextSet of_steps(const std::vector<std::map<char32_t, int32_t>>& next,
                          const std::vector<bool>& ends);
  // The set of an expression without calls. InvalidArgument: more than kMaxStates states,
  // or the work limit.
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

  // Lengths of the shortest and the longest text in characters; kUnbounded: no longest.
  // The set is not empty.
  std::pair<int32_t, int32_t> text_lengths() const;
  // An upper bound of the states for the texts of up to `most` characters.
  int64_t num_states_within(int32_t most) const;

  bool empty() const { return states_.empty(); }
  size_t num_states() const { return states_.size(); }
  bool contains(std::string_view text) const;
  // The texts as inside the quotes of a JSON string, each with one spelling. Adds rules to `rules`.
  // The set is not empty.
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

  // The texts that a product keeps: those in both, in this alone, in the other alone.
  struct Kept {
    bool both = false, mine = false, others = false;
  };
  StatusOr<TextSet> combined(const TextSet& other, Kept kept, WorkLimit& work) const;
  // Lengths of the texts that lead to a state: the least, and the largest or kUnbounded.
  struct Distance {
    int32_t least = 0, most = 0;
  };
  std::vector<Distance> distances() const;
  // Removes states from which no end is reachable.
  void trim();

  std::vector<State> states_;  // the first is the start; empty: the empty set
};

}  // namespace nereid::text
