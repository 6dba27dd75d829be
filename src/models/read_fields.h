// Fields of config.json that several families read alike, and the bounds of their sizes.
#pragma once

#include <cstdint>
#include <string_view>

#include "models/config.h"
#include "models/traits.h"

namespace nereid::models {

inline constexpr int64_t kMaxVocab = 1 << 24, kMaxHidden = 1 << 17, kMaxIntermediate = 1 << 20;
inline constexpr int64_t kMaxLayers = 1024, kMaxHeads = 1024, kMaxHeadDim = 1024;
inline constexpr int64_t kMaxPositions = 1 << 24;

kernels::Activation read_activation(Config& config, std::string_view key,
                                    std::string_view fallback);

// `rope_theta` with `rope_scaling` or `rope_parameters`.
RopeTraits read_rope(Config& config, int32_t max_positions);

}  // namespace nereid::models
