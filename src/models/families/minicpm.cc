// MiniCPM: Llama with scaled embeddings, residual and logits; MiniCPM 3 with MLA.
#include <cmath>

#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/latent_attention.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

void read_scales(Config& c, Traits& t) {
  const double layers = t.num_layers;
  t.embed_scale = static_cast<float>(c.number("scale_emb", 1e-6, 1e6, 1));
  t.residual_scale =
      static_cast<float>(c.number("scale_depth", 1e-6, 1e6, std::sqrt(layers)) / std::sqrt(layers));
  t.logits_scale =
      static_cast<float>(c.number("dim_model_base", 1, kMaxHidden, t.hidden_size) / t.hidden_size);
}

}  // namespace

const DecoderWeights kMinicpm3Weights = {.model = kLlamaModel,
                                         .layer = {kLlamaNorms, kLatentAttention, kLlamaMlp}};

Traits read_minicpm_traits(Config& c) {
  Traits t = read_decoder(c, {.tied = true});
  t.ropes = {read_rope(c, t)};
  read_scales(c, t);
  c.require("sparse_config", nullptr);
  return t;
}

Traits read_minicpm3_traits(Config& c) {
  Traits t = read_decoder(c, {.head_dim = 64, .norm_eps = 1e-5, .tied = true});
  read_latent_attention(c, t,
                        {.rotary_dims = 32,
                         .non_rotary_dims = 64,
                         .latent = 256,
                         .value_dim = t.hidden_size / t.num_heads});
  read_scales(c, t);
  return t;
}

}  // namespace nereid::models
