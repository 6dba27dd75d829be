// Log-probabilities of tokens in the two shapes of OpenAI's API, and in vLLM's for prompts.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/tokenizer.h"

namespace nereid::front {

// Log-probabilities that an event loop makes JSON of in about a millisecond, the likeliest ones of
// their positions besides.
inline constexpr size_t kQuickLogProbs = 256;
// Of the JSON tree and the text of one entry.
inline constexpr size_t kLogProbBytes = 512;

// One token, generated or of the prompt. Natural logarithms of the model's own distribution.
struct ScoredToken {
  int32_t id = 0;
  float log_prob = 0;
  std::vector<std::pair<int32_t, float>> top;  // likeliest first
  int64_t text_offset = 0;                     // characters of the text before it
  int32_t rank = 0;       // of a prompt's: 1 + tokens that are likelier; else 0
  bool is_first = false;  // of the prompt: nothing comes before it, so it has no scores
};

// Entries of a list: the tokens and the likeliest ones of their positions.
size_t num_entries(const std::vector<ScoredToken>& tokens);

// {"content": [{"token", "logprob", "bytes", "top_logprobs"}, ...], "refusal": null}
json::object chat_log_probs(const text::Tokenizer& tokenizer,
                            const std::vector<ScoredToken>& tokens, bool as_ids);

// {"text_offset", "token_logprobs", "tokens", "top_logprobs"}: lists, one entry for each token.
// Tokens that decode to the same text share an entry of top_logprobs; the generated one is always
// in it.
json::object completion_log_probs(const text::Tokenizer& tokenizer,
                                  const std::vector<ScoredToken>& tokens, bool as_ids);

// [null, {"7": {"logprob", "rank", "decoded_token"}, ...}, ...]: for each token of a prompt itself
// and the `num_top` likeliest ones, by their ids.
json::array prompt_log_probs(const text::Tokenizer& tokenizer,
                             const std::vector<ScoredToken>& tokens, size_t num_top);

}  // namespace nereid::front
