// DeepSeek-V2 and V3: MLA; grouped experts with shared experts, behind a few dense layers.
#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/families/moe_weights.h"
#include "models/latent_attention.h"
#include "models/read_fields.h"
#include "models/read_mixture.h"

namespace nereid::models {
namespace {

Traits read_deepseek(Config& c, const MixtureDefaults& defaults) {
  Traits t = read_decoder(c, {.head_dim = 64});
  read_latent_attention(c, t, {});
  t.qkv_bias = t.attention_out_bias = c.boolean("attention_bias", false);
  t.rope_interleaved = true;
  read_mixture(c, t, defaults);
  return t;
}

}  // namespace

const DecoderWeights kDeepseek2Weights = {
    .model = kLlamaModel, .layer = {kLlamaNorms, kLatentAttention, kQwenMoeMlp, kSharedExperts}};
const DecoderWeights kDeepseek3Weights = {
    .model = kLlamaModel,
    .layer = {kLlamaNorms, kLatentAttention, kQwenMoeMlp, kSharedExperts, kCorrection}};

// V2: softmax scores; groups ranked by their best expert; weights not renormalised.
Traits read_deepseek2_traits(Config& c) {
  Traits t = read_deepseek(c, {0, 64, 6, 1407, 2, 1.0});
  c.require("scoring_func", "softmax");
  c.require("norm_topk_prob", false);
  const std::string method = c.string("topk_method", "greedy");
  if (method == "group_limited_greedy")
    read_groups(c, t, 1, 1, 1);
  else if (method != "greedy")
    c.fail("topk_method",
           fmt::format("'{}' is not one of greedy, group_limited_greedy", method.substr(0, 40)));
  return t;
}

Traits read_deepseek3_traits(Config& c) {
  Traits t = read_deepseek(c, {3, 256, 8, 2048, 1, 2.5});
  t.rope_interleaved = c.boolean("rope_interleave", true);
  read_corrected_router(c, t, 8, 4);
  return t;
}

// DeepSeek-V3 with other sizes.
Traits read_glm4_moe_lite_traits(Config& c) {
  Traits t = read_deepseek(c, {1, 64, 4, 1536, 1, 1.8});
  t.rope_interleaved = c.boolean("rope_interleave", true);
  read_corrected_router(c, t, 1, 1);
  return t;
}

}  // namespace nereid::models
