// MLA (multi-head latent attention): weights and fields with DeepSeek's names.
#pragma once

#include "models/config.h"
#include "models/decoder_rules.h"

namespace nereid::models {

inline constexpr WeightRule kLatentAttention[] = {
    with_bias({"attn.q.latent", "self_attn.q_a_proj.weight", Dim::kQueryLatent, Dim::kHidden,
               ShardAxis::kNone, has_query_latent},
              qkv_bias),
    {"attn.q.latent.norm", "self_attn.q_a_layernorm.weight", Dim::kQueryLatent, Dim::kOne,
     ShardAxis::kNone, has_query_latent},
    {"attn.q", "self_attn.q_b_proj.weight", Dim::kQuery, Dim::kQueryLatent, ShardAxis::kHeads,
     has_query_latent, false, Order::kRotaryFirst},
    {"attn.q", "self_attn.q_proj.weight", Dim::kQuery, Dim::kHidden, ShardAxis::kHeads,
     no_query_latent, false, Order::kRotaryFirst},
    with_bias({"attn.k", "self_attn.kv_a_proj_with_mqa.weight", Dim::kLatent, Dim::kHidden,
               ShardAxis::kNone, nullptr, false, Order::kLatentRows},
              qkv_bias),
    with_bias({"attn.k.turning", "self_attn.kv_a_proj_with_mqa.weight", Dim::kRotary, Dim::kHidden,
               ShardAxis::kNone, nullptr, false, Order::kRotaryRows},
              qkv_bias),
    {"attn.k.norm", "self_attn.kv_a_layernorm.weight", Dim::kLatent},
    {"attn.k.up", "self_attn.kv_b_proj.weight", Dim::kLatent, Dim::kNonRotary, ShardAxis::kExperts,
     nullptr, false, Order::kHeadKeys},
    {"attn.v.up", "self_attn.kv_b_proj.weight", Dim::kValue, Dim::kLatent, ShardAxis::kExperts,
     nullptr, false, Order::kHeadValues},
    with_bias({"attn.out", "self_attn.o_proj.weight", Dim::kHidden, Dim::kValues, ShardAxis::kK},
              out_bias),
};

// Values of absent fields.
struct LatentDefaults {
  int64_t rotary_dims = 64, non_rotary_dims = 128, latent = 512, value_dim = 128;
};
// Reads head sizes, RoPE and score scale, after the decoder's sizes.
void read_latent_attention(Config& config, Traits& traits, const LatentDefaults& defaults);

}  // namespace nereid::models
