// Log-probabilities of tokens in OpenAI's two shapes, and in vLLM's for prompts.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::front {

// Log-probabilities, likeliest tokens included, that an event loop formats in about a millisecond.
inline constexpr size_t kQuickLogProbs = 256;
// Memory of one entry: JSON tree and text.
inline constexpr size_t kLogProbBytes = 512;

// One token, generated or of the prompt, with natural logarithms of the model's own distribution.
struct ScoredToken {
  int32_t id = 0;
  float log_prob = 0;
  std::vector<std::pair<int32_t, float>> top;  // likeliest first
  int64_t text_offset = 0;                     // characters of the text before it
  int32_t rank = 0;                            // in a prompt: 1 + number of likelier tokens; else 0
  bool is_first = false;                       // first token of the prompt, which has no scores
};

// Number of entries: the tokens and the likeliest ones of their positions.
size_t num_entries(const std::vector<ScoredToken>& tokens);

// {"content": [{"token", "logprob", "bytes", "top_logprobs"}, ...], "refusal": null}
json::object chat_log_probs(const text::Tokenizer& tokenizer,
                            const std::vector<ScoredToken>& tokens, bool as_ids);

// {"text_offset", "token_logprobs", "tokens", "top_logprobs"}: lists, one entry for each
// token. Tokens that decode to the same text share an entry of top_logprobs; the generated
// one is always in it.
json::object completion_log_probs(const text::Tokenizer& tokenizer,
                                  const std::vector<ScoredToken>& tokens, bool as_ids);

// [null, {"7": {"logprob", "rank", "decoded_token"}, ...}, ...]: for each token of a prompt, itself
// and the `num_top` likeliest ones, by id.
json::array prompt_log_probs(const text::Tokenizer& tokenizer,
                             const std::vector<ScoredToken>& tokens, size_t num_top);

}  // namespace nereid::front
