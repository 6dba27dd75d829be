// Log-probabilities of generated tokens in the two shapes of OpenAI's API.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/tokenizer.h"

namespace nereid::front {

// One generated token. Natural logarithms of the model's own distribution.
struct ScoredToken {
  int32_t id = 0;
  float log_prob = 0;
  std::vector<std::pair<int32_t, float>> top;  // likeliest first
  int64_t text_offset = 0;                     // characters generated before it
};

// {"content": [{"token", "logprob", "bytes", "top_logprobs"}, ...], "refusal": null}
json::object chat_log_probs(const text::Tokenizer& tokenizer,
                            const std::vector<ScoredToken>& tokens, bool as_ids);

// {"text_offset", "token_logprobs", "tokens", "top_logprobs"}: lists, one entry for each token.
// Tokens that decode to the same text share an entry of top_logprobs; the generated one is always
// in it.
json::object completion_log_probs(const text::Tokenizer& tokenizer,
                                  const std::vector<ScoredToken>& tokens, bool as_ids);

}  // namespace nereid::front
