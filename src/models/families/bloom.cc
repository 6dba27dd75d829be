// BLOOM: LayerNorm, also on the embeddings; ALiBi; QKV fused head by head.
#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/families/megatron_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
const DecoderWeights kBloomWeights = {.model = kMegatronModel,
                                      .layers = "transformer.h.{}.",
                                      .layer = {kLlamaNorms, kMegatronAttention, kMegatronMlp}};

// Each of two sizes has two names in use.
Traits read_bloom_traits(Config& c) {
  Traits t = read_decoder(c,
                          {.intermediate = 4,
                           .positions = 2048,
                           .norm_eps = 1e-5,
                           .activation = "gelu_new",
                           .tied = true},
                          {.hidden = c.has("n_embed") ? "n_embed" : "hidden_size",
                           .layers = "n_layer",
                           .heads = c.has("n_head") ? "n_head" : "num_attention_heads",
                           .positions = "seq_length",
                           .norm_eps = "layer_norm_epsilon"});
  t.embed_norm = t.layer_norm = t.norm_bias = t.qkv_bias = t.attention_out_bias = t.mlp_bias = true;
  t.alibi = 8;
  t.normed_residual = c.boolean("apply_residual_connection_post_layernorm", false);
  return t;
}

}  // namespace nereid::models
