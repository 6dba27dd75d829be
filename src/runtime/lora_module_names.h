// TensorRT-LLM's numbers of the modules that an adapter may change, and what checkpoints call them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/status.h"

namespace nereid::runtime {

struct LoraModuleId {
  int32_t id = 0, layer = 0;
  bool operator==(const LoraModuleId&) const = default;
};

// Of a matrix in a checkpoint, without ".weight": "model.layers.3.mlp.up_proj" is {7, 3}. Nothing:
// it has no number.
std::optional<LoraModuleId> lora_module_of(std::string_view name);

// "attn_q", ... InvalidArgument, saying why where it is known: none that adapters may change.
StatusOr<std::string_view> lora_module_name(int32_t id);

// The same by name, as `trtllm-build --lora_target_modules` takes it.
StatusOr<int32_t> lora_module_id(std::string_view name);

}  // namespace nereid::runtime
