// Weight names of Llama, used by most later families.
#pragma once

#include "models/decoder_rules.h"

namespace nereid::models {

inline constexpr WeightRule kLlamaModel[] = {
    embed_rule("model.embed_tokens.weight"),
    norm_rule("norm", "model.norm.weight"),
    head_rule("lm_head.weight"),
    head_rule("model.embed_tokens.weight", tied),
    head_bias_rule("lm_head.bias"),
};
inline constexpr WeightRule kLlamaNorms[] = {
    norm_rule("attn.norm", "input_layernorm.weight"),
    norm_rule("mlp.norm", "post_attention_layernorm.weight", mlp_norm),
};
inline constexpr WeightRule kLlamaQkv[] = {
    q_rule("self_attn.q_proj.weight"),
    k_rule("self_attn.k_proj.weight"),
    v_rule("self_attn.v_proj.weight"),
    {"attn.q.norm", "self_attn.q_norm.weight", Dim::kHead, Dim::kOne, ShardAxis::kNone, qk_norm},
    {"attn.k.norm", "self_attn.k_norm.weight", Dim::kHead, Dim::kOne, ShardAxis::kNone, qk_norm},
};
inline constexpr WeightRule kLlamaOut[] = {out_rule("self_attn.o_proj.weight")};
inline constexpr WeightRule kLlamaMlp[] = {
    gate_rule("mlp.gate_proj.weight"),
    up_rule("mlp.up_proj.weight"),
    down_rule("mlp.down_proj.weight"),
};

// Beside kLlamaQkv in OPT and BART, whose norms are before or behind attention and MLP.
inline constexpr WeightRule kOptLayer[] = {
    norm_rule("attn.norm", "self_attn_layer_norm.weight", norms_in_front),
    norm_rule("attn.sum.norm", "self_attn_layer_norm.weight", norms_behind),
    out_rule("self_attn.out_proj.weight"),
    norm_rule("mlp.norm", "final_layer_norm.weight", norms_in_front),
    norm_rule("mlp.sum.norm", "final_layer_norm.weight", norms_behind),
    up_rule("fc1.weight"),
    down_rule("fc2.weight"),
};

// Fused gate and up.
inline constexpr WeightRule kFusedMlp[] = {
    gate_up_rule("mlp.gate_up_proj.weight"),
    down_rule("mlp.down_proj.weight"),
};

}  // namespace nereid::models
