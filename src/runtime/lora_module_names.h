// TensorRT-LLM's numbers of the modules that an adapter may change, and what checkpoints call them.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/status.h"

namespace nereid::runtime {

struct LoraModuleId {
  int32_t id = 0, layer = 0;
  int32_t expert = -1;  // of those in a mixture; an id stands for all of them
  auto operator<=>(const LoraModuleId&) const = default;
};
inline constexpr int32_t kMoeHTo4H = 13, kMoe4HToH = 14, kMoeGate = 15;

// The number in "model.layers.3.mlp.up_proj".
std::optional<int32_t> layer_of(std::string_view name);

// The number of io::AdapterModule::name: "model.layers.3.mlp.up_proj" is {7, 3}. Nothing: it has
// none.
std::optional<LoraModuleId> lora_module_of(std::string_view name);

// "attn_q", ... InvalidArgument, saying why where it is known: none that adapters may change.
StatusOr<std::string_view> lora_module_name(int32_t id);

// The same by name, as `trtllm-build --lora_target_modules` takes it.
StatusOr<int32_t> lora_module_id(std::string_view name);

}  // namespace nereid::runtime
