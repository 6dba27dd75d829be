// OLMo 1: LayerNorm without weights. 2, 3: post-norms (attention, MLP), QK norms over all heads.
#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kOlmo2Norms[] = {
    {"attn.q.norm", "self_attn.q_norm.weight", Dim::kQuery},
    {"attn.k.norm", "self_attn.k_norm.weight", Dim::kKeyValue},
    norm_rule("attn.out.norm", "post_attention_layernorm.weight"),
    norm_rule("mlp.out.norm", "post_feedforward_layernorm.weight"),
};

}  // namespace

const DecoderWeights kOlmo2Weights = {.model = kLlamaModel,
                                      .layer = {kOlmo2Norms, kLlamaQkv, kLlamaOut, kLlamaMlp}};

Traits read_olmo_traits(Config& c) {
  Traits t = read_decoder(c);
  t.norm_eps = 1e-5f;
  t.layer_norm = t.unit_norms = true;
  t.ropes = {read_rope(c, t)};
  t.qkv_bias = t.attention_out_bias = c.boolean("attention_bias", false);
  t.qkv_limit = read_cap(c, "clip_qkv");
  return t;
}

Traits read_olmo2_traits(Config& c) {
  Traits t = read_decoder(c, {.norm_eps = 1e-5});
  t.ropes = {read_rope(c, t)};
  t.qkv_bias = t.attention_out_bias = c.boolean("attention_bias", false);
  return t;
}

// Sliding window on most layers; RoPE scaling on the others only.
Traits read_olmo3_traits(Config& c) {
  Traits t = read_decoder(c, {.window = 4096, .norm_eps = 1e-5});
  t.ropes = read_ropes_of_windows(c, t, {.theta = 5e5}, {.theta = 5e5});
  t.qkv_bias = t.attention_out_bias = c.boolean("attention_bias", false);
  read_windows(c, t, [](int32_t layer) { return (layer + 1) % 4 != 0; });
  return t;
}

}  // namespace nereid::models
