// Fields of config.json that several families read alike, and the bounds of their sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "models/config.h"
#include "models/traits.h"

namespace nereid::models {

inline constexpr int64_t kMaxVocab = 1 << 24, kMaxHidden = 1 << 17, kMaxIntermediate = 1 << 20;
inline constexpr int64_t kMaxLayers = 1024, kMaxHeads = 1024, kMaxHeadDim = 1024;
inline constexpr int64_t kMaxPositions = 1 << 24;

kernels::Activation read_activation(Config& config, std::string_view key,
                                    std::string_view fallback);

// `rope_theta` (absent: `theta`) with `rope_scaling` or `rope_parameters`.
RopeTraits read_rope(Config& config, int32_t max_positions, double theta = 10000);

// What a family's files mean when they leave a field out.
struct DecoderDefaults {
  std::optional<int64_t> kv_heads;  // none: the number of heads
  int64_t window = 0;
  double theta = 10000;
  double norm_eps = 1e-6;
};
// The fields of Llama and what is made like it.
Traits read_decoder(Config& config, const DecoderDefaults& defaults);

}  // namespace nereid::models
