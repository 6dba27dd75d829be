// Weight names of Megatron, used by BLOOM, Falcon and GPT-NeoX.
#pragma once

#include "models/decoder_rules.h"

namespace nereid::models {

inline constexpr WeightRule kMegatronModel[] = {
    embed_rule("transformer.word_embeddings.weight"),
    norm_rule("embed.norm", "transformer.word_embeddings_layernorm.weight", embed_norm),
    norm_rule("norm", "transformer.ln_f.weight"),
    head_rule("transformer.word_embeddings.weight", tied),
    head_rule("lm_head.weight"),
};
inline constexpr WeightRule kMegatronAttention[] = {
    qkv_rule("self_attention.query_key_value.weight", Order::kByKeyHead),
    out_rule("self_attention.dense.weight"),
};
inline constexpr WeightRule kMegatronMlp[] = {
    up_rule("mlp.dense_h_to_4h.weight"),
    down_rule("mlp.dense_4h_to_h.weight"),
};

}  // namespace nereid::models
