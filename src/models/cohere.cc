// Cohere (Command R): parallel layers with one LayerNorm, interleaved rotation, scaled logits.
#include "models/all.h"
#include "models/read_fields.h"

namespace nereid::models {

Traits read_cohere_traits(Config& c) {
  Traits t = read_decoder(c, {.norm_eps = 1e-5, .tied = true}, {.norm_eps = "layer_norm_eps"});
  t.ropes = {read_rope(c, t)};
  t.layer_norm = t.parallel = t.rope_interleaved = true;
  t.qkv_bias = t.attention_out_bias = c.boolean("attention_bias", false);
  t.logits_scale = static_cast<float>(c.number("logit_scale", 1e-6, 1e6, 0.0625));
  return t;
}

}  // namespace nereid::models
