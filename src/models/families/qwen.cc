// Qwen2, Qwen2.5 and Qwen3: Llama with QKV biases, or QK norms; optional window in upper layers.
#include "models/all.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

Traits read_qwen(Config& c, const DecoderDefaults& defaults) {
  Traits t = read_decoder(c, defaults);
  t.ropes = {read_rope(c, t)};
  const int32_t first = c.integer("max_window_layers", 0, kMaxLayers, 28);
  if (c.boolean("use_sliding_window", false))
    read_windows(c, t, [first](int32_t layer) { return layer >= first; });
  else
    t.sliding_window = 0;
  return t;
}

}  // namespace

Traits read_qwen2_traits(Config& c) {
  Traits t = read_qwen(c, {.window = 4096});
  t.qkv_bias = true;
  return t;
}

Traits read_qwen3_traits(Config& c) {
  Traits t = read_qwen(c, {.head_dim = 128, .window = 4096});
  t.qkv_bias = t.attention_out_bias = c.boolean("attention_bias", false);
  t.qk_norm = true;
  return t;
}

}  // namespace nereid::models
