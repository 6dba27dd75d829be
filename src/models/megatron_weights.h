// Weights as Megatron names them, and with it BLOOM, Falcon and GPT-NeoX.
#pragma once

#include "models/weights.h"

namespace nereid::models {

inline constexpr WeightRule kMegatronAttention[] = {
    {"attn.qkv", "self_attention.query_key_value.weight", Dim::kQueryKeyValue, Dim::kHidden,
     Shard::kHeads, nullptr, false, Order::kByKeyHead},
    {"attn.qkv.bias", "self_attention.query_key_value.bias", Dim::kQueryKeyValue, Dim::kOne,
     Shard::kHeads, qkv_bias, false, Order::kByKeyHead},
    {"attn.out", "self_attention.dense.weight", Dim::kHidden, Dim::kQuery, Shard::kHeads},
    {"attn.out.bias", "self_attention.dense.bias", Dim::kHidden, Dim::kOne, Shard::kNone, out_bias},
};
inline constexpr WeightRule kMegatronMlp[] = {
    {"mlp.up", "mlp.dense_h_to_4h.weight", Dim::kIntermediate, Dim::kHidden, Shard::kN},
    {"mlp.up.bias", "mlp.dense_h_to_4h.bias", Dim::kIntermediate, Dim::kOne, Shard::kN, mlp_bias},
    {"mlp.down", "mlp.dense_4h_to_h.weight", Dim::kHidden, Dim::kIntermediate, Shard::kK},
    {"mlp.down.bias", "mlp.dense_4h_to_h.bias", Dim::kHidden, Dim::kOne, Shard::kNone, mlp_bias},
};

}  // namespace nereid::models
