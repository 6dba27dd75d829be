// StableLM: LayerNorm, rotation of a part of each head, parallel layers on request.
#include "models/all.h"
#include "models/read_fields.h"

namespace nereid::models {

Traits read_stablelm_traits(Config& c) {
  Traits t = read_decoder(c, {.norm_eps = 1e-5}, {.norm_eps = "layer_norm_eps"});
  t.ropes = {read_rope(c, t, {.fraction = 0.25})};
  t.layer_norm = t.norm_bias = true;
  t.qkv_bias = c.boolean("use_qkv_bias", false);
  t.parallel = c.boolean("use_parallel_residual", false);
  return t;
}

}  // namespace nereid::models
