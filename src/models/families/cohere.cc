// Cohere (Command R, R7B, A): parallel layers with one LayerNorm, interleaved RoPE, scaled logits.
// Newer models: sliding window on most layers, no RoPE on the others. R+: QK norms by head.
#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/read_fields.h"

namespace nereid::models {

namespace {

constexpr WeightRule kCohereHeadNorms[] = {
    {"attn.q.norm", "self_attn.q_norm.weight[*]", Dim::kQuery, Dim::kOne, ShardAxis::kNone,
     head_norms, false, Order::kByHead},
    {"attn.k.norm", "self_attn.k_norm.weight[*]", Dim::kKeyValue, Dim::kOne, ShardAxis::kNone,
     head_norms, false, Order::kByHead},
};

Traits read_cohere(Config& c, std::optional<int64_t> window) {
  Traits t = read_decoder(c, {.window = window, .norm_eps = 1e-5, .tied = true},
                          {.norm_eps = "layer_norm_eps"});
  t.ropes = {read_rope(c, t)};
  t.layer_norm = t.parallel = t.rope_interleaved = true;
  t.qkv_bias = t.attention_out_bias = c.boolean("attention_bias", false);
  t.logits_scale = static_cast<float>(c.number("logit_scale", 1e-6, 1e6, 0.0625));
  return t;
}

}  // namespace

const DecoderWeights kCohereWeights = {
    .model = kLlamaModel,
    .layer = {kLlamaNorms, kCohereHeadNorms, kLlamaQkv, kLlamaOut, kLlamaMlp}};

Traits read_cohere_traits(Config& c) {
  Traits t = read_cohere(c, std::nullopt);
  t.head_norms = c.boolean("use_qk_norm", false);
  return t;
}

Traits read_cohere2_traits(Config& c) {
  Traits t = read_cohere(c, 4096);
  const int32_t pattern = c.integer("sliding_window_pattern", 1, kMaxLayers, 4);
  read_windows(c, t, [pattern](int32_t layer) { return (layer + 1) % pattern != 0; });
  t.has_rope = t.has_window;
  return t;
}

}  // namespace nereid::models
