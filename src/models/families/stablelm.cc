// StableLM: LayerNorm, partial RoPE; optional parallel layers and QK norms with weights per head.
#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kStablelmHeadNorms[] = {
    {"attn.q.norm", "self_attn.q_layernorm.norms.*.weight", Dim::kQuery, Dim::kOne,
     ShardAxis::kNone, head_norms, false, Order::kByHead},
    {"attn.k.norm", "self_attn.k_layernorm.norms.*.weight", Dim::kKeyValue, Dim::kOne,
     ShardAxis::kNone, head_norms, false, Order::kByHead},
};

}  // namespace

const DecoderWeights kStablelmWeights = {
    .model = kLlamaModel,
    .layer = {kLlamaNorms, kStablelmHeadNorms, kLlamaQkv, kLlamaOut, kLlamaMlp}};

Traits read_stablelm_traits(Config& c) {
  Traits t = read_decoder(c, {.norm_eps = 1e-5}, {.norm_eps = "layer_norm_eps"});
  t.ropes = {read_rope(c, t, {.fraction = 0.25})};
  t.layer_norm = t.norm_bias = true;
  t.qkv_bias = c.boolean("use_qkv_bias", false);
  t.parallel = c.boolean("use_parallel_residual", false);
  t.head_norms = c.boolean("qk_layernorm", false);
  return t;
}

}  // namespace nereid::models
