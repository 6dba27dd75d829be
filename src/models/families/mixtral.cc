// Mixtral: Llama with a mixture of experts. Phi-MoE: LayerNorm, biases, longrope, another router.
#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/families/moe_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

Traits read_mixtral(Config& c, const RopeFields& rope, int64_t experts) {
  Traits t = read_decoder(c, {.kv_heads = 8, .window = 0, .norm_eps = 1e-5});
  t.ropes = {read_rope(c, t, rope)};
  t.expert_intermediate_size = t.intermediate_size;
  read_experts(c, t, "num_local_experts", experts, 2);
  return t;
}

}  // namespace

const DecoderWeights kMixtralWeights = {.model = kLlamaModel,
                                        .layer = {kLlamaNorms, kLlamaQkv, kLlamaOut, kMixtralMlp}};

// Softmax over the selected experts only.
Traits read_mixtral_traits(Config& c) {
  Traits t = read_mixtral(c, {.theta = 1e6}, 8);
  t.renormalise_experts = true;
  return t;
}

Traits read_phimoe_traits(Config& c) {
  Traits t = read_mixtral(c, {.theta = 1e6, .own_mscale = true}, 16);
  t.layer_norm = t.norm_bias = true;
  t.qkv_bias = t.attention_out_bias = c.boolean("attention_bias", false);
  t.head_bias = c.boolean("lm_head_bias", false);
  t.expert_scoring = kernels::Scoring::kSparseMixer;
  t.expert_jitter_eps = static_cast<float>(2 * c.number("router_jitter_noise", 0, 10, 0.01));
  return t;
}

}  // namespace nereid::models
