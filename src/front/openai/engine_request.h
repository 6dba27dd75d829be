// The tensors of one request to the token model. Internal to front/openai.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "front/bridge/inference_call.h"
#include "front/openai/language_model.h"
#include "front/openai/pictures/picture_prompt.h"
#include "front/openai/requests/requests.h"

namespace nereid::front {

// Inputs beside a prompt's tokens; each may be null.
struct PromptInputs {
  const PromptRows* rows = nullptr;          // embeddings that replace all tokens
  const PromptPictures* pictures = nullptr;  // of tokens that stand for them
};

// `streaming`: the engine sends tokens as they come. Unimplemented names the input that an option
// needs and the engine does not declare.
StatusOr<InferenceSpec> engine_request(const LanguageModel& model,
                                       const std::vector<int32_t>& prompt, const PromptInputs& more,
                                       int64_t max_tokens, const SamplingOptions& sampling,
                                       bool streaming);

// A request for the pooled states of `prompt`; `pooling`: the tensor's value.
StatusOr<InferenceSpec> pooling_request(const LanguageModel& model,
                                        const std::vector<int32_t>& prompt,
                                        const SamplingOptions& sampling,
                                        const std::string& pooling);

}  // namespace nereid::front
