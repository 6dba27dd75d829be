// StarCoder2: LayerNorm, ungated MLP, biases, sliding window.
#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kStarcoder2Mlp[] = {
    up_rule("mlp.c_fc.weight"),
    down_rule("mlp.c_proj.weight"),
};

}  // namespace

const DecoderWeights kStarcoder2Weights = {
    .model = kLlamaModel, .layer = {kLlamaNorms, kLlamaQkv, kLlamaOut, kStarcoder2Mlp}};

Traits read_starcoder2_traits(Config& c) {
  Traits t = read_decoder(c,
                          {.kv_heads = 2,
                           .window = 0,
                           .norm_eps = 1e-5,
                           .activation = "gelu_pytorch_tanh",
                           .tied = true},
                          {.norm_eps = "norm_epsilon"});
  t.ropes = {read_rope(c, t)};
  t.layer_norm = t.norm_bias = true;
  t.qkv_bias = t.attention_out_bias = t.mlp_bias = c.boolean("use_bias", true);
  c.require("norm_type", "layer_norm");
  c.require("mlp_type", "default");
  return t;
}

}  // namespace nereid::models
