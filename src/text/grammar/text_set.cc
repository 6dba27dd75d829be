// Subset construction and products over ranges of characters.
#include "text/grammar/text_set.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"
#include "text/grammar/regex_expr.h"
#include "text/unicode/utf8.h"

namespace nereid::text {
namespace {

constexpr int32_t kNoState = -1;
constexpr size_t kMaxLooseStates = 200'000;  // states of a nondeterministic automaton

Status too_many_states() {
  return invalid_argument("these conditions together need more than {} states",
                          TextSet::kMaxStates);
}

// A state of a nondeterministic automaton.
struct LooseState {
  std::vector<std::pair<std::pair<char32_t, char32_t>, int32_t>> edges;
  std::vector<int32_t> free;
  std::vector<std::pair<Assertion, int32_t>> asserted;  // free transitions under a condition
};

// The character beside a position.
enum class Side { kNone, kWord, kOther };

bool holds(Assertion assertion, Side before, Side behind) {
  const bool edge = (before == Side::kWord) != (behind == Side::kWord);
  switch (assertion) {
    case Assertion::kStart:
      return before == Side::kNone;
    case Assertion::kEnd:
      return behind == Side::kNone;
    case Assertion::kWordEdge:
      return edge;
    case Assertion::kNoWordEdge:
      return !edge;
  }
  return false;
}

class LooseMaker {
 public:
  explicit LooseMaker(WorkLimit& work) : work_(work) {}
  // Adds the expression from state `from` on; returns its last state.
  StatusOr<int32_t> add(const Expr& expr, int32_t from);
  int32_t add_state() {
    states.emplace_back();
    return static_cast<int32_t>(states.size()) - 1;
  }
  std::vector<LooseState> states;
  bool asserts = false;

 private:
  StatusOr<int32_t> add_repeat(const Expr& expr, int32_t from);
  int32_t add_chars(const CharSet& chars, int32_t from) {
    const int32_t to = add_state();
    for (const auto& range : chars.ranges())
      states[static_cast<size_t>(from)].edges.push_back({range, to});
    return to;
  }
  void add_free(int32_t from, int32_t to) { states[static_cast<size_t>(from)].free.push_back(to); }

  WorkLimit& work_;
};

StatusOr<int32_t> LooseMaker::add(const Expr& expr, int32_t from) {
  if (states.size() > kMaxLooseStates) return too_many_states();
  RETURN_IF_ERROR(work_.spend(static_cast<int64_t>(1 + expr.bytes.size())));
  switch (expr.kind) {
    case Expr::Kind::kBytes:
      for (size_t at = 0; at < expr.bytes.size();) {
        const Utf8Step step = utf8_step(std::string_view(expr.bytes).substr(at));
        from = add_chars({step.code, step.code}, from);
        at += step.length;
      }
      return from;
    case Expr::Kind::kChars:
      return add_chars(expr.chars, from);
    case Expr::Kind::kSequence:
      for (const ExprPtr& part : expr.parts) {
        ASSIGN_OR_RETURN(from, add(*part, from));
      }
      return from;
    case Expr::Kind::kChoice: {
      const int32_t to = add_state();
      for (const ExprPtr& part : expr.parts) {
        ASSIGN_OR_RETURN(const int32_t end, add(*part, from));
        add_free(end, to);
      }
      return to;
    }
    case Expr::Kind::kRepeat:
      return add_repeat(expr, from);
    case Expr::Kind::kAssertion: {
      const int32_t to = add_state();
      states[static_cast<size_t>(from)].asserted.emplace_back(expr.assertion, to);
      asserts = true;
      return to;
    }
    case Expr::Kind::kRule:
      break;
  }
  return internal_error("a set of texts has a rule");
}

StatusOr<int32_t> LooseMaker::add_repeat(const Expr& expr, int32_t from) {
  const Expr& part = *expr.parts[0];
  for (int32_t i = 0; i < expr.least; ++i) {
    ASSIGN_OR_RETURN(from, add(part, from));
  }
  const int32_t to = add_state();
  if (expr.most == kUnbounded) {
    const int32_t loop = add_state();
    add_free(from, loop);
    ASSIGN_OR_RETURN(const int32_t end, add(part, loop));
    add_free(end, loop), add_free(loop, to);
    return to;
  }
  for (int32_t i = expr.least; i < expr.most; ++i) {
    // A state for each round: an alternative of a choice begins at `from` too.
    const int32_t begin = add_state();
    add_free(from, begin), add_free(from, to);
    ASSIGN_OR_RETURN(from, add(part, begin));
  }
  add_free(from, to);
  return to;
}

// The characters on both sides of a position.
struct Sides {
  Side before = Side::kNone, behind = Side::kNone;
};

// The epsilon closure, ascending; through assertions only if `sides` are given.
Status close(const std::vector<LooseState>& states, std::vector<int32_t>& set, WorkLimit& work,
             std::optional<Sides> sides = std::nullopt) {
  std::vector<bool> seen(states.size());
  std::vector<int32_t> open = std::move(set);
  set.clear();
  while (!open.empty()) {
    const int32_t at = open.back();
    open.pop_back();
    if (seen[static_cast<size_t>(at)]) continue;
    seen[static_cast<size_t>(at)] = true;
    set.push_back(at);
    const LooseState& state = states[static_cast<size_t>(at)];
    open.insert(open.end(), state.free.begin(), state.free.end());
    for (const auto& [assertion, to] : state.asserted)
      if (sides && holds(assertion, sides->before, sides->behind)) open.push_back(to);
  }
  std::ranges::sort(set);
  return work.spend(static_cast<int64_t>(1 + set.size() + states.size() / 64));
}

// Universal states: all characters lead from them to themselves, and they end.
StatusOr<std::vector<bool>> states_of_all(const std::vector<LooseState>& states, int32_t end,
                                          WorkLimit& work) {
  const CharSet all = CharSet::all();
  std::vector<bool> found(states.size());
  for (size_t i = 0; i < states.size(); ++i) {
    const auto& edges = states[i].edges;
    const bool is_loop = std::ranges::equal(edges, all.ranges(), [&](const auto& edge, auto range) {
      return edge.first == range && edge.second == edges[0].second;
    });
    if (!is_loop) continue;
    const auto leads = [&](int32_t from, int32_t to) -> StatusOr<bool> {
      std::vector<int32_t> reached = {from};
      RETURN_IF_ERROR(close(states, reached, work));
      return std::ranges::binary_search(reached, to);
    };
    ASSIGN_OR_RETURN(const bool ends, leads(static_cast<int32_t>(i), end));
    if (!ends) continue;
    ASSIGN_OR_RETURN(found[i], leads(edges[0].second, static_cast<int32_t>(i)));
  }
  return found;
}

// Ends of ranges of characters, with the states whose transitions begin and end there.
using Borders = std::map<char32_t, std::pair<std::vector<int32_t>, std::vector<int32_t>>>;

// The transitions of a closed set of states. With assertions each range is cut into characters of
// words (`letters`) and others, which decide what holds between the character `before` and it.
StatusOr<Borders> borders_of(const LooseMaker& loose, const std::vector<int32_t>& set, Side before,
                             const CharSet& letters, WorkLimit& work) {
  Borders borders;
  const auto add = [&](std::pair<char32_t, char32_t> range, int32_t to) {
    borders[range.first].first.push_back(to);
    borders[range.second + 1].second.push_back(to);
  };
  if (!loose.asserts) {
    for (const int32_t s : set)
      for (const auto& [range, to] : loose.states[static_cast<size_t>(s)].edges) add(range, to);
    return borders;
  }
  for (const Side behind : {Side::kWord, Side::kOther}) {
    std::vector<int32_t> crossed = set;
    RETURN_IF_ERROR(close(loose.states, crossed, work, Sides{before, behind}));
    for (const int32_t s : crossed)
      for (const auto& [range, to] : loose.states[static_cast<size_t>(s)].edges) {
        const CharSet all(range.first, range.second);
        const CharSet some = behind == Side::kWord ? all.both(letters) : all.without(letters);
        for (const auto& part : some.ranges()) add(part, to);
      }
  }
  return borders;
}

}  // namespace

TextSet TextSet::lengths(int32_t least, int32_t most) {
  TextSet set;
  const int32_t last = most == kUnbounded ? least : most;
  NEREID_CHECK(least >= 0 && last >= least && static_cast<size_t>(last) <= kMaxStates / 2);
  const CharSet all = CharSet::all();
  for (int32_t i = 0; i <= last; ++i) {
    State& state = set.states_.emplace_back();
    state.ends = i >= least;
    const int32_t to = i < last ? i + 1 : most == kUnbounded ? i : kNoState;
    for (const auto& [first, end] : all.ranges())
      if (to != kNoState) state.edges.push_back({first, end, to});
  }
  return set;
}

TextSet TextSet::of_texts(const std::vector<std::string_view>& texts) {
  std::vector<std::map<char32_t, int32_t>> next(1);
  std::vector<bool> ends(1);
  for (const std::string_view text : texts) {
    size_t state = 0;
    for (size_t at = 0; at < text.size();) {
      const Utf8Step step = utf8_step(text.substr(at));
      at += step.length;
      const auto [found, is_new] =
          next[state].try_emplace(step.code, static_cast<int32_t>(next.size()));
      state = static_cast<size_t>(found->second);
      if (is_new) next.emplace_back(), ends.push_back(false);
    }
    ends[state] = true;
  }
  return of_steps(next, ends);
}

TextSet TextSet::of_steps(const std::vector<std::map<char32_t, int32_t>>& next,
                          const std::vector<bool>& ends) {
  TextSet set;
  for (size_t i = 0; i < next.size(); ++i) {
    State& state = set.states_.emplace_back();
    state.ends = ends[i];
    for (const auto& [c, to] : next[i]) state.edges.push_back({c, c, to});
  }
  set.trim();
  return set;
}

StatusOr<TextSet> TextSet::of(const Expr& expr, WorkLimit& work) {
  LooseMaker loose(work);
  const int32_t start = loose.add_state();
  ASSIGN_OR_RETURN(const int32_t end, loose.add(expr, start));
  ASSIGN_OR_RETURN(const std::vector<bool> takes_all, states_of_all(loose.states, end, work));
  using Open = std::pair<std::vector<int32_t>, Side>;  // states, and the character before them
  std::map<Open, int32_t> index_of;
  std::vector<Open> sets = {{{start}, Side::kNone}};
  RETURN_IF_ERROR(close(loose.states, sets[0].first, work));
  index_of[sets[0]] = 0;
  const CharSet letters = loose.asserts ? word_chars() : CharSet();
  TextSet result;
  for (size_t i = 0; i < sets.size(); ++i) {
    const auto [set, before] = sets[i];
    State state;
    std::vector<int32_t> last = set;
    if (loose.asserts) RETURN_IF_ERROR(close(loose.states, last, work, Sides{before, Side::kNone}));
    state.ends = std::ranges::binary_search(last, end);
    ASSIGN_OR_RETURN(const Borders borders, borders_of(loose, set, before, letters, work));
    RETURN_IF_ERROR(work.spend(static_cast<int64_t>(borders.size())));
    std::vector<int32_t> now;
    for (auto at = borders.begin(); at != borders.end(); ++at) {
      for (const int32_t to : at->second.second) now.erase(std::ranges::find(now, to));
      now.insert(now.end(), at->second.first.begin(), at->second.first.end());
      if (now.empty()) continue;
      Open next{now, letters.contains(at->first) ? Side::kWord : Side::kOther};
      RETURN_IF_ERROR(close(loose.states, next.first, work));
      // Beside a universal state the others add nothing.
      const auto all = std::ranges::find_if(
          next.first, [&](int32_t s) { return takes_all[static_cast<size_t>(s)]; });
      if (all != next.first.end()) {
        next = {{*all}, Side::kOther};
        RETURN_IF_ERROR(close(loose.states, next.first, work));
      }
      const auto [found, is_new] = index_of.try_emplace(next, static_cast<int32_t>(sets.size()));
      if (is_new) sets.push_back(std::move(next));
      const char32_t last_char = std::next(at)->first - 1;
      if (!state.edges.empty() && state.edges.back().to == found->second &&
          state.edges.back().last + 1 == at->first)
        state.edges.back().last = last_char;
      else
        state.edges.push_back({at->first, last_char, found->second});
    }
    if (sets.size() > kMaxStates) return too_many_states();
    result.states_.push_back(std::move(state));
  }
  result.trim();
  return result;
}

StatusOr<TextSet> TextSet::combined(const TextSet& other, Kept kept, WorkLimit& work) const {
  using Pair = std::pair<int32_t, int32_t>;
  constexpr char32_t kEnd = 0x110000;
  absl::flat_hash_map<Pair, int32_t> index_of;
  std::vector<Pair> pairs = {{empty() ? kNoState : 0, other.empty() ? kNoState : 0}};
  index_of[pairs[0]] = 0;
  const State none;
  TextSet result;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const Pair at = pairs[i];
    const State& a = at.first < 0 ? none : states_[static_cast<size_t>(at.first)];
    const State& b = at.second < 0 ? none : other.states_[static_cast<size_t>(at.second)];
    State state;
    state.ends = a.ends ? (b.ends ? kept.both : kept.mine) : b.ends && kept.others;
    auto x = a.edges.begin();
    auto y = b.edges.begin();
    for (char32_t c = 0; c < kEnd;) {
      while (x != a.edges.end() && x->last < c) ++x;
      while (y != b.edges.end() && y->last < c) ++y;
      char32_t end = kEnd;  // end of the interval in which neither changes
      int32_t to_a = kNoState, to_b = kNoState;
      if (x != a.edges.end()) end = std::min<char32_t>(end, x->first <= c ? x->last + 1 : x->first);
      if (y != b.edges.end()) end = std::min<char32_t>(end, y->first <= c ? y->last + 1 : y->first);
      if (x != a.edges.end() && x->first <= c) to_a = x->to;
      if (y != b.edges.end() && y->first <= c) to_b = y->to;
      const bool alive = (to_a >= 0 && (to_b >= 0 || kept.mine)) || (to_b >= 0 && kept.others);
      if (alive) {
        const auto [found, is_new] =
            index_of.try_emplace(Pair{to_a, to_b}, static_cast<int32_t>(pairs.size()));
        if (is_new) pairs.push_back({to_a, to_b});
        if (!state.edges.empty() && state.edges.back().to == found->second &&
            state.edges.back().last + 1 == c)
          state.edges.back().last = end - 1;
        else
          state.edges.push_back({c, end - 1, found->second});
      }
      c = end;
    }
    RETURN_IF_ERROR(work.spend(static_cast<int64_t>(1 + a.edges.size() + b.edges.size())));
    if (pairs.size() > kMaxStates) return too_many_states();
    result.states_.push_back(std::move(state));
  }
  result.trim();
  return result;
}

void TextSet::trim() {
  std::vector<std::vector<int32_t>> from(states_.size());
  std::vector<int32_t> open;
  std::vector<int32_t> place(states_.size(), kNoState);
  for (size_t i = 0; i < states_.size(); ++i) {
    for (const Edge& edge : states_[i].edges)
      from[static_cast<size_t>(edge.to)].push_back(static_cast<int32_t>(i));
    if (states_[i].ends) open.push_back(static_cast<int32_t>(i)), place[i] = 0;
  }
  while (!open.empty()) {
    const auto at = static_cast<size_t>(open.back());
    open.pop_back();
    for (const int32_t before : from[at])
      if (std::exchange(place[static_cast<size_t>(before)], 0) == kNoState) open.push_back(before);
  }
  if (states_.empty() || place[0] == kNoState) {
    states_.clear();
    return;
  }
  int32_t count = 0;
  for (int32_t& p : place)
    if (p != kNoState) p = count++;
  std::vector<State> kept;
  for (size_t i = 0; i < states_.size(); ++i) {
    if (place[i] == kNoState) continue;
    State& state = kept.emplace_back(std::move(states_[i]));
    std::erase_if(state.edges, [&](const Edge& edge) {
      return place[static_cast<size_t>(edge.to)] == kNoState;
    });
    for (Edge& edge : state.edges) edge.to = place[static_cast<size_t>(edge.to)];
  }
  states_ = std::move(kept);
}

std::vector<TextSet::Distance> TextSet::distances() const {
  std::vector<Distance> all(states_.size(), {kUnbounded, kUnbounded});  // for unreachable states
  std::vector<int32_t> num_before(states_.size()), open = {0};
  all[0] = {};
  for (size_t i = 0; i < open.size(); ++i)
    for (const Edge& edge : states_[static_cast<size_t>(open[i])].edges) {
      Distance& to = all[static_cast<size_t>(edge.to)];
      ++num_before[static_cast<size_t>(edge.to)];
      if (to.least != kUnbounded) continue;
      to.least = all[static_cast<size_t>(open[i])].least + 1;
      open.push_back(edge.to);
    }
  // A topological order; states in or behind a cycle are left out.
  open.clear();
  if (num_before[0] == 0) open.push_back(0);
  for (size_t i = 0; i < open.size(); ++i) {
    Distance& from = all[static_cast<size_t>(open[i])];
    from.most = std::max(from.most, from.least);
    for (const Edge& edge : states_[static_cast<size_t>(open[i])].edges) {
      Distance& to = all[static_cast<size_t>(edge.to)];
      to.most = std::max(to.most, from.most + 1);
      if (--num_before[static_cast<size_t>(edge.to)] == 0) open.push_back(edge.to);
    }
  }
  for (size_t s = 0; s < all.size(); ++s)
    if (num_before[s] > 0) all[s].most = kUnbounded;
  return all;
}

std::pair<int32_t, int32_t> TextSet::text_lengths() const {
  std::pair<int32_t, int32_t> lengths = {std::numeric_limits<int32_t>::max(), 0};
  const std::vector<Distance> all = distances();
  for (size_t s = 0; s < all.size(); ++s) {
    if (!states_[s].ends || all[s].least == kUnbounded) continue;
    lengths.first = std::min(lengths.first, all[s].least);
    const bool endless = all[s].most == kUnbounded || lengths.second == kUnbounded;
    lengths.second = endless ? kUnbounded : std::max(lengths.second, all[s].most);
  }
  return lengths;
}

int64_t TextSet::num_states_within(int32_t most) const {
  int64_t count = 0;
  for (const Distance& d : distances()) {
    if (d.least == kUnbounded) continue;
    const int32_t last = d.most == kUnbounded ? most : std::min(most, d.most);
    count += std::max(0, last - d.least + 1);
  }
  return count;
}

bool TextSet::contains(std::string_view text) const {
  if (empty()) return false;
  const State* state = &states_[0];
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    at += step.length;
    const auto edge = std::ranges::find_if(
        state->edges, [&](const Edge& e) { return e.first <= step.code && step.code <= e.last; });
    if (edge == state->edges.end()) return false;
    state = &states_[static_cast<size_t>(edge->to)];
  }
  return state->ends;
}

// A rule for each state with several incoming edges; others are inlined. Edges lead to later states
// except in cycles, so states are written from the last to the first.
ExprPtr TextSet::in_json(Rules& rules) const {
  NEREID_CHECK(!empty());
  constexpr int kMaxInline = 64;
  std::vector<int32_t> num_entries(states_.size()), rule(states_.size(), -1);
  std::vector<int> depth(states_.size());
  std::vector<ExprPtr> exprs(states_.size()), calls(states_.size());
  for (size_t i = 0; i < states_.size(); ++i) {
    std::map<int32_t, bool> entered;
    for (const Edge& edge : states_[i].edges)
      entered[edge.to] |= edge.to <= static_cast<int32_t>(i);
    for (const auto& [to, backward] : entered)
      num_entries[static_cast<size_t>(to)] += backward ? 2 : 1;
  }
  for (size_t i = 1; i < states_.size(); ++i)
    if (num_entries[i] > 1) rule[i] = static_cast<int32_t>(rules.size()), rules.emplace_back();
  if (num_entries[0] > 0) rule[0] = static_cast<int32_t>(rules.size()), rules.emplace_back();
  std::map<std::vector<std::pair<char32_t, char32_t>>, ExprPtr> spelled;
  for (size_t i = states_.size(); i-- > 0;) {
    std::map<int32_t, CharSet> to;
    for (const Edge& edge : states_[i].edges) to[edge.to].add(edge.first, edge.last);
    std::vector<ExprPtr> ways;
    for (const auto& [next, chars] : to) {
      const auto n = static_cast<size_t>(next);
      if (rule[n] < 0 && depth[n] >= kMaxInline) {
        rule[n] = static_cast<int32_t>(rules.size());
        rules.push_back(exprs[n]);
      }
      if (rule[n] < 0) depth[i] = std::max(depth[i], depth[n] + 1);
      if (rule[n] >= 0 && !calls[n]) calls[n] = call_of_some(rule[n]);
      ExprPtr& spelling = spelled[chars.ranges()];
      if (!spelling) spelling = in_json_string(chars);
      ways.push_back(sequence({spelling, rule[n] < 0 ? exprs[n] : calls[n]}));
    }
    if (states_[i].ends) ways.push_back(literal(""));
    exprs[i] = choice(std::move(ways));
    if (rule[i] >= 0) rules[static_cast<size_t>(rule[i])] = exprs[i];
  }
  return rule[0] < 0 ? exprs[0] : call_of_some(rule[0]);
}

}  // namespace nereid::text
