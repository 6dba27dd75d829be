// The tensors of one request to the model that takes token ids. Internal to front/openai.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "front/bridge/inference_call.h"
#include "front/openai/language_model.h"
#include "front/openai/requests.h"

namespace nereid::front {

// `rows` (may be null): what stands in the place of all tokens of the prompt. `streaming`: the
// engine sends tokens as they come. Unimplemented names the input that a wanted option needs and
// the engine does not declare.
StatusOr<InferenceSpec> engine_request(const LanguageModel& model,
                                       const std::vector<int32_t>& prompt, const PromptRows* rows,
                                       int64_t max_tokens, const SamplingOptions& sampling,
                                       bool streaming);

// The same for what is made of the states of `prompt`; `pooling` as the tensor of this name.
StatusOr<InferenceSpec> pooling_request(const LanguageModel& model,
                                        const std::vector<int32_t>& prompt,
                                        const SamplingOptions& sampling,
                                        const std::string& pooling);

}  // namespace nereid::front
