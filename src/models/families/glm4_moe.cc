// GLM-4.5 and later (partial RoPE), and dots.llm1: DeepSeek-V3's experts with plain attention.
#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/families/moe_weights.h"
#include "models/read_fields.h"
#include "models/read_mixture.h"

namespace nereid::models {

const DecoderWeights kCorrectedMoeWeights = {
    .model = kLlamaModel,
    .layer = {kLlamaNorms, kLlamaQkv, kLlamaOut, kQwenMoeMlp, kSharedExperts, kCorrection}};

Traits read_glm4_moe_traits(Config& c) {
  Traits t = read_decoder(c, {.kv_heads = 8, .norm_eps = 1e-5});
  t.ropes = {read_rope(c, t, {.fraction = 0.5})};
  t.qkv_bias = c.boolean("attention_bias", false);
  t.qk_norm = c.boolean("use_qk_norm", false);
  read_mixture(c, t, {1, 128, 8, 1408, 1, 1.0});
  read_corrected_router(c, t, 1, 1);
  return t;
}

// Sliding window in the upper layers.
Traits read_dots1_traits(Config& c) {
  Traits t = read_decoder(c, {.window = c.mentions("sliding_window") ? 0 : 4096});
  t.ropes = {read_rope(c, t)};
  t.qkv_bias = t.attention_out_bias = c.boolean("attention_bias", false);
  t.qk_norm = true;
  const int32_t first = c.integer("max_window_layers", 0, kMaxLayers, 62);
  if (t.sliding_window > 0) read_windows(c, t, [first](int32_t layer) { return layer >= first; });
  read_mixture(c, t, {0, 128, 6, 1408, 2, 2.5});
  read_corrected_router(c, t, 1, 1);
  return t;
}

}  // namespace nereid::models
