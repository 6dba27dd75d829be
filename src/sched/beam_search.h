// Beam search as a pure function: (live beams, finished hypotheses, each beam's likeliest tokens)
// -> (live beams, finished hypotheses).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nereid/response.h"

namespace nereid::sched {

// Search parameters of a request. Views: valid during the call.
struct BeamRules {
  int32_t width = 1;
  int32_t num_prompt = 0;
  int32_t limit = 0;           // length (prompt included) at which every live beam ends
  float length_penalty = 0;    // score = cum_log_prob / generated tokens ^ this
  int32_t early_stopping = 1;  // see SamplingConfig
  float diversity_rate = 0;    // candidate's rank += diversity_rate * beam index
  int32_t min_tokens = 0;      // below this length stop words are not tested
  std::span<const TokenId> end_ids = {};
  std::span<const std::vector<TokenId>> stop_words = {};
};

struct LiveBeam {
  std::vector<TokenId> tokens;   // prompt and output
  std::vector<float> log_probs;  // of the output
  float cum_log_prob = 0;
  int32_t parent = 0;  // index of the parent beam in the step before
};

struct Hypothesis {
  std::vector<TokenId> tokens;   // output only, without an end id, with a stop word
  std::vector<float> log_probs;  // of `tokens`
  float cum_log_prob = 0;        // of `tokens`, and of the end id if one ended it
  float score = 0;               // rank of the hypothesis
  FinishReason reason = FinishReason::kNotFinished;
};

struct BeamState {
  std::vector<LiveBeam> live;        // of equal length; at the start one: the prompt
  std::vector<Hypothesis> finished;  // at most `width`, best first
  bool done = false;                 // no live beam can still enter `finished`; live is empty then
};

// One step. candidates[b]: the likeliest 2 * width tokens of live beam b (all, if there are fewer)
// with their log-probabilities, likeliest first; -infinity bans a token. Ties are won by the lower
// beam index, then by the earlier candidate.
void advance(const BeamRules& rules, std::span<const std::vector<TokenLogProb>> candidates,
             BeamState& state);

// The best `count` of finished hypotheses and live beams, best first.
std::vector<Hypothesis> best_hypotheses(const BeamRules& rules, const BeamState& state,
                                        int32_t count);

}  // namespace nereid::sched
