// Phi 1, 1.5 and 2: parallel layers with one LayerNorm, partial RoPE, biases everywhere.
#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kPhiModel[] = {
    embed_rule("model.embed_tokens.weight"),
    norm_rule("norm", "model.final_layernorm.weight"),
    head_rule("lm_head.weight"),
    head_rule("model.embed_tokens.weight", tied),
    head_bias_rule("lm_head.bias"),
};
constexpr WeightRule kPhiLayer[] = {
    out_rule("self_attn.dense.weight"),
    up_rule("mlp.fc1.weight"),
    down_rule("mlp.fc2.weight"),
};

}  // namespace

const DecoderWeights kPhiWeights = {.model = kPhiModel,
                                    .layer = {kLlamaNorms, kLlamaQkv, kPhiLayer}};

Traits read_phi_traits(Config& c) {
  Traits t =
      read_decoder(c, {.norm_eps = 1e-5, .activation = "gelu_new"}, {.norm_eps = "layer_norm_eps"});
  t.ropes = {read_rope(c, t, {.fraction = 0.5})};
  t.layer_norm = t.norm_bias = t.parallel = true;
  t.qkv_bias = t.attention_out_bias = t.mlp_bias = t.head_bias = true;
  return t;
}

}  // namespace nereid::models
