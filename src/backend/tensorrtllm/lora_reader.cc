// LoRA inputs of a tensorrt_llm request.
#include "backend/parameters/lora_modules.h"
#include "backend/tensorrtllm/tensor_fields.h"
#include "tensor/floats.h"

namespace nereid::backend {

Status read_lora(const Item& item, const ReadContext& context, nereid::Request& out) {
  ASSIGN_OR_RETURN(const auto id, item.scalar<uint64_t>("lora_task_id"));
  ASSIGN_OR_RETURN(const auto weights, item.input("lora_weights"));
  ASSIGN_OR_RETURN(auto config, item.values<int32_t>("lora_config"));
  const bool has_weights = weights && !weights->bytes.empty();
  const bool has_config = config && !config->empty();
  ASSIGN_OR_RETURN(const auto path, item.strings("lora_path"));
  if (path && path->size() != 1) return invalid_argument("Invalid size for tensor lora_path");
  const bool has_path = path && !path->front().empty();
  if (has_path && (id.value_or(0) == 0 || has_weights || has_config))
    return invalid_argument("input 'lora_path' comes with 'lora_task_id' alone");
  if (!has_weights && !has_config && id.value_or(0) == 0) return ok();
  if (!id) return invalid_argument("input 'lora_weights' needs 'lora_task_id'");
  if (has_weights != has_config)
    return invalid_argument("inputs 'lora_weights' and 'lora_config' come together");
  LoraConfig& lora = out.lora.emplace();
  lora.task_id = *id;
  if (has_path && context.lora_load_dir.empty())
    return invalid_argument("input 'lora_path': the model has no parameter lora_load_dir");
  if (has_path) {
    auto folder = find_lora_folder(context.lora_load_dir, path->front());
    if (!folder.ok()) return annotate(folder.status(), "input 'lora_path'");
    lora.folder = *std::move(folder);
    lora.root = context.lora_load_dir;
  }
  if (!has_weights) return ok();
  ASSIGN_OR_RETURN(const auto shape, item.input("lora_config"));
  const int64_t columns = shape && !shape->shape.empty() ? shape->shape.back() : 0;
  if (columns != 3 && columns != 4)
    return invalid_argument(
        "input 'lora_config' has {} columns, not 3 or 4: module id, layer, rank, is DoRA", columns);
  lora.columns = static_cast<int32_t>(columns);
  lora.config = *std::move(config);
  const auto bytes = std::as_bytes(std::span(weights->bytes));
  if (weights->datatype == TRITONSERVER_TYPE_FP16)
    lora.weights = floats_of<F16>(bytes);
  else if (weights->datatype == TRITONSERVER_TYPE_BF16)
    lora.weights = floats_of<BF16>(bytes);
  else if (weights->datatype == TRITONSERVER_TYPE_FP32)
    lora.weights = floats_of<float>(bytes);
  else
    return invalid_argument("input 'lora_weights' is {}, expected FP16, BF16 or FP32",
                            TRITONSERVER_DataTypeString(weights->datatype));
  return ok();
}

}  // namespace nereid::backend
