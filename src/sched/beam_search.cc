// Beam search: one pass over the ranked candidates of all beams selects live beams and hypotheses.
#include "sched/beam_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace nereid::sched {
namespace {

struct Candidate {
  int32_t parent;
  TokenId token;
  float log_prob, cum;
  float rank;  // cumulative log-probability + diversity term
};

int32_t num_generated(const BeamRules& rules, const LiveBeam& beam) {
  return static_cast<int32_t>(beam.tokens.size()) - rules.num_prompt;
}

float normalised(const BeamRules& rules, float value, int32_t length) {
  if (rules.length_penalty == 0) return value;
  return value / std::pow(static_cast<float>(length), rules.length_penalty);
}

// The best 2 * width candidates of all beams, best first.
std::vector<Candidate> ranked(const BeamRules& rules,
                              std::span<const std::vector<TokenLogProb>> candidates,
                              const BeamState& state) {
  std::vector<Candidate> all;
  for (size_t b = 0; b < state.live.size(); ++b)
    for (const TokenLogProb& c : candidates[b]) {
      if (std::isinf(c.log_prob)) continue;
      const float cum = state.live[b].cum_log_prob + c.log_prob;
      all.push_back({.parent = static_cast<int32_t>(b),
                     .token = c.token,
                     .log_prob = c.log_prob,
                     .cum = cum,
                     .rank = cum + rules.diversity_rate * static_cast<float>(b)});
    }
  std::ranges::stable_sort(all, std::ranges::greater(), &Candidate::rank);
  if (all.size() > 2 * static_cast<size_t>(rules.width)) all.resize(2 * rules.width);
  return all;
}

bool completes_stop_word(const BeamRules& rules, const LiveBeam& parent, TokenId token) {
  if (num_generated(rules, parent) + 1 < rules.min_tokens) return false;
  return std::ranges::any_of(rules.stop_words, [&](const std::vector<TokenId>& word) {
    return !word.empty() && word.back() == token && word.size() <= parent.tokens.size() + 1 &&
           std::equal(word.rbegin() + 1, word.rend(), parent.tokens.rbegin());
  });
}

Hypothesis hypothesis(const BeamRules& rules, const LiveBeam& beam, FinishReason reason) {
  Hypothesis h{.log_probs = beam.log_probs, .cum_log_prob = beam.cum_log_prob, .reason = reason};
  h.tokens.assign(beam.tokens.begin() + rules.num_prompt, beam.tokens.end());
  h.score = normalised(rules, h.cum_log_prob, std::max(1, num_generated(rules, beam)));
  return h;
}

void insert(const BeamRules& rules, Hypothesis h, std::vector<Hypothesis>& finished) {
  const auto at =
      std::ranges::upper_bound(finished, h.score, std::ranges::greater(), &Hypothesis::score);
  finished.insert(at, std::move(h));
  if (finished.size() > static_cast<size_t>(rules.width)) finished.pop_back();
}

// Candidate `c` becomes a hypothesis, unless `width` better ones are finished.
void end_beam(const BeamRules& rules, const Candidate& c, FinishReason reason, BeamState& state) {
  const LiveBeam& parent = state.live[c.parent];
  const float score = normalised(rules, c.rank, num_generated(rules, parent) + 1);
  const bool full = state.finished.size() >= static_cast<size_t>(rules.width);
  if (full && score <= state.finished.back().score) return;
  Hypothesis h = hypothesis(rules, parent, reason);
  if (reason == FinishReason::kStopWords) {
    h.tokens.push_back(c.token);
    h.log_probs.push_back(c.log_prob);
  }
  h.cum_log_prob = c.cum;
  h.score = score;
  insert(rules, std::move(h), state.finished);
}

bool is_done(const BeamRules& rules, float best, int32_t num_generated, const BeamState& state) {
  if (state.finished.size() < static_cast<size_t>(rules.width)) return false;
  if (rules.early_stopping == 1) return true;
  const bool may_grow = rules.early_stopping != 0 && rules.length_penalty > 0;
  const int32_t attain = may_grow ? rules.limit - rules.num_prompt : num_generated;
  return state.finished.back().score >= normalised(rules, best, attain);
}

std::vector<LiveBeam> grow(std::span<const Candidate> chosen, std::vector<LiveBeam> live) {
  std::vector<int32_t> uses(live.size(), 0);
  for (const Candidate& c : chosen) ++uses[c.parent];
  std::vector<LiveBeam> next;
  for (const Candidate& c : chosen) {
    LiveBeam& parent = live[c.parent];
    LiveBeam& beam = next.emplace_back(--uses[c.parent] == 0 ? std::move(parent) : parent);
    beam.tokens.push_back(c.token);
    beam.log_probs.push_back(c.log_prob);
    beam.cum_log_prob = c.cum;
    beam.parent = c.parent;
  }
  return next;
}

void end_live(const BeamRules& rules, BeamState& state) {
  for (const LiveBeam& beam : state.live)
    insert(rules, hypothesis(rules, beam, FinishReason::kLength), state.finished);
  state.live.clear();
  state.done = true;
}

}  // namespace

void advance(const BeamRules& rules, std::span<const std::vector<TokenLogProb>> candidates,
             BeamState& state) {
  NEREID_CHECK(!state.live.empty() && candidates.size() == state.live.size());
  const auto width = static_cast<size_t>(rules.width);
  const std::vector<Candidate> ranking = ranked(rules, candidates, state);
  if (ranking.empty()) return end_live(rules, state);  // every token is banned
  std::vector<Candidate> chosen;
  for (size_t i = 0; i < ranking.size() && chosen.size() < width; ++i) {
    const Candidate& c = ranking[i];
    FinishReason reason = FinishReason::kNotFinished;
    if (std::ranges::find(rules.end_ids, c.token) != rules.end_ids.end()) {
      reason = FinishReason::kEndId;
    } else if (completes_stop_word(rules, state.live[c.parent], c.token)) {
      reason = FinishReason::kStopWords;
    }
    if (reason == FinishReason::kNotFinished) {
      chosen.push_back(c);
    } else if (i < width) {
      end_beam(rules, c, reason, state);
    }
  }
  const int32_t length = num_generated(rules, state.live[0]) + 1;
  state.done = is_done(rules, ranking[0].rank, length, state);
  state.live = grow(chosen, std::move(state.live));
  if (state.done) state.live.clear();
  if (state.live.empty() || static_cast<int32_t>(state.live[0].tokens.size()) >= rules.limit)
    end_live(rules, state);
}

std::vector<Hypothesis> best_hypotheses(const BeamRules& rules, const BeamState& state,
                                        int32_t count) {
  std::vector<Hypothesis> all = state.finished;
  for (const LiveBeam& beam : state.live)
    all.push_back(hypothesis(rules, beam, FinishReason::kNotFinished));
  std::ranges::stable_sort(all, std::ranges::greater(), &Hypothesis::score);
  if (all.size() > static_cast<size_t>(count)) all.resize(count);
  return all;
}

}  // namespace nereid::sched
