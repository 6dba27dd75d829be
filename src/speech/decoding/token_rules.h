// Tokens that may follow the generated ones of a transcript with time stamps. Pure functions, for
// the engine's masks; they need nothing but the tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace nereid::speech {

// Vocabulary: text tokens, then the end of text, then other special tokens, then time stamps from
// `first_timestamp` to the last id, 20 ms apart. Source: "Robust Speech Recognition via Large-Scale
// Weak Supervision" (Radford et al.), appendix, and the decoding of its published program.
struct TokenRules {
  int32_t end = 0;                    // the end of text
  int32_t first_timestamp = -1;       // <|0.00|>; -1: no rules of time stamps
  int32_t no_timestamps = -1;         // never drawn where there are time stamps; -1: no such token
  int32_t most_first_timestamp = -1;  // index of the latest one that begins a transcript; -1: any
  std::vector<int32_t> suppressed;    // never drawn
  std::vector<int32_t> suppressed_first;  // not drawn as the first token

  bool has_timestamps() const { return first_timestamp >= 0; }
};

// Writes the tokens that may follow `generated` (without the prompt): bit id % 32 of word id / 32
// is set for id in [0, vocab). `words` has (vocab + 31) / 32 elements; ids of the rules outside the
// vocabulary are ignored.
//  - `suppressed`, and of the first token `suppressed_first`, are out.
//  - With time stamps, the first token is one of at most `most_first_timestamp`; they come in pairs
// (the end of a segment and the begin of the next) or before the end of text; none is before an
// earlier one, and the end of a segment is behind its begin.
void allow_tokens(const TokenRules& rules, std::span<const int32_t> generated, int32_t vocab,
                  std::span<uint32_t> words);

// Whether the next token must be a time stamp: of the allowed tokens, the time stamps together are
// likelier than the likeliest other one. `logits` is [vocab]; -inf is allowed in it, `allowed` is
// what allow_tokens() wrote. False without an allowed time stamp.
bool must_be_timestamp(const TokenRules& rules, std::span<const float> logits,
                       std::span<const uint32_t> allowed);

}  // namespace nereid::speech
