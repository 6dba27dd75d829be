// Families that differ from Llama in a few fields.
#include "models/all.h"
#include "models/read_fields.h"

namespace nereid::models {

// Scaled embeddings, scores, residual and logits.
Traits read_granite_traits(Config& c) {
  Traits t = read_llama_traits(c);
  const auto factor = [&](std::string_view key) {
    return static_cast<float>(c.number(key, 1e-6, 1e6, 1));
  };
  t.embed_scale = factor("embedding_multiplier");
  t.attention_scale = factor("attention_multiplier");
  t.residual_scale = factor("residual_multiplier");
  t.logits_scale = 1 / factor("logits_scaling");
  return t;
}

// LayerNorm with weights around one, ungated MLP, partial RoPE.
Traits read_nemotron_traits(Config& c) {
  Traits t = read_decoder(c, {.norm_eps = 1e-5, .activation = "relu2"}, {.norm_eps = "norm_eps"});
  t.ropes = {read_rope(c, t, {.fraction = 0.5})};
  t.layer_norm = t.norm_bias = true;
  t.norm_weight_offset = 1;
  t.gated = false;
  t.qkv_bias = t.attention_out_bias = c.boolean("attention_bias", false);
  t.mlp_bias = c.boolean("mlp_bias", false);
  return t;
}

// Ungated MLP.
Traits read_arcee_traits(Config& c) {
  Traits t = read_decoder(c, {.norm_eps = 1e-5, .activation = "relu2"});
  t.ropes = {read_rope(c, t)};
  t.gated = false;
  t.qkv_bias = t.attention_out_bias = c.boolean("attention_bias", false);
  t.mlp_bias = c.boolean("mlp_bias", false);
  return t;
}

// Interleaved RoPE.
Traits read_ernie45_traits(Config& c) {
  Traits t = read_decoder(c, {.kv_heads = 2, .head_dim = 128, .norm_eps = 1e-5, .tied = true});
  t.ropes = {read_rope(c, t, {.theta = 5e5})};
  t.rope_interleaved = true;
  t.qkv_bias = t.attention_out_bias = t.mlp_bias = c.boolean("use_bias", false);
  return t;
}

// QKV biases; biases of all other products.
Traits read_internlm3_traits(Config& c) {
  Traits t = read_decoder(c, {.kv_heads = 2, .head_dim = 128, .norm_eps = 1e-5});
  t.ropes = {read_rope(c, t)};
  // transformers 5 uses other names.
  t.qkv_bias = c.boolean("qkv_bias", c.boolean("attention_bias", false));
  t.attention_out_bias = t.mlp_bias = c.boolean("bias", c.boolean("mlp_bias", false));
  return t;
}

// Interleaved RoPE.
Traits read_helium_traits(Config& c) {
  Traits t = read_decoder(c, {.head_dim = 128, .norm_eps = 1e-8});
  t.ropes = {read_rope(c, t, {.theta = 1e5})};
  t.rope_interleaved = true;
  t.qkv_bias = c.boolean("attention_bias", false);
  t.mlp_bias = c.boolean("mlp_bias", false);
  return t;
}

// QKV biases only.
Traits read_seed_oss_traits(Config& c) {
  Traits t = read_decoder(c, {.kv_heads = 8, .head_dim = 128});
  t.ropes = {read_rope(c, t)};
  t.qkv_bias = c.boolean("attention_bias", true);
  t.attention_out_bias = c.boolean("attention_out_bias", false);
  t.mlp_bias = c.boolean("mlp_bias", false);
  return t;
}

// No RoPE in some layers.
Traits read_smollm3_traits(Config& c) {
  Traits t = read_decoder(c, {.kv_heads = 4, .window = 0, .tied = true});
  t.sliding_window = 0;
  c.require("use_sliding_window", false);
  t.ropes = {read_rope(c, t, {.theta = 2e6})};
  t.qkv_bias = t.attention_out_bias = c.boolean("attention_bias", false);
  t.mlp_bias = c.boolean("mlp_bias", false);
  read_rope_layers(c, t);
  return t;
}

}  // namespace nereid::models
