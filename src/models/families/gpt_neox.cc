// GPT-NeoX and Pythia: mostly parallel layers, two LayerNorms, QKV fused by head, partial RoPE.
#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/families/megatron_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kNeoxModel[] = {
    embed_rule("gpt_neox.embed_in.weight"),
    norm_rule("norm", "gpt_neox.final_layer_norm.weight"),
    head_rule("embed_out.weight"),
    head_rule("gpt_neox.embed_in.weight", tied),
};
constexpr WeightRule kNeoxAttention[] = {
    qkv_rule("attention.query_key_value.weight", Order::kByKeyHead),
    out_rule("attention.dense.weight"),
};

}  // namespace

const DecoderWeights kNeoxWeights = {.model = kNeoxModel,
                                     .layers = "gpt_neox.layers.{}.",
                                     .layer = {kLlamaNorms, kNeoxAttention, kMegatronMlp}};

Traits read_gpt_neox_traits(Config& c) {
  Traits t =
      read_decoder(c, {.norm_eps = 1e-5, .activation = "gelu"}, {.norm_eps = "layer_norm_eps"});
  t.ropes = {read_rope(c, t, {"rotary_emb_base", "rotary_pct", 10000, 0.25})};
  t.layer_norm = t.norm_bias = t.mlp_bias = true;
  t.parallel = t.own_norms = c.boolean("use_parallel_residual", true);
  t.qkv_bias = t.attention_out_bias = c.boolean("attention_bias", true);
  return t;
}

}  // namespace nereid::models
