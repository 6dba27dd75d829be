// GLM-4: interleaved partial RoPE, fused gate and up; Glm4ForCausalLM: norms before and after
// attention and MLP.
#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kGlm4Norms[] = {
    norm_rule("attn.norm", "input_layernorm.weight"),
    norm_rule("attn.out.norm", "post_self_attn_layernorm.weight"),
    norm_rule("mlp.norm", "post_attention_layernorm.weight"),
    norm_rule("mlp.out.norm", "post_mlp_layernorm.weight"),
};

}  // namespace

const DecoderWeights kGlmWeights = {.model = kLlamaModel,
                                    .layer = {kLlamaNorms, kLlamaQkv, kLlamaOut, kFusedMlp}};
const DecoderWeights kGlm4Weights = {.model = kLlamaModel,
                                     .layer = {kGlm4Norms, kLlamaQkv, kLlamaOut, kFusedMlp}};

Traits read_glm_traits(Config& c) {
  Traits t = read_decoder(c, {.kv_heads = 2, .head_dim = 128, .norm_eps = 1.5625e-7});
  t.ropes = {read_rope(c, t, {.fraction = 0.5})};
  t.rope_interleaved = true;
  t.qkv_bias = c.boolean("attention_bias", true);
  return t;
}

}  // namespace nereid::models
