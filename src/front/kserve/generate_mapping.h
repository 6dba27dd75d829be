// JSON <-> tensors of the generate extension: members that name an input become tensors, others
// become request parameters; replies become flat JSON objects.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "front/bridge/inference_call.h"
#include "front/bridge/model_info.h"

namespace nereid::front {

// Nesting of a request body that is accepted.
inline constexpr size_t kMaxJsonDepth = 100;

// Fills id, inputs and parameters of a request to `model` from a generate body. Shapes follow the
// model's metadata: fixed dims must divide the number of elements, the innermost -1 takes the rest,
// every other -1 is 1. InvalidArgument names the place (JSON) or the field (types, ranges, shapes).
StatusOr<InferenceSpec> map_generate_request(std::string_view body, const ModelInfo& model);

// The reply object: outputs and parameters in alphabetical order of their names, one-element
// tensors as scalars, others as flat arrays. InvalidArgument for types that JSON cannot carry.
StatusOr<std::string> format_generate_reply(const InferenceReply& reply);

}  // namespace nereid::front
