// Tokens that a request's options allow.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "nereid/request.h"
#include "sched/sequence.h"

namespace nereid::runtime {

// Token sets are bit sets, as in text/grammar/token_mask.h.
using TokenBits = std::vector<uint32_t>;

// Whether an option of the request may ban tokens.
bool may_ban(const Request& request);

// Tokens that biases, bans and min_tokens allow behind `history` (first num_prompt tokens: the
// prompt): step 3 of kernels::Sample, without masks.
TokenBits tokens_left(const sched::SequenceSpec& spec, int32_t num_prompt,
                      std::span<const TokenId> history, int32_t vocab_size);
// The same for the first token of a request.
TokenBits first_tokens_left(const Request& request, int32_t vocab_size);

// InvalidArgument: `left` and (unless empty) `mask` have no common token.
Status check_some_left(std::span<const uint32_t> left, std::span<const uint32_t> mask,
                       int32_t position);

}  // namespace nereid::runtime
