// GPT-J: parallel layers with one LayerNorm, interleaved partial RoPE.
#include "models/all.h"
#include "models/decoder_rules.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kGptjModel[] = {
    embed_rule("transformer.wte.weight"), norm_rule("norm", "transformer.ln_f.weight"),
    head_rule("lm_head.weight"),          head_rule("transformer.wte.weight", tied),
    head_bias_rule("lm_head.bias"),
};
constexpr WeightRule kGptjLayer[] = {
    norm_rule("attn.norm", "ln_1.weight"), q_rule("attn.q_proj.weight"),
    k_rule("attn.k_proj.weight"),          v_rule("attn.v_proj.weight"),
    out_rule("attn.out_proj.weight"),      up_rule("mlp.fc_in.weight"),
    down_rule("mlp.fc_out.weight"),
};

}  // namespace

const DecoderWeights kGptjWeights = {
    .model = kGptjModel, .layers = "transformer.h.{}.", .layer = {kGptjLayer}};

Traits read_gptj_traits(Config& c) {
  Traits t =
      read_decoder(c, {.intermediate = 4, .norm_eps = 1e-5, .activation = "gelu_new"}, kGpt2Names);
  t.ropes = {{.dim = c.integer("rotary_dim", 2, t.head_dim, 64)}};
  if (t.ropes[0].dim % 2 != 0) c.fail("rotary_dim", fmt::format("{} is odd", t.ropes[0].dim));
  t.layer_norm = t.norm_bias = t.mlp_bias = t.head_bias = true;
  t.parallel = t.rope_interleaved = true;
  return t;
}

}  // namespace nereid::models
