// Weights of mixtures of experts as Qwen names them, and with it most families since.
#pragma once

#include "models/decoder_rules.h"

namespace nereid::models {

inline constexpr WeightRule kQwenMoeMlp[] = {
    router_rule("mlp.gate.weight"),
    expert_gate_rule("mlp.experts.*.gate_proj.weight"),
    expert_up_rule("mlp.experts.*.up_proj.weight"),
    expert_down_rule("mlp.experts.*.down_proj.weight"),
    // Of layers without experts.
    gate_rule("mlp.gate_proj.weight", is_dense),
    up_rule("mlp.up_proj.weight", is_dense),
    down_rule("mlp.down_proj.weight", is_dense),
};

}  // namespace nereid::models
