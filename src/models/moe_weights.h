// Weights of mixtures of experts as Qwen names them, and with it most families since.
#pragma once

#include "models/weights.h"

namespace nereid::models {

inline constexpr WeightRule kQwenMoeMlp[] = {
    {"mlp.router", "mlp.gate.weight", Dim::kExperts, Dim::kHidden, Shard::kNone, is_mixture},
    {"mlp.gate", "mlp.experts.*.gate_proj.weight", Dim::kExpertIntermediate, Dim::kHidden,
     Shard::kExperts, is_mixture},
    {"mlp.up", "mlp.experts.*.up_proj.weight", Dim::kExpertIntermediate, Dim::kHidden,
     Shard::kExperts, is_mixture},
    {"mlp.down", "mlp.experts.*.down_proj.weight", Dim::kHidden, Dim::kExpertIntermediate,
     Shard::kExperts, is_mixture},
    // Of layers without experts.
    {"mlp.gate", "mlp.gate_proj.weight", Dim::kIntermediate, Dim::kHidden, Shard::kN, is_dense},
    {"mlp.up", "mlp.up_proj.weight", Dim::kIntermediate, Dim::kHidden, Shard::kN, is_dense},
    {"mlp.down", "mlp.down_proj.weight", Dim::kHidden, Dim::kIntermediate, Shard::kK, is_dense},
};

}  // namespace nereid::models
