// Weights as Llama names them, and with it most families since.
#pragma once

#include "models/weights.h"

namespace nereid::models {

inline constexpr WeightRule kLlamaModel[] = {
    {"embed", "model.embed_tokens.weight", Dim::kVocab, Dim::kHidden, Shard::kN},
    {"norm", "model.norm.weight", Dim::kHidden},
    {"norm.bias", "model.norm.bias", Dim::kHidden, Dim::kOne, Shard::kNone, norm_bias},
    {"head", "lm_head.weight", Dim::kVocab, Dim::kHidden, Shard::kN, untied},
    {"head", "model.embed_tokens.weight", Dim::kVocab, Dim::kHidden, Shard::kN, tied},
    {"head.bias", "lm_head.bias", Dim::kVocab, Dim::kOne, Shard::kN, head_bias},
};
inline constexpr WeightRule kLlamaNorms[] = {
    {"attn.norm", "input_layernorm.weight", Dim::kHidden},
    {"attn.norm.bias", "input_layernorm.bias", Dim::kHidden, Dim::kOne, Shard::kNone, norm_bias},
    {"mlp.norm", "post_attention_layernorm.weight", Dim::kHidden, Dim::kOne, Shard::kNone,
     mlp_norm},
    {"mlp.norm.bias", "post_attention_layernorm.bias", Dim::kHidden, Dim::kOne, Shard::kNone,
     mlp_norm_bias},
};
inline constexpr WeightRule kLlamaQkv[] = {
    {"attn.q", "self_attn.q_proj.weight", Dim::kQuery, Dim::kHidden, Shard::kHeads},
    {"attn.k", "self_attn.k_proj.weight", Dim::kKeyValue, Dim::kHidden, Shard::kHeads},
    {"attn.v", "self_attn.v_proj.weight", Dim::kKeyValue, Dim::kHidden, Shard::kHeads},
    {"attn.q.bias", "self_attn.q_proj.bias", Dim::kQuery, Dim::kOne, Shard::kHeads, qkv_bias},
    {"attn.k.bias", "self_attn.k_proj.bias", Dim::kKeyValue, Dim::kOne, Shard::kHeads, qkv_bias},
    {"attn.v.bias", "self_attn.v_proj.bias", Dim::kKeyValue, Dim::kOne, Shard::kHeads, qkv_bias},
    {"attn.q.norm", "self_attn.q_norm.weight", Dim::kHead, Dim::kOne, Shard::kNone, qk_norm},
    {"attn.k.norm", "self_attn.k_norm.weight", Dim::kHead, Dim::kOne, Shard::kNone, qk_norm},
};
inline constexpr WeightRule kLlamaOut[] = {
    {"attn.out", "self_attn.o_proj.weight", Dim::kHidden, Dim::kQuery, Shard::kHeads},
    {"attn.out.bias", "self_attn.o_proj.bias", Dim::kHidden, Dim::kOne, Shard::kNone, out_bias},
};
inline constexpr WeightRule kLlamaMlp[] = {
    {"mlp.gate", "mlp.gate_proj.weight", Dim::kIntermediate, Dim::kHidden, Shard::kN, gated},
    {"mlp.up", "mlp.up_proj.weight", Dim::kIntermediate, Dim::kHidden, Shard::kN},
    {"mlp.down", "mlp.down_proj.weight", Dim::kHidden, Dim::kIntermediate, Shard::kK},
    {"mlp.gate.bias", "mlp.gate_proj.bias", Dim::kIntermediate, Dim::kOne, Shard::kN, gate_bias},
    {"mlp.up.bias", "mlp.up_proj.bias", Dim::kIntermediate, Dim::kOne, Shard::kN, mlp_bias},
    {"mlp.down.bias", "mlp.down_proj.bias", Dim::kHidden, Dim::kOne, Shard::kNone, mlp_bias},
};

// With gate and up in one tensor.
inline constexpr WeightRule kFusedMlp[] = {
    {"mlp.gate_up", "mlp.gate_up_proj.weight", Dim::kGateUp, Dim::kHidden, Shard::kN},
    {"mlp.down", "mlp.down_proj.weight", Dim::kHidden, Dim::kIntermediate, Shard::kK},
};

}  // namespace nereid::models
