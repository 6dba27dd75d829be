// The reasoning of a request in tokens.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "nereid/request.h"
#include "text/grammar/guided_output.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::runtime {

// InvalidArgument: a mark has no tokens, or tokens outside the model's vocabulary.
StatusOr<text::ReasoningPart> reasoning_part(const ReasoningConfig& wanted,
                                             const text::Tokenizer& tokenizer, int32_t vocab_size);

}  // namespace nereid::runtime
