// OLMo 2: norms behind attention and MLP instead of before them, and of queries and keys as a
// whole.
#include "models/all.h"
#include "models/llama_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kOlmo2Norms[] = {
    {"attn.q.norm", "self_attn.q_norm.weight", Dim::kQuery},
    {"attn.k.norm", "self_attn.k_norm.weight", Dim::kKeyValue},
    {"attn.out.norm", "post_attention_layernorm.weight", Dim::kHidden},
    {"mlp.out.norm", "post_feedforward_layernorm.weight", Dim::kHidden},
};

}  // namespace

const DecoderWeights kOlmo2Weights = {.model = kLlamaModel,
                                      .layer = {kOlmo2Norms, kLlamaQkv, kLlamaOut, kLlamaMlp}};

Traits read_olmo2_traits(Config& c) {
  Traits t = read_decoder(c, {.norm_eps = 1e-5});
  t.ropes = {read_rope(c, t)};
  t.qkv_bias = t.attention_out_bias = c.boolean("attention_bias", false);
  return t;
}

}  // namespace nereid::models
