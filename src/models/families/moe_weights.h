// Expert weight names of Mixtral and of Qwen, used by most later families.
#pragma once

#include "models/decoder_rules.h"

namespace nereid::models {

inline constexpr WeightRule kMixtralMlp[] = {
    router_rule("block_sparse_moe.gate.weight"),
    expert_gate_rule("block_sparse_moe.experts.*.w1.weight"),
    expert_up_rule("block_sparse_moe.experts.*.w3.weight"),
    expert_down_rule("block_sparse_moe.experts.*.w2.weight"),
};
inline constexpr WeightRule kQwenMoeMlp[] = {
    router_rule("mlp.gate.weight"),
    expert_gate_rule("mlp.experts.*.gate_proj.weight"),
    expert_up_rule("mlp.experts.*.up_proj.weight"),
    expert_down_rule("mlp.experts.*.down_proj.weight"),
    // Dense layers.
    gate_rule("mlp.gate_proj.weight", is_dense),
    up_rule("mlp.up_proj.weight", is_dense),
    down_rule("mlp.down_proj.weight", is_dense),
};

// Shared experts with DeepSeek's names.
inline constexpr WeightRule kSharedExperts[] = {
    shared_gate_rule("mlp.shared_experts.gate_proj.weight"),
    shared_up_rule("mlp.shared_experts.up_proj.weight"),
    shared_down_rule("mlp.shared_experts.down_proj.weight"),
};
inline constexpr WeightRule kCorrection[] = {
    correction_rule("mlp.gate.e_score_correction_bias"),
};

}  // namespace nereid::models
