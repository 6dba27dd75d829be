// Beam search as a pure function: from live beams, finished hypotheses and each beam's likeliest
// tokens to the next of both. No blocks, slots or devices.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nereid/response.h"

namespace nereid::sched {

// What a request asks of its search. Views: valid during the call.
struct BeamRules {
  int32_t width = 1;
  int32_t num_prompt = 0;
  int32_t limit = 0;           // tokens, prompt included, at which every live beam ends
  float length_penalty = 0;    // score = cum_log_prob / generated tokens ^ this
  int32_t early_stopping = 1;  // see SamplingConfig
  float diversity_rate = 0;    // added to a candidate's rank, times the number of its beam
  int32_t min_tokens = 0;      // no stop word is looked for before
  std::span<const TokenId> end_ids = {};
  std::span<const std::vector<TokenId>> stop_words = {};
};

struct LiveBeam {
  std::vector<TokenId> tokens;   // prompt and output
  std::vector<float> log_probs;  // of the output
  float cum_log_prob = 0;
  int32_t parent = 0;  // the beam of the step before that it goes on from
};

struct Hypothesis {
  std::vector<TokenId> tokens;   // output only; an end id is left out, a stop word is not
  std::vector<float> log_probs;  // of `tokens`
  float cum_log_prob = 0;        // of `tokens`, and of the end id where one ended it
  float score = 0;               // what hypotheses are ranked by
  FinishReason reason = FinishReason::kNotFinished;
};

struct BeamState {
  std::vector<LiveBeam> live;        // all equally long; at the start one, which is the prompt
  std::vector<Hypothesis> finished;  // at most `width`, best first
  bool done = false;                 // nothing that is live can still matter; live is empty then
};

// One step. candidates[b]: of live beam b, the likeliest 2 * width tokens (all, if there are fewer)
// with their log-probabilities, likeliest first; -infinity stands for a token that must not be. Of
// equal candidates the one of the earlier beam, then the earlier one, goes first.
void advance(const BeamRules& rules, std::span<const std::vector<TokenLogProb>> candidates,
             BeamState& state);

// What would be returned if the search ended now: the best `count` of finished and live ones, best
// first.
std::vector<Hypothesis> best_hypotheses(const BeamRules& rules, const BeamState& state,
                                        int32_t count);

}  // namespace nereid::sched
