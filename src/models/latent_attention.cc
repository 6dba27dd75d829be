#include "models/latent_attention.h"

#include <cmath>
#include <utility>

#include "models/read_fields.h"

namespace nereid::models {

void read_latent_attention(Config& c, Traits& t, const LatentDefaults& defaults) {
  if (t.num_kv_heads != t.num_heads)
    c.fail("num_key_value_heads",
           fmt::format("{} is not num_attention_heads {}", t.num_kv_heads, t.num_heads));
  t.num_kv_heads = 1;
  if (c.has("q_lora_rank")) t.query_latent = c.integer("q_lora_rank", 1, kMaxHidden);
  t.rotary_dims = c.integer("qk_rope_head_dim", 2, kMaxHeadDim / 2, defaults.rotary_dims);
  t.latent = c.integer("kv_lora_rank", 1, kMaxHeadDim / 2, defaults.latent);
  t.value_dim = c.integer("v_head_dim", 1, kMaxHeadDim, defaults.value_dim);
  t.head_dim = t.rotary_dims + c.integer("qk_nope_head_dim", 1, kMaxHeadDim - t.rotary_dims,
                                         defaults.non_rotary_dims);
  t.latent_norm_eps = 1e-6f;
  for (const auto& [key, size] :
       {std::pair("qk_rope_head_dim", t.rotary_dims), std::pair("kv_lora_rank", t.latent)})
    if (size % 2 != 0) c.fail(key, fmt::format("{} is odd", size));
  Traits rotary_dims = t;  // traits of the rotary dims
  rotary_dims.head_dim = t.rotary_dims;
  t.ropes = {read_rope(c, rotary_dims)};
  t.attention_scale =
      static_cast<float>(t.ropes[0].score_factor / std::sqrt(static_cast<double>(t.head_dim)));
}

}  // namespace nereid::models
