// Encoders of pictures named `visual`: Qwen2-VL and its successors.
#pragma once

#include <cstdint>
#include <string_view>

#include "models/config.h"
#include "models/traits.h"

namespace nereid::models {

// Values of absent fields. `width_name`: of the hidden size.
struct VisualDefaults {
  std::string_view width_name = "hidden_size";
  int32_t width = 1280, depth = 32, patch = 14;
};

// Reads what the encoders share of `vision_config`; MLP, norms and windows are left to the family.
Traits read_qwen_visual(Config& config, const Traits& decoder, const VisualDefaults& defaults);

}  // namespace nereid::models
