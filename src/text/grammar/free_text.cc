// The Aho-Corasick automaton; each state becomes a rule.
#include "text/grammar/free_text.h"

#include <map>

#include "text/unicode/utf8.h"

namespace nereid::text {
namespace {

// A state: the longest suffix of the text so far that is a prefix of a word. State 0: none.
struct WordState {
  std::map<char32_t, size_t> next;  // transitions to other states than state 0
  std::vector<char32_t> added;      // transitions that extend this prefix
  size_t shorter = 0;               // failure link: the state of its longest suffix
  int32_t word = -1;                // index of the word that it completes
};

std::string_view shown(std::string_view word) { return word.substr(0, 100); }

Status overlap(std::string_view inner, std::string_view outer) {
  return invalid_argument("'{}' is in '{}', which free text could not reach", shown(inner),
                          shown(outer));
}

StatusOr<std::vector<WordState>> beginnings_of(const std::vector<EndWord>& words, WorkLimit& work) {
  constexpr int64_t kStateSteps = 10;
  std::vector<WordState> states(1);
  for (size_t w = 0; w < words.size(); ++w) {
    size_t at = 0;
    for (std::string_view left = words[w].text; !left.empty();) {
      const Utf8Step step = utf8_step(left);
      left.remove_prefix(step.length);
      RETURN_IF_ERROR(work.spend(kStateSteps));
      const auto [found, is_new] = states[at].next.try_emplace(step.code, states.size());
      if (is_new) states[at].added.push_back(step.code);
      at = found->second;
      if (is_new) states.emplace_back();
    }
    if (states[at].word >= 0) return invalid_argument("'{}' stands twice", shown(words[w].text));
    states[at].word = static_cast<int32_t>(w);
  }
  return states;
}

// In order of length, since each state takes over the transitions of a shorter one.
Status add_ways_back(const std::vector<EndWord>& words, std::vector<WordState>& states,
                     WorkLimit& work) {
  constexpr int64_t kWaySteps = 10;
  const auto text_below = [&](size_t state) -> std::string_view {
    while (states[state].word < 0) state = states[state].next.at(states[state].added[0]);
    return words[static_cast<size_t>(states[state].word)].text;
  };
  std::vector<size_t> order = {0};
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t at = order[i];
    for (const char32_t c : states[at].added) {
      const size_t child = states[at].next.at(c);
      const auto& from = states[states[at].shorter].next;
      const auto way = from.find(c);
      states[child].shorter = at == 0 || way == from.end() ? 0 : way->second;
      order.push_back(child);
    }
    if (at == 0) continue;
    const WordState& shorter = states[states[at].shorter];
    WordState& state = states[at];
    if (shorter.word >= 0)
      return overlap(words[static_cast<size_t>(shorter.word)].text, text_below(at));
    if (state.word >= 0 && !state.added.empty())
      return overlap(words[static_cast<size_t>(state.word)].text,
                     text_below(state.next.at(state.added[0])));
    RETURN_IF_ERROR(work.spend(kWaySteps * static_cast<int64_t>(shorter.next.size())));
    state.next.insert(shorter.next.begin(), shorter.next.end());
  }
  return ok();
}

}  // namespace

Status make_free_text(int32_t root, const std::vector<EndWord>& words, bool may_end, Rules& rules,
                      WorkLimit& work) {
  ASSIGN_OR_RETURN(std::vector<WordState> states, beginnings_of(words, work));
  RETURN_IF_ERROR(add_ways_back(words, states, work));
  std::vector<int32_t> rule_of(states.size(), root);
  for (size_t i = 1; i < states.size(); ++i) {
    if (states[i].word >= 0) {
      rule_of[i] = words[static_cast<size_t>(states[i].word)].rule;
      continue;
    }
    rule_of[i] = static_cast<int32_t>(rules.size());
    rules.emplace_back();
  }
  for (size_t i = 0; i < states.size(); ++i) {
    if (states[i].word >= 0) continue;
    std::vector<ExprPtr> ways;
    CharSet special;
    for (const auto& [c, to] : states[i].next) {
      special.add(c, c);
      if (rule_of[to] >= 0) ways.push_back(sequence({one_of({c, c}), call(rule_of[to])}));
    }
    ways.push_back(sequence({one_of(CharSet::all().without(special)), call(root)}));
    if (may_end) ways.push_back(literal(""));
    rules[static_cast<size_t>(rule_of[i])] = choice(std::move(ways));
  }
  return ok();
}

}  // namespace nereid::text
