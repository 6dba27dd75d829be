// GPT-2: LayerNorm, learned positions, fused QKV, transposed weights.
#include "models/all.h"
#include "models/families/gpt2_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kGpt2Layer[] = {
    norm_rule("attn.norm", "ln_1.weight"),      transposed(qkv_rule("attn.c_attn.weight")),
    transposed(out_rule("attn.c_proj.weight")), norm_rule("mlp.norm", "ln_2.weight"),
    transposed(up_rule("mlp.c_fc.weight")),     transposed(down_rule("mlp.c_proj.weight")),
};

}  // namespace

const DecoderWeights kGpt2Weights = {
    .model = kGpt2Model, .layers = "transformer.h.{}.", .layer = {kGpt2Layer}};

Traits read_gpt2_traits(Config& c) {
  Traits t = read_decoder(
      c, {.intermediate = 4, .norm_eps = 1e-5, .activation = "gelu_new", .tied = true}, kGpt2Names);
  t.layer_norm = t.norm_bias = t.qkv_bias = t.attention_out_bias = t.mlp_bias = true;
  if (!c.boolean("scale_attn_weights", true)) t.attention_scale = 1;
  t.scale_by_layer = c.boolean("scale_attn_by_inverse_layer_idx", false);
  return t;
}

}  // namespace nereid::models
