// Falcon: LayerNorm, mostly parallel layers with one norm or two, QKV fused by KV heads, optionally
// ALiBi instead of RoPE.
#include <cmath>

#include "models/all.h"
#include "models/families/megatron_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kFalconNorms[] = {
    norm_rule("attn.norm", "input_layernorm.weight", no_own_norms),
    norm_rule("mlp.norm", "post_attention_layernorm.weight", in_turn),
    norm_rule("attn.norm", "ln_attn.weight", own_norms),
    norm_rule("mlp.norm", "ln_mlp.weight", own_norms),
};

}  // namespace

const DecoderWeights kFalconWeights = {.model = kMegatronModel,
                                       .layers = "transformer.h.{}.",
                                       .layer = {kFalconNorms, kMegatronAttention, kMegatronMlp}};

// The first models have one KV head (multi_query) or as many as query heads.
Traits read_falcon_traits(Config& c) {
  Traits t = read_decoder(
      c,
      {.intermediate = 4, .positions = 2048, .norm_eps = 1e-5, .activation = "gelu", .tied = true},
      {.intermediate = "ffn_hidden_size",
       .kv_heads = "num_kv_heads",
       .norm_eps = "layer_norm_epsilon",
       .activation = "activation"});
  if (c.boolean("alibi", c.string("position_embedding_type", "").starts_with("alibi")))
    t.alibi = 8, t.alibi_scale = 1 / std::sqrt(static_cast<float>(t.head_dim));
  else
    t.ropes = {read_rope(c, t)};
  t.layer_norm = t.norm_bias = true;
  t.qkv_bias = t.attention_out_bias = t.mlp_bias = c.boolean("bias", false);
  const bool newer = c.boolean("new_decoder_architecture", false);
  const bool one_key_head = c.boolean("multi_query", true);
  if (!newer) t.num_kv_heads = one_key_head ? 1 : t.num_heads;
  t.parallel = c.boolean("parallel_attn", true) || newer;
  t.own_norms = c.integer("num_ln_in_parallel_attn", 1, 2, newer ? 2 : 1) == 2;
  if (newer) c.require("parallel_attn", true);
  if (!newer) c.require("num_ln_in_parallel_attn", 1);
  return t;
}

}  // namespace nereid::models
