// TensorRT-LLM's numbers of adaptable modules, and their names in checkpoints.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/status.h"

namespace nereid::runtime {

struct LoraModuleId {
  int32_t id = 0, layer = 0;
  int32_t expert = -1;  // expert index; an id stands for all experts of a layer
  auto operator<=>(const LoraModuleId&) const = default;
};
inline constexpr int32_t kMoeHTo4H = 13, kMoe4HToH = 14, kMoeGate = 15;

// The layer number in "model.layers.3.mlp.up_proj": 3.
std::optional<int32_t> layer_of(std::string_view name);

// TensorRT-LLM's number of an AdapterModule::name: "model.layers.3.mlp.up_proj" is {7, 3}, or none.
std::optional<LoraModuleId> lora_module_of(std::string_view name);

// "attn_q", ... InvalidArgument with the reason if known: not adaptable.
StatusOr<std::string_view> lora_module_name(int32_t id);

// By name, as in `trtllm-build --lora_target_modules`.
StatusOr<int32_t> lora_module_id(std::string_view name);

}  // namespace nereid::runtime
