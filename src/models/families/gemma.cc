// Gemma 1, 2 and 3 (text): norm weights around zero, scaled embeddings. Gemma 2: norms before and
// after attention and MLP, soft caps, sliding windows. Gemma 3: QK norms, and a separate RoPE base
// for windowed layers.
#include <cmath>

#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kGemmaSandwichNorms[] = {
    norm_rule("attn.norm", "input_layernorm.weight"),
    norm_rule("attn.out.norm", "post_attention_layernorm.weight"),
    norm_rule("mlp.norm", "pre_feedforward_layernorm.weight"),
    norm_rule("mlp.out.norm", "post_feedforward_layernorm.weight"),
};

// Files of models of text and pictures omit sizes that equal transformers' defaults.
Traits read_gemma(Config& c, DecoderDefaults defaults, std::string_view activation) {
  defaults.head_dim = 256;
  defaults.activation = "gelu_pytorch_tanh";
  defaults.tied = true;
  Traits t = read_decoder(c, defaults, {.activation = activation});
  t.norm_weight_offset = 1;
  // The factor has the precision of the model's type.
  t.embed_scale = to_float(to_bf16(std::sqrt(static_cast<float>(t.hidden_size))));
  return t;
}

Traits read_gemma_with_windows(Config& c, DecoderDefaults defaults) {
  defaults.kv_heads = 4, defaults.window = 4096;
  Traits t = read_gemma(c, defaults, "hidden_activation");
  t.attention_scale =
      static_cast<float>(1 / std::sqrt(c.number("query_pre_attn_scalar", 1e-3, 1e6, 256)));
  t.logits_cap = read_cap(c, "final_logit_softcapping");
  return t;
}

}  // namespace

const DecoderWeights kGemmaSandwichWeights = {
    .model = kLlamaModel, .layer = {kGemmaSandwichNorms, kLlamaQkv, kLlamaOut, kLlamaMlp}};

// Older files have `hidden_act` "gelu" for its tanh approximation; `hidden_activation` is newer.
Traits read_gemma_traits(Config& c) {
  Traits t = read_gemma(c, {.positions = 8192}, "hidden_activation");
  t.ropes = {read_rope(c, t)};
  t.qkv_bias = t.attention_out_bias = c.boolean("attention_bias", false);
  return t;
}

Traits read_gemma2_traits(Config& c) {
  Traits t = read_gemma_with_windows(c, {.heads = 8, .positions = 8192});
  t.ropes = {read_rope(c, t)};
  t.attention_cap = read_cap(c, "attn_logit_softcapping");
  read_windows(c, t, [](int32_t layer) { return layer % 2 == 0; });
  return t;
}

Traits read_gemma3_traits(Config& c) {
  Traits t = read_gemma_with_windows(c, {.vocab = 262208, .heads = 8, .positions = 131072});
  t.ropes = read_ropes_of_windows(c, t, {.theta = 1e6}, {.theta_name = "rope_local_base_freq"});
  t.qk_norm = true;
  const int32_t pattern = c.integer("sliding_window_pattern", 1, kMaxLayers, 6);
  read_windows(c, t, [pattern](int32_t layer) { return (layer + 1) % pattern != 0; });
  return t;
}

}  // namespace nereid::models
