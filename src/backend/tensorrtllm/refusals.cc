// Inputs of the tensorrt_llm model, and parameters of requests, that have no effect here and
// are refused. Decoder prompts are not among them: preprocessing always sends one, and
// decoder-only models ignore it.
#include <algorithm>
#include <cstring>
#include <span>

#include "backend/tensorrtllm/tensor_fields.h"

namespace nereid::backend {
namespace {

// Inputs refused unless empty, or a single zero for each item (an id, count or flag that is off).
constexpr std::string_view kRefused[] = {"skip_cross_attn_blocks", "multimodal_embedding",
                                         "multimodal_hashes",      "multimodal_positions",
                                         "multimodal_lengths",     "mrope_rotary_cos_sin",
                                         "mrope_position_deltas",  "context_phase_params"};

// Inputs refused in the same way by a model whose encoder takes no features.
constexpr std::string_view kFeatures[] = {"encoder_input_features", "encoder_output_lengths"};

// Inputs refused in the same way by a model without encoder.
constexpr std::string_view kCross[] = {"cross_attention_mask"};

// Inputs refused in the same way by a model without LoRA.
constexpr std::string_view kLora[] = {"lora_task_id", "lora_weights", "lora_config", "lora_path"};

bool says_no(const InputView& view) {
  if (view.bytes.empty()) return true;
  if (view.datatype == TRITONSERVER_TYPE_BYTES) {
    const auto strings = strings_of("", view);
    return strings.ok() && std::all_of(strings->begin(), strings->end(),
                                       [](std::string_view s) { return s.empty(); });
  }
  const uint64_t size = TRITONSERVER_DataTypeByteSize(view.datatype);
  const auto items = static_cast<uint64_t>(view.shape.empty() ? 1 : view.shape[0]);
  return view.bytes.size() == size * items &&
         std::all_of(view.bytes.begin(), view.bytes.end(), [](char c) { return c == 0; });
}

Status refuse(const Request& request, std::span<const std::string_view> names,
              std::string_view why) {
  for (const std::string_view name : names) {
    if (request.lacks(name)) continue;
    ASSIGN_OR_RETURN(const auto view, request.input(name));
    if (view && !says_no(*view)) return unsupported("input '{}' is not supported{}", name, why);
  }
  return ok();
}

}  // namespace

Status refuse_unsupported(const Request& request, const ReadContext& context) {
  RETURN_IF_ERROR(refuse(request, kRefused, ""));
  if (context.encoder.feature_width == 0)
    RETURN_IF_ERROR(refuse(request, kFeatures, ": the model has no encoder of features"));
  if (context.encoder.max_length == 0)
    RETURN_IF_ERROR(refuse(request, kCross, ": the model has no cross attention"));
  if (context.takes_adapters) return ok();
  return refuse(request, kLora, ": the model takes no adapters (parameter enable_lora)");
}

StatusOr<bool> read_request_parameters(const Request& request) {
  uint32_t count = 0;
  bool usage_parameters = false;
  RETURN_IF_ERROR(take(TRITONBACKEND_RequestParameterCount(request.raw(), &count)));
  for (uint32_t i = 0; i < count; ++i) {
    const char* key = nullptr;
    TRITONSERVER_ParameterType type;
    const void* value = nullptr;
    RETURN_IF_ERROR(take(TRITONBACKEND_RequestParameter(request.raw(), i, &key, &type, &value)));
    if (std::string_view(key) == "nereid_usage" && type == TRITONSERVER_PARAMETER_BOOL)
      usage_parameters = *static_cast<const bool*>(value);
    if (std::string_view(key) != "request_type" || type != TRITONSERVER_PARAMETER_STRING) continue;
    const std::string_view text = static_cast<const char*>(value);
    if (text == "context_only" || text == "generation_only") {
      return unsupported("request_type '{}' is not supported, only context_and_generation", text);
    }
  }
  return usage_parameters;
}

}  // namespace nereid::backend
